"""Two launchers as one: our own parts, and the jobs that were handed over in Slurm."""

from __future__ import annotations

from coalloc.adapters.base import Claim, Launcher
from coalloc.adapters.slurm.native_jobs import HandedLauncher
from coalloc.model.parts import PartKey, PartReport, PartSpec


class BothLaunchers:
    """Sends each part to the launcher that has it, or is to have it."""

    def __init__(self, own: Launcher, handed: HandedLauncher) -> None:
        self._own, self._handed = own, handed

    def _of(self, key: PartKey) -> Launcher:
        return self._handed if self._handed.has(key) else self._own

    def claim(self, part: PartSpec) -> Claim:
        """Claim the nodes."""
        return (self._handed if part.foreign else self._own).claim(part)

    def go(self, key: PartKey) -> None:
        """Open the barrier, or release the job."""
        self._of(key).go(key)

    def abort(self, key: PartKey, reason: str = "") -> None:
        """Give the claim up."""
        self._of(key).abort(key, reason)

    def cancel(self, key: PartKey, *, signal: int = 15, grace_s: float | None = None) -> None:
        """End the processes."""
        self._of(key).cancel(key, signal=signal, grace_s=grace_s)

    def renew(self, key: PartKey | None = None) -> None:
        """Let every claim stand for another lease."""
        self._own.renew(key)

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is."""
        return (*self._own.poll(), *self._handed.poll())

    def adopt(self) -> tuple[PartReport, ...]:
        """Find every part that earlier launchers left."""
        return (*self._own.adopt(), *self._handed.adopt())

    def forget(self, key: PartKey) -> None:
        """Remove what is kept of an ended part."""
        self._of(key).forget(key)

    def fileno(self) -> int | None:
        """Return the descriptor of our own parts' launcher."""
        return self._own.fileno()

    def close(self) -> None:
        """Let go of both."""
        self._handed.close()
        self._own.close()
