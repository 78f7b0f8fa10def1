"""Structs as the one description of the public formats: written, read, or refused in plain words.

A key's range is in its type (`msgspec.Meta`). msgspec reads; where it refuses, the value is walked
beside the type once more, key by key, for the place and the words. A text with a ``pattern`` says
in ``extra={"kind": ...}`` what it has to be, an amount that may be 0 in ``extra={"least": ...}``
how small it may be else (`coalloc.model.ranges`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from math import inf
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, inspect

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown, shown_number
from coalloc.model.ranges import LARGEST

Path = tuple[str | int, ...]
Fault = tuple[Path, str]
Read = TypeVar("Read", bound=msgspec.Struct)
NO_OTHERS: Mapping[str, Any] = {}
TABLE, OBJECT = "table", "object"
"""A set of keys and values, as TOML and as JSON call it."""
_ENCODER = msgspec.json.Encoder()
_REFUSED = (msgspec.MsgspecError, ValueError, TypeError, OverflowError)


def read_json(
    value: Any,
    form: Any,
    where: str = "",
    amounts: Callable[[Any], Iterable[msgspec.Struct]] | None = None,
) -> Any:
    """Read a decoded JSON value as one of this type, with its path `where` for errors.

    `amounts` gives the structs of what was read whose amounts may be 0, and not next to it.
    `InputError`: the place of the first fault, and what it is.
    """
    try:
        read = msgspec.convert(value, form)
        _ENCODER.encode(value)  # refuses half a surrogate pair, which no text may hold
        if amounts is None or not any(map(_is_in_gap, amounts(read))):
            return read
    except RecursionError:
        raise InputError(where, "is nested too deeply") from None
    except _REFUSED:
        pass
    for path, what in faults(value, type_info(form), (), OBJECT):
        raise InputError(path_text(where, path), what)
    try:
        # Only whole numbers that were written as 2.0 are left.
        return msgspec.convert(value, form, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(where, str(error)) from error


def read_struct(
    value: Any, form: type[Read], where: str, others: Mapping[str, Any] = NO_OTHERS
) -> Read:
    """Read a table of settings as it stands in the configuration, at the path `where`.

    `others` are fields of the struct that are no settings. `InputError`: the place of the first
    fault, and what it is.
    """
    for path, what in struct_faults(value, type_info(form), (), others):
        raise InputError(path_text(where, path), what)
    try:
        return msgspec.convert({**value, **others}, form, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(where, str(error)) from error


@cache
def type_info(form: Any) -> inspect.Type:
    """The description of a type that `faults` walks."""
    return inspect.type_info(form)


def faults(
    value: Any, expected: inspect.Type, path: Path = (), holder: str = TABLE
) -> Iterator[Fault]:
    """Yield the path and the description of everything wrong with a value of tomli or json.

    Its type is described by `type_info`; the `holder` is a `TABLE` or an `OBJECT`.
    """
    match expected:
        case inspect.Metadata():
            yield from faults(value, expected.type, path, holder)
            yield from _pattern_fault(value, expected, path)
            yield from _gap_fault(value, expected, path)
        case inspect.StructType():
            yield from struct_faults(value, expected, path, holder=holder)
        case inspect.VarTupleType():
            if not isinstance(value, list | tuple):
                yield path, f"{shown(value)} is not a list"
                return
            if len(value) < (expected.min_length or 0):
                yield path, "is empty"
            for index, item in enumerate(value):
                yield from faults(item, expected.item_type, (*path, index), holder)
        case inspect.DictType():
            if not isinstance(value, dict):
                yield path, f"{shown(value)} is not {_a(holder)}"
                return
            for key, item in value.items():
                yield from faults(key, expected.key_type, path)
                yield from faults(item, expected.value_type, (*path, key), holder)
        case inspect.UnionType():
            yield from _union_faults(value, expected, path, holder)
        case inspect.AnyType():
            pass
        case inspect.StrType():
            if not isinstance(value, str):
                yield path, f"{shown(value)} is not a text"
            elif expected.min_length and not value:
                yield path, "is empty"
            else:
                yield from _unicode_fault(value, path)
        case _:
            what = _scalar_fault(value, expected)
            if what:
                yield path, what


def struct_faults(
    value: Any,
    expected: inspect.Type,
    path: Path,
    others: Mapping[str, Any] = NO_OTHERS,
    holder: str = TABLE,
) -> Iterator[Fault]:
    """Yield what is wrong with a table; `others` are no keys of it."""
    assert isinstance(expected, inspect.StructType)
    if not isinstance(value, dict):
        yield path, f"{shown(value)} is not {_a(holder)}"
        return
    fields = {f.encode_name: f for f in expected.fields if f.encode_name not in others}
    tag = expected.tag_field
    if tag and tag in value and value[tag] != expected.tag:
        yield (*path, tag), _choice_fault(value[tag], [str(expected.tag)])
    for key, item in value.items():
        if key in fields:
            yield from faults(item, fields[key].type, (*path, key), holder)
        elif key != tag:
            near = get_close_matches(key, fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield (*path, key), f"unknown key{hint}"
    for key, field in fields.items():
        if field.required and key not in value:
            yield (*path, key), "is missing"
    if tag and tag not in value:
        yield (*path, tag), "is missing"


def _union_faults(
    value: Any, expected: inspect.UnionType, path: Path, holder: str
) -> Iterator[Fault]:
    """Of structs that a tag tells apart, and of anything that may be null."""
    inner = [kind for kind in expected.types if not isinstance(kind, inspect.NoneType)]
    if value is None and len(inner) < len(expected.types):
        return
    structs = {one.tag: one for one in inner if isinstance(one, inspect.StructType)}
    if len(inner) == 1 or not structs:
        yield from faults(value, inner[0], path, holder)
        return
    tag = next(iter(structs.values())).tag_field
    if not isinstance(value, dict):
        yield path, f"{shown(value)} is not {_a(holder)}"
    elif tag not in value:
        yield (*path, str(tag)), "is missing"
    elif not isinstance(value[tag], str) or value[tag] not in structs:
        yield (*path, str(tag)), _choice_fault(value[tag], [str(name) for name in structs])
    else:
        yield from struct_faults(value, structs[value[tag]], path, holder=holder)


def _pattern_fault(value: Any, expected: inspect.Metadata, path: Path) -> Iterator[Fault]:
    text = expected.type
    if not isinstance(text, inspect.StrType) or not isinstance(value, str) or not text.pattern:
        return
    if not re.search(text.pattern, value):
        kind = (expected.extra or {})["kind"]
        yield path, f"{shown(value)} is not {kind}" if value else "is empty"


def _gap_fault(value: Any, expected: inspect.Metadata, path: Path) -> Iterator[Fault]:
    least = (expected.extra or {}).get("least")
    number = expected.type
    if least is None or isinstance(value, bool) or not isinstance(value, int | float):
        return
    assert isinstance(number, inspect.FloatType)
    if 0 < value < least:
        what = f"{shown_number(value)} is neither 0 nor in {least:g}..{number.le:g}"
        yield path, what


def _unicode_fault(value: Any, path: Path) -> Iterator[Fault]:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            yield path, f"{value!a} is not valid Unicode"


def _choice_fault(value: Any, choices: list[str]) -> str:
    if isinstance(value, str) and value in choices:
        return ""
    near = get_close_matches(str(value), choices, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{shown(value)} is not one of {', '.join(choices)}{hint}"


def _scalar_fault(value: Any, expected: inspect.Type) -> str:
    match expected:
        case inspect.LiteralType():
            return _choice_fault(value, [str(choice) for choice in expected.values])
        case inspect.EnumType():
            return _choice_fault(value, [str(one.value) for one in expected.cls])
        case inspect.BoolType():
            return "" if isinstance(value, bool) else f"{shown(value)} is not true or false"
        case inspect.IntType():
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            if isinstance(value, bool) or not is_whole:
                return f"{shown(value)} is not a whole number"
            return _range_fault(value, expected)
        case inspect.FloatType():
            if isinstance(value, bool) or not isinstance(value, int | float):
                return f"{shown(value)} is not a number"
            # isfinite fails on a whole number of 400 digits, a comparison does not.
            if not abs(value) < inf:
                return f"{value} is not a finite number"
            return _range_fault(value, expected)
        case _:
            raise TypeError(f"{expected} is not read from outside")


def _range_fault(value: float, expected: inspect.IntType | inspect.FloatType) -> str:
    low, high, above = _bounds(expected)
    if low <= value <= high and not (above and value == low):
        is_long = isinstance(value, int) and abs(value) >= 1 << 63
        return "is a number of more than 64 bits" if is_long else ""
    text = shown_number(value)
    if high < LARGEST and low > -inf:
        return f"{text} is outside {range_text(expected)}"
    if value > high:
        return f"{text} is above {high:g}"
    return f"{text} is {'not above' if above else 'below'} {low:g}"


def _bounds(expected: inspect.IntType | inspect.FloatType) -> tuple[float, float, bool]:
    """Bounds, inclusive but for the lower one where the last is true."""
    low = expected.ge if expected.ge is not None else expected.gt
    high = inf if expected.le is None else expected.le
    return -inf if low is None else low, high, expected.gt is not None


def range_text(expected: inspect.IntType | inspect.FloatType) -> str:
    """Bounds of a number, as errors and documents have them."""
    low, high, above = _bounds(expected)
    return f"{'above ' if above else ''}{low:g}..{high:g}"


def _is_in_gap(value: msgspec.Struct) -> bool:
    """Whether an amount that may be 0 is next to it, and smaller than it may be."""
    for name, least in _gaps(type(value)):
        amount = getattr(value, name)
        if amount and 0.0 < amount < least:
            return True
    return False


@cache
def _gaps(form: type[msgspec.Struct]) -> tuple[tuple[str, float], ...]:
    found = []
    info = type_info(form)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for kind in kinds:
            if isinstance(kind, inspect.Metadata) and "least" in (kind.extra or {}):
                found.append((field.name, (kind.extra or {})["least"]))
    return tuple(found)


def _a(holder: str) -> str:
    return f"an {holder}" if holder == OBJECT else f"a {holder}"


def path_text(where: str, path: Path) -> str:
    """A path below another one, as one writes it: ``clusters[1].link_gbps``.

    Where that ends with a colon and a space, it is a file's name and no part of the path.
    """
    text = where
    for part in path:
        dot = "." if text and not text.endswith(": ") else ""
        text += f"[{part}]" if isinstance(part, int) else f"{dot}{part}"
    return text


def key_text(path: Path) -> str:
    """A path as one writes it."""
    return path_text("", path)


def written(value: msgspec.Struct, *always: str) -> dict[str, Any]:
    """The fields by their keys, after the tag; what equals its default is left out.

    Keys in `always` are written in any case; a struct with ``omit_defaults`` has none.
    """
    out: dict[str, Any] = msgspec.to_builtins(value)
    defaults, lists = _optional(type(value), always)
    for key, default in defaults:
        if key in out and out[key] == default:
            del out[key]
    for key in lists:
        if key in out:
            out[key] = list(out[key])
    return out


@cache
def _optional(
    form: type[msgspec.Struct], always: tuple[str, ...]
) -> tuple[list[tuple[str, Any]], list[str]]:
    """Keys to leave out where they are as by default, and keys of lists."""
    info = inspect.type_info(form)
    assert isinstance(info, inspect.StructType)
    defaults, lists = [], []
    for field in info.fields:
        default = field.default
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        # With omit_defaults msgspec leaves out what is the default itself: all but equal floats.
        is_open = isinstance(default, float) or not form.__struct_config__.omit_defaults
        if is_open and default is not NODEFAULT and field.encode_name not in always:
            defaults.append((field.encode_name, default))
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        if any(isinstance(kind, inspect.VarTupleType) for kind in kinds):
            lists.append(field.encode_name)
    return defaults, lists
