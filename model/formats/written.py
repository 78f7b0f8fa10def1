"""Structs as JSON objects of the public formats."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect


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
