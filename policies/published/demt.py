"""`demt`: shelves of doubling length, compacted by list scheduling; and its comparators.

The makespan C* is approximated (`two_shelf`), shelves are filled (`shelves`), and the jobs are
listed in the order of the shelves, by Smith's ratio within each. Then the order of the shelves is
shuffled so many times; the best schedule is kept. To compare with:

========== ================================================ ==================================
gang       every processor for one job at a time            falling w / p
sequential the smallest allotment                           falling p
list-shelf the two-shelf allotment                          large shelf, second shelf, small jobs
list-lptf  the same                                         falling w p
list-saf   the same                                         rising k p
list-smith the same                                         falling w / p
========== ================================================ ==================================

p is the time on the k processors allotted. All but `gang` are lists: at each instant, in order,
whatever fits starts.

Notes
-----
The makespan C has two readings: the smallest guess that the dual approximation accepts, or what a
list of its parted jobs reaches. By default both are tried, the better schedule stands.

*Best* is by the objective of the plan, the weighted completion unless told otherwise.

On one cluster of equal nodes this is section 3.2 with m(t) for m. Elsewhere shelves are filled as
if all nodes were one pool, each as fast as the strongest that a job may use; what is listed is laid
on the real nodes by the kernel, at what the cost model says, and compared by that.

The text orders its *weighted LPTF* by "the ratio between weighted and their execution time". By
w / p it would be good for the weighted completion, which the figures do not show; by w p it is
like them. Both are here.

`gang` takes a job's largest allotment that is faster than the next smaller one, and leaves idle
what that does not use. It keeps the order among jobs that depend on each other, and a job that is
not released yet keeps no other waiting.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004, sections 3.2 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from coalloc.model.plan import Plan
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.incumbent import Incumbent, Rank
from coalloc.policies.kernel.instance.arrays import compile_intake
from coalloc.policies.kernel.instance.decoding import WEIGHTED, Planner, Schedule, eligible_first
from coalloc.policies.kernel.instance.graph import parents_first
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.shelves import Shelf, fill_shelves
from coalloc.policies.moldable.two_shelf import two_shelf
from coalloc.policies.one_pass import empty_plan, on_planner, one_pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfResult:
    """A schedule and where it comes from."""

    schedule: Schedule
    reading: str
    """Which C*, and its seconds."""
    guess: float
    shelves: list[Shelf]
    shuffle: int
    """Number of the shuffle; 0 is the order by length."""


class ShelfSearch:
    """Tries orders of shelves until a limit is reached; the incumbent counts starts tried.

    Options: `guess`, `selection`, `shuffles`, `objective`.
    """

    def __init__(
        self,
        layer: Layer,
        options: Mapping[str, Any],
        budget: Budget,
        on_incumbent: OnIncumbent | None = None,
    ) -> None:
        self.layer, self.options, self.budget = layer, options, budget
        self.incumbent: Incumbent[ShelfResult] = Incumbent(
            "demt", budget, on_incumbent, rank=self._rank, write=self._write
        )

    def run(self) -> ShelfResult:
        """Return the best schedule; the queue is not empty."""
        incumbent = self.incumbent
        parts = two_shelf(self.layer.queue)
        rng = np.random.default_rng(self.budget.seed)
        told = self.options["guess"]
        for reading in ("reached", "accepted") if told == "both" else (told,):
            guess = parts.guess
            if reading != "accepted":
                guess = self.layer.lister.run(parts.order, parts.rows)[0]
            shelves = fill_shelves(self.layer.queue, guess, self.options["selection"])
            for shuffle, sequence in _sequences(len(shelves), self.options["shuffles"], rng):
                if incumbent.best is not None and incumbent.spent:
                    return incumbent.best
                order, rows = in_order(shelves, sequence)
                schedule = self.layer.lay(order, rows, self._most())
                incumbent.tried += 1
                incumbent.work = self.layer.work
                if schedule is None:
                    continue
                found = ShelfResult(
                    schedule=schedule,
                    reading=reading,
                    guess=guess,
                    shelves=shelves,
                    shuffle=shuffle,
                )
                if incumbent.offer(found) and (incumbent.tried == 1 or not self.layer.is_exact):
                    incumbent.report()
        assert incumbent.best is not None
        return incumbent.best

    def _most(self) -> float:
        """The weighted completion that the next schedule must not pass."""
        best = self.incumbent.best
        if best is None or self.options["objective"] != WEIGHTED:
            return np.inf
        return best.schedule.weighted_completion

    def _rank(self, found: ShelfResult) -> Rank:
        unplaced, makespan, weighted = found.schedule.rank
        if self.options["objective"] == WEIGHTED:
            return unplaced, weighted, makespan
        return unplaced, makespan, weighted

    def _write(self, incumbent: Incumbent[ShelfResult]) -> Plan:
        found = incumbent.best
        assert found is not None
        stats = {
            "work": incumbent.work,
            "tried": incumbent.tried,
            "reading": found.reading,
            "guess_s": found.guess,
            "shelves": len(found.shelves),
            "stacked": sum(shelf.stacked for shelf in found.shelves),
            "shuffle": found.shuffle,
        }
        planner, policy = self.layer.planner, incumbent.policy
        return planner.plan(
            found.schedule, policy, self.budget.seed, stats, status=incumbent.status
        )


def in_order(shelves: list[Shelf], sequence: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Jobs in this order of the shelves, and the allotment of each job."""
    order = np.concatenate([shelves[x].jobs for x in sequence])
    rows = np.empty(order.size, dtype=np.int64)
    for shelf in shelves:
        rows[shelf.jobs] = shelf.rows
    return order, rows


def _sequences(
    size: int, shuffles: int, rng: np.random.Generator
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Number the orders of so many shelves: as they are, then shuffles, none of them twice."""
    seen = {tuple(range(size))}
    yield 0, tuple(range(size))
    for number in range(1, shuffles + 1):
        sequence = tuple(rng.permutation(size).tolist())
        if sequence not in seen:
            seen.add(sequence)
            yield number, sequence


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan a snapshot; `Budget.work` counts starts of jobs that were tried."""
    if not planner.items:
        return empty_plan(planner, "demt", budget)
    search = ShelfSearch(Layer(planner, of_planner(planner)), planner.options, budget, on_incumbent)
    search.run()
    return search.incumbent.plan()


ListKey = Callable[[Floats, Ints, Floats], Floats]
"""From weight, processors and seconds of the jobs to what they are sorted by, rising."""

LIST_KEYS: Mapping[str, ListKey] = {
    "list-lptf": lambda weight, procs, seconds: -weight * seconds,
    "list-saf": lambda weight, procs, seconds: procs * seconds,
    "list-smith": lambda weight, procs, seconds: -weight / seconds,
}


def order_and_rows(name: str, queue: MoldableQueue) -> tuple[Ints, Ints]:
    """The list of a comparator, and the allotment of each job; the queue is not empty."""
    if name == "sequential":
        rows = queue.first[:-1]
        return np.argsort(-queue.times[rows], kind="stable"), rows
    parts = two_shelf(queue)
    if name == "list-shelf":
        return parts.order, parts.rows
    seconds = np.maximum(queue.times[parts.rows], SHORTEST)
    key = LIST_KEYS[name](queue.weight, queue.procs[parts.rows], seconds)
    return np.argsort(key, kind="stable"), parts.rows


def gang_order(queue: MoldableQueue) -> list[int]:
    """Jobs by falling w / p on their largest allotments, of those released when one begins."""
    seconds = np.maximum(queue.times[queue.first[1:] - 1], SHORTEST)
    ratio = (-queue.weight / seconds).tolist()
    by_release = np.argsort(queue.release, kind="stable").tolist()
    ready: list[tuple[float, int]] = []
    order: list[int] = []
    clock, arrived = 0.0, 0
    while len(order) < queue.size:
        if not ready:
            clock = max(clock, float(queue.release[by_release[arrived]]))
        while arrived < queue.size and queue.release[by_release[arrived]] <= clock:
            heappush(ready, (ratio[by_release[arrived]], by_release[arrived]))
            arrived += 1
        job = heappop(ready)[1]
        order.append(job)
        clock += float(seconds[job])
    return order


def _gang(planner: Planner, queue: MoldableQueue) -> Schedule:
    order = eligible_first(planner.items, gang_order(queue))
    order = parents_first(order, planner.items)
    for before, after in pairwise(order):
        planner.items[after].parents.append((before, -1.0))
    step = planner.options.get("power_step", 0.0)
    planner.compiled = compile_intake(planner.intake, step)
    layer = Layer(planner, queue)
    return layer.decode(np.array(order, dtype=np.int64), queue.first[1:] - 1, "insert")


def _lay(name: str, planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
    queue = of_planner(planner)
    if name == "gang":
        return _gang(planner, queue), {}
    schedule = Layer(planner, queue).lay(*order_and_rows(name, queue))
    assert schedule is not None
    return schedule, {}


COMPARATORS = ("gang", "sequential", "list-shelf", *LIST_KEYS)
SOLVERS: Mapping[str, SolveFunction] = {
    "demt": on_planner(plan),
    **{name: one_pass(name, partial(_lay, name)) for name in COMPARATORS},
}
