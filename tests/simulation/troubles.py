"""Launchers that raise at any call, done or not, and executors' disks that take nothing."""

from __future__ import annotations

import random

ERRORS = (RuntimeError, OSError, RecursionError, KeyError)
OUTAGES_S = (0.5, 3.0, 15.0, 40.0)
"""The longest outlast the time for which a start is tried again, seconds."""


class Troubles:
    """What goes wrong beside one executor, in half of all worlds.

    Parameters
    ----------
    seed : str
        Of the world and the cluster.

    Attributes
    ----------
    faults : float
        How often: 0 is never.
    quiet_since : float
        Nothing has failed since then, s.
    last : Exception or None
        What was raised last.
    """

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(f"troubles {seed}")
        self._happen = random.Random(f"troubles {seed.partition(' ')[0]}").random() < 0.5
        self._until = {"launcher": 0.0, "disk": 0.0}
        self.faults = 0.0
        self.quiet_since = 0.0
        self.last: Exception | None = None

    def strike(self, what: str, now: float) -> None:
        """Fail, or do not."""
        if not self._happen or not self.faults:
            return
        if self._dice.random() < 0.03 * self.faults:
            self._until[what] = now + self._dice.choice(OUTAGES_S)
        if now < self._until[what] or self._dice.random() < 0.2 * self.faults:
            self.quiet_since = now
            self.last = self._dice.choice(ERRORS)(f"the {what} fails")
            raise self.last
