"""JSON from outside: decoded, shown in one-line errors, and what its values have to be."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from coalloc.model.errors import InputError


def shown(value: Any) -> str:
    """A short form of a value for an error message."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    # repr of a long container is slow, of a deep one it fails, as of a number of 5000 digits.
    try:
        text = reprlib.repr(value) if isinstance(value, list | tuple | dict) else repr(value)
    except ValueError:
        return "a number too long to show"
    return text if len(text) <= 40 else text[:37] + "..."


def shown_number(value: float) -> str:
    """A number with no more digits than tell it from its neighbours."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**15 else shown(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """The value, if it is a JSON object."""
    if not isinstance(value, dict):
        raise InputError(where, f"{shown(value)} is not an object")
    return value


def of_format(value: Any, name: str, *needed: str) -> Mapping[str, Any]:
    """The value, if it is an object with the keys that a file of this format needs.

    A file of another format is told as such before what it lacks.
    """
    top = mapping(value, "")
    missing = [key for key in ("format", *needed) if key not in top]
    given = top.get("format", name)
    if missing and given != name:
        raise InputError("format", f"{shown(given)} is not one of {name}")
    if missing:
        raise InputError(missing[0], "is missing")
    return top


def array(value: Any, where: str) -> Sequence[Any]:
    """The value, if it is a JSON array."""
    if not isinstance(value, list | tuple):
        raise InputError(where, f"{shown(value)} is not a list")
    return value


def objects(value: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a JSON array, each with its place; null is none."""
    for i, item in enumerate(array(value or (), where)):
        yield f"{where}[{i}]", mapping(item, f"{where}[{i}]")


def plain(value: Any, where: str) -> Any:
    """The value, if it is JSON throughout: no NaN, no infinity, no foreign object."""
    rest = [(where, value)]
    while rest:
        place, item = rest.pop()
        match item:
            case float() if not isfinite(item):
                raise InputError(place, f"{item} is not a finite number")
            case None | bool() | int() | float() | str():
                pass
            case dict():
                rest += [(f"{place}.{key}", part) for key, part in item.items()]
            case list() | tuple():
                rest += [(f"{place}[{i}]", part) for i, part in enumerate(item)]
            case _:
                raise InputError(place, f"{type(item).__name__} is not JSON")
    return value


def decode_json(data: bytes | str, where: str = "") -> Any:
    """Decode JSON text; a key that appears twice in one object is refused.

    Bytes are UTF-8, with or without a byte order mark; `where` names the file in the error.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InputError(where, f"byte {error.start} is not UTF-8") from error
    try:
        return json.loads(text, object_pairs_hook=_object)
    except InputError as error:
        raise InputError(where, error.what) from None
    except json.JSONDecodeError as error:
        raise InputError(
            where, f"line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    except RecursionError:
        raise InputError(where, "is nested too deeply") from None
    except ValueError as error:
        raise InputError(where, "holds a number with too many digits") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError("", f"key {key!r} appears twice in an object")
            seen.add(key)
    return out
