"""Parts whose node, or whose slurmctld, is lost; each on clusters of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.model.sites.parts import PartState
from tests.support.launch_bed import Signpost
from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_launches import SlurmLaunches


@pytest.fixture
def own() -> Iterator[SlurmTestbed]:
    """Clusters that a test may break."""
    with bed(*alike(1, 3, conf="SlurmdTimeout=5")) as running:
        yield running


@pytest.fixture
def launch(own: SlurmTestbed, root: Path) -> Iterator[SlurmLaunches]:
    running = SlurmLaunches(root, own["a"], command_limit_s=2.0)
    yield running
    running.close()


@pytest.fixture
def sign(root: Path) -> Iterator[Signpost]:
    signpost = Signpost(root / "signpost")
    yield signpost
    signpost.close()


@pytest.mark.slow
def test_node_that_dies(own: SlurmTestbed, launch: SlurmLaunches, sign: Signpost) -> None:
    spec = launch.shell(f"echo up > {sign.path}; sleep 600", nodes=(("a1", 1), ("a2", 1)), size=2)
    launch.start(spec)
    sign.line()
    launch.cluster.kill_node("a2")
    own.wait(lambda: launch.report(spec.key).is_ended, "the part ends", 60.0)
    report = launch.report(spec.key)
    assert report.state is PartState.LOST
    assert report.reason in {"step_failed", "node_failed"}, report


@pytest.mark.slow
def test_node_that_dies_at_the_barrier(launch: SlurmLaunches) -> None:
    spec = launch.shell("touch began", nodes=(("a1", 1), ("a2", 1)), size=2)
    assert launch.claim(spec).state is PartState.READY
    launch.cluster.kill_node("a2")
    launch.launcher.go(spec.key)
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert not (launch.cwd / "began").exists()


@pytest.mark.slow
def test_end_while_nobody_answers_for_the_cluster(
    own: SlurmTestbed, launch: SlurmLaunches, sign: Signpost
) -> None:
    spec = launch.shell(f"echo up > {sign.path}; read x < {sign.path}.go; exit 7")
    os.mkfifo(f"{sign.path}.go", 0o666)
    launch.start(spec)
    sign.line()
    launch.cluster.kill_controller(signal.SIGTERM)
    Path(f"{sign.path}.go").write_text("on\n")
    assert launch.ended(spec.key).exit_code == 7
    refused = launch.claim(launch.shell("true", job="2", nodes=(("a2", 1),)))
    assert refused.state is PartState.REFUSED
    assert refused.reason == "unreachable"
    launch.cluster.start_controller()
    own.wait(
        lambda: "idle" in launch.cluster.run("sinfo", "-h", "-n", "a3", "-o", "%T"), "a3 is up"
    )
    assert launch.run(launch.shell("true", job="3", nodes=(("a3", 1),))).exit_code == 0
