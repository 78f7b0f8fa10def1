"""A slurmctld that is killed forgets its last seconds; nothing runs twice, no node is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.slurm.launcher import SlurmLauncher, commands_of
from coalloc.adapters.slurm.reader import SlurmReader
from coalloc.model.sites.parts import PartState
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_launches import SlurmLaunches, settle

pytestmark = pytest.mark.slow


@pytest.fixture
def own() -> Iterator[SlurmTestbed]:
    with bed(*alike(1, 2, conf="SlurmdTimeout=5")) as running:
        yield running


@pytest.fixture(params=["salloc", "sbatch"])
def launch(
    own: SlurmTestbed, root: Path, request: pytest.FixtureRequest
) -> Iterator[SlurmLaunches]:
    running = SlurmLaunches(root, own["a"], command_limit_s=3.0, start=request.param)
    yield running
    running.close()


def lines(launch: SlurmLaunches) -> list[str]:
    path = launch.cwd / "began"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_whose_start_is_forgotten_runs_once(own: SlurmTestbed, launch: SlurmLaunches) -> None:
    settle(own, launch.cluster)
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


def test_a_job_whose_end_is_forgotten_is_ended_again(
    own: SlurmTestbed, launch: SlurmLaunches
) -> None:
    spec = launch.shell("echo up >> began; read x < go", nodes=(("a1", 1),))
    fifo = launch.cwd / "go"
    os.mkfifo(fifo, 0o666)
    launch.start(spec)
    own.wait(lambda: lines(launch) == ["up"], "it runs")
    settle(own, launch.cluster)
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
    for act in reader.due():
        act.run()
    assert bool(notices) == revived, notices
    own.wait(lambda: not [c for c in launch.jobs() if c.startswith("coalloc:")], "it is gone")
    assert lines(launch) == ["up"]


def own_nodes_answer(launch: SlurmLaunches) -> bool:
    text = launch.cluster.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T")
    return "*" not in text and "unk" not in text
