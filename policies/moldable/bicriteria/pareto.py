"""Distance of a schedule from any that is better in both criteria at once.

For every T, a schedule has a makespan above T or a weighted completion of at least LB(T). So none
is better than (C, S) in both by more than the factor max(C / T, S / LB(T)), and the smallest of
these over T, less 1, is the Pareto gap: one number, without a scale, that needs no optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from coalloc.policies.base import never
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import SLOTS, Ascent, PricedBound
from coalloc.policies.moldable.queue import MoldableQueue

FINE, STEPS = 48, 400
"""Allotments of a job that steps look at; steps for a new T."""
PRECISION = 1e-3
"""An interval of T that is smaller than this, relative, is not halved again."""


class BoundCurve:
    """LB(T), where it has been sought so far.

    Of the queues, `search` has a ladder of allotments to take steps on, `steps` for a new T, and
    `whole` all there are. No makespan is smaller than `cmax`, seconds; `bounds` are by rising cap.
    """

    def __init__(self, search: MoldableQueue, whole: MoldableQueue, *, steps: int = STEPS) -> None:
        self.search, self.whole, self.steps = search, whole, steps
        self.cmax = cmax_bound(whole)
        self.bounds: list[PricedBound] = []

    def at(self, cap: float, horizon: float, stop: Callable[[], bool] = never) -> PricedBound:
        """Seek LB(cap), from the prices of the nearest T; `horizon` ends the grid, seconds.

        Prices on fewer slots, which a search leaves, are a beginning and no answer.
        """
        known = [bound for bound in self.bounds if bound.cap == cap]
        for bound in known:
            if bound.prices.size >= SLOTS:
                return bound
        ascent = Ascent(self.search, horizon=min(horizon, cap), cap=cap, slots=SLOTS)
        near = min(
            known or reversed(self.bounds), key=lambda bound: abs(bound.cap - cap), default=None
        )
        if near is not None:
            ascent.begin_like(near.grid, near.prices)
        ascent.run(self.steps if near is None else self.steps // 2, stop)
        bound = ascent.bound(self.whole)
        self.take(bound)
        return bound

    def take(self, bound: PricedBound) -> None:
        """Know one more bound."""
        self.bounds.append(bound)
        self.bounds.sort(key=lambda known: known.cap)

    def gap(self, cmax: float, total: float) -> float:
        """Pareto gap by what is known, of a makespan and a weighted completion; inf at first."""
        known = [(self.cmax, inf), *((bound.cap, bound.value) for bound in self.bounds)]
        return min(factor(cmax, total, cap, value) for cap, value in known) - 1.0

    def refine(
        self,
        cmax: float,
        total: float,
        *,
        rounds: int = 5,
        stop: Callable[[], bool] = never,
    ) -> float:
        """Seek the T that proves the smallest gap; C / T falls with T, S / LB(T) rises.

        A T at which C / T is more than the gap that is known proves nothing better.

        `cmax`, `total`: the schedule's makespan, seconds, and weighted completion.
        `rounds`: new T at most.
        """
        high = max(cmax, self.cmax)
        self.at(high, cmax, stop)
        low = max(high / (1.0 + self.gap(cmax, total)), self.cmax)
        for _ in range(rounds):
            if stop() or high - low <= PRECISION * high:
                break
            middle = (low + high) / 2.0
            bound = self.at(middle, cmax, stop)
            if cmax / middle > ratio(total, bound.value):
                low = middle
            else:
                high = middle
        return self.gap(cmax, total)


def ratio(value: float, bound: float) -> float:
    """Ratio of a value to its bound; 1 where both are 0, inf where only that is."""
    if bound > 0.0:
        return value / bound
    return 1.0 if value <= 0.0 else inf


def factor(cmax: float, total: float, cap: float, bound: float) -> float:
    """Ratio that ``Cmax > cap or total >= bound`` proves of a schedule; at least 1."""
    return max(ratio(cmax, cap), 0.0 if bound == inf else ratio(total, bound), 1.0)
