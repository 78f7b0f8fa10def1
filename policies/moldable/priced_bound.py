"""A lower bound on weighted completion from prices of processor time, with its certificate.

For any prices v(t) >= 0, no schedule on m(t) processors has a smaller weighted completion than

    LB(v) = sum_i min over k, s of [w_i (s + p_ik) + k * integral of v over the run] - integral m v

since the processors that all jobs use at t are at most m(t). Good prices are sought by subgradient
steps from those of the fluid relaxation; the answer is exact for the prices it names, so that who
doubts it has only to add up (`certified`). With an end that no job may pass, T, the same holds for
schedules of makespan at most T.

References
----------
J. van den Akker, C. Hurkens, M. Savelsbergh, "Time-indexed formulations for machine scheduling
problems: column generation", INFORMS J. Computing 2000 (the relaxation that is priced here).
B. Polyak, "Minimization of unsmooth functionals", 1969 (the step).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.base import never
from coalloc.policies.kernel.pool.pricing import Priced, add_usage, price_jobs, price_near
from coalloc.policies.moldable.queue import MoldableQueue

SLOTS, STEPS = 100, 200
RECENT = 24
POLISH, FEW = 8, 16
"""Last steps that are exact; of so few jobs, all."""
LEVELS, FIRST = 8, 0.1
"""First steps, which raise all prices alike; by how much the first of them does, in mean prices."""
ROUNDING = 1e-12
"""Relative delay beyond the cap that a job's end may have; the verifier allows as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedBound:
    """A bound on weighted completion, and the prices that prove it."""

    value: float
    """No schedule that ends by `cap` has a smaller weighted completion; inf: none ends by it."""
    cap: float
    """Seconds; inf where any makespan is allowed."""
    grid: Floats
    """Edges of the slots, seconds; price of a processor-second in each."""
    prices: Floats

    def certificate(self) -> dict[str, Any]:
        """Certificate of the bound in a plan, so that anybody can check it."""
        return {
            "kind": "prices",
            "value": self.value,
            "cap": None if self.cap == inf else self.cap,
            "grid": self.grid.tolist(),
            "prices": self.prices.tolist(),
        }


def priced_bound(
    search: MoldableQueue,
    whole: MoldableQueue | None = None,
    *,
    horizon: float,
    cap: float = inf,
    steps: int = STEPS,
    slots: int = SLOTS,
    stop: Callable[[], bool] = never,
) -> PricedBound:
    """Seek prices with a high bound.

    Steps are taken on `search`, for which a ladder of allotments is enough; `whole`, by default the
    same, is the queue with every allotment there is: the value is exact on it. The grid ends at the
    horizon, about the makespan of a good schedule, seconds; jobs end by `cap`.
    """
    ascent = Ascent(search, horizon=min(horizon, cap), cap=cap, slots=slots)
    ascent.run(steps, stop)
    return ascent.bound(search if whole is None else whole)


class Ascent:
    """Subgradient steps on prices; resumable.

    `recent` has each job's allotment and start at the prices of the last steps. Their average is
    about a solution of the relaxation that the bound is the dual of.
    """

    def __init__(self, queue: MoldableQueue, *, horizon: float, cap: float, slots: int) -> None:
        self.queue, self.cap = queue, cap
        self.grid = np.linspace(0.0, max(horizon, 1e-9), slots + 1)
        self.width = np.diff(self.grid)
        self.there = capacity_area(queue, self.grid)
        self.best = -inf
        self.steps = 0
        self.recent: deque[tuple[Ints, Floats]] = deque(maxlen=RECENT)
        self._mode = np.zeros(queue.size, dtype=np.int64)
        self._start = np.zeros(queue.size)
        self._used = np.zeros(slots)
        self._total = np.zeros(2 * slots + 2)
        self._floor, self._priced = np.full(queue.procs.size, -inf), np.zeros(slots)
        self.begin(fluid_prices(queue, self.grid))

    def begin(self, prices: Floats) -> None:
        """Go on from these prices."""
        self.prices = prices
        self.best_prices = prices
        self.best = self._current = self.value(prices)
        self._direction = self._subgradient()
        self._fails, self._ambition = 0, 0.05

    def begin_like(self, edges: Floats, prices: Floats) -> None:
        """Go on from the prices of another grid, if they are better."""
        known = transferred(edges, prices, self.grid)
        if self.value(known) > self.best:
            self.begin(known)

    def value(self, prices: Floats) -> float:
        """Bound at these prices; the jobs' choices stay in the working arrays."""
        return self._value(self.queue, prices, self.there, self._mode, self._start)

    def _value(
        self, queue: MoldableQueue, prices: Floats, there: Floats, mode: Ints, start: Floats
    ) -> float:
        """The same of any queue; into `mode` and `start` the jobs' choices, see `price_jobs`."""
        cap = self.cap * (1.0 + ROUNDING)
        paid = price_jobs(queue.jobs, Priced.on(self.grid, prices), cap, mode, start)
        return float(paid) - float(prices @ there)

    def _near(self, prices: Floats) -> float:
        """About the value, in a fraction of the time."""
        queue, slots = self.queue, prices.size
        fall = np.maximum(self._priced - prices, 0.0)
        self._priced = prices
        np.cumsum(prices * self.width, out=self._total[1 : slots + 1])
        self._total[slots + 1 :] = self._total[slots]
        paid = price_near(
            queue.jobs,
            float(self.grid[1]),
            slots,
            self._total,
            self.cap * (1.0 + ROUNDING),
            float(fall.max()),
            float(fall @ self.width),
            self._floor,
            self._mode,
            self._start,
        )
        return float(paid) - float(prices @ self.there)

    def _subgradient(self) -> Floats:
        add_usage(self.queue.jobs, self._mode, self._start, self.grid, self._used)
        slope = self._used - self.there
        # what is left of rounding would be taken for a direction in which nothing ends
        return np.where(np.abs(slope) <= 1e-9 * (self._used + self.there), 0.0, slope)

    def run(self, steps: int, stop: Callable[[], bool] = never) -> None:
        """Take steps towards a target a little above the best; a smaller one where it fails."""
        quick = steps - min(POLISH, steps // 8) if self.queue.size > FEW else 0
        is_tight = self.steps == 0 and self.cap < inf and self.best < inf
        raised = self._raise(min(LEVELS, steps // 8)) if is_tight else 0
        for done in range(raised, steps if self.best < inf else 0):
            if stop():
                break
            if done == quick > 0:
                self._resume()
            self.steps += 1
            slope = self._direction
            length = float((slope * slope / self.width).sum())
            if length <= 0.0:
                break
            target = self.best + self._ambition * abs(self.best)
            step = (target - self._current) / length
            self.prices = np.maximum(self.prices + step * slope / self.width, 0.0)
            self._advance(self._near if done < quick else self.value)

    def _raise(self, most: int) -> int:
        """Raise all prices alike while jobs take more than there is; returns the steps taken.

        Where the cap leaves little room, all prices are high. Steps along the subgradient, which
        shift work between slots in turn, are long in getting there.
        """
        base, worth = self.prices, self._near if self.queue.size > FEW else self.value
        low, high, level, slope = 0.0, inf, 0.0, self._direction
        for done in range(most):
            if slope.sum() > 0.0:
                low = level
            else:
                high = level
            if high <= 0.0:
                return done
            level = (low + high) / 2.0 if high < inf else 2.0 * low or FIRST * float(base.mean())
            value, slope = worth(base + level), self._subgradient()
            self.steps += 1
            if value > self.best:
                self.best, self.best_prices = value, base + level
        if most:
            self._resume()
        return most

    def _resume(self) -> None:
        """Go on from the best prices, with their exact value."""
        self.prices = self.best_prices.copy()
        self.best = self._current = self.value(self.prices)
        self._direction, self._fails = self._subgradient(), 0

    def _advance(self, worth: Callable[[Floats], float]) -> None:
        value = worth(self.prices)
        self.recent.append((self._mode.copy(), self._start.copy()))
        self._current = value
        self._direction = 0.3 * self._direction + 0.7 * self._subgradient()
        if value > self.best * (1.0 + 1e-5):
            self._fails = 0
        else:
            self._fails += 1
        if value > self.best:
            self.best, self.best_prices = value, self.prices.copy()
        if self._fails >= 8:
            self._fails, self._ambition = 0, self._ambition * 0.5
            self.prices = self.best_prices.copy()
            self._current = worth(self.prices)
            self._direction = self._subgradient()

    def bound(self, whole: MoldableQueue) -> PricedBound:
        """The best prices' bound, exact on all allotments."""
        there = capacity_area(whole, self.grid)
        mode, start = np.zeros(whole.size, dtype=np.int64), np.zeros(whole.size)
        value = self._value(whole, self.best_prices, there, mode, start)
        return PricedBound(value=value, cap=self.cap, grid=self.grid, prices=self.best_prices)


def capacity_area(queue: MoldableQueue, grid: Floats) -> Floats:
    """Processor-seconds that are there in each slot."""
    edges = np.union1d(grid, queue.starts[queue.starts < grid[-1]])
    level = queue.capacity[np.searchsorted(queue.starts, edges[:-1], side="right") - 1]
    area = np.concatenate(([0.0], np.cumsum(level * np.diff(edges))))
    return np.diff(area[np.searchsorted(edges, grid)])


def fluid_prices(queue: MoldableQueue, grid: Floats) -> Floats:
    """Prices at which jobs of divisible work, in Smith's order, are content where they are."""
    work: Floats = queue.procs * queue.times
    area = np.minimum.reduceat(work, queue.first[:-1]) if queue.size else work
    density = queue.weight / np.maximum(area, 1e-12)
    order = np.argsort(-density, kind="stable")
    done = np.cumsum(area[order])
    offered = np.concatenate(([0.0], np.cumsum(capacity_area(queue, grid))))
    middle = (offered[:-1] + offered[1:]) / 2.0
    place = np.searchsorted(done, middle)
    falling = np.append(density[order], 0.0)[place] * np.diff(grid)
    return falling[::-1].cumsum()[::-1] - falling / 2.0


def transferred(edges: Floats, prices: Floats, grid: Floats) -> Floats:
    """Prices of another grid, at the middle of each slot."""
    middle = (grid[:-1] + grid[1:]) / 2.0
    place = np.searchsorted(edges, middle, side="right") - 1
    inside = place < prices.size
    return np.where(inside, prices[np.minimum(place, prices.size - 1)], 0.0)
