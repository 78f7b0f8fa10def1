"""The best solution of a search so far: its bound, its status, and what the caller hears of it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

from coalloc.model.plan import Plan, Status
from coalloc.policies.base import Budget, OnIncumbent
from coalloc.policies.bounds import Bound

PROVED = 1e-9
"""Relative gap at which a solution counts as optimal."""

S = TypeVar("S")
Rank = tuple[float, ...]


class Incumbent(Generic[S]):
    """The best solution so far; every search holds one.

    Of a solution, `rank` is whatever stands above the objective (jobs without a start), then the
    objective, then what breaks ties. Smaller is better; of equal ones the first stays. `write`
    makes the plan of this incumbent, whose `best` is there, with its `status` and `bound`.

    `origin` is the part of the search that found the best, `work` is in the counts of the search,
    which `Budget.work` limits, and `reported` is the work at the last report. `tried` counts orders
    that were decoded, `trials` moves. The bound is None where none was sought. What is `proved` is
    optimal; `stopped` is a search that the caller has ended; `unproved` says why no exact search is
    made.
    """

    def __init__(
        self,
        policy: str,
        budget: Budget,
        on_incumbent: OnIncumbent | None,
        *,
        rank: Callable[[S], Rank],
        write: Callable[[Incumbent[S]], Plan],
    ) -> None:
        self.policy, self.budget, self.on_incumbent = policy, budget, on_incumbent
        self.rank, self.write = rank, write
        self.best: S | None = None
        self._rank: Rank = ()
        self.origin = ""
        self.bound: Bound | None = None
        self.work, self.tried, self.trials = 0, 0, 0
        self.reported = -inf
        self.proved = self.stopped = False
        self.unproved = ""

    def offer(self, solution: S, origin: str = "") -> bool:
        """Keep a solution if it is better; whether it is."""
        if self.best is not None and self.rank(solution) >= self._rank:
            return False
        self.put(solution, origin)
        return True

    def put(self, solution: S, origin: str) -> None:
        """Take a solution that is better by another measure than `rank`."""
        self.best, self.origin, self._rank = solution, origin, self.rank(solution)

    def join(self, other: Incumbent[S]) -> None:
        """Take over what another search of the same case has counted, and its bound."""
        self.bound, self.stopped = other.bound, other.stopped
        self.tried, self.trials = other.tried, other.trials
        self.work += other.work

    def report(self) -> None:
        """Hand the best plan to the caller."""
        if self.on_incumbent is not None and self.best is not None:
            self.reported = float(self.work)
            self.on_incumbent(self.plan())

    def plan(self) -> Plan:
        """The best plan with its bound and status."""
        assert self.best is not None
        return self.write(self)

    def told_bound(self) -> float | None:
        """The bound to write: the value where that is proved."""
        if self.status is Status.OPTIMAL:
            return self._rank[1]
        return None if self.bound is None else self.bound.value

    def value(self, solution: S) -> float:
        """The objective that is bounded."""
        return self.rank(solution)[1]

    def raise_bound(self, found: Bound) -> None:
        """Know another bound; of two, the first."""
        if self.bound is None or found.value > self.bound.value:
            self.bound = found

    @property
    def met(self) -> bool:
        """Whether everything has a place, and the value meets the bound."""
        if self.best is None or self.bound is None or self._rank[0]:
            return False
        return self._rank[1] <= self.bound.value * (1.0 + PROVED)

    @property
    def spent(self) -> bool:
        """Whether the work is done or the caller wants the plan."""
        if self.budget.work is not None and self.work >= self.budget.work:
            return True
        self.stopped = self.stopped or self.budget.stop()
        return self.stopped

    def chunk(self, most: int) -> int:
        """Work to do before the next look at the clock: what is left, up to `most`, at least 1."""
        if self.budget.work is None:
            return most
        return max(min(most, self.budget.work - self.work), 1)

    @property
    def status(self) -> Status:
        """Outcome of the search, were it to end now."""
        if self.proved and self.best is not None and not self._rank[0]:
            return Status.OPTIMAL
        if self.stopped:
            return Status.TIME_LIMIT
        return Status.HEURISTIC if self.bound is None else Status.FEASIBLE
