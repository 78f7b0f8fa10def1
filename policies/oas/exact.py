"""The exact search of `oas`: proves the best plan of a queue, by CP-SAT where it is installed.

What is searched are the plans that place every item of the planner and that the independent checker
accepts, so an optimum here is one among all plans with the same deferred jobs. `exact_model` has
the model, `UnfitError` names what is outside.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from typing import Any

import numpy as np

from coalloc.model.jobs import MoldableJob
from coalloc.model.speedup import LADDER, TableSpeedup
from coalloc.policies.base import never
from coalloc.policies.bounds.supply import threshold_of
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.arrays import make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.state import FULL
from coalloc.policies.mip.cp_sat import NOT_INSTALLED, UnfitError, cp_model, minimize
from coalloc.policies.oas.exact_model import NEAR, ExactModel
from coalloc.policies.oas.exact_patterns import make_patterns

RELATIVE = 5e-10
"""By so much a plan must be better, relative."""
RESERVED = 62
"""Reservations are bits of one integer."""


def _unsupported(planner: Planner, slot: float | None) -> str | None:
    """Reason why the search cannot take a case."""
    if cp_model() is None:
        return NOT_INSTALLED
    if any(item.task is not None for item in planner.items):
        return "tasks of workflows are not searched"
    if any(kind.cut for kind in planner.intake.kinds if kind.usable):
        return "memory is shared between the slots of a node"
    if slot is None and threshold_of(planner) > 1.0:
        return "links may be saturated"
    if planner.guarded.size:
        return "jobs that were passed over are booked first"
    if len(planner.intake.reservations) > RESERVED:
        return f"more than {RESERVED} reservations"
    for item in planner.items:
        job = item.job
        if not isinstance(job, MoldableJob) or isinstance(job.speedup, TableSpeedup):
            continue
        if job.max_procs - job.min_procs >= LADDER:
            return f"job {job.id} has more than {LADDER} allotments"
    return None


class ExactSearch:
    """The search of one planner.

    The objective is makespan, weighted_completion, or makespan_then_weighted_completion; `lower` is
    a valid bound of it (of the makespan, where it comes first). Only plans better than the
    incumbent are looked for; `best` is one, if there is one. `value` is the objective of the best
    plan known, in seconds (weighted seconds), infinite without one; `bound` is a valid bound of it,
    equal to it once the search has ended.

    With a slot, in seconds, run times are rounded up to multiples, starts lie on multiples after
    the snapshot's time, and releases and other work count until the next multiple. The incumbent is
    then left aside. `value` and `bound` count whole slots, the plan's ends are the true ones.

    Raises `UnfitError`, with the reason, where it does not apply.
    """

    def __init__(
        self,
        planner: Planner,
        objective: str,
        incumbent: Schedule | None,
        lower: float = 0.0,
        *,
        slot: float | None = None,
        seed: int = 0,
    ) -> None:
        self.planner, self.slot, self.seed = planner, slot, seed
        self.weighted = self.weighing = objective == "weighted_completion"
        self.second = objective == "makespan_then_weighted_completion"
        self.best: Schedule | None = None
        self.work, self.bound, self.floor = 0, lower, lower
        self.makespan = self.cost = inf
        self.ended, self.failed = not planner.items, False
        if self.ended:
            self.makespan = self.cost = 0.0
            return
        if (reason := _unsupported(planner, slot)) is not None:
            raise UnfitError(reason)
        if incumbent is not None and slot is None:
            self.offer(incumbent, lower)
        # Where there are slots, links may be saturated up to the threshold.
        full = int(FULL * (1.0 if slot is None else threshold_of(planner)))
        patterns = make_patterns(planner.compiled, threshold_of(planner), slot)
        self.made = ExactModel(cp_model(), planner, patterns, slot, full)
        if objective == "makespan":
            self.made.break_symmetry()

    @property
    def value(self) -> float:
        """The objective of the best plan known; of two, the first."""
        return self.cost if self.weighted else self.makespan

    @property
    def reached(self) -> float:
        """The criterion that is searched now, of the best plan known."""
        return self.cost if self.weighing else self.makespan

    def offer(self, found: Schedule, bound: float) -> None:
        """Know a plan and a bound from elsewhere, if they are better."""
        if found.unplaced or self.weighing != self.weighted:
            return
        if (found.weighted_completion if self.weighted else found.makespan) < self.value:
            self.makespan, self.cost = found.makespan, found.weighted_completion
        self.bound = self.floor = max(self.floor, bound)

    def run(self, work: int, stop: Callable[[], bool] = never) -> bool:
        """Search for so much work more; whether the search has ended, with a proof."""
        until = self.work + work
        while not self.ended and not self.failed and self.work < until and not stop():
            if self.reached > self.floor * (1.0 + RELATIVE):
                self._solve(until - self.work, stop)
                continue
            self.bound = self.value
            self.ended = not self.second or self.reached == inf
            if not self.ended:  # of the plans with this makespan, the least completion
                made, self.second, self.weighing, self.floor = self.made, False, True, 0.0
                made.model.add(made.last <= int(self.makespan / made.grid.unit + NEAR))
        return self.ended

    def _solve(self, work: int, stop: Callable[[], bool]) -> None:
        """One call of the solver, for something better than what is known."""
        made, high = self.made, None
        aim, unit = made.weigh() if self.weighing else (made.last, made.grid.unit)
        low = ceil(self.floor / unit * (1.0 - NEAR) - NEAR)
        if self.reached < inf:
            high = ceil(self.reached * (1.0 - RELATIVE) / unit - NEAR) - 1
        value, bound, proved, spent = minimize(
            made.model, aim, low, high, work=work, seed=self.seed, stop=stop
        )
        self.work += spent
        if value is not None:
            self._take(value)
        if self.failed:
            return
        told = self.reached if proved else min(bound * unit, self.reached)
        self.floor = max(self.floor, told)
        if self.weighing == self.weighted:
            self.bound = max(self.bound, self.floor)

    def _take(self, value: Callable[[Any], int]) -> None:
        """Make a plan of the solver's: its patterns, and its order of starts and ends."""
        made, patterns, grid = self.made, self.made.patterns, self.made.grid
        start = [value(variable) for variable in made.start]
        end = [value(variable) for variable in made.end]
        out = make_outcome(made.problem)
        sc, top = np.ones(out.end.size), 0
        for n in sorted(range(len(start)), key=lambda n: start[n]):
            p = next(p for p in made.of_item(n) if value(made.chosen[p]))
            out.start[n] = grid.now + start[n] * grid.unit
            if not grid.slotted:
                over = [float(out.end[m]) for m in range(len(end)) if m != n and end[m] <= start[n]]
                out.start[n] = max([self.planner.items[n].release, *made.over(start[n]), *over])
            out.end[n] = out.start[n] + patterns.seconds[p]
            out.mode[n], sc[n] = patterns.mode[p], patterns.sc[p]
            classes = np.flatnonzero(patterns.procs[p])
            out.use_first[n], out.use_count[n] = top, classes.size
            out.use_class[top : top + classes.size] = classes
            out.use_procs[top : top + classes.size] = patterns.procs[p, classes]
            top += classes.size
        found = self.planner.measure(out, self.work, sc)
        if check(self.planner.snapshot, self.planner.plan(found, "oas")).violations:
            self.failed = True  # amounts too near to each other for the model
            return
        self.best = found
        self.makespan, self.cost = found.makespan, found.weighted_completion
        if grid.slotted:
            self.makespan = max(end) * grid.unit
