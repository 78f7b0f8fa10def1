"""A launcher of a real Grid Engine cell, its state folder, and the folder its jobs run in."""

from __future__ import annotations

import atexit
import contextlib
import functools
from pathlib import Path
from typing import Any

from coalloc.adapters.gridengine.launcher import GridEngineLauncher
from coalloc.adapters.gridengine.settings import GridEngineSettings, read_settings
from coalloc.model.sites.parts import PartSpec
from tests.support.launch_bed import LaunchTestbed as LaunchBed
from tests.testbeds.gridengine import BIN, Cell, bed
from tests.testbeds.ssh import PYTHON


@functools.cache
def shared_cell() -> Cell:
    """A cell that lives as long as this process."""
    stack = contextlib.ExitStack()
    running = stack.enter_context(bed())
    atexit.register(stack.close)
    return running["p"]


def settings_of(cell: Cell, **given: Any) -> dict[str, Any]:
    """Settings of the adapter for a cell of the bed."""
    return {
        "root": str(cell.root),
        "cell": "default",
        "qmaster_port": cell.ports[0],
        "execd_port": cell.ports[1],
        "bin": str(BIN),
        "queue": "main",
        "address": "127.0.0.1",
        "command_limit_s": 20.0,
        "python": PYTHON,
        **given,
    }


class GridEngineLaunches(LaunchBed):
    """What the tests of the local launcher have, on a Grid Engine cell."""

    def __init__(self, root: Path, cell: Cell, **given: Any) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.cwd.chmod(0o777)
        self.cell = cell
        self.site: GridEngineSettings = read_settings(settings_of(cell, **given), cell.name)
        self.launcher = GridEngineLauncher(self.site, self.state)

    def spec(self, *argv: str, job: str = "1", **fields: Any) -> PartSpec:
        given = {
            "cluster": self.cell.name,
            "nodes": ((self.site.published("localhost"), 1),),
            "time_limit": 60.0,
        }
        return super().spec(*argv, job=job, **(given | fields))

    def restart(self) -> None:
        """Let the executor's launcher die, and its successor adopt the parts."""
        self.launcher.close()
        self.launcher = GridEngineLauncher(self.site, self.state)

    def jobs(self) -> list[str]:
        """Names of the cell's jobs that are not over."""
        return [job.name for job in self.cell.status().jobs()]

    @property
    def all_nodes(self) -> tuple[tuple[str, int], ...]:
        """Its one host with all four slots."""
        return ((self.site.published("localhost"), 4),)

    @property
    def another_node(self) -> tuple[tuple[str, int], ...]:
        """Room for a second part: another slot of the one host."""
        return ((self.site.published("localhost"), 1),)

    def is_idle(self) -> bool:
        """Whether nothing is claimed."""
        return self.cell.is_idle()

    def owners(self) -> list[str]:
        """Users of the cell's jobs."""
        return [job.owner for job in self.cell.status().jobs()]

    def cancel_there(self) -> None:
        """Delete every job, as an administrator does."""
        self.cell.run("qdel", *(job.number for job in self.cell.status().jobs()))

    def stop_service(self) -> None:
        """End qmaster."""
        self.cell.kill_qmaster()

    def start_service(self) -> None:
        """Start qmaster again."""
        self.cell.start_qmaster()
