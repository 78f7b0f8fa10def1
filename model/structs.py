"""Structs that describe a configuration: its values checked in plain words, its keys documented.

A key's range is in its type (`msgspec.Meta`), and so is its meaning, as ``description``. A text
with a ``pattern`` says in ``extra={"kind": ...}`` what it has to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from coalloc.model.decoded import shown
from coalloc.model.errors import InputError

Path = tuple[str | int, ...]
Fault = tuple[Path, str]
Read = TypeVar("Read", bound=msgspec.Struct)
NO_OTHERS: Mapping[str, Any] = {}


def read_struct(
    value: Any, form: type[Read], where: str, others: Mapping[str, Any] = NO_OTHERS
) -> Read:
    """Read a table of settings.

    Parameters
    ----------
    value : mapping
        As it stands in the configuration.
    form : type
    where : str
        Path of `value` in the configuration, for errors.
    others : mapping, optional
        Fields of the struct that are no settings.

    Raises
    ------
    InputError
        With the place of the first fault, and what it is.
    """
    for path, what in struct_faults(value, inspect.type_info(form), (), others):
        raise InputError(key_text((where, *path) if where else path), what)
    try:
        return msgspec.convert({**value, **others}, form)
    except msgspec.ValidationError as error:
        raise InputError(where, str(error)) from error


def keys(form: type[msgspec.Struct]) -> Iterator[tuple[str, Any, str]]:
    """Key, default and meaning of every field that says what it means."""
    for field in msgspec.structs.fields(form):
        expected = inspect.type_info(field.type)
        if not isinstance(expected, inspect.Metadata):
            continue
        doc = (expected.extra_json_schema or {})["description"]
        match expected.type:
            case inspect.LiteralType(values=choices):
                doc += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
            case inspect.IntType() | inspect.FloatType() as number:
                doc += f" In {_range(*_bounds(number))}."
        is_made = field.default is msgspec.NODEFAULT
        yield field.encode_name, field.default_factory() if is_made else field.default, doc


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
        case inspect.Metadata():
            yield from faults(value, expected.type, path)
            yield from _pattern_fault(value, expected, path)
        case inspect.StructType():
            yield from struct_faults(value, expected, path)
        case inspect.VarTupleType():
            if not isinstance(value, list):
                yield path, f"{shown(value)} is not a list"
                return
            for index, item in enumerate(value):
                yield from faults(item, expected.item_type, (*path, index))
        case inspect.DictType():
            if not isinstance(value, dict):
                yield path, f"{shown(value)} is not a table"
                return
            for key, item in value.items():
                yield from faults(item, expected.value_type, (*path, key))
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


def struct_faults(
    value: Any, expected: inspect.Type, path: Path, others: Mapping[str, Any] = NO_OTHERS
) -> Iterator[Fault]:
    """Yield what is wrong with a table; `others` are no keys of it."""
    assert isinstance(expected, inspect.StructType)
    if not isinstance(value, dict):
        yield path, f"{shown(value)} is not a table"
        return
    fields = {f.encode_name: f for f in expected.fields if f.encode_name not in others}
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


def _pattern_fault(value: Any, expected: inspect.Metadata, path: Path) -> Iterator[Fault]:
    text = expected.type
    if not isinstance(text, inspect.StrType) or not isinstance(value, str) or not text.pattern:
        return
    if not re.search(text.pattern, value):
        kind = (expected.extra or {})["kind"]
        yield path, f"{shown(value)} is not {kind}" if value else "is empty"


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
    low, high, above = _bounds(expected)
    if low <= value <= high and not (above and value == low):
        return ""
    if high < inf and low > -inf:
        return f"{value:g} is outside {_range(low, high, above)}"
    if value > high:
        return f"{value:g} is above {high:g}"
    return f"{value:g} is {'not above' if above else 'below'} {low:g}"


def _bounds(expected: inspect.IntType | inspect.FloatType) -> tuple[float, float, bool]:
    """Bounds, inclusive but for the lower one where the last is true."""
    low = expected.ge if expected.ge is not None else expected.gt
    high = inf if expected.le is None else expected.le
    return -inf if low is None else low, high, expected.gt is not None


def _range(low: float, high: float, above: bool) -> str:
    return f"{'above ' if above else ''}{low:g}..{high:g}"


def key_text(path: Path) -> str:
    """A path as one writes it: ``clusters[1].link_gbps``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
