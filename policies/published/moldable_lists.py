"""Comparators of `demt`: gang, sequential, and four lists of the two-shelf allotments.

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
The text orders its *weighted LPTF* by "the ratio between weighted and their execution time". By
w / p it would be good for the weighted completion, which the figures do not show; by w p it is
like them. Both are here.

`gang` takes a job's largest allotment that is faster than the next smaller one, and leaves idle
what that does not use. It keeps the order among jobs that depend on each other, and a job that is
not released yet keeps no other waiting.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004, section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.base import Budget, SolveFunction
from coalloc.policies.kernel.instance.arrays import compile_intake
from coalloc.policies.kernel.instance.decoding import Planner, Schedule, eligible_first
from coalloc.policies.kernel.instance.graph import parents_first
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.two_shelf import two_shelf
from coalloc.policies.one_pass import one_pass

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


def _solver(name: str) -> SolveFunction:
    def lay(planner: Planner, budget: Budget) -> tuple[Schedule, Mapping[str, Any]]:
        queue = of_planner(planner)
        if name == "gang":
            return _gang(planner, queue), {}
        schedule = Layer(planner, queue).lay(*order_and_rows(name, queue))
        assert schedule is not None
        return schedule, {}

    return one_pass(name, lay)


SOLVERS: Mapping[str, SolveFunction] = {
    name: _solver(name) for name in ("gang", "sequential", "list-shelf", *LIST_KEYS)
}
