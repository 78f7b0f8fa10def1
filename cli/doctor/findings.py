"""Findings of ``coalloc doctor``: one for each thing looked at, with what to do."""

from __future__ import annotations

from enum import StrEnum

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


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    about: str
    """The thing: ``disk``, ``cluster alpha`` …"""
    level: Level
    text: str
    """What was seen."""
    todo: str = ""
    """What to do; empty: nothing."""

    @property
    def line(self) -> str:
        """One line: what was seen and what to do."""
        return f"{self.text}: {self.todo}" if self.todo else self.text


def ok(about: str, text: str) -> Finding:
    """Nothing is wrong with it."""
    return Finding(about=about, level=Level.OK, text=text)


def unknown(about: str, text: str, todo: str = "") -> Finding:
    """It could not be looked at."""
    return Finding(about=about, level=Level.UNKNOWN, text=text, todo=todo)


def warning(about: str, text: str, todo: str) -> Finding:
    """It works, and should be seen to."""
    return Finding(about=about, level=Level.WARNING, text=text, todo=todo)


def problem(about: str, text: str, todo: str) -> Finding:
    """It does not work."""
    return Finding(about=about, level=Level.PROBLEM, text=text, todo=todo)
