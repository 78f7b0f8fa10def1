"""The two-shelf schedule: its moves, worked by hand, and 3/2 of the bound."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance

from coalloc.policies.checking.check import check
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.two_shelf import (
    LARGE,
    SECOND,
    SMALL,
    ShelfSchedule,
    Shelves,
    TwoShelf,
    two_shelf,
    two_shelf_schedule,
)
from tests.unit.policies.published.demt_case import Row, planner_of, queue_of, snapshot_of, solved

SIZES = ((1, 1), (1, 8), (2, 3), (3, 2), (4, 5), (6, 20), (10, 8), (20, 8), (40, 30))


def shelved(rows: list[Row], parts: list[int], counts: list[int], procs: int) -> Shelves:
    """Shelves of a guess of 4 s, each job in its part on so many processors."""
    queue = queue_of(snapshot_of(rows, procs))
    chosen = queue.first[:-1] + np.array(counts) - 1
    order = np.arange(len(rows), dtype=np.int64)
    part = np.array(parts, dtype=np.int64)
    return Shelves(queue, TwoShelf(guess=4.0, rows=chosen, part=part, order=order))


def assert_fits(queue: MoldableQueue, schedule: ShelfSchedule) -> None:
    """At no start do the jobs that run take more processors than there are."""
    ends = schedule.start + queue.times[schedule.rows]
    for now in schedule.start:
        runs = (schedule.start <= now + 1e-9) & (ends > now + 1e-9)
        assert queue.procs[schedule.rows][runs].sum() <= queue.width
    assert ends.max() == pytest.approx(schedule.makespan)


def test_a_short_job_leaves_the_first_shelf_for_fewer_processors() -> None:
    wide: Row = ("b", [4.0, 2.0], 1.0)
    rows: list[Row] = [("a", [6.0, 3.0], 1.0), wide, ("c", [4.0], 1.0), ("d", [4.0, 2.0], 1.0)]
    shelves = shelved(rows, [LARGE, SECOND, LARGE, SECOND], [2, 2, 1, 2], 3)
    assert shelves.in_second == 4
    assert shelves.fit()
    # a takes one processor for 6 s; on the one that it leaves, b joins the first shelf
    assert shelves.columns == [(0,)]
    assert shelves.first == {1, 2}
    assert shelves.second == {3}
    schedule = shelves.schedule()
    assert schedule.start.tolist() == [0.0, 0.0, 0.0, 4.0]
    assert schedule.makespan == 6.0


C: Row = ("c", [5.0, 2.9, 2.0], 1.0)


def test_two_short_jobs_share_a_processor() -> None:
    rows: list[Row] = [("a", [3.0], 1.0), ("b", [2.5], 1.0), C, ("d", [2.0], 1.0)]
    shelves = shelved(rows, [LARGE, LARGE, SECOND, SECOND], [1, 1, 3, 1], 3)
    assert shelves.fit()
    # of the two processors that are idle then, c takes one, for longer than the guess
    assert [set(jobs) for jobs in shelves.columns] == [{0, 1}, {2}]
    assert not shelves.first
    schedule = shelves.schedule()
    assert schedule.makespan == 5.5
    assert schedule.start[2:].tolist() == [0.0, 0.0]


def test_an_odd_short_job_goes_on_top_of_one_that_leaves_it_time() -> None:
    rows: list[Row] = [("a", [2.4], 1.0), ("b", [3.5], 1.0), C, ("d", [2.0], 1.0)]
    parts = [LARGE, LARGE, SECOND, SECOND, LARGE]
    shelves = shelved([*rows, ("e", [4.0], 1.0)], parts, [1, 1, 3, 1, 1], 3)
    assert shelves.fit()
    assert shelves.columns == [(1, 0), (2,)]
    schedule = shelves.schedule()
    assert schedule.start.tolist() == [3.5, 0.0, 0.0, 4.0, 0.0]
    late = shelved([*rows, ("e", [4.0], 1.0)], parts, [1, 1, 3, 1, 1], 3)
    late.queue.times[1] = 3.7  # leaves a no time before 6 s, and nothing else helps
    assert not late.fit()


def test_small_jobs_go_where_there_is_least_to_do() -> None:
    rows: list[Row] = [("a", [4.0], 1.0), ("b", [1.5], 1.0), ("c", [2.0], 1.0), ("d", [1.0], 1.0)]
    shelves = shelved(rows, [LARGE, SECOND, SMALL, SMALL], [1, 1, 1, 1], 2)
    assert shelves.fit()
    # b is laid last, behind the small jobs of its processor
    assert shelves.schedule().start.tolist() == [0.0, 3.0, 0.0, 2.0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_never_above_three_halves_of_the_bound(family: str, seed: int) -> None:
    for jobs, procs in SIZES:
        planner = planner_of(moldable_instance(family, jobs, procs, seed))
        queue = of_planner(planner)
        bound = cmax_bound(of_planner(planner, for_bounds=True))
        found = two_shelf_schedule(queue)
        assert_fits(queue, found)
        assert found.makespan <= 1.5 * bound * (1.0 + 1e-9)
        shelves = Shelves(queue, two_shelf(queue))
        assert shelves.fit()
        laid = shelves.schedule()
        assert_fits(queue, laid)
        assert laid.makespan <= 1.5 * laid.guess * (1.0 + 1e-9)
        assert found.makespan <= laid.makespan


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_never_above_three_halves_on_200_instances(family: str) -> None:
    rng = np.random.default_rng(7)
    for seed in range(200):
        jobs, procs = (
            int(rng.choice([1, 2, 3, 5, 9, 30, 100])),
            int(rng.choice([1, 2, 3, 7, 60, 200])),
        )
        queue = queue_of(moldable_instance(family, jobs, procs, 100 + seed))
        found = two_shelf_schedule(queue)
        assert_fits(queue, found)
        assert found.makespan <= 1.5 * cmax_bound(queue) * (1.0 + 1e-9)


def test_rigid_jobs_that_no_shelf_holds_are_listed() -> None:
    queue = [
        {"id": f"r{n}", "kind": "rigid", "procs": 4, "base_time": 1.0 + n / 10} for n in range(6)
    ]
    snapshot = snapshot_of([], 4, queue=queue)
    found = two_shelf_schedule(queue_of(snapshot))
    assert not found.is_shelved
    assert found.makespan == pytest.approx(7.5)
    assert check(snapshot, solved("two-shelf", snapshot)).violations == ()


def test_processors_that_come_and_go_are_listed() -> None:
    running = [{"id": "x", "nodes": {"a0": 1}, "start": 0.0, "end": 9.0}]
    rows: list[Row] = [("a", [4.0, 2.5], 1.0), ("b", [3.0], 1.0), ("c", [5.0, 3.0, 2.5], 1.0)]
    snapshot = snapshot_of(rows, 3, running=running)
    assert not two_shelf_schedule(queue_of(snapshot)).is_shelved
    plan = solved("two-shelf", snapshot)
    assert check(snapshot, plan).violations == ()
    assert len(plan.placements) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_the_policy_writes_the_same_schedule(family: str) -> None:
    snapshot = moldable_instance(family, 30, 20, 3)
    plan = solved("two-shelf", snapshot, objective="makespan")
    found = two_shelf_schedule(queue_of(snapshot))
    assert check(snapshot, plan).violations == ()
    assert plan.objective.value == pytest.approx(found.makespan)
    starts = {p.job: p.start for p in plan.placements}
    assert [starts[job.id] for job in snapshot.queue] == pytest.approx(found.start.tolist())
