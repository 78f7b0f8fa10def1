"""Findings of ``coalloc doctor``: one for each thing looked at, with what to do."""

from __future__ import annotations

from enum import StrEnum
from functools import partial

from msgspec import Struct


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    UNKNOWN = "unknown"
    """It could not be looked at from here."""
    WARNING = "warning"
    """It works, and should be seen to."""
    PROBLEM = "problem"
    """Something does not work."""


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    about: str
    """The thing: ``disk``, ``cluster alpha`` …"""
    text: str
    """What was seen."""
    todo: str = ""
    """What to do; empty: nothing."""
    level: Level = Level.OK

    @property
    def line(self) -> str:
        return f"{self.text}: {self.todo}" if self.todo else self.text


ok = Finding
unknown, warning, problem = (
    partial(Finding, level=level) for level in (Level.UNKNOWN, Level.WARNING, Level.PROBLEM)
)
