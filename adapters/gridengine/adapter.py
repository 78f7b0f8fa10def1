"""A real Grid Engine cell by its commands: read (`gridengine.reader`) and launched on."""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.base import Adapter
from coalloc.adapters.gridengine.launcher import GridEngineLauncher, commands_of
from coalloc.adapters.gridengine.reader import GridEngineReader
from coalloc.adapters.gridengine.settings import GridEngineSettings


def open_gridengine(settings: GridEngineSettings, state_dir: Path) -> Adapter:
    """Open both faces; Grid Engine itself is not asked for anything yet."""
    commands = commands_of(settings)
    launcher = GridEngineLauncher(settings, state_dir)
    reader = GridEngineReader(settings, commands, claims=launcher.claims)
    traits = frozenset({"slow_claims"})
    return Adapter(reader=reader, launcher=launcher, streams=launcher.streams, traits=traits)
