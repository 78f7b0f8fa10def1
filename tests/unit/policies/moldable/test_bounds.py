"""Bounds for moldable jobs: they hold, they are near, and a stranger can add them up."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.jobs import MoldableJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.speedup import TableSpeedup
from coalloc.model.values import replace
from coalloc.policies.checking.certificates import certified
from coalloc.policies.checking.proofs import moldable_parts, proofs_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.bicriteria.pareto import BoundCurve, ratio
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import PricedBound, priced_bound
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.options import CommonOptions, read_options

Rows = list[tuple[list[float], float, float]]
"""Times on 1, 2, ... processors; weight; release."""


def bounds_queue(snapshot: Snapshot) -> MoldableQueue:
    return of_planner(Planner(snapshot, read_options({}, CommonOptions)), for_bounds=True)


def snapshot_of(rows: Rows, procs: int, busy: float = 0.0) -> Snapshot:
    queue = tuple(
        MoldableJob(
            id=str(n),
            speedup=TableSpeedup(procs=tuple(range(1, len(times) + 1)), times=tuple(times)),
            min_procs=1,
            max_procs=len(times),
            weight=weight,
            earliest=release,
        )
        for n, (times, weight, release) in enumerate(rows)
    )
    nodes = tuple(Node(name=f"n{n}") for n in range(procs))
    running = (Running(id="x", nodes={"n0": 1}, start=0.0, end=busy),) if busy else ()
    cluster = Cluster(name="alpha", nodes=nodes)
    return Snapshot(clusters=(cluster,), queue=queue, running=running, overrun_s=0.0)


def certify(queue: MoldableQueue, bound: PricedBound) -> float:
    spans = zip(queue.first[:-1], queue.first[1:], queue.weight, queue.release, strict=True)
    jobs = [(queue.procs[a:b], queue.times[a:b], w, r) for a, b, w, r in spans]
    steps = (queue.starts, queue.capacity)
    return float(certified(jobs, steps, bound.grid, bound.prices, bound.cap))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cap", [np.inf, 12.0])
def test_the_verifier_finds_the_same_value(family: str, cap: float) -> None:
    queue = bounds_queue(moldable_instance(family, 12, 30, 5))
    bound = priced_bound(queue, horizon=15.0, cap=cap, steps=60)
    assert bound.value > 0.0
    assert certify(queue, bound) == pytest.approx(bound.value, rel=1e-9)


def test_other_prices_prove_less_and_negative_ones_nothing() -> None:
    queue = bounds_queue(moldable_instance("mixed", 20, 30, 5))
    bound = priced_bound(queue, horizon=2.0 * cmax_bound(queue), steps=150)
    rows: dict[str, Any] = {name: getattr(bound, name) for name in ("value", "cap", "grid")}
    assert certify(queue, PricedBound(**rows, prices=bound.prices * 2.0)) < bound.value
    assert certify(queue, PricedBound(**rows, prices=bound.prices * 0.0)) < bound.value
    assert certify(queue, PricedBound(**rows, prices=-bound.prices)) == -np.inf


def test_one_processor_comes_near_smiths_rule() -> None:
    rows: Rows = [([float(t)], float(w), 0.0) for t, w in [(3, 2), (1, 4), (7, 1), (2, 2), (5, 9)]]
    queue = bounds_queue(snapshot_of(rows, 1))
    best, clock = 0.0, 0.0
    for times, weight, _ in sorted(rows, key=lambda row: row[0][0] / row[1]):
        clock += times[0]
        best += weight * clock
    bound = priced_bound(queue, horizon=clock, slots=180, steps=600)
    assert 0.98 * best <= bound.value <= best * (1.0 + 1e-9)
    assert cmax_bound(queue) == pytest.approx(clock, rel=1e-6)


@pytest.mark.parametrize("busy", [0.0, 4.0])
def test_one_job_is_exact(busy: float) -> None:
    queue = bounds_queue(snapshot_of([([10.0, 6.0, 4.5], 2.0, 3.0)], 4, busy))
    assert cmax_bound(queue) == pytest.approx(7.5)
    assert priced_bound(queue, horizon=9.0).value == pytest.approx(15.0)


def test_a_cap_raises_the_bound_until_nothing_fits() -> None:
    queue = bounds_queue(moldable_instance("highly", 30, 40, 2))
    cmax = cmax_bound(queue)
    values = [
        priced_bound(queue, horizon=2.0 * cmax, cap=factor * cmax, steps=300).value
        for factor in (1.02, 1.2, 2.0)
    ]
    assert values[0] > values[1] * 1.02
    assert values[1] > values[2] * 0.999
    assert priced_bound(queue, horizon=cmax, cap=0.01).value == np.inf


def test_an_empty_queue_needs_nothing() -> None:
    queue = bounds_queue(snapshot_of([], 3))
    assert cmax_bound(queue) == 0.0
    assert priced_bound(queue, horizon=1.0).value == 0.0


TIMES = st.lists(st.sampled_from([1.0, 2.0, 2.5, 4.0, 7.0]), min_size=1, max_size=3)


@st.composite
def small_rows(draw: st.DrawFn) -> Rows:
    rows: Rows = []
    for _ in range(draw(st.integers(1, 4))):
        times = sorted(set(draw(TIMES)), reverse=True)
        weight = draw(st.sampled_from([0.0, 1.0, 5.0]))
        rows.append((times, weight, draw(st.sampled_from([0.0, 0.0, 3.0]))))
    return rows


def active_schedules(rows: Rows, procs: int, busy: float) -> list[tuple[float, float]]:
    """Makespan and weighted completion of every order of every choice.

    Every active schedule comes of some order, each job at the earliest place that fits.
    """
    points = []
    for choice in np.ndindex(*(min(len(times), procs) for times, _, _ in rows)):
        for order in permutations(range(len(rows))):
            placed: list[tuple[float, float, int]] = [(0.0, busy, 1)] if busy else []
            value = last = 0.0
            for i in order:
                times, weight, release = rows[i]
                end = _insert(placed, choice[i] + 1, times[choice[i]], release, procs)
                value, last = value + weight * end, max(last, end)
            points.append((last, value))
    return points


def _insert(
    placed: list[tuple[float, float, int]], k: int, time: float, release: float, procs: int
) -> float:
    for start in sorted({release, *(e for _, e, _ in placed if e > release)}):
        inside = [start, *(s for s, _, _ in placed if start < s < start + time)]
        if all(sum(n for s, e, n in placed if s <= t < e) + k <= procs for t in inside):
            placed.append((start, start + time, k))
            return start + time
    raise AssertionError("a job fits behind all others")


@settings(max_examples=80, deadline=None)
@given(small_rows(), st.integers(1, 3), st.sampled_from([0.0, 3.0]))
def test_no_bound_passes_the_optimum(rows: Rows, procs: int, busy: float) -> None:
    queue = bounds_queue(snapshot_of(rows, procs, busy))
    points = active_schedules(rows, procs, busy)
    cmax = min(last for last, _ in points)
    total = min(value for _, value in points)
    capped = min(value for last, value in points if last <= 1.2 * cmax)
    assert cmax_bound(queue) <= cmax * (1.0 + 1e-9)
    bound = priced_bound(queue, horizon=cmax, slots=40, steps=60)
    assert bound.value <= total * (1.0 + 1e-9) + 1e-9
    bound = priced_bound(queue, horizon=cmax, cap=1.2 * cmax, slots=40, steps=60)
    assert bound.value <= capped * (1.0 + 1e-9) + 1e-9


@settings(max_examples=30, deadline=None)
@given(small_rows(), st.integers(1, 3))
def test_nothing_is_better_in_both_criteria_by_more_than_the_pareto_gap(
    rows: Rows, procs: int
) -> None:
    queue = bounds_queue(snapshot_of(rows, procs))
    points = active_schedules(rows, procs, 0.0)
    curve = BoundCurve(queue, queue, steps=60)
    for cmax, total in (points[0], points[-1], min(points), min(points, key=lambda p: p[1])):
        gap = curve.refine(cmax, total, rounds=3)
        assert gap >= 0.0
        for other, value in points:
            assert min(ratio(cmax, other), ratio(total, value)) <= (1.0 + gap) * (1.0 + 1e-9)


def test_the_gap_of_a_single_job_is_nothing() -> None:
    queue = bounds_queue(snapshot_of([([10.0, 6.0, 4.5], 2.0, 3.0)], 4))
    assert BoundCurve(queue, queue).refine(7.5, 15.0) == pytest.approx(0.0, abs=1e-6)
    assert BoundCurve(queue, queue).refine(15.0, 30.0) == pytest.approx(1.0, abs=1e-6)


def test_plans_of_moldable_jobs_are_measured_by_these_bounds() -> None:
    snapshot = moldable_instance("mixed", 30, 20, 1)
    planner = Planner(snapshot, read_options({}, CommonOptions))
    schedule = planner.decode(range(30), "event")
    makespan, completion = proofs_of(snapshot, planner.plan(schedule, "fpfs"))
    assert makespan.bound.parts["guesses"] > 0.0
    assert completion.bound.binding == "prices"
    for proof in (makespan, completion):
        assert 0.0 < proof.bound.value <= proof.value


def test_jobs_in_an_order_are_left_to_other_bounds() -> None:
    snapshot = snapshot_of([([10.0, 6.0], 1.0, 0.0), ([3.0], 1.0, 0.0)], 2)
    chained = replace(snapshot.queue[1], after=("0",))
    planner = Planner(replace(snapshot, queue=(snapshot.queue[0], chained)), {})
    assert moldable_parts(planner, 9.0) == {}
