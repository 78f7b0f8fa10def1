"""Tables of fields: one description reads JSON with exact errors and writes its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Literal

from msgspec import Struct

from coalloc.model.decoded import array, mapping, shown, shown_number
from coalloc.model.errors import InputError
from coalloc.model.ranges import Range
from coalloc.model.values import replace

Kind = Literal[
    "number", "integer", "text", "flag", "texts", "numbers", "integers", "counts", "loads", "any"
]


LARGEST = 1e18
"""No number without a range of its own is larger."""


class Field(Struct, frozen=True, kw_only=True):
    """One key of a JSON object.

    Parameters
    ----------
    kind : Kind
        ``counts`` and ``loads`` are objects whose values are integers and numbers.
    doc : str
        Meaning and unit; goes into the schema.
    low, high : float
        Bounds, inclusive; `above` makes the lower one exclusive, and with `zero` 0 is admitted
        beside them.
    needed : bool
    nullable : bool
        JSON null is accepted and read as None.
    choices : tuple of str
    synonyms : tuple of (str, str)
        Other words for choices; read as the choice itself.
    default : object
        What an absent key means; documentation, the reader leaves absent keys out.
    check : callable, optional
        Raises InputError for a text that is not of the form it should have; gets text and place.
    """

    kind: Kind
    doc: str
    low: float = -inf
    high: float = inf
    above: bool = False
    zero: bool = False
    needed: bool = False
    nullable: bool = False
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()
    default: Any = None
    check: Callable[[str, str], None] | None = None

    def read(self, value: Any, where: str) -> Any:
        """Return the value if it is as described, else raise InputError."""
        if value is None and self.nullable:
            return None
        match self.kind:
            case "number":
                return self._number(value, where)
            case "integer":
                return self._integer(value, where)
            case "text":
                return self._text(value, where)
            case "flag":
                if not isinstance(value, bool):
                    raise InputError(where, f"{shown(value)} is not true or false")
                return value
            case "texts":
                return tuple(
                    self._text(item, f"{where}[{i}]") for i, item in enumerate(array(value, where))
                )
            case "numbers":
                return tuple(
                    self._number(item, f"{where}[{i}]")
                    for i, item in enumerate(array(value, where))
                )
            case "integers":
                return tuple(
                    self._integer(item, f"{where}[{i}]")
                    for i, item in enumerate(array(value, where))
                )
            case "counts":
                return {
                    key: self._integer(item, f"{where}.{key}")
                    for key, item in mapping(value, where).items()
                }
            case "loads":
                return {
                    key: self._number(item, f"{where}.{key}")
                    for key, item in mapping(value, where).items()
                }
            case "any":
                return value

    def _number(self, value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(where, f"{shown(value)} is not a number")
        self._inside(value, where)
        return float(value)

    def _integer(self, value: Any, where: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(where, f"{shown(value)} is not a whole number")
        self._inside(value, where)
        return value

    def _inside(self, value: float, where: str) -> None:
        # isfinite fails on a whole number of 400 digits, a comparison does not.
        if not abs(value) < inf:
            raise InputError(where, f"{value} is not a finite number")
        largest = self.high if self.high < inf else LARGEST
        if abs(value) > max(largest, LARGEST):
            low = max(self.low, -largest)
            raise InputError(where, f"{shown(value)} is outside {low:g}..{largest:g}")
        if self.low <= value <= self.high and not (self.above and value == self.low):
            return
        if self.zero and value == 0:
            return
        if self.zero and 0 < value < self.low:
            what = f"{shown_number(value)} is neither 0 nor in {self.low:g}..{self.high:g}"
            raise InputError(where, what)
        if self.zero:
            raise InputError(where, f"{shown_number(value)} is outside 0..{self.high:g}")
        if self.above and value == self.low:
            raise InputError(where, f"{shown_number(value)} is not above {self.low:g}")
        if self.high < inf:
            raise InputError(where, f"{shown_number(value)} is outside {self.low:g}..{self.high:g}")
        sign = "not above" if self.above else "below"
        raise InputError(where, f"{shown_number(value)} is {sign} {self.low:g}")

    def _text(self, value: Any, where: str) -> str:
        if not isinstance(value, str):
            raise InputError(where, f"{shown(value)} is not a text")
        text = dict(self.synonyms).get(value, value)
        if self.choices and text not in self.choices:
            raise InputError(where, f"{shown(value)} is not one of {', '.join(self.choices)}")
        if self.needed and not text:
            raise InputError(where, "is empty")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InputError(where, f"{value!a} is not valid Unicode") from None
        if self.check is not None:
            self.check(text, where)
        return text

    def widened(self) -> Field:
        """The same field with no bounds but those of sign and of `LARGEST`."""
        if self.kind not in ("number", "numbers", "integer"):
            return self
        low = self.low if self.low >= 1.0 else 0.0 if self.low >= 0.0 else -inf
        above = self.above or (0.0 < self.low < 1.0 and not self.zero)
        return replace(self, low=low, high=max(self.high, LARGEST), above=above, zero=False)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of this field."""
        item = self._item_schema()
        match self.kind:
            case "texts" | "numbers" | "integers":
                body: dict[str, Any] = {"type": "array", "items": item}
            case "counts" | "loads":
                body = {"type": "object", "additionalProperties": item}
            case _:
                body = item
        if self.nullable:
            body = {"anyOf": [body, {"type": "null"}]}
        default = {} if self.default is None else {"default": self.default}
        return {**body, "description": self.doc, **default}

    def _item_schema(self) -> dict[str, Any]:
        kind = _SCHEMA_TYPES.get(self.kind)
        item: dict[str, Any] = {} if kind is None else {"type": kind}
        if kind in ("number", "integer"):
            low = max(self.low, -max(LARGEST, self.high) if self.high < inf else -LARGEST)
            bounds: dict[str, Any] = {
                "exclusiveMinimum" if self.above else "minimum": low,
                "maximum": self.high if self.high < inf else LARGEST,
            }
            item |= {"anyOf": [{"const": 0}, bounds]} if self.zero else bounds
        if self.choices:
            item["enum"] = [str(choice) for choice in self.choices]
        elif kind == "string" and self.needed:
            item["minLength"] = 1
        return item


_SCHEMA_TYPES: Mapping[Kind, str] = {
    "number": "number",
    "numbers": "number",
    "loads": "number",
    "integer": "integer",
    "integers": "integer",
    "counts": "integer",
    "text": "string",
    "texts": "string",
    "flag": "boolean",
}
"""Of the field, or of its items; a kind that is not here is described by its owner."""

Table = Mapping[str, Field]


def amount(within: Range, doc: str, *, kind: Kind = "number", **more: Any) -> Field:
    """A field whose numbers lie in a range."""
    low, high = within.low, within.high
    return Field(kind=kind, doc=doc, low=low, high=high, zero=within.zero, **more)


def widened(table: Table) -> Table:
    """The same fields with the bounds of an earlier day: for what was admitted by them."""
    return {key: field.widened() for key, field in table.items()}


def read_fields(value: Any, table: Table, where: str) -> dict[str, Any]:
    """Read an object's known keys; unknown ones are an error, absent ones are left out.

    Raises
    ------
    InputError
        With the path of the first key that is unknown, missing or malformed.
    """
    out = {}
    prefix = f"{where}." if where else ""
    for key, item in mapping(value, where).items():
        field = table.get(key)
        if field is None:
            raise InputError(f"{prefix}{key}", "unknown key")
        out[key] = field.read(item, f"{prefix}{key}")
    if len(out) < len(table):
        for key, field in table.items():
            if field.needed and key not in out:
                raise InputError(f"{prefix}{key}", "is missing")
    return out


def object_schema(table: Table) -> dict[str, Any]:
    """The JSON Schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {key: field.schema() for key, field in table.items()},
        "required": [key for key, field in table.items() if field.needed],
        "additionalProperties": False,
    }


def chosen(value: Any, key: str, choices: Iterable[str], where: str) -> str:
    """The text at `key` of a JSON object, if it is one of these."""
    name = mapping(value, where).get(key)
    if name is None:
        raise InputError(f"{where}.{key}", "is missing")
    if not isinstance(name, str) or name not in choices:
        raise InputError(f"{where}.{key}", f"{shown(name)} is not one of {', '.join(choices)}")
    return name
