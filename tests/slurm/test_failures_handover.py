"""Jobs handed over in Slurm, while slurmctld is killed or slow."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.test_handover_daemon import handed, state, submit
from tests.support.live_site import Running
from tests.testbeds.slurm import Cluster, ClusterShape, SlurmTestbed, bed
from tests.testbeds.slurm_commands import SLOW, Commands

pytestmark = pytest.mark.slow

SETTINGS = (
    'adapter = "slurm"\nsettings = {{ conf = "{conf}", bin = "{bin}", load = "none", '
    'command_limit_s = 2.0, partition = "main", handover_partition = "coalloc" }}'
)
SHAPE = ClusterShape(
    name="g",
    nodes=2,
    conf="KillWait=1\nSlurmdTimeout=5",
    partitions="PartitionName=coalloc Nodes=ALL State=DOWN",
)


@pytest.fixture
def own() -> Iterator[SlurmTestbed]:
    with bed(SHAPE) as running:
        yield running


@pytest.fixture
def cluster(own: SlurmTestbed) -> Cluster:
    return own["g"]


@pytest.fixture
def commands(root: Path) -> Commands:
    return Commands(root / "bin")


@pytest.fixture
def service(root: Path, cluster: Cluster, commands: Commands) -> Iterator[Running]:
    running = Running(
        root, clusters={"gamma": 1}, start="backoff_first_s = 0.5\nbackoff_max_s = 1.0"
    )
    written = SETTINGS.format(conf=cluster.conf, bin=commands.folder)
    running.config.write_text(re.sub(r"settings = .*", written, running.config.read_text()))
    running.start()
    yield running
    commands.lift()
    running.stop()


def runs(log: Path) -> list[str]:
    return sorted(log.read_text().split())


def stopped(cluster: Cluster) -> None:
    """In good order: it writes down all it knows."""
    cluster.kill_controller(signal.SIGTERM)


def test_slurmctld_goes_while_jobs_are_bound(
    service: Running, own: SlurmTestbed, cluster: Cluster, root: Path
) -> None:
    """One runs, one is bound or waits; each has run once when all is over."""
    log = root / "runs"
    log.touch(mode=0o666)
    go = root / "go"
    text = f"echo $SLURM_JOB_ID >> {log}; while ! test -e {go}; do sleep 0.2; done"
    first = submit(cluster, "-N2", command=text)
    service.until(lambda: state(service, first) == "running" and runs(log) == [first])
    second = submit(cluster, "-N1", command=f"echo $SLURM_JOB_ID >> {log}")
    service.until(lambda: state(service, second) == "pending")
    stopped(cluster)
    service.until(lambda: bool(service.lines("reading_failed")))
    assert state(service, first) == "running"
    assert state(service, second) == "pending"
    go.touch()
    cluster.start_controller()
    service.until(lambda: state(service, second) == "completed", 120.0)
    service.until(lambda: state(service, first) == "completed", 120.0)
    assert runs(log) == sorted([first, second])


def test_slurmctld_is_killed_while_jobs_are_released(
    service: Running, own: SlurmTestbed, cluster: Cluster, root: Path
) -> None:
    """What it forgot of our orders is seen, and ordered again."""
    log = root / "runs"
    log.touch(mode=0o666)
    jobs = [submit(cluster, "-N1", command=f"echo $SLURM_JOB_ID >> {log}") for _ in range(4)]
    service.until(lambda: set(handed(service)) == set(jobs))
    cluster.kill_controller()
    cluster.start_controller()
    known = set(cluster.run("squeue", "-h", "-t", "all", "-o", "%i").split())
    over = {"completed", "failed", "lost", "cancelled"}
    service.until(lambda: all(state(service, job) in over for job in jobs), 120.0)
    # Slurm may forget that it took a job at all, and may run one again whose end it forgot.
    assert {job for job in jobs if state(service, job) == "completed"} >= known & set(runs(log))
    own.wait(cluster.is_idle, "no node is kept", 60.0)


def test_slow_answers_while_jobs_run(
    service: Running, own: SlurmTestbed, cluster: Cluster, commands: Commands, root: Path
) -> None:
    log = root / "runs"
    log.touch(mode=0o666)
    job = submit(cluster, "-N1", command=f"echo $SLURM_JOB_ID >> {log}; sleep 3")
    service.until(lambda: state(service, job) == "running")
    commands.spell("squeue", SLOW.format(seconds=30))
    service.until(lambda: bool(service.lines("reading_failed")))
    assert "slurmctld is up" in service.lines("reading_failed")[-1]["why"]
    assert state(service, job) == "running"
    commands.lift()
    service.until(lambda: state(service, job) == "completed")
    assert runs(log) == [job]
