"""Logs in the Standard Workload Format from the bytes of a file."""

from __future__ import annotations

from io import BytesIO

from coalloc.adapters.formats.files import unpacked
from coalloc.adapters.formats.swf import SwfLog, bounded_lines, read_lines


def read_bytes(content: bytes) -> SwfLog:
    """Read a log, packed or not, as from a file."""
    with unpacked(BytesIO(content), "log") as stream:
        return read_lines(bounded_lines(stream), "log")
