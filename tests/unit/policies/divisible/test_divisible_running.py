"""What surrounds divisible jobs that run: submits, the plain policy, processes, explanations."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.adapters.runner.rank import chunk_variables
from coalloc.cli import main
from coalloc.client.submission import submission
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.learning.estimates import UserProgram, completed
from coalloc.daemon.solver.planner import plainly
from coalloc.daemon.store.records_json import read_record, write_object
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import DivisibleJob, RigidJob
from coalloc.model.plan import Plan
from coalloc.model.settings import JobMatchConfig, JobsConfig
from coalloc.model.snapshot import Snapshot
from coalloc.policies.checking.check import check
from coalloc.policies.explain.explain import explain_plan
from coalloc.policies.explain.words import lines

NODES = [
    {"name": "a[1-2]", "power": 1.0, "slots": 2},
    {"name": "a3", "power": 0.5, "features": ["ib"], "memory_mb": 100},
]


def snapshot_of(*queue: dict[str, Any], **more: Any) -> Snapshot:
    clusters = [{"name": "alpha", "nodes": NODES}]
    top = {"format": "coalloc-snapshot/1", "clusters": clusters, "queue": list(queue), **more}
    return read_snapshot(top)


def chunked(chunks: int, **more: Any) -> dict[str, Any]:
    return {"id": "d", "kind": "divisible", "work": 10.0 * chunks, "chunk_s": 10.0, **more}


def rigid(procs: int) -> dict[str, Any]:
    return {"id": "r", "kind": "rigid", "procs": procs, "base_time": 5.0}


def pieces(plan: Plan) -> list[tuple[dict[str, int], int | None, float]]:
    return [(dict(p.nodes), p.chunks, p.end) for p in plan.placements if p.job == "d"]


def test_plain_fills_all_free_slots() -> None:
    snapshot = snapshot_of(chunked(11))
    plan = plainly(snapshot)
    assert sum(chunks or 0 for _, chunks, _ in pieces(plan)) == 11
    assert max(end for *_, end in pieces(plan)) == 30.0
    assert check(snapshot, plan).violations == ()


def test_chunks_under_plain_delay_no_job_that_waits() -> None:
    jobs = rigid(2), {**rigid(4), "id": "s"}
    alone = {p.job: p.start for p in plainly(snapshot_of(*jobs)).placements}
    behind = plainly(snapshot_of(*jobs, chunked(3)))
    assert {p.job: p.start for p in behind.placements if p.job != "d"} == alone
    assert pieces(behind)


@pytest.mark.parametrize(
    ("wants", "nodes"),
    [
        ({"features": ["ib"]}, [{"a3": 1}]),
        ({"features": ["ib"], "memory_mb_per_proc": 101}, []),
        ({"clusters": ["alpha"]}, [{"a1": 2, "a2": 1}]),
        ({"held": True}, []),
        ({"earliest": 7.0}, [{"a1": 2, "a2": 1}]),
    ],
)
def test_plain_honours_what_a_divisible_job_asks_for(
    wants: dict[str, Any], nodes: list[dict[str, int]]
) -> None:
    plan = plainly(snapshot_of(chunked(3, **wants)))
    assert [found[0] for found in pieces(plan)] == nodes


def test_plain_leaves_nodes_alone_that_are_reserved_soon() -> None:
    kept = {"id": "k", "nodes": ["a[1-2]"], "start": 5.0, "end": 60.0}
    plan = plainly(snapshot_of(chunked(3), reservations=[kept]))
    assert [found[0] for found in pieces(plan)] == [{"a3": 1}]


@pytest.mark.parametrize(("count", "size"), [(11, 4), (4, 4), (3, 1), (2, 5)])
def test_the_processes_of_a_piece_share_its_chunks(count: int, size: int) -> None:
    told = [chunk_variables([100, count, 500], rank, size) for rank in range(size)]
    found: list[int] = []
    for env in told:
        first, mine = int(env["COALLOC_CHUNK_FIRST"]), int(env["COALLOC_CHUNKS"])
        assert count // size <= mine <= -(-count // size)
        assert env["COALLOC_CHUNKS_TOTAL"] == "500"
        found += range(first, first + mine)
    assert found == list(range(100, 100 + count))
    assert chunk_variables(None, 0, 1) == {}


def test_a_submit_of_work_in_chunks() -> None:
    body = submission(["scan"], work=100.0, chunk_s=5.0, retries=2, keep_going=True)
    assert body["job"] == {"kind": "divisible", "work": 100.0, "chunk_s": 5.0}
    assert (body["retries"], body["keep_going"]) == (2, True)
    with pytest.raises(ValueError, match="chunk_s: is missing"):
        submission(["scan"], work=100.0)
    with pytest.raises(ValueError, match="procs, work: only one of them"):
        submission(["scan"], work=100.0, chunk_s=1.0, procs=3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--divisible", "1h"], "--divisible needs --chunk"),
        (["--chunk", "1h"], "--chunk is for --divisible"),
        (["--retries", "2"], "--retries is for --divisible"),
        (["-k"], "--keep-going is for --divisible"),
        (["--divisible", "1h", "--chunk", "1m", "-n", "2"], "--divisible and --ntasks exclude"),
        (["--divisible", "1h", "--chunk", "1m", "-a", "1-3"], "--divisible and --array exclude"),
        (["--divisible", "0", "--chunk", "1m"], "is not a time above 0"),
        (["--divisible", "1h", "--chunk", "1m", "--retries", "-1"], "not a whole number"),
    ],
)
def test_what_makes_no_sense_together_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["submit", *words, "--", "true"]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    "job",
    [
        {"kind": "divisible", "work": 10.0, "chunk_s": 1.0},
        {"kind": "workflow", "tasks": [{"id": "a", "work": 1.0}]},
    ],
)
def test_a_default_bandwidth_is_for_jobs_that_can_have_one(job: dict[str, Any]) -> None:
    fields, sources = completed(
        job,
        UserProgram(user="ann", command="scan"),
        JobsConfig(match=(JobMatchConfig(proc_gbps=0.1, base_time_s=5.0, time_limit_s=60.0),)),
    )
    assert fields == {**job, "time_limit": 60.0}
    assert sources == {"time_limit": "defaults"}


def test_records_of_pieces_are_kept_and_older_ones_are_read() -> None:
    whole = DivisibleJob(id="17", work=100.0, chunk_s=10.0)
    piece = RigidJob(id="17.3", procs=2, base_time=20.0)
    for record in (
        JobRecord(id="17", job=whole, name="scan", user="ann", retries=2, keep_going=True),
        JobRecord(
            id="17.3",
            job=piece,
            name="scan",
            user="ann",
            flow="17",
            chunk_first=4,
            chunks=4,
            state=JobState.RUNNING,
        ),
    ):
        assert read_record(write_object(record)) == record
    old = write_object(JobRecord(id="1", job=piece, name="x", user="ann"))
    assert "chunk" not in old
    assert read_record(old).chunks == 0


def test_why_says_when_the_first_chunks_start() -> None:
    snapshot = snapshot_of(chunked(20), {**chunked(2, features=["gpu"]), "id": "e"})
    plan = plainly(snapshot)
    assert explain_plan(snapshot, plan, "d").reason == "starts_now"
    made = explain_plan(snapshot, plan, "e")
    assert made.tried == 0
    assert len(lines(made, snapshot)) == 1
