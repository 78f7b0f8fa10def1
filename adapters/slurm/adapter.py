"""A real Slurm cluster by its commands.

It is read (`slurm.reader`), launched on (`slurm.launcher`), and, where the site wants it, the
jobs that users submit in Slurm itself are ordered (`slurm.native.launcher`).
"""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.base import Adapter, Launcher, Starter
from coalloc.adapters.slurm.launcher import SlurmLauncher, commands_of
from coalloc.adapters.slurm.native.launcher import NativeLauncher
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import Share
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec


def open_slurm(settings: SlurmSettings, state_dir: Path) -> Adapter:
    """Open reader and launchers, which keep theirs in `state_dir`; Slurm is not asked yet."""
    commands = commands_of(settings, state_dir / "rpcs")
    share = Share(settings=settings, slurm=commands)
    own = SlurmLauncher(settings, state_dir, share)
    handed = NativeLauncher(settings, commands, state_dir) if settings.hands_over else None
    reader = SlurmReader(
        settings,
        commands,
        state_dir=state_dir,
        claims=own.claims,
        given_back=own.given_back,
        held=own.holdings,
        claimed=frozenset if handed is None else handed.claimed,
        share=share,
        learn=own.learn,
        refusals=lambda: own.refusals,
    )
    return Adapter(
        reader=reader,
        launcher=own if handed is None else CombinedLauncher(own, handed),
        handover=handed,
        on_demand=share.want,
        due=reader.due,
        pause=reader.pause,
        streams=own.streams,
        lacks=frozenset({"streams", "members"} if settings.is_by_files else ()),
        traits=frozenset({"slow_claims"} | ({"whole_jobs"} if settings.whole_jobs else set())),
    )


class CombinedLauncher:
    """Our own parts' launcher and the starter of jobs handed over, as one; each part has its own.

    Only claims of our own lapse, or wait.
    """

    def __init__(self, own: Launcher, handed: NativeLauncher) -> None:
        self._own, self._handed = own, handed
        self.arrange, self.hasten, self.limit = own.arrange, own.hasten, own.limit
        self.renew, self.fileno = own.renew, own.fileno

    def _of(self, key: PartKey) -> Starter:
        return self._handed if self._handed.has(key) else self._own

    def claim(self, part: PartSpec) -> None:
        (self._handed if part.foreign else self._own).claim(part)

    def go(self, key: PartKey, at: float = 0.0) -> None:
        self._of(key).go(key, at)

    def abort(self, key: PartKey, reason: str = "") -> None:
        self._of(key).abort(key, reason)

    def poll(self) -> tuple[PartReport, ...]:
        return (*self._own.poll(), *self._handed.poll())

    def adopt(self) -> tuple[PartReport, ...]:
        return (*self._own.adopt(), *self._handed.adopt())

    def forget(self, key: PartKey) -> None:
        self._of(key).forget(key)

    def close(self) -> None:
        self._handed.close()
        self._own.close()
