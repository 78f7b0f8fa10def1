"""The authenticated caller of a request."""

from __future__ import annotations

from msgspec import Struct


class Caller(Struct, frozen=True, kw_only=True):
    """Authenticated caller of a request."""

    user: str
    uid: int
    gid: int
    is_operator: bool
    """May see and change everybody's jobs, and the service."""
    key: str = ""
    """Public; empty in single-user mode."""
