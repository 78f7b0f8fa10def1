"""`bicriteria-batch`: shelves of doubling length behind a barrier that lives in the notes."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import (
    FAMILIES,
    moldable_instance,
    moldable_stream,
)

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import NOTES, Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.published.batch import Batch, Member
from coalloc.simulation.replay import replay
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid
from tests.unit.policies.published.demt_case import snapshot_of, starts

NAME = "bicriteria-batch"


def batched(snapshot: Snapshot, notes: dict[str, Any] | None = None, **given: Any) -> Plan:
    """The plan of a live round, which must pass the checker."""
    return planned(NAME, snapshot, Budget(live=True, notes=notes or {}), **given)


@pytest.mark.parametrize("family", FAMILIES)
def test_shelves_double(family: str) -> None:
    plan = batched(moldable_instance(family, 60, 20, 5))
    lengths = plan.stats["shelves_s"]
    assert len(lengths) > 1
    for shorter, longer in pairwise(lengths):  # a shelf that stays empty is left out
        steps = log2(longer / shorter)
        assert steps == pytest.approx(round(steps), abs=1e-9)
        assert steps >= 1.0 - 1e-9
    members = Batch.read(plan.stats[NOTES]).members
    assert [m.shelf_s for m in members] == sorted(m.shelf_s for m in members)


def test_every_shelf_of_a_full_range_is_twice_the_one_before() -> None:
    rows = [(str(n), [2.0 ** (n / 3.0)], 1.0) for n in range(24)]
    lengths = batched(snapshot_of(rows, 2)).stats["shelves_s"]
    assert all(b == pytest.approx(2.0 * a) for a, b in pairwise(lengths))
    assert len(lengths) >= 7


def test_a_job_runs_no_longer_than_its_shelf() -> None:
    snapshot = moldable_instance("highly", 40, 16, 2)
    plan = batched(snapshot)
    shelf = {m.job: m.shelf_s for m in Batch.read(plan.stats[NOTES]).members}
    for placement in plan.placements:
        assert placement.end - placement.start <= shelf[placement.job] * (1.0 + 1e-9)


def test_what_arrives_during_a_batch_is_planned_behind_it() -> None:
    first = snapshot_of([("1", [10.0], 1.0), ("2", [20.0], 1.0)], 3)
    begun = batched(first)
    assert starts(begun) == {"1": 0.0, "2": 0.0}
    running = [
        {"id": "1", "nodes": {"a0": 1}, "start": 0.0, "end": 10.0},
        {"id": "2", "nodes": {"a1": 1}, "start": 0.0, "end": 20.0},
    ]
    later = snapshot_of([("3", [1.0], 1.0)], 3, time=5.0, running=running)
    assert starts(batched(later, begun.stats[NOTES])) == {"3": 20.0}
    assert starts(batched(later)) == {"3": 5.0}, "without the notes there is no barrier"


def test_the_barrier_holds_on_several_clusters() -> None:
    clusters = [cluster("a", 2, 1.0), cluster("b", 2, 1.0, power=0.5)]
    first = case(clusters, [{"id": "1", "kind": "moldable", "times": [10.0]}])
    begun = batched(first)
    running = [{"id": "1", "nodes": {"a1": 1}, "start": 0.0, "end": 10.0}]
    news = [{"id": "2", "kind": "moldable", "times": [1.0], "submitted": 4.0}]
    later = case(clusters, news, running, time=5.0, overrun_s=0.0)
    assert starts(batched(later, begun.stats[NOTES])) == {"2": 10.0}


def test_a_batch_ends_with_its_last_job_and_the_next_one_begins() -> None:
    begun = batched(snapshot_of([("1", [10.0], 1.0), ("2", [20.0], 1.0)], 3))
    running = [{"id": "2", "nodes": {"a1": 1}, "start": 0.0, "end": 20.0}]
    waits = batched(
        snapshot_of([("3", [1.0], 1.0)], 3, time=12.0, running=running), begun.stats[NOTES]
    )
    assert starts(waits) == {"3": 20.0}
    assert waits.stats["batch"] == 1
    follows = batched(snapshot_of([("3", [1.0], 1.0)], 3, time=18.0), waits.stats[NOTES])
    assert starts(follows) == {"3": 18.0}
    assert follows.stats["batch"] == 2


def test_a_job_that_is_late_still_holds_the_barrier() -> None:
    begun = batched(snapshot_of([("1", [10.0], 1.0)], 3))
    running = [{"id": "1", "nodes": {"a0": 1}, "start": 0.0, "end": 10.0}]
    late = snapshot_of([("3", [1.0], 1.0)], 3, time=11.0, running=running)
    assert starts(batched(late, begun.stats[NOTES]))["3"] > 11.0


def test_a_batch_keeps_order_and_allotments_whatever_arrives() -> None:
    rows = [(str(n), [9.0, 5.0, 4.0], float(n + 1)) for n in range(6)]
    begun = batched(snapshot_of(rows, 3))
    news = [("new", [0.1], 1000.0)]
    waiting = [row for row in rows if starts(begun)[row[0]] > 0.0]
    busy = [
        {"id": p.job, "nodes": dict(p.nodes), "start": 0.0, "end": p.end}
        for p in begun.placements
        if p.start == 0.0
    ]
    again = batched(snapshot_of([*news, *waiting], 3, time=1.0, running=busy), begun.stats[NOTES])
    before = {p.job: (p.start, p.end) for p in begun.placements if p.start > 0.0}
    after = {p.job: (p.start, p.end) for p in again.placements}
    assert after.pop("new")[0] >= max(end for _, end in before.values())
    assert after.keys() == before.keys()
    for job, span in before.items():
        assert after[job] == pytest.approx(span)


def test_jobs_that_cannot_run_any_more_leave_the_batch() -> None:
    begun = batched(snapshot_of([("1", [10.0], 1.0), ("2", [20.0], 1.0)], 1))
    assert len(begun.stats[NOTES]["members"]) == 2
    held = case([cluster("a", 1)], [rigid("2", 1, 20.0, held=True), rigid("3", 1, 1.0)], time=10.0)
    plan = batched(held, begun.stats[NOTES])
    assert starts(plan) == {"3": 10.0}
    assert plan.stats["batch"] == 2


def test_what_may_not_start_yet_is_in_no_batch() -> None:
    queue = [rigid("1", 1, 5.0), rigid("2", 1, 5.0, earliest=3.0), rigid("3", 1, 5.0, after=["1"])]
    plan = batched(case([cluster("a", 2)], queue))
    assert {m.job for m in Batch.read(plan.stats[NOTES]).members} == {"1", "3"}
    assert starts(plan) == {"1": 0.0, "3": 5.0, "2": 10.0}


def test_a_workflow_is_in_a_batch_with_all_its_tasks() -> None:
    flow = {
        "id": "5",
        "kind": "workflow",
        "tasks": [{"id": "x", "work": 9.0}, {"id": "y", "work": 5.0}],
        "edges": [{"from": "x", "to": "y", "gb": 0.0}],
    }
    begun = batched(case([cluster("a", 2)], [flow]))
    running = [{"id": "5.1", "nodes": {"a1": 1}, "start": 0.0, "end": 9.0}]
    later = case([cluster("a", 2)], [rigid("6", 1, 1.0)], running, time=2.0, overrun_s=0.0)
    assert starts(batched(later, begun.stats[NOTES])) == {"6": 9.0}


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"members": 3},
        {"members": [["1"]]},
        {"members": [["1", None, "x", 0.0]]},
        {"number": "first"},
    ],
)
def test_notes_that_are_none_of_ours_are_as_none(notes: dict[str, Any]) -> None:
    assert Batch.read(notes) == Batch()


def test_notes_read_back_what_was_written() -> None:
    members = (
        Member(job="1", task=None, procs=3, shelf_s=2.0),
        Member(job="2", task="x", procs=1, shelf_s=4.0),
    )
    batch = Batch(number=4, begun=7.5, members=members)
    assert Batch.read(batch.write()) == batch


def test_open_ended_reservations_leave_what_they_leave() -> None:
    closed = [{"id": "r", "nodes": ["a0", "a1"], "start": 5.0, "end": 1e12, "jobs": []}]
    rows = [("1", [9.0, 8.0, 7.5], 1.0), ("2", [40.0, 21.0], 1.0)]
    plan = batched(snapshot_of(rows, 3, reservations=closed))
    assert {p.job for p in plan.placements} == {"1", "2"}


def test_an_empty_queue_is_a_plan() -> None:
    assert batched(snapshot_of([], 3)).placements == ()


def batches_of(trace: Trace) -> list[list[int]]:
    """Jobs by batch: the next one begins when all of the one before have ended."""
    order = np.argsort(trace.start, kind="stable").tolist()
    batches: list[list[int]] = []
    submit = trace.workload.submit
    left = set(order)
    while left:
        begin = min(trace.start[i] for i in left)
        members = [i for i in left if submit[i] <= begin + 1e-6]
        batches.append(members)
        left -= set(members)
    return batches


@pytest.mark.parametrize(("family", "load"), [("cirne", 0.8), ("weakly", 1.2)])
def test_nothing_that_arrives_during_a_batch_starts_before_its_end(
    family: str, load: float
) -> None:
    workload, platform = moldable_stream(family, 30, 8, load, 3)
    trace = replay(workload, platform, NAME)
    assert verify(trace) == []
    assert trace.ran.all()
    batches = batches_of(trace)
    assert 3 <= len(batches) < 30
    for before, after in pairwise(batches):
        end = max(trace.end[i] for i in before)
        assert min(trace.start[i] for i in after) >= end - 1e-6


def sequential_jobs(rng: np.random.Generator, count: int, gap: float) -> Workload:
    submitted = np.cumsum(rng.exponential(gap, count)).tolist()
    seconds = rng.choice([1.0, 1.0, 2.0, 7.0], count) * rng.uniform(0.5, 1.5, count)
    jobs = [
        RigidJob(
            id=str(n), submitted=time, earliest=time, procs=1, base_time=float(run), weight=1.0
        )
        for n, (time, run) in enumerate(zip(submitted, seconds, strict=True))
    ]
    logged = (
        LoggedJob(job=job, run_s=job.base_time, killed=False, number=n, line=n)
        for n, job in enumerate(jobs)
    )
    return Workload(name="sequential", jobs=tuple(logged))


def least_makespan(workload: Workload, procs: int) -> float:
    """A lower bound on the end of the last job, of any schedule that knows all from the start."""
    submit, run = workload.submit, workload.run
    areas = [r + run[submit >= r].sum() / procs for r in submit.tolist()]
    return float(max(*areas, (submit + run).max()))


@pytest.mark.parametrize("seed", range(5))
def test_the_makespan_stays_within_twice_rho(seed: int) -> None:
    """One-processor jobs listed in any order: rho = 2 - 1/m (Graham 1966)."""
    rng = np.random.default_rng(seed)
    procs = int(rng.integers(2, 6))
    workload = sequential_jobs(rng, 20, float(rng.uniform(0.1, 1.5)))
    nodes = tuple(Node(name=f"n{n}") for n in range(procs))
    platform = Platform(name="one", clusters=(Cluster(name="alpha", nodes=nodes),))
    trace = replay(workload, platform, NAME)
    rho = 2.0 - 1.0 / procs
    assert trace.end.max() <= 2.0 * rho * least_makespan(workload, procs) * (1.0 + 1e-9)
    for batch in batches_of(trace):  # and rho holds for each batch by itself
        runs = workload.run[batch]
        length = trace.end[batch].max() - trace.start[batch].min()
        assert length <= rho * max(runs.sum() / procs, runs.max()) * (1.0 + 1e-6)
