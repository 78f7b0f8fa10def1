"""Streams of a part: what is read of its processes' output, and what they are told.

A stream's name is ``o`` or ``e`` for output and errors, and the number of one of the part's nodes
where its runner is not on the executor's machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

PIPES, PTY = "pipes", "pty"
"""Kinds of streams that are a client's alone: output and errors apart, and one terminal."""
Side = Annotated[int, Meta(ge=1, le=65_535)]


class StreamWish(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Wish of a reader for a part's streams."""

    at: Mapping[str, int] | None = None
    """Bytes from which on each stream is wanted, by name, which lets go of all before; those not
    named are wanted from their beginning, and a negative one counts from the end of a file. It is
    answered once there is something; null: nothing is read."""
    input: str = ""
    """Bytes for the terminal, in base64."""
    input_at: Annotated[int, Meta(ge=0)] = 0
    """How many were sent before them: what comes again is not taken twice."""
    size: tuple[Side, Side] | None = None
    """Of the terminal: lines and columns."""
    signal: Annotated[int, Meta(ge=0, le=64)] = 0
    """Number of a signal for all processes; 0: none."""


class StreamChunks(Struct, frozen=True, kw_only=True):
    """Chunks of a part's streams that were read."""

    chunks: tuple[tuple[str, int, str], ...] = ()
    """Stream, place of the first byte, and the bytes in base64. A place behind the one that was
    asked for tells that those between are lost."""
    taken: int = 0
    """Bytes of input that were taken so far."""
    ended: bool = False
    """Everything was read, and nothing follows."""
