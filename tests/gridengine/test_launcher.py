"""Parts on a real Grid Engine cell: slots, ranks, ends, refusals, restarts."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.launcher import BatchLauncher
from coalloc.adapters.batch.token import claim_in_name
from coalloc.model.parts import PartState
from tests.support.launch_bed import Signpost, wait_dead
from tests.testbeds.gridengine import Bed
from tests.testbeds.gridengine_launches import GridEngineBed

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def launch(cells: Bed, root: Path) -> Iterator[GridEngineBed]:
    running = GridEngineBed(root, cells["p"])
    yield running
    running.close()
    cells.wait(running.cell.is_idle, "no job stays")


@pytest.fixture
def sign(root: Path) -> Iterator[Signpost]:
    signpost = Signpost(root / "signpost")
    yield signpost
    signpost.close()


def number_of(launch: GridEngineBed) -> str:
    """The number of the only job there is."""
    (job,) = launch.cell.status().jobs()
    return job.number


def test_ranks_slots_output_and_codes(launch: GridEngineBed) -> None:
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


def test_what_a_process_sees(launch: GridEngineBed) -> None:
    spec = launch.shell(
        "cat $COALLOC_HOSTFILE; echo $MASTER_ADDR:$MASTER_PORT $RANK $WORLD_SIZE $LOCAL_RANK;"
        "echo $COALLOC_GRIDENGINE_JOB_ID $MINE ${JOB_ID-no} ${COALLOC_BARRIER_KEY-no}",
        env={"MINE": "kept"},
        hosts=(("localhost", 1), ("c7", 2)),
        rendezvous="10.0.0.1:4711",
        size=3,
    )
    assert launch.run(spec).exit_code == 0
    lines = launch.output().splitlines()
    assert lines[:3] == ["localhost slots=1", "c7 slots=2", "10.0.0.1:4711 0 3 0"]
    number, *rest = lines[3].split()
    assert number.isdecimal()
    assert rest == ["kept", "no", "no"]


def test_script_with_arguments(launch: GridEngineBed) -> None:
    spec = launch.spec("job.sh", "one", "two words", script='#!/bin/sh\necho "$2 $1"\n')
    assert launch.run(spec).exit_code == 0
    assert launch.output() == "two words one\n"


def test_taken_slots_are_refused(launch: GridEngineBed) -> None:
    first = launch.shell("sleep 600", nodes=(("localhost", 3),))
    assert launch.claim(first).state is PartState.READY
    second = launch.claim(launch.shell("true", job="2", nodes=(("localhost", 2),)))
    assert second.state is PartState.REFUSED
    assert second.reason == "nodes_taken", second
    assert len(launch.jobs()) == 1, "what was refused was never submitted"
    launch.launcher.abort(first.key, "enough")
    assert launch.ended(first.key).reason == "aborted"
    assert launch.cell.is_idle()


def test_host_that_is_claimed_whole(cells: Bed, root: Path) -> None:
    launch = GridEngineBed(root, cells["q"], slots="node")
    try:
        spec = launch.shell("true")
        assert launch.claim(spec).state is PartState.READY
        (job,) = launch.cell.status().jobs()
        assert job.slots == 4
        launch.launcher.go(spec.key)
        assert launch.ended(spec.key).codes == (0,)
        with pytest.raises(ClaimRefusedError, match="one process"):
            launch.launcher.claim(launch.shell("true", job="2", nodes=(("localhost", 2),)))
    finally:
        launch.close()


def test_what_cannot_be_claimed_at_all(launch: GridEngineBed) -> None:
    for nodes, reason in (((("n9", 1),), "unknown_node"), ((("localhost", 5),), "nodes_taken")):
        with pytest.raises(ClaimRefusedError) as caught:
            launch.launcher.claim(launch.shell("true", nodes=nodes))
        assert caught.value.reason == reason


def test_disabled_queue_is_refused(launch: GridEngineBed) -> None:
    launch.cell.run("qmod", "-d", "main@localhost")
    try:
        report = launch.claim(launch.shell("true"))
        assert report.state is PartState.REFUSED
        assert report.reason == "node_unavailable", report
    finally:
        launch.cell.run("qmod", "-e", "main@localhost")


def test_part_that_grid_engine_does_not_start(cells: Bed, root: Path) -> None:
    """Free when it was asked for, taken by another before the scheduling run."""
    launch = GridEngineBed(root, cells["q"], queue_wait_s=2.0)
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


def test_abort_signals_then_kills(launch: GridEngineBed, sign: Signpost) -> None:
    spec = launch.shell(
        f"trap '' TERM; echo up > {sign.path}; while :; do sleep 600; done", grace_s=0.2
    )
    launch.start(spec)
    sign.line()
    launch.launcher.abort(spec.key)
    report = launch.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert report.reason == "aborted"
    assert report.codes == (-signal.SIGKILL,)


def test_time_limits(launch: GridEngineBed) -> None:
    spec = launch.shell("sleep 600", time_limit_s=0.5, lease_s=60.0)
    launch.claim(spec)
    (job,) = launch.cell.status().jobs()
    assert job.time_limit == 126.0  # ours, a lease, a grace of 5 s and 60 s to spare
    launch.launcher.go(spec.key)
    report = launch.ended(spec.key)
    assert report.reason == "time_limit"
    assert report.exit_code == 128 + signal.SIGTERM


def test_lease_that_is_not_renewed(launch: GridEngineBed) -> None:
    spec = launch.shell("true", lease_s=6.0)
    assert launch.claim(spec).state is PartState.READY
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert report.reason == "expired"


def test_claim_that_an_administrator_deletes(launch: GridEngineBed) -> None:
    spec = launch.shell("touch began")
    launch.claim(spec)
    launch.cell.run("qdel", number_of(launch))
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED, report
    launch.launcher.go(spec.key)
    assert not (launch.cwd / "began").exists()


def test_job_that_an_administrator_deletes(launch: GridEngineBed, sign: Signpost) -> None:
    """Its end is not a success, and none of its processes stays."""
    spec = launch.shell(f"echo $$ > {sign.path}; exec sleep 600")
    launch.start(spec)
    pid = int(sign.line())
    launch.cell.run("qdel", number_of(launch))
    report = launch.ended(spec.key)
    assert report.state is PartState.LOST, report
    assert report.reason in {"vanished", "cancelled_there"}
    wait_dead(pid)


def test_restarted_executor_adopts(launch: GridEngineBed, sign: Signpost) -> None:
    waiting = launch.shell("exit 4", job="w")
    running = launch.shell(f"echo up > {sign.path}; read x < {sign.path}.go; exit 5", job="r")
    os.mkfifo(f"{sign.path}.go", 0o666)
    launch.claim(waiting)
    launch.start(running)
    sign.line()
    launch.restart()
    states = {report.key: report.state for report in launch.launcher.adopt()}
    assert states == {waiting.key: PartState.READY, running.key: PartState.RUNNING}
    launch.launcher.go(waiting.key)
    assert launch.ended(waiting.key).exit_code == 4
    Path(f"{sign.path}.go").write_text("on\n")
    assert launch.ended(running.key).exit_code == 5


def test_killed_runner_is_replaced(launch: GridEngineBed, sign: Signpost) -> None:
    """What ran goes on, and its exit code is not lost."""
    spec = launch.shell(f"echo up > {sign.path}; read x < {sign.path}.go; exit 6")
    os.mkfifo(f"{sign.path}.go", 0o666)
    before = launch.start(spec)
    sign.line()
    pid = launch.runner_pid(spec.key)
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)
    assert launch.report(spec.key).state is PartState.RUNNING
    Path(f"{sign.path}.go").write_text("on\n")
    report = launch.ended(spec.key)
    assert report.state is PartState.FINISHED
    assert report.exit_code == 6
    assert report.started == before.started


def test_runner_that_is_killed_before_the_start(launch: GridEngineBed) -> None:
    spec = launch.shell("touch began")
    launch.claim(spec)
    pid = launch.runner_pid(spec.key)
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)
    launch.launcher.go(spec.key)
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert report.reason == "runner_died"
    assert not (launch.cwd / "began").exists()


def test_qmaster_restarts_in_between(cells: Bed, launch: GridEngineBed, sign: Signpost) -> None:
    spec = launch.shell(f"echo up > {sign.path}; read x < {sign.path}.go; exit 7")
    os.mkfifo(f"{sign.path}.go", 0o666)
    launch.start(spec)
    sign.line()
    launch.cell.kill_qmaster()
    try:
        assert launch.report(spec.key).state is PartState.RUNNING
        with pytest.raises(AdapterError):
            launch.launcher.claim(launch.shell("true", job="2", nodes=(("n9", 1),)))
    finally:
        launch.cell.start_qmaster()
    Path(f"{sign.path}.go").write_text("on\n")
    assert launch.ended(spec.key).exit_code == 7


def test_name_is_the_parts(launch: GridEngineBed) -> None:
    spec = launch.shell("true", job="5_7", attempt=3, part=2)
    launch.claim(spec)
    (name,) = launch.jobs()
    assert isinstance(launch.launcher, BatchLauncher)
    assert launch.launcher.claims() == {claim_in_name(name)}
    assert launch.launcher.claim(spec).is_new is False
    assert len(launch.jobs()) == 1
    launch.launcher.abort(spec.key)
    launch.ended(spec.key)


def test_another_users_job(launch: GridEngineBed) -> None:
    spec = launch.shell("id -un; id -un >> theirs", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    report = launch.claim(spec)
    assert report.state is PartState.READY, report
    (job,) = launch.cell.status().jobs()
    assert job.owner == "nobody"
    launch.launcher.go(spec.key)
    assert launch.ended(spec.key).exit_code == 0
    assert launch.output() == "nobody\n"
    assert (launch.cwd / "theirs").stat().st_uid == NOBODY.pw_uid
