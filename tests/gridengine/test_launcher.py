"""Parts on a real Grid Engine cell: slots, ranks, ends, refusals, restarts."""

from __future__ import annotations

import pwd
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.batch.launcher import BatchLauncher
from coalloc.adapters.batch.token import claim_in_name
from coalloc.model.sites.parts import PartState
from tests.testbeds.gridengine import GridEngineTestbed
from tests.testbeds.gridengine_launches import GridEngineLaunches

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def launch(cells: GridEngineTestbed, root: Path) -> Iterator[GridEngineLaunches]:
    running = GridEngineLaunches(root, cells["p"])
    yield running
    running.close()
    cells.wait(running.cell.is_idle, "no job stays")


def test_ranks_slots_output_and_codes(launch: GridEngineLaunches) -> None:
    text = 'echo "$COALLOC_RANK/$COALLOC_SIZE $LOCAL_RANK $COALLOC_NODE"; exit $COALLOC_RANK'
    spec = launch.shell(text, nodes=(("localhost", 3),), first_rank=2, size=5, stdout="out-%j-%r")
    assert launch.claim(spec).state is PartState.READY
    (job,) = launch.cell.status().jobs()
    assert job.slots == 3
    launch.launcher.go(spec.key)
    report = launch.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert report.codes == (2, 3, 4)
    assert report.reason == "exited"
    for rank in range(3):
        assert launch.output(f"out-1-{rank + 2}") == f"{rank + 2}/5 {rank} localhost\n"
    assert launch.cell.is_idle(), "the slots are free when the end is known"


def test_what_a_process_sees(launch: GridEngineLaunches) -> None:
    spec = launch.shell(
        "cat $COALLOC_HOSTFILE; echo $MASTER_ADDR:$MASTER_PORT $RANK $WORLD_SIZE $LOCAL_RANK;"
        "echo $COALLOC_GRIDENGINE_JOB_ID $MINE ${JOB_ID-no} ${COALLOC_BARRIER_KEY-no}",
        env={"MINE": "kept"},
        all_nodes={"localhost": 1, "c7": 2},
        rendezvous="10.0.0.1:4711",
        size=3,
    )
    assert launch.run(spec).exit_code == 0
    lines = launch.output().splitlines()
    assert lines[:3] == ["localhost slots=1", "c7 slots=2", "10.0.0.1:4711 0 3 0"]
    number, *rest = lines[3].split()
    assert number.isdecimal()
    assert rest == ["kept", "no", "no"]


def test_host_that_is_claimed_whole(cells: GridEngineTestbed, root: Path) -> None:
    launch = GridEngineLaunches(root, cells["q"], slots="node")
    try:
        spec = launch.shell("true")
        assert launch.claim(spec).state is PartState.READY
        (job,) = launch.cell.status().jobs()
        assert job.slots == 4
        launch.launcher.go(spec.key)
        assert launch.ended(spec.key).codes == (0,)
        with pytest.raises(ClaimRefusedError, match="has 1 slots, 2 are asked for"):
            launch.launcher.claim(launch.shell("true", job="2", nodes=(("localhost", 2),)))
    finally:
        launch.close()


def test_what_cannot_be_claimed_at_all(launch: GridEngineLaunches) -> None:
    for nodes, reason in (((("n9", 1),), "unknown_node"), ((("localhost", 5),), "nodes_taken")):
        with pytest.raises(ClaimRefusedError) as caught:
            launch.launcher.claim(launch.shell("true", nodes=nodes))
        assert caught.value.reason == reason


def test_disabled_queue_is_refused(launch: GridEngineLaunches) -> None:
    launch.cell.run("qmod", "-d", "main@localhost")
    try:
        report = launch.claim(launch.shell("true"))
        assert report.state is PartState.REFUSED
        assert report.reason == "node_unavailable", report
    finally:
        launch.cell.run("qmod", "-e", "main@localhost")


def test_part_that_grid_engine_does_not_start(cells: GridEngineTestbed, root: Path) -> None:
    """Free when it was asked for, taken by another before the scheduling run."""
    launch = GridEngineLaunches(root, cells["q"], queue_wait_s=2.0)
    cell = cells["q"]
    try:
        cell.run("qconf", "-kt", "scheduler")  # nothing starts any more
        report = launch.claim(launch.shell("true"))
        assert report.state is PartState.REFUSED
        assert report.reason == "nodes_taken", report
        assert "2 s" in report.detail
    finally:
        cell.run("qconf", "-at", "scheduler")
        launch.close()
    cells.wait(cell.is_idle, "the job was taken back")


def test_time_limits(launch: GridEngineLaunches) -> None:
    spec = launch.shell("sleep 600", time_limit=0.5, lease_s=60.0)
    launch.claim(spec)
    (job,) = launch.cell.status().jobs()
    assert job.time_limit == 126.0  # ours, a lease, a grace of 5 s and 60 s to spare
    launch.launcher.go(spec.key)
    report = launch.ended(spec.key)
    assert report.reason == "time_limit"
    assert report.exit_code == 128 + signal.SIGTERM


def test_name_is_the_parts(launch: GridEngineLaunches) -> None:
    spec = launch.shell("true", job="5_7", attempt=3, part=2)
    launch.claim(spec)
    (name,) = launch.jobs()
    assert isinstance(launch.launcher, BatchLauncher)
    assert launch.launcher.claims() == {claim_in_name(name)}
    launch.launcher.claim(spec)
    assert len(launch.jobs()) == 1
    launch.launcher.abort(spec.key)
    launch.ended(spec.key)
