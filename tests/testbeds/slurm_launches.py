"""A launcher of a real Slurm cluster, its state folder, and the folder its jobs run in."""

from __future__ import annotations

import atexit
import contextlib
import functools
import signal
import threading
import time
from pathlib import Path
from typing import Any

from coalloc.adapters.base import AdapterError
from coalloc.adapters.slurm.launcher import SlurmLauncher, commands_of
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.adapters.slurm.reading import SlurmFacts
from coalloc.adapters.slurm.settings import SlurmSettings, read_settings
from coalloc.model.sites.parts import PartReport, PartSpec, QueueTerms
from coalloc.model.values import replace
from tests.support.launch_bed import LaunchTestbed as LaunchBed
from tests.testbeds.slurm import Cluster, ClusterShape, SlurmTestbed, bed
from tests.testbeds.ssh import PYTHON

READ_EVERY_S = 0.5


@functools.cache
def shared_bed() -> SlurmTestbed:
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


def settle(running: SlurmTestbed, cluster: Cluster) -> None:
    """Let slurmctld write down all it knows, which it does within five seconds.

    What it has not written is forgotten when it is killed, ends of earlier tests' jobs among it.
    A held job named ``settle`` stays.
    """
    state = cluster.folder / "state" / "job_state"
    before = time.time()
    cluster.run("sbatch", "--hold", "-J", "settle", "-o", "/dev/null", "--wrap", "true")

    def is_written() -> bool:
        with contextlib.suppress(FileNotFoundError):  # while slurmctld puts a new one in its place
            return state.stat().st_mtime > before
        return False

    running.wait(is_written, "the state is written")


class SlurmLaunches(LaunchBed):
    """What the tests of the local launcher have, on a Slurm cluster."""

    launcher: SlurmLauncher

    def __init__(self, root: Path, cluster: Cluster, **given: Any) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.cwd.chmod(0o777)
        self.cluster = cluster
        self.site: SlurmSettings = read_settings(settings_of(cluster, **given), cluster.name)
        self.launcher = SlurmLauncher(self.site, self.state)
        self._is_over = threading.Event()
        self._reading = threading.Thread(target=self._read)
        if self.site.start == "sbatch":
            self._reading.start()

    def _read(self) -> None:
        """Read again and again, as an executor does: the launcher learns how its claims wait."""

        def learn(facts: SlurmFacts) -> None:
            self.launcher.learn(facts)

        reader = SlurmReader(self.site, commands_of(self.site), learn=learn)
        while not self._is_over.wait(READ_EVERY_S):
            with contextlib.suppress(AdapterError):
                reader.read()

    def close(self) -> None:
        """Give everything up, and end."""
        super().close()
        self._is_over.set()
        if self._reading.ident is not None:
            self._reading.join()

    def spec(self, *argv: str, job: str = "1", **fields: Any) -> PartSpec:
        name = self.cluster.node_names[0]
        given = {"cluster": self.cluster.name, "nodes": ((name, 1),), "time_limit": 60.0}
        spec = super().spec(*argv, job=job, **(given | fields))
        if self.site.start != "sbatch" or spec.queue is not None:
            return spec
        # Through the queue, and nevertheless on the nodes that the test names.
        others = set(self.cluster.node_names).difference(spec.nodes)
        return replace(spec, queue=QueueTerms(at_once=False, avoid=tuple(sorted(others))))

    def claim(self, spec: PartSpec) -> PartReport:
        """Claim, tell a part that waited of its job's nodes, and wait for the barrier."""
        self.launcher.claim(spec)
        if spec.queue is not None:
            granted = self.wait_one(spec.key, lambda r: bool(r.nodes) or r.is_ended)
            if not granted.is_ended:
                hosts = granted.nodes if spec.nodes == spec.all_nodes else spec.all_nodes
                self.launcher.arrange(spec.key, hosts, spec.rendezvous)
        return super().claim(spec)

    def restart(self) -> None:
        """Let the executor's launcher die, and its successor adopt the parts."""
        self.launcher.close()
        self.launcher = SlurmLauncher(self.site, self.state)

    def jobs(self) -> list[str]:
        """Slurm's jobs that are not over: their comments."""
        return self.cluster.run("squeue", "-h", "-o", "%k").split()

    @property
    def all_nodes(self) -> tuple[tuple[str, int], ...]:
        """Every node, claimed whole."""
        return tuple((name, 1) for name in self.cluster.node_names)

    @property
    def another_node(self) -> tuple[tuple[str, int], ...]:
        """Room for a second part."""
        return self.all_nodes[-1:]

    def is_idle(self) -> bool:
        """Whether nothing is claimed."""
        return self.cluster.is_idle()

    def owners(self) -> list[str]:
        """Users of Slurm's jobs."""
        return self.cluster.run("squeue", "-h", "-o", "%u").split()

    def cancel_there(self) -> None:
        """Cancel every job, as an administrator does."""
        self.cluster.run("scancel", *self.cluster.run("squeue", "-h", "-o", "%i").split())

    def stop_service(self) -> None:
        """End slurmctld."""
        self.cluster.kill_controller(signal.SIGTERM)

    def start_service(self) -> None:
        """Start slurmctld again."""
        self.cluster.start_controller()
