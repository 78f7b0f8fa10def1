"""Ratios of real to planned run times, from jobs that have ended."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class History(Struct, frozen=True, kw_only=True):
    """Ratios of real to planned run time of finished jobs."""

    pool: tuple[float, ...] = ()
    """Of all kinds of jobs."""
    samples: tuple[tuple[float, ...], ...] = ()
    """Each of one class: the jobs of a user that run one command."""
    of: Mapping[str, int] = field(default_factory=dict)
    """The class of a waiting or running job, an index into `samples`; others are not in it."""


NO_HISTORY = History()
