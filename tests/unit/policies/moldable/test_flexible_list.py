"""Lists whose allotments give way, and their annealing, beside every schedule there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import moldable_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.policies.kernel.annealing_loop import ACCEPTED, BEST, LIMIT, make_annealing, warm_up
from coalloc.policies.kernel.pool.list_annealing import Decoding, ListSearch, Turns, anneal_list
from coalloc.policies.kernel.pool.pool_insertion import Placed
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, lists_for
from coalloc.policies.kernel.pool.pool_profile import PoolProfile
from coalloc.policies.moldable.bicriteria.building import FREE, Builder, least_for
from tests.unit.policies.moldable.test_bounds import (
    Rows,
    active_schedules,
    bounds_queue,
    small_rows,
)
from tests.unit.policies.moldable.test_bounds import snapshot_of as small_snapshot
from tests.unit.policies.published.demt_case import queue_of

SHARES = st.sampled_from([(1.0, 1.0), (0.8, 1.3), (0.5, 2.0)])


@settings(max_examples=12, deadline=None)
@given(small_rows(), st.integers(1, 3), st.sampled_from([0.0, 3.0]), SHARES, st.booleans())
def test_no_list_beats_all_schedules(
    rows: Rows, procs: int, busy: float, shares: tuple[float, float], waits: bool
) -> None:
    queue = bounds_queue(small_snapshot(rows, procs, busy))
    points = active_schedules(rows, procs, busy)
    builder = Builder(queue, 3)
    least = min(last for last, _ in points)
    order = np.arange(queue.size)
    heats = (0.1, 1e-4)
    assert builder.anneal(order, queue.first[:-1], least, shares, 200, heats, 100.0, waits=waits)
    one = builder.point()
    assert any(
        last <= one.cmax * (1.0 + 1e-9) and value <= one.total * (1.0 + 1e-9) + 1e-9
        for last, value in points
    )


@pytest.mark.parametrize("shares", [(1.0, 1.0), (0.6, 1.3), (0.5, 2.0)])
def test_allotments_give_way_as_far_as_told(shares: tuple[float, float]) -> None:
    queue = queue_of(moldable_instance("highly", 30, 16, 3))
    builder, rng = Builder(queue), np.random.default_rng(1)
    wanted = rng.integers(queue.first[:-1], queue.first[1:])
    assert builder.list(rng.permutation(queue.size), wanted, np.inf, *shares)
    got, asked = queue.procs[builder.rows], queue.procs[wanted]
    assert (got >= shares[0] * asked).all()
    assert (got <= np.maximum(shares[1] * asked, asked)).all()
    assert (shares == (1.0, 1.0)) == bool((got == asked).all())
    for now in builder.start:
        runs = (builder.start <= now) & (builder.end > now)
        assert got[runs].sum() <= queue.width


@pytest.mark.parametrize("waits", [False, True])
def test_annealing_repeats_and_does_not_get_worse(waits: bool) -> None:
    queue = queue_of(moldable_instance("mixed", 30, 16, 3))
    order = np.arange(queue.size)
    found, heats = [], (1e-3, 1e-5)
    for trials in (1, 400, 400):
        builder = Builder(queue, 7)
        builder.anneal(order, queue.first[:-1], np.inf, (0.8, 1.3), trials, heats, waits=waits)
        found.append(builder.point().total)
    assert found[1] < found[0]
    assert found[1] == found[2]


@pytest.mark.parametrize("jobs", [20, 70])  # a place is saved after each job; after each third
@pytest.mark.parametrize("squeeze", [1.0, 0.7])
@pytest.mark.parametrize("doubt", [np.inf, 1.0])  # trials are given up by what is free; by prices
def test_turns_from_a_saved_place_are_those_from_the_begin(
    jobs: int, squeeze: float, doubt: float
) -> None:
    queue = queue_of(moldable_instance("mixed", jobs, 16, 3))
    order, wanted = np.arange(jobs), queue.first[:-1].copy()
    begun, best = Listing(order.copy(), wanted.copy()), Listing(order.copy(), wanted.copy())
    search = ListSearch(
        queue.jobs,
        queue.processors,
        ListRule(squeeze, 1.0, 20.0, np.inf),
        Decoding(100.0, True, least_for(queue, squeeze), doubt),
        FREE,
        begun,
        best,
        lists_for(jobs, queue.capacity),
        PoolProfile(np.zeros(3 * jobs), np.zeros(3 * jobs, np.int64), np.zeros(1, np.int64)),
        Turns.empty(3 * jobs, jobs),
        *(Placed(wanted.copy(), np.zeros(jobs), np.zeros(jobs)) for _ in range(2)),
    )
    state = make_annealing(5)
    warm_up(state, 0.1, 1e-4, 1.0, 2000)
    anneal_list(search, state, 2000, True)
    reached = state.value[BEST]
    assert state.count[ACCEPTED] > 200
    search.turns.forget()
    state.value[LIMIT] = np.inf
    whole = anneal_list(search._replace(listing=best), state, 0, True)
    end, taken = search.out.end, queue.procs[search.out.row]
    assert whole == reached
    assert whole == pytest.approx(queue.weight @ end + 100.0 * max(end.max() / 20.0 - 1.0, 0.0))
    assert (taken >= squeeze * queue.procs[best.wanted]).all()
    assert (taken <= queue.procs[best.wanted]).all()
    for now in search.out.start:
        assert taken[(search.out.start <= now) & (end > now)].sum() <= queue.width


def test_job_that_ends_before_processors_go_is_in_nobodys_way() -> None:
    """One of two processors goes after 10 s; by then the first job has ended."""
    rows: Rows = [([5.0], 1.0, 0.0), ([20.0], 1.0, 0.0), ([20.0], 1.0, 0.0)]
    queue = replace(
        bounds_queue(small_snapshot(rows, 2)),
        starts=np.array([0.0, 10.0]),
        capacity=np.array([2, 1]),
    )
    builder = Builder(queue)
    assert builder.list(np.arange(3), queue.first[:-1], np.inf)
    assert builder.start.tolist() == [0.0, 0.0, 20.0]


def test_list_names_no_makespan_where_a_job_finds_no_place() -> None:
    queue = bounds_queue(small_snapshot([([5.0, 3.0], 1.0, 0.0)], 2))
    queue = replace(queue, capacity=np.array([1]))
    builder = Builder(queue)
    assert not builder.list(np.arange(1), queue.first[:-1] + 1, np.inf)
    assert builder.list(np.arange(1), queue.first[:-1] + 1, np.inf, squeeze=0.5)
    assert builder.end.tolist() == [5.0]
