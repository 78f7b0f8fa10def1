"""Parts on a real Slurm cluster: nodes, ranks, ends, restarts; both ways of claiming."""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.batch.token import parse_comment
from coalloc.model.parts import PartState
from tests.support.launch_bed import Signpost, wait_dead
from tests.testbeds.slurm import Bed
from tests.testbeds.slurm_launches import SlurmBed

WAYS = ("salloc", "sbatch")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def launch(clusters: Bed, root: Path, way: str) -> Iterator[SlurmBed]:
    running = SlurmBed(root, clusters["a"], start=way)
    yield running
    running.close()
    assert running.jobs() == []


@pytest.fixture
def quick(clusters: Bed, root: Path) -> Iterator[SlurmBed]:
    """The fast way alone, for what does not depend on the way."""
    running = SlurmBed(root, clusters["b"])
    yield running
    running.close()
    assert running.jobs() == []


@pytest.fixture
def sign(root: Path) -> Iterator[Signpost]:
    signpost = Signpost(root / "signpost")
    yield signpost
    signpost.close()


def is_idle(launch: SlurmBed) -> bool:
    return launch.cluster.is_idle()


def test_ranks_nodes_output_and_codes(launch: SlurmBed) -> None:
    text = 'echo "$COALLOC_RANK/$COALLOC_SIZE $COALLOC_NODE"; exit $COALLOC_RANK'
    spec = launch.shell(
        text, nodes=(("a3", 1), ("a1", 1)), first_rank=2, size=4, stdout="out-%j-%r"
    )
    report = launch.run(spec)
    assert report.state is PartState.FINISHED
    assert report.codes == (2, 3)
    assert report.reason == "exited"
    assert launch.output("out-1-2") == "2/4 a3\n"
    assert launch.output("out-1-3") == "3/4 a1\n"
    assert is_idle(launch), "the nodes are free when the end is known"


def test_what_a_process_sees(quick: SlurmBed) -> None:
    spec = quick.shell(
        "cat $COALLOC_HOSTFILE; echo $MASTER_ADDR:$MASTER_PORT $RANK $WORLD_SIZE $LOCAL_RANK;"
        "echo $COALLOC_RENDEZVOUS $COALLOC_NODELIST $COALLOC_SLURM_JOB_ID $MINE ${SLURM_JOB_ID-no}",
        env={"MINE": "kept"},
        hosts=(("b1", 1), ("c7", 2)),
        nodelist="b1,c7",
        rendezvous="10.0.0.1:4711",
        size=3,
    )
    assert quick.run(spec).exit_code == 0
    lines = quick.output().splitlines()
    assert lines[:3] == ["b1 slots=1", "c7 slots=2", "10.0.0.1:4711 0 3 0"]
    assert lines[3].split()[:2] == ["10.0.0.1:4711", "b1,c7"]
    assert lines[3].split()[2].isdecimal()
    assert lines[3].split()[3:] == ["kept", "no"]


def test_script_with_arguments(launch: SlurmBed) -> None:
    spec = launch.spec("job.sh", "one", "two words", script='#!/bin/sh\necho "$2 $1"\n')
    assert launch.run(spec).exit_code == 0
    assert launch.output() == "two words one\n"


def test_busy_node_is_refused(quick: SlurmBed) -> None:
    first = quick.shell("sleep 600")
    assert quick.claim(first).state is PartState.READY
    second = quick.claim(quick.shell("true", job="2", nodes=(("b1", 1), ("b2", 1))))
    assert second.state is PartState.REFUSED
    assert second.reason == "nodes_taken", second
    quick.launcher.abort(first.key, "enough")
    assert quick.ended(first.key).reason == "aborted"
    assert is_idle(quick)


def test_drained_node_is_refused(quick: SlurmBed) -> None:
    quick.cluster.run("scontrol", "update", "NodeName=b2", "State=DRAIN", "Reason=test")
    try:
        report = quick.claim(quick.shell("true", nodes=(("b2", 1),)))
        assert report.state is PartState.REFUSED
        assert report.reason in {"nodes_taken", "node_unavailable"}, report
    finally:
        quick.cluster.run("scontrol", "update", "NodeName=b2", "State=RESUME")


def test_closed_partition_is_refused(quick: SlurmBed) -> None:
    quick.cluster.run("scontrol", "update", "PartitionName=main", "State=INACTIVE")
    try:
        report = quick.claim(quick.shell("true"))
        assert report.state is PartState.REFUSED
        assert report.reason == "partition_closed", report
    finally:
        quick.cluster.run("scontrol", "update", "PartitionName=main", "State=UP")


def test_unknown_node_is_refused_at_once(quick: SlurmBed) -> None:
    with pytest.raises(ClaimRefusedError) as caught:
        quick.launcher.claim(quick.shell("true", nodes=(("a1", 1),)))
    assert caught.value.reason == "unknown_node"


def test_exactly_the_cpus_where_nodes_are_shared(clusters: Bed, root: Path) -> None:
    launch = SlurmBed(root, clusters["c"], slots="cpus")
    try:
        text = "echo $COALLOC_RANK $COALLOC_NODE $LOCAL_RANK"
        spec = launch.shell(text, nodes=(("c1", 3), ("c2", 1)), size=4)
        other = launch.shell("true", job="2", nodes=(("c1", 5), ("c2", 7)))
        many = launch.shell("true", job="3", nodes=(("c1", 1),))
        assert launch.claim(spec).state is PartState.READY
        assert launch.claim(other).state is PartState.READY, "the rest of both nodes is free"
        assert launch.claim(many).reason == "nodes_taken"
        for part in (spec, other):
            launch.launcher.go(part.key)
        assert launch.ended(spec.key).codes == (0, 0, 0, 0)
        assert launch.ended(other.key).exit_code == 0
        expected = ["0 c1 0", "1 c1 1", "2 c1 2", "3 c2 0"]
        assert sorted(launch.output().splitlines()) == expected
    finally:
        launch.close()


def test_abort_signals_then_kills(launch: SlurmBed, sign: Signpost) -> None:
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
    assert is_idle(launch)


def test_time_limit(quick: SlurmBed) -> None:
    report = quick.run(quick.shell("sleep 600", time_limit_s=0.5))
    assert report.state is PartState.FINISHED
    assert report.reason == "time_limit"
    assert report.exit_code == 128 + signal.SIGTERM


def test_slurms_limit_is_not_shorter_than_ours(quick: SlurmBed) -> None:
    spec = quick.shell("true", time_limit_s=61.0, lease_s=60.0)
    quick.claim(spec)
    minutes = quick.cluster.run("squeue", "-h", "-o", "%l").strip()
    assert minutes == "2:00"  # 61 s, 20 s to come up and a grace of 5 s
    quick.launcher.abort(spec.key)
    quick.ended(spec.key)


def test_lease_that_is_not_renewed(launch: SlurmBed) -> None:
    spec = launch.shell("true", lease_s=4.0)
    assert launch.claim(spec).state is PartState.READY
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED
    assert report.reason == "expired"
    assert is_idle(launch)


def test_job_that_an_administrator_cancels(launch: SlurmBed, sign: Signpost) -> None:
    spec = launch.shell(f"echo up > {sign.path}; sleep 600", nodes=(("a1", 1), ("a2", 1)), size=2)
    launch.start(spec)
    sign.line()
    launch.cluster.run("scancel", slurm_id(launch))
    report = launch.ended(spec.key)
    assert report.is_ended
    assert report.state is not PartState.REFUSED
    assert report.reason == "cancelled_there", report


def test_claim_that_an_administrator_cancels(launch: SlurmBed) -> None:
    spec = launch.shell("true")
    launch.claim(spec)
    launch.cluster.run("scancel", slurm_id(launch))
    report = launch.ended(spec.key)
    assert report.state is PartState.REFUSED, report


def test_requeued_job_starts_nothing_twice(clusters: Bed, root: Path, sign: Signpost) -> None:
    launch = SlurmBed(root, clusters["a"], start="sbatch")
    try:
        spec = launch.shell(f"echo up >> ran; echo up > {sign.path}; sleep 600")
        launch.start(spec)
        sign.line()
        number = slurm_id(launch)
        launch.cluster.run("scontrol", "update", f"JobId={number}", "Requeue=1")
        launch.cluster.run("scontrol", "requeue", number)
        report = launch.ended(spec.key)
        assert report.state in {PartState.FINISHED, PartState.LOST}
        clusters.wait(lambda: not launch.jobs(), "the requeued job is gone")
        assert launch.output("ran") == "up\n"
    finally:
        launch.close()


def test_restarted_executor_adopts(launch: SlurmBed, sign: Signpost) -> None:
    waiting = launch.shell("exit 4", job="w")
    running = launch.shell(
        f"echo up > {sign.path}; read x < {sign.path}.go; exit 5", job="r", nodes=(("a2", 1),)
    )
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


def test_killed_runner_is_replaced(launch: SlurmBed, sign: Signpost) -> None:
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


def test_runner_that_is_killed_before_the_start(launch: SlurmBed) -> None:
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


def test_slurmctld_restarts_in_between(clusters: Bed, launch: SlurmBed, sign: Signpost) -> None:
    spec = launch.shell(f"echo up > {sign.path}; read x < {sign.path}.go; exit 7")
    os.mkfifo(f"{sign.path}.go", 0o666)
    launch.start(spec)
    sign.line()
    launch.cluster.kill_controller(signal.SIGTERM)
    assert launch.report(spec.key).state is PartState.RUNNING
    launch.cluster.start_controller()
    assert launch.report(spec.key).state is PartState.RUNNING
    Path(f"{sign.path}.go").write_text("on\n")
    assert launch.ended(spec.key).exit_code == 7
    clusters.wait(launch.cluster.is_idle, "the claim was given back")


def test_token_names_the_part(quick: SlurmBed) -> None:
    spec = quick.shell("true", job="5_7", attempt=3, part=2)
    quick.claim(spec)
    (comment,) = quick.jobs()
    token = parse_comment(comment)
    assert token is not None
    assert (token.job, token.attempt, token.part) == ("5_7", 3, 2)
    assert quick.launcher.claim(spec).is_new is False
    assert len(quick.jobs()) == 1
    quick.launcher.abort(spec.key)
    quick.ended(spec.key)
    assert parse_comment("coalloc") is None
    assert parse_comment("coalloc:x:y") is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run another user's jobs")
def test_another_users_job(launch: SlurmBed) -> None:
    spec = launch.shell(
        "id -un; id -un >> theirs; ls -l $COALLOC_HOSTFILE | cut -c1-10",
        uid=NOBODY.pw_uid,
        gid=NOBODY.pw_gid,
    )
    assert launch.claim(spec).state is PartState.READY
    assert launch.cluster.run("squeue", "-h", "-o", "%u").split() == ["nobody"]
    launch.launcher.go(spec.key)
    assert launch.ended(spec.key).exit_code == 0
    assert launch.output() == "nobody\n-rw-------\n"
    assert (launch.cwd / "theirs").stat().st_uid == NOBODY.pw_uid


def test_faults_of_the_job_itself(quick: SlurmBed) -> None:
    expected: dict[str, dict[str, Any]] = {
        "not_found": {"argv": ("no-such-command-of-ours",)},
        "cwd_missing": {"cwd": "/no/such/folder"},
        "output_unwritable": {"stdout": "/no/such/folder/out"},
    }
    for number, (reason, fields) in enumerate(expected.items()):
        argv = fields.pop("argv", ("true",))
        report = quick.claim(quick.spec(*argv, job=str(number), **fields))
        assert report.state is PartState.REFUSED
        assert report.reason == reason


def test_strangers_at_the_barrier_get_nothing(quick: SlurmBed) -> None:
    import json
    import socket

    spec = quick.shell("true")
    quick.claim(spec)
    kept = json.loads((quick.state / spec.key.folder / "claim.json").read_text())
    with socket.create_connection(("127.0.0.1", kept["port"]), 5.0) as sock:
        sock.sendall(b"hello b1 00\n")
        words = sock.recv(1000).split()
        assert words[0] == b"prove"
        sock.sendall(b"prove 00\n")
        assert sock.recv(1000) == b""
    assert quick.report(spec.key).state is PartState.READY
    quick.launcher.go(spec.key)
    assert quick.ended(spec.key).exit_code == 0


def slurm_id(launch: SlurmBed) -> str:
    """The number of the only job there is."""
    (number,) = launch.cluster.run("squeue", "-h", "-o", "%i").split()
    return number


def test_no_wrapper_stays(quick: SlurmBed) -> None:
    """The folder a wrapper makes on its node is gone with it."""
    report = quick.run(quick.shell("echo $COALLOC_HOSTFILE"))
    assert report.exit_code == 0
    folder = Path(quick.output().strip()).parent
    end = time.monotonic() + 10.0
    while folder.exists():
        assert time.monotonic() < end, "the folder is still there"
        time.sleep(0.02)
