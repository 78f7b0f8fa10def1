"""Selection of the jobs that are searched; the others go behind, by list scheduling.

The window is filled by fairness (how often a job was passed over), then weight, then arrival. What
a chosen job waits for is chosen with it.
"""

from __future__ import annotations

import numpy as np

from coalloc.policies.array_types import Floats
from coalloc.policies.kernel.instance.arrays import make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.profiles.decoders import begin, serial
from coalloc.policies.kernel.profiles.profile import book_all
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.state import USES, Outcome


def ranked(planner: Planner, booked: Schedule) -> list[int]:
    """Items that the guard has not booked: passed over most, heaviest, first come, first.

    What the guard would book, and waits for what it does not, is not booked.
    """
    items = planner.items
    free = np.flatnonzero(np.isnan(booked.outcome.end)).tolist()
    return sorted(free, key=lambda n: (-items[n].job.passed_over, -items[n].job.weight))


def choose(planner: Planner, booked: Schedule, window: int) -> tuple[list[int], list[int]]:
    """Split the items into those of the first `window` jobs, with their ancestors, and the rest."""
    order = ranked(planner, booked)
    jobs: set[int] = set()
    inside: set[int] = set()
    free = set(order)
    for n in order:
        number = planner.items[n].number
        if number not in jobs:
            if len(jobs) >= window:
                continue
            jobs.add(number)
        waiting = [n]
        while waiting:
            item = waiting.pop()
            if item in free and item not in inside:
                inside.add(item)
                waiting += [parent for parent, _ in planner.items[item].parents]
    chosen = [n for n in order if n in inside]
    return chosen, [n for n in order if n not in inside]


def complete(
    planner: Planner, lister: Lister, out: Outcome, sc: Floats, rest: list[int], work: int
) -> Schedule:
    """Insert the items outside the window behind a plan of those inside.

    Nothing of the plan moves: each gets its earliest place in what is left.
    """
    if not rest:
        return planner.measure(out, work, sc)
    begin(planner.state(make_outcome(lister.problem)), planner.compiled.base)
    state = planner.state(out)
    placed = np.flatnonzero(~np.isnan(out.end))
    book_all(state, placed, 1)
    state.scratch.counters[USES] = int((out.use_first + out.use_count).max(initial=0))
    _tell_children(planner, out)
    order = np.array(rest, dtype=np.int64)
    serial(state, order, False)
    return planner.measure(out, work + len(rest), sc)


def _tell_children(planner: Planner, out: Outcome) -> None:
    """Set what `serial` reads of each item without a place: open parents, and when it may begin."""
    problem = planner.compiled.problem
    free = np.isnan(out.end)
    out.missing[free], out.ready[free] = 0, problem.item_release[free]
    for n in np.flatnonzero(free & (np.diff(problem.parent_first) > 0)).tolist():
        ends = [float(out.end[parent]) for parent, _ in planner.items[n].parents]
        out.missing[n] = sum(end != end for end in ends)
        out.ready[n] = np.inf if out.missing[n] else max([problem.item_release[n], *ends])
