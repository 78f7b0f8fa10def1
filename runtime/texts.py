"""Texts that people read and type, in every program: instants, lengths of time, speed-ups.

A reader takes a text and returns a value, or raises `argparse.ArgumentTypeError` with one sentence.
"""

from __future__ import annotations

import time
from argparse import ArgumentTypeError as BadText
from typing import Any

from coalloc.model.formats.speedup_text import amount, shape_of


def to_install(extra: str) -> str:
    """Command that installs an optional part; the bare name is not ours on the package index."""
    return f"pip install '.[{extra}]' in a checkout of coalloc, or 'PATH/TO/coalloc-….whl[{extra}]'"


def printable(text: str) -> str:
    """The text without anything a terminal would act on."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def length(value: float | None) -> str:
    """Seconds as squeue shows them: 0:05, 12:34, 1:02:03, 3-04:05:06."""
    if value is None:
        return "-"
    whole = max(0, int(value))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def instant(value: float | None, none: str = "N/A") -> str:
    """Wall-clock seconds as local date and time."""
    if value is None:
        return none
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(value))
    except (OverflowError, ValueError, OSError):
        return f"{value:g}"


def clock(value: float, now: float) -> str:
    """Wall-clock seconds as people say them: 14:05:30, 14:05 on this day, else with the date."""
    there, here = time.localtime(value), time.localtime(now)
    if there[:3] != here[:3]:
        return time.strftime("%Y-%m-%d %H:%M", there)
    return time.strftime("%H:%M" if abs(value - now) > 600.0 else "%H:%M:%S", there)


def between(early: float | None, late: float | None, now: float) -> str:
    """In what interval something happens nine times of ten; empty where that is not known."""
    if early is None or late is None:
        return ""
    return f"90 %: {clock(early, now)} to {clock(late, now)}"


def number(text: str) -> float:
    """A finite number that is not negative."""
    try:
        return amount(text)
    except ValueError as error:
        raise BadText(str(error)) from None


def fraction(text: str) -> float:
    """A number in 0..1."""
    value = number(text)
    if value > 1.0:
        raise BadText(f"{text} is outside 0..1")
    return value


def speedup(text: str) -> dict[str, Any]:
    """A speed-up model without its time: amdahl:0.95, downey:A,SIGMA."""
    try:
        return shape_of(text)
    except ValueError as error:
        raise BadText(str(error)) from None
