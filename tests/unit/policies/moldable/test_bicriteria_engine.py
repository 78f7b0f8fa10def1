"""The engine under `bicriteria`: insertion keeps to the profile, the archive to what is best."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.bicriteria.archive import Archive, ParetoPoint
from coalloc.policies.moldable.bicriteria.building import Builder, Prices
from coalloc.policies.moldable.bicriteria.engine import (
    CLOSEST,
    FEWEST,
    BicriteriaEngine,
)
from coalloc.policies.moldable.bicriteria.pareto import BoundCurve, factor
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import Ascent, PricedBound
from coalloc.policies.moldable.queue import MoldableQueue, of_planner, thinned


def queue_of(family: str, jobs: int, procs: int, seed: int = 1) -> MoldableQueue:
    return of_planner(Planner(moldable_instance(family, jobs, procs, seed), {}), limit=20)


def keeps_to_the_profile(queue: MoldableQueue, rows: object, start: object) -> None:
    chosen, begin = np.asarray(rows), np.asarray(start)
    assert (begin >= queue.release).all()
    assert ((queue.first[:-1] <= chosen) & (chosen < queue.first[1:])).all()
    end = begin + queue.times[chosen]
    for time in np.unique(np.concatenate((begin, queue.starts))):
        there = queue.capacity[np.searchsorted(queue.starts, time, side="right") - 1]
        assert queue.procs[chosen][(begin <= time) & (time < end)].sum() <= there


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_keeps_to_the_profile(family: str) -> None:
    queue = queue_of(family, 40, 16)
    cap = 1.15 * cmax_bound(queue)
    ascent = Ascent(queue, horizon=cap, cap=cap, slots=20)
    ascent.run(40)
    prices, builder = Prices(queue, ascent), Builder(queue, 3)
    builder.insert(prices, prices.order, 1.05 * cap)
    keeps_to_the_profile(queue, builder.rows, builder.start)
    before = builder.start.copy()
    builder.settle()
    keeps_to_the_profile(queue, builder.rows, builder.start)
    assert (builder.start <= before * (1.0 + 1e-12)).all()
    first = builder.point()
    builder.improve(prices, first.cmax, 400, 1e-4, 1e-5, 6)
    keeps_to_the_profile(queue, builder.rows, builder.start)
    assert builder.point().total <= first.total * (1.0 + 1e-9)
    assert builder.point().cmax <= first.cmax * (1.0 + 1e-9)


def test_prices_soon_refute_an_end_that_the_work_does_not_fit_under() -> None:
    queue = queue_of("cirne", 60, 16)
    cap = 0.9 * float(np.minimum.reduceat(queue.procs * queue.times, queue.first[:-1]).sum()) / 16
    ascent = Ascent(queue, horizon=cap, cap=cap, slots=20)
    ascent.run(80)
    assert ascent.best > cap * queue.weight.sum()


def test_prices_name_the_cheapest_allotment() -> None:
    queue = queue_of("highly", 20, 16)
    ascent = Ascent(queue, horizon=20.0, cap=20.0, slots=20)
    ascent.run(20)
    prices = Prices(queue, ascent)
    value = ascent.value(ascent.best_prices)
    paid = prices.least[prices.cheapest].sum() - float(ascent.best_prices @ ascent.there)
    assert paid == pytest.approx(value, rel=1e-9)


def test_a_thinned_queue_offers_fewer_of_the_same_allotments() -> None:
    queue = queue_of("highly", 20, 64)
    thin = thinned(queue, 8)
    assert np.diff(thin.first).max() <= 8 < np.diff(queue.first).max()
    for whole, part in zip(rows_of(queue), rows_of(thin), strict=True):
        assert set(part) <= set(whole)
        assert (part[0], part[-1]) == (whole[0], whole[-1])
    assert rows_of(thinned(queue, 64)) == rows_of(queue)


def rows_of(queue: MoldableQueue) -> list[list[tuple[int, float, int]]]:
    rows = list(zip(queue.procs.tolist(), queue.times.tolist(), queue.mode.tolist(), strict=True))
    return [rows[begin:end] for begin, end in pairwise(queue.first.tolist())]


def is_front(archive: Archive[ParetoPoint]) -> bool:
    """Whether makespans rise and weighted completions fall."""
    return all(a.cmax < b.cmax and a.total > b.total for a, b in pairwise(archive.points))


def test_more_work_never_harms() -> None:
    queue = queue_of("mixed", 40, 20)
    cmax = cmax_bound(queue)
    values = []
    for work in (1_000, 60_000):
        engine = BicriteriaEngine(queue, cmax, work, Budget(seed=2))
        engine.run()
        assert is_front(engine.archive)
        for point in engine.archive.points:
            keeps_to_the_profile(queue, point.rows, point.start)
            assert point.cmax >= cmax * (1.0 - 1e-9)
        best = engine.archive.balanced()
        values.append(best.cmax * best.total**2)
    assert values[1] < values[0]


def test_the_search_goes_on_where_the_gap_is_least(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[float] = []
    improve = Builder.improve

    def noted(builder: Builder, prices: Prices, *rest: Any) -> None:
        searched.append(prices.cap)
        improve(builder, prices, *rest)

    monkeypatch.setattr(Builder, "improve", noted)
    queue = queue_of("mixed", 40, 20)
    engine = BicriteriaEngine(queue, cmax_bound(queue), 60_000, Budget(seed=2))
    engine.run()
    first, later = searched[: FEWEST + 1], set(searched[FEWEST + 1 :])
    assert first == [prices.cap for prices in (*engine.prices[:FEWEST], engine.prices[-1])]
    curve = BoundCurve(queue, queue)
    for ascent in engine.ascents:
        curve.take(ascent.bound(queue))
    assert min(curve.bounds, key=lambda bound: least_gap(engine.archive, bound)).cap in later
    assert len(later) <= CLOSEST + 1


def least_gap(archive: Archive[ParetoPoint], bound: PricedBound) -> float:
    """Of the points, by one bound."""
    return min(factor(one.cmax, one.total, bound.cap, bound.value) for one in archive.points)


VALUES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.integers(3, 5))
def test_the_archive_holds_what_nothing_beats(values: list[tuple[int, int]], most: int) -> None:
    archive: Archive[ParetoPoint] = Archive()
    for cmax, total in values:
        nothing = np.zeros(0, dtype=np.int64)
        archive.add(ParetoPoint(cmax=cmax, total=total, rows=nothing, start=np.zeros(0)))
    assert is_front(archive)
    kept = {(int(point.cmax), int(point.total)) for point in archive.points}
    assert kept == {
        (c, s)
        for c, s in values
        if not any((a <= c and b <= s and (a, b) != (c, s)) for a, b in values)
    }
    shown = archive.spread(most, archive.points[len(archive.points) // 2])
    assert len(shown) <= most
    assert shown[0] is archive.points[0]
    assert shown[-1] is archive.points[-1]
    assert archive.points[len(archive.points) // 2] in shown
    under = archive.within(5.0)
    assert under is None or under.total == min(s for c, s in values if c <= 5)
