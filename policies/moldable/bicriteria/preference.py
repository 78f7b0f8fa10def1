"""Choice of a point of a front: ``cmax``, ``balanced``, ``minsum`` or ``cmax<=SECONDS``."""

from __future__ import annotations

from math import isfinite

from coalloc.model.errors import InputError

NAMES = ("cmax", "balanced", "minsum")
UNDER = "cmax<="


def cap_of(text: str) -> float | None:
    """Seconds of ``cmax<=SECONDS``; None for the other preferences."""
    return float(text.removeprefix(UNDER)) if text.startswith(UNDER) else None


def check_preference(text: str, where: str) -> None:
    """Raise InputError if this is no preference: ``options.prefer: 'cmin' is not …``."""
    if text in NAMES:
        return
    try:
        cap = cap_of(text)
    except ValueError:
        cap = None
    if cap is None or not (isfinite(cap) and cap > 0.0):
        forms = f"{', '.join(NAMES)} or {UNDER}SECONDS"
        raise InputError(where, f"{text!r} is not {forms}")
