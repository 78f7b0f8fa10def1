"""Divisible jobs in the daemon's core: pieces of chunks, failure, cancel, hold, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coalloc.core.base.composites import ChunkPool
from coalloc.core.base.events import IncumbentFound, Solved, StatementReceived
from coalloc.core.base.messages import Abort, Hello, Prepare, Read
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import (
    Cancel,
    Command,
    Done,
    Hold,
    Refused,
    Release,
    Reserve,
    RoundNow,
    Submit,
    Update,
)
from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.sites.parts import Launch, PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Reservation
from tests.support.core_site import Site

Piece = tuple[float, float, dict[str, int], int]
"""Start and end after the snapshot's time, nodes, chunks."""


def patient(nodes: int = 4, **settings: Any) -> Site:
    """A site whose plans are given by hand."""
    return Site({"a": nodes}, solving=False, prepare_timeout_s=1e9, **settings)


def submit(site: Site, chunks: int, chunk_s: float = 10.0, **fields: Any) -> str:
    job = {"kind": "divisible", "work": chunks * chunk_s, "chunk_s": chunk_s}
    command = Submit(
        token=f"t{len(site.answers)}",
        job={**job, **fields.pop("job", {})},
        launch=Launch(argv=("scan",)),
        **fields,
    )
    answer = site.ask(command)
    assert isinstance(answer, Done), answer
    return str(answer.body["job"])


def plan_of(time: float, job: str, pieces: Sequence[Piece], *others: Placement) -> Plan:
    mine = tuple(
        Placement(job=job, start=time + start, end=time + end, nodes=nodes, chunks=chunks)
        for start, end, nodes, chunks in pieces
    )
    return Plan(
        policy="by-hand",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=(*others, *mine),
    )


def planned(site: Site, job: str, *pieces: Piece, others: Sequence[Placement] = ()) -> None:
    """Answer the pending solve."""
    solve = site.pending_solves.pop()
    plan = plan_of(solve.snapshot.time, job, pieces, *others)
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))


def left(site: Site) -> list[int]:
    """Chunks that the pending round has to plan, of each divisible job."""
    queue = site.pending_solves[-1].snapshot.queue
    return [job.chunks for job in queue if isinstance(job, DivisibleJob)]


def pieces(site: Site, job: str) -> dict[str, tuple[int, int, str]]:
    """First chunk, count and state of each piece, by its number."""
    found = (record for record in site.state.jobs.values() if record.flow == job)
    return {
        r.id.partition(".")[2]: (r.chunk_first, r.chunks, str(r.state))
        for r in sorted(found, key=lambda r: int(r.id.partition(".")[2]))
    }


def end(site: Site, piece: str, code: int = 0, after: float | None = None) -> None:
    """Run a placed piece to its end."""
    site.run(piece)
    site.wait(site.job(piece).planned if after is None else after)
    started = site.job(piece).started
    site.say(
        piece, PartState.FINISHED, exit_code=code, started=started, ended=site.now, reason="exited"
    )


def test_pieces_take_the_lowest_chunks_and_the_job_ends_with_the_last() -> None:
    site = patient()
    job = submit(site, 10)
    planned(site, job, (0.0, 20.0, {"a1": 1, "a2": 1}, 4), (0.0, 10.0, {"a3": 1}, 1))
    assert pieces(site, job) == {"1": (0, 4, "preparing"), "2": (4, 1, "preparing")}
    assert site.job(job).state is JobState.RUNNING
    ((_, order),) = site.orders_for(f"{job}.1", Prepare)
    assert (order.chunk_first, order.chunks, order.chunks_total) == (0, 4, 10)
    assert dict(order.nodes) == {"a1": 1, "a2": 1}
    end(site, f"{job}.2")
    assert left(site) == [5]
    planned(site, job, (0.0, 50.0, {"a3": 1}, 5))
    assert pieces(site, job)["3"] == (5, 5, "preparing")
    end(site, f"{job}.1")
    planned(site, job)
    assert site.job(job).state is JobState.RUNNING
    end(site, f"{job}.3")
    record = site.job(job)
    assert (record.state, record.exit_code, record.reason) == (JobState.COMPLETED, 0, "")
    assert {note["chunks"] for note in site.notes("job_ended") if "chunks" in note} == {
        "0-3",
        "4",
        "5-9",
    }


def test_what_runs_is_in_no_later_round() -> None:
    site = patient()
    job = submit(site, 4)
    planned(site, job, (0.0, 40.0, {"a1": 1}, 4))
    other = site.submit(2)
    snapshot = site.pending_solves[-1].snapshot
    assert [waiting.id for waiting in snapshot.queue] == [other]
    assert [(busy.id, dict(busy.nodes), busy.end) for busy in snapshot.running] == [
        (f"{job}.1", {"a1": 1}, site.now + 40.0)
    ]


def test_no_piece_runs_for_longer_than_the_site_says() -> None:
    site = patient(piece_s=25.0)
    job = submit(site, 100)
    planned(site, job, (0.0, 500.0, {"a1": 1, "a2": 1}, 100))
    record = site.job(f"{job}.1")
    assert (record.chunks, record.planned) == (4, 20.0)
    long = patient(piece_s=3.0)
    job = submit(long, 100)
    planned(long, job, (0.0, 500.0, {"a1": 1, "a2": 1}, 100))
    # One chunk for each process is the least.
    assert (long.job(f"{job}.1").chunks, long.job(f"{job}.1").planned) == (2, 10.0)


def test_a_time_limit_is_that_of_each_piece() -> None:
    site = patient()
    job = submit(site, 100, job={"time_limit": 30.0})
    planned(site, job, (0.0, 1000.0, {"a1": 1}, 100))
    assert site.job(f"{job}.1").chunks == 3
    assert site.orders_for(f"{job}.1", Prepare)[0][1].time_limit == 30.0


def test_later_pieces_of_a_plan_wait_for_their_round() -> None:
    site = patient()
    job = submit(site, 10)
    planned(site, job, (50.0, 100.0, {"a1": 1}, 5), (50.0, 100.0, {"a2": 1}, 5))
    assert pieces(site, job) == {}
    assert site.state.findings.outlook[job].start == site.now + 50.0


def test_first_incumbents_start_no_pieces() -> None:
    site = patient()
    job = submit(site, 10)
    solve = site.pending_solves[-1]
    plan = plan_of(site.now, job, [(0.0, 100.0, {"a1": 1}, 10)])
    site.do(IncumbentFound(round=solve.round, plan=plan))
    assert pieces(site, job) == {}
    planned(site, job, (0.0, 100.0, {"a2": 1}, 10))
    assert list(site.job(f"{job}.1").parts[0].nodes) == ["a2"]


def test_a_plan_that_comes_late_delays_nobody_behind_a_piece() -> None:
    site = patient()
    job = submit(site, 10)
    rigid = site.submit(1)
    time = site.pending_solves[-1].snapshot.time
    behind = Placement(job=rigid, start=time + 50.0, end=time + 60.0, nodes={"a1": 1})
    site.wait(7.0)
    assert len(site.pending_solves) == 1
    planned(site, job, (0.0, 50.0, {"a1": 1}, 5), (0.0, 50.0, {"a2": 1}, 5), others=[behind])
    # Of 50 s only 43 s are left on a1; nothing is behind a2.
    assert [site.job(f"{job}.{n}").chunks for n in (1, 2)] == [4, 5]
    assert site.job(f"{job}.1").planned == 40.0


def test_a_late_plan_starts_nothing_where_not_even_one_chunk_ends_in_time() -> None:
    site = patient()
    kept = Reservation(id="r", nodes=("a1",), start=site.now + 10.0, end=site.now + 99.0)
    nodes = tuple(NodeReading(name=f"a{i}") for i in range(1, 5))
    reading = ClusterReading(cluster="a", nodes=nodes, reservations=(kept,))
    site.do(StatementReceived(statement=Read(cluster="a", reading=reading)))
    job = submit(site, 10)
    site.wait(1.0)
    planned(site, job, (0.0, 10.0, {"a1": 1}, 1))
    assert pieces(site, job) == {}


@pytest.mark.parametrize(
    "command", [Reserve(targets=("a1",)), Update(job="1", fields={"time_limit": 20.0})]
)
def test_a_plan_made_before_a_change_starts_no_pieces(command: Command) -> None:
    site = patient()
    job = submit(site, 10)
    assert job == "1"
    assert isinstance(site.ask(command, operator=True), Done)
    planned(site, job, (0.0, 50.0, {"a1": 1}, 5))
    assert pieces(site, job) == {}
    planned(site, job, (0.0, 20.0, {"a2": 1}, 2))  # another round knows of it
    assert pieces(site, job) == {"1": (0, 2, "preparing")}


def test_a_plan_made_before_a_reservation_starts_no_more_pieces() -> None:
    site = patient()
    job = submit(site, 10)
    planned(site, job, (0.0, 20.0, {"a2": 1}, 2), (50.0, 130.0, {"a1": 1}, 8))
    site.wait(1.0)
    assert isinstance(site.ask(RoundNow(), operator=True), Done)
    assert isinstance(site.ask(Reserve(targets=("a1",)), operator=True), Done)
    planned(site, job, (0.0, 80.0, {"a1": 1}, 8))
    assert list(pieces(site, job)) == ["1"]


def test_a_piece_that_no_longer_fits_asks_for_another_round() -> None:
    site = patient(nodes=1)
    job = submit(site, 10)
    planned(site, job, (0.0, 10.0, {"a1": 2}, 2))
    assert pieces(site, job) == {}
    assert site.state.findings.outlook[job].reason == "superseded"
    assert left(site) == [10]


def test_a_failed_piece_is_tried_again_with_its_chunks_then_the_job_fails() -> None:
    site = patient(backoff_first_s=1.0)
    job = submit(site, 6, retries=1)
    planned(site, job, (0.0, 20.0, {"a1": 1, "a2": 1}, 4))
    end(site, f"{job}.1", code=3)
    assert pieces(site, job) == {"1": (0, 4, "pending")}
    assert left(site) == [2], "the four rest"
    planned(site, job)
    site.wait(1.5)
    assert left(site) == [6]
    planned(site, job, (0.0, 20.0, {"a1": 1, "a2": 1}, 4), (0.0, 20.0, {"a3": 1}, 2))
    assert pieces(site, job) == {"1": (0, 4, "preparing"), "2": (4, 2, "preparing")}
    assert site.job(f"{job}.1").attempt == 2
    end(site, f"{job}.1", code=3)
    assert site.job(f"{job}.1").state is JobState.FAILED
    assert site.job(job).state is JobState.RUNNING, "the other piece goes on"
    end(site, f"{job}.2")
    record = site.job(job)
    assert (record.state, record.reason, record.exit_code) == (JobState.FAILED, "piece_failed", 3)
    assert record.detail == ("chunks 0-3 failed: exit code 3; 2 of 6 chunks completed, failed: 0-3")


def test_with_less_room_a_new_piece_has_the_rest_and_the_failures() -> None:
    site = patient(backoff_first_s=1.0)
    job = submit(site, 8, retries=2)
    planned(site, job, (0.0, 20.0, {"a1": 1, "a2": 1, "a3": 1}, 6))
    end(site, f"{job}.1", code=3)
    planned(site, job)
    site.wait(1.5)
    planned(site, job, (0.0, 20.0, {"a4": 1}, 2))
    assert pieces(site, job) == {"1": (0, 2, "preparing"), "2": (2, 4, "pending")}
    assert [site.job(f"{job}.{n}").failures for n in (1, 2)] == [1, 1]
    end(site, f"{job}.1")
    # One placement serves several rows of chunks, each with a piece of its own.
    planned(site, job, (0.0, 20.0, {"a1": 1, "a2": 1, "a3": 1}, 6))
    assert pieces(site, job) == {
        "1": (0, 2, "completed"),
        "2": (2, 4, "preparing"),
        "3": (6, 2, "preparing"),
    }
    used = [dict(site.job(f"{job}.{n}").parts[0].nodes) for n in (2, 3)]
    assert used == [{"a1": 1, "a2": 1}, {"a3": 1}]


def test_an_unknown_end_is_no_failure_and_a_lost_one_is() -> None:
    site = patient()
    job = submit(site, 4, retries=1)
    planned(site, job, (0.0, 40.0, {"a1": 1}, 4))
    site.run(f"{job}.1")
    site.wait(10_000.0)
    assert site.job(f"{job}.1").state is JobState.RUNNING
    if site.pending_solves:
        assert left(site) == []
    site.say(f"{job}.1", PartState.LOST, reason="lost", detail="node gone")
    assert pieces(site, job) == {"1": (0, 4, "pending")}


def test_a_refused_piece_waits_and_a_missing_command_fails_the_job() -> None:
    site = patient(backoff_first_s=1.0)
    job = submit(site, 4)
    planned(site, job, (0.0, 40.0, {"a1": 1}, 4))
    site.say(f"{job}.1", PartState.REFUSED, reason="nodes_taken", detail="taken")
    assert pieces(site, job) == {"1": (0, 4, "pending")}
    site.wait(1.5)
    planned(site, job, (0.0, 40.0, {"a2": 1}, 4))
    site.say(f"{job}.1", PartState.REFUSED, reason="not_found", detail="no scan")
    assert site.job(job).state is JobState.FAILED
    assert "failed: 0-3" in site.job(job).detail


def test_keep_going_runs_the_other_chunks() -> None:
    site = patient()
    job = submit(site, 4, keep_going=True)
    planned(site, job, (0.0, 20.0, {"a1": 1}, 2))
    end(site, f"{job}.1", code=9)
    planned(site, job, (0.0, 20.0, {"a1": 1}, 2))
    assert pieces(site, job)["2"] == (2, 2, "preparing")
    end(site, f"{job}.2")
    assert site.job(job).detail.endswith("2 of 4 chunks completed, failed: 0-1")


def test_cancel_ends_all_pieces_and_cancel_of_one_fails_the_job() -> None:
    site = patient()
    job = submit(site, 8)
    planned(site, job, (0.0, 20.0, {"a1": 1}, 2), (0.0, 20.0, {"a2": 1}, 2))
    site.run(f"{job}.1")
    assert isinstance(site.ask(Cancel(job=job)), Done)
    assert site.orders_for(f"{job}.1", Abort)
    assert pieces(site, job)["2"][2] == "cancelled", "it had not been told to start"
    site.say(f"{job}.1", PartState.FINISHED, exit_code=143, reason="aborted", ended=site.now)
    record = site.job(job)
    assert record.state is JobState.CANCELLED
    assert record.detail == "cancelled by ann; 0 of 8 chunks completed, failed: 0-3"
    other = submit(site, 8)
    planned(site, other, (0.0, 20.0, {"a1": 1}, 2))
    site.run(f"{other}.1")
    assert isinstance(site.ask(Cancel(job=f"{other}.1")), Done)
    assert isinstance(site.ask(Cancel(job=f"{other}.7")), Refused)
    site.say(f"{other}.1", PartState.FINISHED, exit_code=143, reason="aborted", ended=site.now)
    assert site.job(other).state is JobState.FAILED


def test_hold_stops_new_pieces_and_release_goes_on() -> None:
    site = patient()
    job = submit(site, 4)
    planned(site, job, (0.0, 20.0, {"a1": 1}, 2))
    assert isinstance(site.ask(Hold(job=job)), Done)
    assert isinstance(site.ask(Hold(job=f"{job}.1")), Refused)
    end(site, f"{job}.1")
    assert left(site) == []
    planned(site, job, (0.0, 20.0, {"a1": 1}, 2))
    assert list(pieces(site, job)) == ["1"]
    assert isinstance(site.ask(Release(job=job)), Done)
    assert left(site) == [2]
    assert site.job(job).state is JobState.RUNNING


def test_dependents_start_after_the_last_piece() -> None:
    site = patient()
    job = submit(site, 4)
    planned(site, job, (0.0, 40.0, {"a1": 1}, 4))
    after = site.submit(1, needs=(("afterok", job),))
    (waiting,) = site.pending_solves[-1].snapshot.queue
    assert (waiting.id, waiting.after) == (after, (f"{job}.1",))
    end(site, f"{job}.1")
    assert site.job(job).state is JobState.COMPLETED
    assert site.job(after).is_placed


def test_what_waits_for_a_held_job_is_not_planned_as_if_that_had_ended() -> None:
    site = patient()
    held = site.submit(1, hold=True)
    after = site.submit(1, needs=(("afterany", held),))
    assert [job.id for job in site.pending_solves[-1].snapshot.queue] == []
    planned(site, after)
    assert site.job(after).state is JobState.PENDING


def test_what_waits_for_a_workflow_waits_for_its_last_tasks() -> None:
    site = patient()
    flow = site.submit_workflow("a")
    time = site.pending_solves[-1].snapshot.time
    task = Placement(job=flow, task="a", start=time, end=time + 100.0, nodes={"a1": 1})
    planned(site, flow, others=[task])
    after = site.submit(1, needs=(("afterok", flow),))
    (waiting,) = site.pending_solves[-1].snapshot.queue
    assert (waiting.id, waiting.after) == (after, (f"{flow}.1",))
    start = site.pending_solves[-1].snapshot.time
    early = Placement(job=after, start=start, end=start + 100.0, nodes={"a2": 1})
    planned(site, flow, others=[early])
    assert site.job(after).state is JobState.PENDING, "even if a plan says otherwise"


def test_a_restart_loses_no_chunk_and_runs_none_twice() -> None:
    site = patient(backoff_first_s=1.0)
    job = submit(site, 12, retries=1)
    planned(site, job, *((0.0, 20.0, {f"a{n}": 1}, 2) for n in (1, 2, 3, 4)))
    end(site, f"{job}.1")
    end(site, f"{job}.2", code=1)
    site.run(f"{job}.3")
    again = site.restarted(solving=False, prepare_timeout_s=1e9, backoff_first_s=1.0)
    pool, before = again.state.composites[job], site.state.composites[job]
    assert isinstance(pool, ChunkPool)
    assert isinstance(before, ChunkPool)
    assert (pool.given, pool.done, pool.last) == (8, 2, 4)
    assert pool.free(again.now) == before.free(site.now) == [("", 8, 4)]
    again.now = site.now + 5.0
    assert pool.left(again.now) == 6
    assert pieces(again, job) == pieces(site, job)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"array": (1, 2)}, "array: a divisible job cannot be an array"),
        ({"retries": -1}, "retries: -1 is below 0"),
        ({"job": {"time_limit": 5.0}}, "longer than the time limit of a piece, 5 s"),
        ({"job": {"clusters": ["b"]}}, "there is no cluster 'b'"),
        ({"job": {"features": ["gpu"]}}, "needs 1 process with gpu; no node has gpu"),
        ({"job": {"procs": 3}}, "procs: unknown key"),
    ],
)
def test_what_cannot_be_run_is_refused(fields: dict[str, Any], why: str) -> None:
    site = patient()
    with pytest.raises(AssertionError) as caught:
        submit(site, 10, **fields)
    assert why in str(caught.value)


def test_only_what_has_parts_can_be_tried_again() -> None:
    site = patient()
    with pytest.raises(AssertionError, match="is for workflows and divisible jobs"):
        site.submit(1, retries=2)


def test_a_piece_that_an_older_store_does_not_know_keeps_its_number() -> None:
    site = patient()
    job = submit(site, 10)
    site.state.presence.unreconciled.add("a")
    report = PartReport(job=f"{job}.1", attempt=1, part=0, state=PartState.RUNNING)
    site.do(StatementReceived(statement=Hello(cluster="a", store="", parts=(report,))))
    assert site.job(job).state is JobState.HELD
    assert f"piece {job}.1" in site.job(job).detail
    planned(site, job, (0.0, 40.0, {"a1": 1}, 4))
    assert list(pieces(site, job)) == ["1"], "held: nothing is started"
    assert isinstance(site.ask(Release(job=job)), Done)
    assert left(site) == [10]
    planned(site, job, (0.0, 40.0, {"a1": 1}, 4))
    record: JobRecord = site.job(f"{job}.2")
    assert (record.chunk_first, record.chunks) == (0, 4)
    assert not site.orders_for(f"{job}.1", Abort), "a restored copy ends nobody's work"
