"""The authenticated caller of a request, and the error that refuses it."""

from __future__ import annotations

from msgspec import Struct

from coalloc.core.base.requests import Refused


class Caller(Struct, frozen=True, kw_only=True):
    """Authenticated caller of a request."""

    user: str
    uid: int
    gid: int
    is_operator: bool
    """May see and change everybody's jobs, and the service."""
    key: str = ""
    """Public; empty in single-user mode."""


class QueryRefusedError(Exception):
    """A question that has no answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.refused = Refused(code=code, message=message)
