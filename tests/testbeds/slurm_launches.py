"""A launcher of a real Slurm cluster, its state folder, and the folder its jobs run in."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import sys
from pathlib import Path
from typing import Any

from coalloc.adapters.slurm.launcher import SlurmLauncher
from coalloc.adapters.slurm.settings import SlurmSettings, read_settings
from coalloc.model.parts import PartSpec
from tests.support.launch_bed import Bed as LaunchBed
from tests.testbeds.slurm import Bed, Cluster, ClusterShape, bed

PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
"""One that every user may run."""


@functools.cache
def shared_bed() -> Bed:
    """A cluster c of two nodes that lives as long as this process."""
    stack = contextlib.ExitStack()
    running = stack.enter_context(bed(ClusterShape(name="c", nodes=2)))
    atexit.register(stack.close)
    return running


def settings_of(cluster: Cluster, **given: Any) -> dict[str, Any]:
    """Settings of the adapter for a cluster of the bed."""
    return {
        "conf": str(cluster.conf),
        "address": "127.0.0.1",
        "command_limit_s": 10.0,
        "python": PYTHON,
        **given,
    }


class SlurmBed(LaunchBed):
    """What the tests of the local launcher have, on a Slurm cluster."""

    def __init__(self, root: Path, cluster: Cluster, **given: Any) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.cwd.chmod(0o777)
        self.cluster = cluster
        self.site: SlurmSettings = read_settings(settings_of(cluster, **given), cluster.name)
        self.launcher = SlurmLauncher(self.site, self.state)

    def spec(self, *argv: str, job: str = "1", **fields: Any) -> PartSpec:
        name = self.cluster.node_names[0]
        given = {"cluster": self.cluster.name, "nodes": ((name, 1),), "time_limit_s": 60.0}
        return super().spec(*argv, job=job, **(given | fields))

    def restart(self) -> None:
        """Let the executor's launcher die, and its successor adopt the parts."""
        self.launcher.close()
        self.launcher = SlurmLauncher(self.site, self.state)

    def jobs(self) -> list[str]:
        """Slurm's jobs that are not over: their comments."""
        return self.cluster.run("squeue", "-h", "-o", "%k").split()
