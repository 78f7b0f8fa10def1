"""A real Slurm cluster by its commands.

It is read (`slurm.reader`), launched on (`slurm.launcher`), and, where the site wants it, the
jobs that users submit in Slurm itself are ordered (`slurm.native_jobs`).
"""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.base import Adapter
from coalloc.adapters.slurm.faces import BothLaunchers
from coalloc.adapters.slurm.launcher import SlurmLauncher, commands_of
from coalloc.adapters.slurm.native_jobs import HandedLauncher
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.settings import SlurmSettings


def open_slurm(settings: SlurmSettings, state_dir: Path) -> Adapter:
    """Open all faces; Slurm itself is not asked for anything yet.

    Parameters
    ----------
    state_dir : Path
        Where the launcher keeps its parts, and the reader its calibration.

    Raises
    ------
    AdapterError
        The folder cannot be used.
    """
    own, commands = SlurmLauncher(settings, state_dir), commands_of(settings)
    if not settings.hands_over:
        reader = SlurmReader(
            settings, commands, state_dir=state_dir, claims=own.claims, given_back=own.given_back
        )
        return Adapter(reader=reader, launcher=own)
    handed = HandedLauncher(settings, commands, state_dir)
    reader = SlurmReader(
        settings,
        commands,
        state_dir=state_dir,
        claims=own.claims,
        given_back=own.given_back,
        claimed=handed.claimed,
    )
    return Adapter(reader=reader, launcher=BothLaunchers(own, handed), handover=handed)
