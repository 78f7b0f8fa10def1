"""The program of the bi-criteria paper: solved by hand, and a bound once repaired."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.policies.checking.proofs import proofs_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.published_lp import intervals, least_work, published_lp
from tests.unit.policies.moldable.test_bounds import (
    Rows,
    active_schedules,
    bounds_queue,
    small_rows,
)
from tests.unit.policies.moldable.test_bounds import snapshot_of as small_snapshot
from tests.unit.policies.published.demt_case import Row, queue_of, snapshot_of

TWO: list[Row] = [("a", [4.0, 3.0], 2.0), ("b", [4.0], 1.0)]


def test_intervals_double_up_to_the_makespan() -> None:
    queue = queue_of(snapshot_of(TWO, 2))
    printed = intervals(queue, 12.0, is_repaired=False)
    assert printed.cost.tolist() == [3.0, 6.0, 12.0]
    assert printed.end.tolist() == [6.0, 12.0, 24.0]
    repaired = intervals(queue, 12.0)
    assert repaired.cost.tolist() == [0.0, 3.0, 6.0, 12.0]
    assert repaired.end.tolist() == [3.0, 6.0, 12.0, np.inf]


def test_least_work_of_a_job_that_ends_in_an_interval() -> None:
    queue = queue_of(snapshot_of(TWO, 2))
    work = least_work(queue, np.array([2.0, 3.5, 4.0]))
    assert work.tolist() == [[np.inf, 6.0, 4.0], [np.inf, np.inf, 4.0]]


def test_solved_by_hand() -> None:
    # one processor, intervals (0, 4] and (4, inf): the heavier job ends in the first, at no cost
    rows: list[Row] = [(name, [4.0], weight) for name, weight in (("a", 3.0), ("b", 1.0))]
    queue = queue_of(snapshot_of(rows, 1))
    assert published_lp(queue, 4.0) == pytest.approx(4.0 * 1.0)
    # as printed, (4, 8] is all there is, and holds both at its cost
    assert published_lp(queue, 4.0, is_repaired=False) == pytest.approx(4.0 * 4.0)
    # (0, 4] holds one, (4, 8] the other, nothing is left for (8, inf)
    assert published_lp(queue, 8.0) == pytest.approx(4.0 * 1.0)


def test_what_is_printed_is_no_bound() -> None:
    # both jobs end at 3 side by side, before t_0 = 5.9, which they are charged with
    rows: list[Row] = [("a", [3.0], 1.0), ("b", [3.0], 1.0)]
    early = queue_of(snapshot_of(rows, 2))
    assert published_lp(early, 5.9, is_repaired=False) > 6.0
    assert published_lp(early, 5.9) <= 6.0


@settings(max_examples=40, deadline=None)
@given(small_rows(), st.integers(1, 3), st.sampled_from([0.0, 3.0]), st.floats(1.0, 30.0))
def test_repaired_it_never_passes_the_optimum(
    rows: Rows, procs: int, busy: float, guess: float
) -> None:
    queue = bounds_queue(small_snapshot(rows, procs, busy))
    best = min(value for _, value in active_schedules(rows, procs, busy))
    assert published_lp(queue, guess) <= best * (1.0 + 1e-9) + 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_prices_prove_far_more(family: str) -> None:
    snapshot = moldable_instance(family, 50, 60, 1)
    planner = Planner(snapshot, {})
    plan = planner.plan(planner.decode(range(50), "event"), "fpfs")
    completion = proofs_of(snapshot, plan)[1]
    parts = completion.bound.parts
    assert parts["prices"] > 1.5 * parts["published_lp"] > 0.0
