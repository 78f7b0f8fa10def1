"""The exact search of `oas`: proves the best plan of a queue, by CP-SAT where it is installed.

`exact_model` has the model, `exact_patterns` the allocations that it chooses from. What is searched
are the plans that place every item of the planner and that the independent checker accepts, so an
optimum here is one among all plans with the same deferred jobs. `why_not` names what is outside:
workflows, memory that is shared between the slots of a node, saturated links in continuous time,
jobs that the guard books first, queues with too many patterns, and a machine without ``ortools``.

Notes
-----
*Work* is the solver's deterministic time, a second in so many units that a unit is about an item
placed by the annealing. A call cannot be resumed: each one searches anew, above the bound and below
the value that are known. One thread, so with the same work a search repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from math import ceil, inf
from threading import Event, Thread
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
from coalloc.policies.oas.exact_model import NEAR, ExactModel
from coalloc.policies.oas.exact_patterns import (
    Patterns,
    Saturation,
    TooManyPatternsError,
    make_patterns,
)

SECOND = 1_000_000
"""Work of a second of the solver's deterministic time."""
OBJECTIVES = {
    "makespan": (False,),
    "weighted_completion": (True,),
    "makespan_then_weighted_completion": (False, True),
}
"""The searches of each objective, one after the other; True: of weighted completion."""
RELATIVE = 5e-10
"""By so much a plan must be better, relative."""
LOOK_S = 0.05
"""Between two looks at the caller's wish to stop."""


class UnfitError(Exception):
    """The search does not apply; the text says why."""


@cache
def cp_model() -> Any:
    """CP-SAT, loaded at its first use; None where it is not installed."""
    try:
        return import_module("ortools.sat.python.cp_model")
    except ImportError:
        return None


def why_not(planner: Planner, slot: float | None = None) -> str | None:
    """Say why the exact search does not apply; None where it does."""
    try:
        fitting_patterns(planner, slot)
    except UnfitError as error:
        return str(error)
    return None


def fitting_patterns(planner: Planner, slot: float | None) -> Patterns:
    """The patterns; where there are slots, links may be saturated up to the threshold.

    Raises `UnfitError`.
    """
    reason = _unsupported(planner, slot)
    if reason is not None:
        raise UnfitError(reason)
    saturation, threshold = None, threshold_of(planner)
    if slot is not None and threshold > 1.0:
        saturation = Saturation(threshold=threshold, slot_s=slot)
    try:
        patterns = make_patterns(planner.compiled, saturation)
    except TooManyPatternsError as error:
        raise UnfitError(str(error)) from None
    if (np.diff(patterns.first) == 0).any():
        raise UnfitError("a job has no allocation that the links carry")
    return patterns


def _unsupported(planner: Planner, slot: float | None) -> str | None:
    """Reason why the search cannot take a case."""
    if cp_model() is None:
        return "ortools is not installed"
    if any(item.task is not None for item in planner.items):
        return "tasks of workflows are not searched"
    if any(kind.cut for kind in planner.intake.kinds if kind.usable):
        return "memory is shared between the slots of a node"
    if slot is None and threshold_of(planner) > 1.0:
        return "links may be saturated"
    if planner.guarded.size:
        return "jobs that were passed over are booked first"
    if len(planner.intake.reservations) > 62:
        return "more than 62 reservations"
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

    Raises `UnfitError` where `why_not` has a reason.
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
        self.phases = list(OBJECTIVES[objective])
        self.weighted, self._second = self.phases.pop(0), False
        self.best: Schedule | None = None
        self.work, self.bound = 0, lower
        self.makespan = self.cost = inf
        self.ended, self.failed = not planner.items, False
        if self.ended:
            self.makespan = self.cost = 0.0
            return
        if incumbent is not None and not incumbent.unplaced and slot is None:
            self.makespan, self.cost = incumbent.makespan, incumbent.weighted_completion
        full = int(FULL * (1.0 if slot is None else threshold_of(planner)))
        self.made = ExactModel(cp_model(), planner, fitting_patterns(planner, slot), slot, full)
        if objective == "makespan":
            self.made.break_mirror()
        self._begin()

    @property
    def value(self) -> float:
        """The objective of the best plan known; of two, the first."""
        return self.cost if self.weighted else self.makespan

    def _begin(self) -> None:
        """Set out on a phase, unless it is proved."""
        made = self.made
        if self.weighted or self._second:
            self.aim, self.unit = made.weigh()
            self.floor = 0.0 if self._second else self.bound
            if self._second:
                made.model.add(made.last <= int(self.makespan / made.grid.unit + NEAR))
        else:
            self.aim, self.unit, self.floor = made.last, made.grid.unit, self.bound
        made.model.minimize(self.aim)

    def offer(self, found: Schedule, bound: float) -> None:
        """Know a plan and a bound from elsewhere, if they are better."""
        if self._second or found.unplaced:
            return
        if (found.weighted_completion if self.weighted else found.makespan) < self.value:
            self.makespan, self.cost = found.makespan, found.weighted_completion
        self.bound = self.floor = max(self.floor, bound)

    def run(self, work: int, stop: Callable[[], bool] = never) -> bool:
        """Search for so much work more; whether the search has ended, with a proof."""
        until = self.work + work
        while not self.ended and not self.failed and self.work < until and not stop():
            if self._proved():
                self._next()
            else:
                self._solve(until - self.work, stop)
        return self.ended

    def _reached(self) -> float:
        """The value of the present phase."""
        return self.cost if self.weighted or self._second else self.makespan

    def _proved(self) -> bool:
        """Whether the best plan known meets the bound of this phase."""
        return self._reached() <= self.floor * (1.0 + RELATIVE)

    def _next(self) -> None:
        """Go on to the next phase, if there is one."""
        if not self._second:
            self.bound = self.value
        if not self.phases:
            self.ended = True
            return
        self.phases.pop()
        self._second = True
        self._begin()

    def _solve(self, work: int, stop: Callable[[], bool]) -> None:
        """One call of the solver, for something better than what is known."""
        cp, model = self.made.cp, self.made.model.clone()
        reached = self._reached()
        if reached < inf:
            model.add(self.aim <= ceil(reached * (1.0 - RELATIVE) / self.unit - NEAR) - 1)
        model.add(self.aim >= ceil(self.floor / self.unit * (1.0 - NEAR) - NEAR))
        solver = cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.seed
        solver.parameters.linearization_level = 0  # measured: 2 to 10 times as fast as with it
        solver.parameters.cp_model_probing_level = 0
        solver.parameters.max_deterministic_time = work / SECOND
        over = Event()

        def watch() -> None:
            while not over.wait(LOOK_S):
                if stop():
                    solver.stop_search()

        watcher = Thread(target=watch, daemon=True) if stop is not never else None
        if watcher is not None:
            watcher.start()
        try:
            status = solver.solve(model)
        finally:
            over.set()
            if watcher is not None:
                watcher.join()
        assert status != cp.MODEL_INVALID, model.validate()
        spent = int(solver.response_proto.deterministic_time * SECOND)
        self.work += min(max(spent, 1), work)
        self._know(solver, status, reached)

    def _know(self, solver: Any, status: Any, reached: float) -> None:
        """Take over a plan and the bound."""
        cp = self.made.cp
        if status in (cp.OPTIMAL, cp.FEASIBLE):
            self._take(solver)
        if self.failed:
            return
        if status in (cp.OPTIMAL, cp.INFEASIBLE):
            self.floor = self._reached()
        elif solver.best_objective_bound * self.unit > self.floor:
            self.floor = min(solver.best_objective_bound * self.unit, self._reached())
        if not self._second:
            self.bound = max(self.bound, self.floor)

    def _take(self, solver: Any) -> None:
        """Make a plan of the solver's: its patterns, and its order of starts and ends."""
        made, patterns = self.made, self.made.patterns
        grid, items = made.grid, self.planner.items
        start = [solver.value(variable) for variable in made.start]
        end = [solver.value(variable) for variable in made.end]
        chosen = [
            next(p for p in made.of_item(n) if solver.value(made.chosen[p]))
            for n in range(len(items))
        ]
        out = make_outcome(self.planner.compiled.problem)
        sc, top = np.ones(out.end.size), 0
        for n in sorted(range(len(items)), key=lambda n: start[n]):
            p = chosen[n]
            out.start[n] = self._begun(start, end, out.end, n)
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

    def _begun(self, start: list[int], end: list[int], ends: Any, item: int) -> float:
        """When an item starts: once what is over at its start in the model is over."""
        made, grid, at = self.made, self.made.grid, start[item]
        if grid.slotted:
            return grid.now + at * grid.unit
        base, closed = made.base.time.tolist(), made.problem.reserved.tolist()
        times = [grid.now, self.planner.items[item].release]
        times += [time for time, units in zip(base, made.events, strict=True) if units <= at]
        times += [b for (_, b), (_, units) in zip(closed, made.closed, strict=True) if units <= at]
        times += [float(ends[n]) for n in range(len(end)) if n != item and end[n] <= at]
        return max(times)
