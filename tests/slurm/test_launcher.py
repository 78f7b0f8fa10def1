"""Parts on a real Slurm cluster: nodes, ranks, ends, restarts; both ways of claiming."""

from __future__ import annotations

import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.batch.token import parse_comment
from coalloc.model.sites.parts import PartState
from tests.support.launch_bed import Signpost
from tests.testbeds.slurm import SlurmTestbed
from tests.testbeds.slurm_launches import SlurmLaunches

WAYS = ("salloc", "sbatch")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def launch(clusters: SlurmTestbed, root: Path, way: str) -> Iterator[SlurmLaunches]:
    running = SlurmLaunches(root, clusters["a"], start=way)
    yield running
    running.close()
    assert running.jobs() == []


@pytest.fixture
def quick(clusters: SlurmTestbed, root: Path) -> Iterator[SlurmLaunches]:
    """The fast way alone, for what does not depend on the way."""
    running = SlurmLaunches(root, clusters["b"])
    yield running
    running.close()
    assert running.jobs() == []


@pytest.fixture
def sign(root: Path) -> Iterator[Signpost]:
    signpost = Signpost(root / "signpost")
    yield signpost
    signpost.close()


def is_idle(launch: SlurmLaunches) -> bool:
    return launch.cluster.is_idle()


def test_ranks_nodes_output_and_codes(launch: SlurmLaunches) -> None:
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


def test_what_a_process_sees(quick: SlurmLaunches) -> None:
    spec = quick.shell(
        "cat $COALLOC_HOSTFILE; echo $MASTER_ADDR:$MASTER_PORT $RANK $WORLD_SIZE $LOCAL_RANK;"
        "echo $COALLOC_RENDEZVOUS $COALLOC_NODELIST $COALLOC_SLURM_JOB_ID $MINE ${SLURM_JOB_ID-no}",
        env={"MINE": "kept"},
        all_nodes={"b1": 1, "c7": 2},
        rendezvous="10.0.0.1:4711",
        size=3,
    )
    assert quick.run(spec).exit_code == 0
    lines = quick.output().splitlines()
    assert lines[:3] == ["b1 slots=1", "c7 slots=2", "10.0.0.1:4711 0 3 0"]
    assert lines[3].split()[:2] == ["10.0.0.1:4711", "b1,c7"]
    assert lines[3].split()[2].isdecimal()
    assert lines[3].split()[3:] == ["kept", "no"]


def test_drained_node_is_refused(quick: SlurmLaunches) -> None:
    quick.cluster.run("scontrol", "update", "NodeName=b2", "State=DRAIN", "Reason=test")
    try:
        report = quick.claim(quick.shell("true", nodes=(("b2", 1),)))
        assert report.state is PartState.REFUSED
        assert report.reason in {"nodes_taken", "node_unavailable"}, report
    finally:
        quick.cluster.run("scontrol", "update", "NodeName=b2", "State=RESUME")


def test_closed_partition_is_refused(quick: SlurmLaunches) -> None:
    quick.cluster.run("scontrol", "update", "PartitionName=main", "State=INACTIVE")
    try:
        report = quick.claim(quick.shell("true"))
        assert report.state is PartState.REFUSED
        assert report.reason == "partition_closed", report
    finally:
        quick.cluster.run("scontrol", "update", "PartitionName=main", "State=UP")


def test_unknown_node_is_refused_at_once(quick: SlurmLaunches) -> None:
    with pytest.raises(ClaimRefusedError) as caught:
        quick.launcher.claim(quick.shell("true", nodes=(("a1", 1),)))
    assert caught.value.reason == "unknown_node"


def test_exactly_the_cpus_where_nodes_are_shared(clusters: SlurmTestbed, root: Path) -> None:
    launch = SlurmLaunches(root, clusters["c"], slots="cpus")
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


def test_slurms_limit_is_not_shorter_than_ours(quick: SlurmLaunches) -> None:
    spec = quick.shell("true", time_limit=61.0, lease_s=60.0)
    quick.claim(spec)
    minutes = quick.cluster.run("squeue", "-h", "-o", "%l").strip()
    assert minutes == "2:00"  # in whole minutes
    quick.launcher.abort(spec.key)
    quick.ended(spec.key)


def test_requeued_job_starts_nothing_twice(
    clusters: SlurmTestbed, root: Path, sign: Signpost
) -> None:
    launch = SlurmLaunches(root, clusters["a"], start="sbatch")
    try:
        spec = launch.shell(f"echo up >> ran; echo up > {sign.path}; sleep 600")
        launch.start(spec)
        sign.line()
        number = slurm_id(launch)
        launch.cluster.run("scontrol", "update", f"JobId={number}", "Requeue=1")
        launch.cluster.run("scontrol", "requeue", number)
        report = launch.ended(spec.key)
        assert report.state in {PartState.FINISHED, PartState.LOST}
        clusters.wait(lambda: not launch.jobs(), "the requeued job is gone", 15.0)
        assert launch.output("ran") == "up\n"
    finally:
        launch.close()


def test_token_names_the_part(quick: SlurmLaunches) -> None:
    spec = quick.shell("true", job="5_7", attempt=3, part=2)
    quick.claim(spec)
    (comment,) = quick.jobs()
    token = parse_comment(comment)
    assert token is not None
    assert (token.job, token.attempt, token.part) == ("5_7", 3, 2)
    quick.launcher.claim(spec)
    assert len(quick.jobs()) == 1
    quick.launcher.abort(spec.key)
    quick.ended(spec.key)
    assert parse_comment("coalloc") is None
    assert parse_comment("coalloc:x:y") is None


def test_faults_of_the_job_itself(quick: SlurmLaunches) -> None:
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


def test_strangers_at_the_barrier_get_nothing(quick: SlurmLaunches) -> None:
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


def slurm_id(launch: SlurmLaunches) -> str:
    """The number of the only job there is."""
    (number,) = launch.cluster.run("squeue", "-h", "-o", "%i").split()
    return number


@pytest.mark.parametrize("end", ["true", "kill -9 $PPID"])
def test_no_wrapper_stays(quick: SlurmLaunches, end: str) -> None:
    """What a wrapper has written on its node is gone with it, also where it is killed."""
    show = "echo $COALLOC_HOSTFILE; readlink $COALLOC_HOSTFILE; wc -l <$COALLOC_HOSTFILE"
    report = quick.run(quick.shell(f"{show}; {end}"))
    assert (report.exit_code == 0) == (end == "true")
    path, written, lines = quick.output().splitlines()
    assert lines == "1"
    assert not Path(written).parent.exists()
    deadline = time.monotonic() + 10.0
    while Path(path).exists():
        assert time.monotonic() < deadline, "the wrapper is still there"
        time.sleep(0.02)
