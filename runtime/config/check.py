"""Values of a configuration against the structs that describe it, in words a reader understands."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

from msgspec import inspect

from coalloc.runtime.config.lines import Path

Fault = tuple[Path, str]


def faults(value: Any, expected: inspect.Type, path: Path = ()) -> Iterator[Fault]:
    """Yield the path and the description of everything wrong with a decoded value.

    Parameters
    ----------
    value : object
        As tomli decoded it.
    expected : msgspec.inspect.Type
        From ``msgspec.inspect.type_info``.
    """
    match expected:
        case inspect.StructType():
            yield from _struct_faults(value, expected, path)
        case inspect.VarTupleType():
            if not isinstance(value, list):
                yield path, f"{shown(value)} is not a list"
                return
            for index, item in enumerate(value):
                yield from faults(item, expected.item_type, (*path, index))
        case inspect.DictType():
            if not isinstance(value, dict):
                yield path, f"{shown(value)} is not a table"
        case inspect.UnionType():
            # only "or None", which TOML cannot write
            inner = next(t for t in expected.types if not isinstance(t, inspect.NoneType))
            yield from faults(value, inner, path)
        case inspect.AnyType():
            pass
        case _:
            what = _scalar_fault(value, expected)
            if what:
                yield path, what


def _struct_faults(value: Any, expected: inspect.StructType, path: Path) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield path, f"{shown(value)} is not a table"
        return
    fields = {field.encode_name: field for field in expected.fields}
    for key, item in value.items():
        if key in fields:
            yield from faults(item, fields[key].type, (*path, key))
        else:
            near = get_close_matches(key, fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield (*path, key), f"unknown key{hint}"
    for key, field in fields.items():
        if field.required and key not in value:
            yield (*path, key), "is missing"


def _scalar_fault(value: Any, expected: inspect.Type) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "is a number of more than 64 bits"
    match expected:
        case inspect.LiteralType():
            if value in expected.values and isinstance(value, str):
                return ""
            choices = [str(choice) for choice in expected.values]
            near = get_close_matches(str(value), choices, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{shown(value)} is not one of {', '.join(choices)}{hint}"
        case inspect.BoolType():
            return "" if isinstance(value, bool) else f"{shown(value)} is not true or false"
        case inspect.IntType():
            if isinstance(value, bool) or not isinstance(value, int):
                return f"{shown(value)} is not a whole number"
            return _range_fault(value, expected)
        case inspect.FloatType():
            if isinstance(value, bool) or not isinstance(value, int | float):
                return f"{shown(value)} is not a number"
            if not isfinite(value):
                return f"{value} is not a finite number"
            return _range_fault(value, expected)
        case inspect.StrType():
            if not isinstance(value, str):
                return f"{shown(value)} is not a text"
            return "is empty" if expected.min_length and not value else ""
        case _:
            raise TypeError(f"{expected} has no place in a configuration")


def _range_fault(value: float, expected: inspect.IntType | inspect.FloatType) -> str:
    low = expected.ge if expected.ge is not None else expected.gt
    low, above = (-inf, False) if low is None else (low, expected.gt is not None)
    high = inf if expected.le is None else expected.le
    if low <= value <= high and not (above and value == low):
        return ""
    if high < inf and low > -inf:
        return f"{value:g} is outside {'above ' if above else ''}{low:g}..{high:g}"
    if value > high:
        return f"{value:g} is above {high:g}"
    return f"{value:g} is {'not above' if above else 'below'} {low:g}"


def shown(value: Any) -> str:
    """A short form of a value for an error message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def key_text(path: Path) -> str:
    """A path as one writes it: ``clusters[1].link_gbps``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
