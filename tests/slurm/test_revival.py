"""A slurmctld that is killed forgets its last seconds; nothing runs twice, no node is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.slurm.launcher import SlurmLauncher, commands_of
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.model.parts import PartState
from tests.testbeds.slurm import Bed, alike, bed
from tests.testbeds.slurm_launches import SlurmBed

pytestmark = pytest.mark.slow


@pytest.fixture
def own() -> Iterator[Bed]:
    with bed(*alike(1, 2, conf="SlurmdTimeout=5")) as running:
        yield running


@pytest.fixture(params=["salloc", "sbatch"])
def launch(own: Bed, root: Path, request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    running = SlurmBed(root, own["a"], command_limit_s=3.0, start=request.param)
    yield running
    running.close()


def settle(own: Bed, launch: SlurmBed) -> None:
    """Let slurmctld write down all it knows: it does so within five seconds."""
    state = launch.cluster.folder / "state" / "job_state"
    before = time.time()
    launch.cluster.run("sbatch", "--hold", "-J", "settle", "-o", "/dev/null", "--wrap", "true")
    own.wait(lambda: state.exists() and state.stat().st_mtime > before, "the state is written")


def lines(launch: SlurmBed) -> list[str]:
    path = launch.cwd / "began"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_whose_start_is_forgotten_runs_once(own: Bed, launch: SlurmBed) -> None:
    settle(own, launch)
    spec = launch.shell("echo up >> began; sleep 600", nodes=(("a1", 1),))
    launch.start(spec)
    own.wait(lambda: lines(launch) == ["up"], "it runs")
    launch.cluster.kill_controller()
    launch.cluster.start_controller()
    # Slurm ends what it knows nothing of, or has kept it; both are told apart, none is repeated.
    own.wait(lambda: own_nodes_answer(launch), "the nodes are back")
    if not launch.report(spec.key).is_ended:
        launch.launcher.abort(spec.key)
    report = launch.ended(spec.key)
    assert report.state in {PartState.FINISHED, PartState.LOST}, report
    own.wait(lambda: launch.jobs() in ([], ["(null)"]), "no job of ours is left", 60.0)
    assert lines(launch) == ["up"]


def test_a_job_whose_end_is_forgotten_is_ended_again(own: Bed, launch: SlurmBed) -> None:
    spec = launch.shell("echo up >> began; read x < go", nodes=(("a1", 1),))
    fifo = launch.cwd / "go"
    os.mkfifo(fifo, 0o666)
    launch.start(spec)
    own.wait(lambda: lines(launch) == ["up"], "it runs")
    settle(own, launch)
    fifo.write_text("on\n")
    assert launch.ended(spec.key).exit_code == 0
    launch.launcher.forget(spec.key)
    launch.cluster.kill_controller()
    launch.cluster.start_controller()
    own_launcher = launch.launcher
    assert isinstance(own_launcher, SlurmLauncher)
    reader = SlurmReader(
        launch.site,
        commands_of(launch.site),
        claims=own_launcher.claims,
        given_back=own_launcher.given_back,
    )
    own.wait(lambda: own_nodes_answer(launch), "the nodes are back")
    revived = any(comment.startswith("coalloc:") for comment in launch.jobs())
    notices = reader.read().notices
    assert bool(notices) == revived, notices
    own.wait(lambda: not [c for c in launch.jobs() if c.startswith("coalloc:")], "it is gone")
    assert lines(launch) == ["up"]


def own_nodes_answer(launch: SlurmBed) -> bool:
    text = launch.cluster.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T")
    return "*" not in text and "unk" not in text
