"""Changed copies of values, which are all `msgspec.Struct`s."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Type checkers compare the given fields with those of the class; msgspec's takes any.
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["replace"]
