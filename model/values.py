"""Copies of values, which are all `msgspec.Struct`s: changed, and of another class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    # Type checkers compare the given fields with those of the class; msgspec's takes any.
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["fields_of", "replace"]


def fields_of(value: Any, cls: type[Struct]) -> dict[str, Any]:
    """The fields that `cls` declares or inherits, as `value` has them, for making another value."""
    return {name: getattr(value, name) for name in cls.__struct_fields__}
