"""The bed itself: clusters come up, answer each for itself, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.runner.status import descendants
from tests.testbeds.processes import free_ports
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, alike, bed

ROOT = Path(__file__).resolve().parents[2]


def below() -> set[int]:
    return set(descendants(os.getpid()))


def test_clusters_are_apart(clusters: SlurmTestbed) -> None:
    for cluster in clusters:
        names = cluster.run("sinfo", "-h", "-N", "-o", "%N").split()
        assert names == cluster.node_names
        assert cluster.run("squeue", "-h") == ""
    where = clusters["b"].run("srun", "-w", "b2", "sh", "-c", "echo $SLURMD_NODENAME")
    assert where.strip() == "b2"


def test_errors_are_told_apart(clusters: SlurmTestbed) -> None:
    with pytest.raises(CommandRefusedError, match="Invalid node name"):
        clusters["a"].run("srun", "-w", "b1", "true")
    absent = clusters["a"].slurm
    with pytest.raises(UnreachableError, match="cannot be run"):
        absent.run("no-such-command-of-slurm")
    with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
        clusters["a"].slurm.run("srun", "sleep", "60", timeout_s=0.2)


def test_nothing_is_left_of_running_jobs() -> None:
    before = below()
    with bed(*alike(1, 2)) as running:
        cluster = running["a"]
        cluster.run("sbatch", "-o", "/dev/null", "--wrap", "setsid sleep 4567 & sleep 4567")
        running.wait(lambda: "R" in cluster.run("squeue", "-h", "-o", "%t"), "the job runs")
        root = running.root
    assert below() <= before
    assert not root.exists()


@pytest.mark.slow
def test_controller_and_node_die_and_return() -> None:
    shape = ClusterShape(name="x", nodes=2, prefix="n", conf="SlurmdTimeout=5")
    with bed(shape) as running:
        cluster = running["x"]
        cluster.run("sbatch", "-o", "/dev/null", "--no-requeue", "-w", "n2", "--wrap", "sleep 4567")
        running.wait(lambda: "R" in cluster.run("squeue", "-h", "-o", "%t"), "the job runs")
        cluster.kill_controller(signal.SIGTERM)  # one that is killed forgets its last seconds
        with pytest.raises(UnreachableError):
            cluster.slurm.run("squeue", timeout_s=2.0)
        cluster.start_controller()
        running.wait(lambda: "R" in cluster.run("squeue", "-h", "-o", "%t"), "the job still runs")
        cluster.kill_node("n2")
        cluster.start_node("n2")
        running.wait(lambda: not cluster.run("squeue", "-h", "-t", "R"), "the job is over")


def test_ports_are_not_given_twice() -> None:
    taken: set[int] = set()
    first, second = free_ports(5, taken), free_ports(5, taken)
    assert abs(first - second) >= 5
    assert len(taken) == 10


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_bed_of_an_ordinary_user() -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None or not os.stat(ROOT).st_mode & 0o005:
        pytest.skip("an ordinary user reaches no Python, or not this checkout")
    done = subprocess.run(
        [python, "-m", "tests.testbeds.slurm", "--clusters", "1", "--nodes", "2", "--once"],
        cwd=ROOT,
        user="nobody",
        group="nogroup",
        extra_groups=[],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "down after" in done.stdout
