"""The exact search of `oas`: proves the best plan of a small queue, in continuous time.

Chronological branch and bound over the sets of jobs that start at each event, each job in each of
its allocation patterns, with a memo of states. `kernel.branch_and_bound` says why it is complete,
`exact_patterns` what a pattern is, `exact_prices` where its bounds come from.

Notes
-----
What is searched are the plans that place every item of the planner and that the independent
checker accepts, so an optimum here is one among all plans with the same deferred jobs.
`why_not` names what is outside: workflows, memory that is shared between the slots of a node,
saturated links in continuous time, jobs that the guard books first, and queues too large for the
memo's key.
"""

from __future__ import annotations

from math import inf

import numpy as np

from coalloc.model.jobs import MoldableJob
from coalloc.model.speedup import LADDER, TableSpeedup
from coalloc.policies.bounds.supply import threshold_of
from coalloc.policies.kernel.instance.arrays import make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.search.branch_and_bound import root_bound, search
from coalloc.policies.kernel.search.branch_state import (
    BEST_CHOSEN,
    BEST_END,
    BEST_START,
    COST_LIMIT,
    DEADLINE,
    FOUND,
    MARGIN,
    RELATIVE,
    WEIGHT,
    WEIGHTED,
    WORK,
)
from coalloc.policies.oas.exact_model import (
    UnfitError,
    fitting_patterns,
    make_memo,
    make_model,
    make_stack,
)
from coalloc.policies.oas.exact_patterns import TooManyPatternsError

CHUNK = 200_000
"""Nodes of one call of the compiled search."""
OBJECTIVES = {
    "makespan": (False,),
    "weighted_completion": (True,),
    "makespan_then_weighted_completion": (False, True),
}
"""The searches of each objective, one after the other; True: of weighted completion."""
SAME = 1e-12
"""By so much, relative, the second search may pass the makespan of the first: rounding."""


def why_not(planner: Planner, slot: float | None = None) -> str | None:
    """Say why the exact search does not apply; None where it does."""
    reason = _unsupported(planner, slot)
    if reason is not None or not planner.items:
        return reason
    try:
        fitting_patterns(planner, slot)
    except (UnfitError, TooManyPatternsError) as error:
        return str(error)
    return None


def _unsupported(planner: Planner, slot: float | None) -> str | None:
    """Reason why the search cannot take a case."""
    if any(item.task is not None for item in planner.items):
        return "tasks of workflows are not searched"
    if any(kind.cut for kind in planner.intake.kinds if kind.usable):
        return "memory is shared between the slots of a node"
    if slot is None and threshold_of(planner) > 1.0:
        return "links may be saturated"
    if planner.guarded.size:
        return "jobs that were passed over are booked first"
    for item in planner.items:
        job = item.job
        if not isinstance(job, MoldableJob) or isinstance(job.speedup, TableSpeedup):
            continue
        if job.max_procs - job.min_procs >= LADDER:
            return f"job {job.id} has more than {LADDER} allotments"
    return None


class ExactSearch:
    """Chronological branch and bound with a dominance memo on node classes and patterns.

    The objective is makespan, weighted_completion, or makespan_then_weighted_completion; `lower` is
    a valid bound of it (of the makespan, where it comes first). Only plans better than the
    incumbent are looked for; `best` is one, if there is one. `value` is the objective of the best
    plan known, in seconds (weighted seconds), infinite without one; `bound` is a valid bound of it,
    equal to it once the search has ended. `work` are nodes so far.

    With a slot, in seconds, run times are rounded up to multiples, starts lie on multiples after
    the snapshot's time, and releases and other work count until the next multiple. The incumbent
    then only serves to be beaten if it keeps to the grid, which is not looked at: it is left aside.
    `value` and `bound` count whole slots, the plan's ends are the true ones.

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
    ) -> None:
        reason = _unsupported(planner, slot)
        if reason is not None:
            raise UnfitError(reason)
        phases = OBJECTIVES[objective]
        self.planner, self.slot = planner, slot
        self.weighted, self._later = phases[0], list(phases[1:])
        self._second = False
        self.best: Schedule | None = None
        self.work, self.bound, self._floor = 0, 0.0, 0.0
        self.makespan = self.cost = inf
        self.ended = not planner.items
        if self.ended:
            self.makespan = self.cost = 0.0
            return
        if incumbent is not None and not incumbent.unplaced and slot is None:
            self.makespan, self.cost = incumbent.makespan, incumbent.weighted_completion
        try:
            self._made = make_model(planner, slot, True in phases)
        except TooManyPatternsError as error:
            raise UnfitError(str(error)) from None
        self._begin()
        self.bound = self._floor = max(lower, self._floor)
        if self._proved():
            self._next()

    @property
    def value(self) -> float:
        """The objective of the best plan known; of two, the first."""
        return self.cost if self.weighted else self.makespan

    def run(self, work: int) -> bool:
        """Explore at most so many nodes more; whether the search has ended, with a proof."""
        until = self.work + work
        while not self.ended and self.work < until:
            counters = self._stack.counters
            before, found = int(counters[WORK]), int(counters[FOUND])
            chunk = min(CHUNK, until - self.work)
            over = bool(search(self._made.model, self._stack, self._memo, chunk))
            self.work += int(counters[WORK]) - before
            if int(counters[FOUND]) > found:
                self._take()
            if over or self._proved():
                self._next()
        return self.ended

    @property
    def _weighing(self) -> bool:
        """Whether the present phase is one of weighted completion."""
        return self.weighted or self._second

    def _begin(self) -> None:
        """Set out on a phase."""
        model, length = self._made.model, self._made.grid.length(1.0)
        self._stack = make_stack(model)
        self._memo = make_memo(len(self.planner.items))
        origin, limits = float(model.times[0, 0]), self._stack.limits
        rounding = 4.0 * float(np.spacing(abs(origin)))
        # with a grid, ends are whole numbers
        limits[MARGIN] = rounding if self.slot is None else 0.5
        if self._weighing:
            limits[WEIGHTED], limits[MARGIN] = 1.0, 0.0
            limits[COST_LIMIT] = self.cost * (1.0 - RELATIVE) / length
            if self._second:
                limits[DEADLINE] = origin + self.makespan * (1.0 + SAME) / length + rounding
        elif self.makespan < inf:
            most = self.makespan / length
            limits[DEADLINE] = origin + most - max(limits[MARGIN], most * RELATIVE)
        self._floor = float(root_bound(model, self._stack)) * length

    def _proved(self) -> bool:
        """Whether the best plan known meets the bound of this phase."""
        value = self.cost if self._weighing else self.makespan
        return bool(value <= self._floor * (1.0 + RELATIVE))

    def _next(self) -> None:
        """Go on to the next phase, if there is one."""
        if not self._second and self.value < inf:
            self.bound = self.value
        if not self._later or self.value == inf:
            self.ended = True
            return
        self._later.pop()
        self._second = True
        self._begin()
        if self._proved():
            self.ended = True

    def _take(self) -> None:
        """Write the best plan of the search as a schedule."""
        made, stack, grid = self._made, self._stack, self._made.grid
        patterns = made.patterns
        out = make_outcome(self.planner.compiled.problem)
        sc = np.ones(out.end.size)
        top = 0
        for j, item in enumerate(made.order.tolist()):
            p = int(made.index[stack.chosen[j, BEST_CHOSEN]])
            out.start[item] = grid.seconds(float(stack.plan[j, BEST_START]))
            out.end[item] = grid.seconds(float(stack.plan[j, BEST_END]))
            if grid.slot is not None:
                out.end[item] = min(out.start[item] + patterns.seconds[p], out.end[item])
            out.mode[item], sc[item] = patterns.mode[p], patterns.sc[p]
            classes = np.flatnonzero(patterns.procs[p])
            out.use_first[item], out.use_count[item] = top, classes.size
            out.use_class[top : top + classes.size] = classes
            out.use_procs[top : top + classes.size] = patterns.procs[p, classes]
            top += classes.size
        self.best = self.planner.measure(out, self.work, sc)
        origin = float(made.model.times[0, 0])
        ends = stack.plan[:, BEST_END] - origin
        self.makespan = grid.length(float(ends.max()))
        self.cost = grid.length(float((ends * made.model.runs[:, WEIGHT]).sum()))
        if self._second:  # the same but for rounding
            self.bound = min(self.bound, self.makespan)
