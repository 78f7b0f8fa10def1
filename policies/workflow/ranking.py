"""Workflows in the orders of a round on line: each is one job, its tasks go by what follows them.

Notes
-----
Of what is left of a workflow, with t the time of a task and n its processes:

- its *time* r is the longest path, the wait for data of tasks that have started included;
- its *width* is the sum of n t by r, so that r times the width is its area, as for a rigid job;
- its *wait* counts from its submission;
- the *rank* of a task is the longest path from its start to the end of the workflow (HEFT's upward
  rank): the tasks of a workflow stand together in an order of the queue, by falling rank.

References
----------
H. Topcuoglu, S. Hariri, M. Wu, "Performance-effective and low-complexity task scheduling for
heterogeneous computing", IEEE TPDS 13(3), 2002 (upward rank).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.graph import make_graph
from coalloc.policies.orders.queue_orders import Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Items by their jobs."""

    number: Ints
    """The job of each item, by arrival."""
    first: Ints
    """First item of each job that has items."""
    rank: Floats
    """Longest path from the start of a task to the end of its workflow, seconds; of others the run
    time."""

    def sort(self, keys: Floats) -> Ints:
        """Items by the rising keys of their jobs; of equal ones by arrival, then by rank."""
        return np.lexsort((-self.rank, self.number, keys)).astype(np.int64)

    def completion(self, ends: Floats, weights: Floats) -> float:
        """Sum of weight x end, each job once, at the end of its last task."""
        return float((weights[self.first] * np.maximum.reduceat(ends, self.first)).sum())


def has_tasks(planner: Planner) -> bool:
    """Whether tasks of workflows are to be placed."""
    return any(item.task is not None for item in planner.items)


def is_one_workflow(planner: Planner) -> bool:
    """Whether all there is to place are tasks of the same workflow."""
    return has_tasks(planner) and bool((planner.numbers == planner.numbers[0]).all())


def ranked(planner: Planner, jobs: Traits) -> tuple[Traits, Ranks]:
    """Traits of the jobs that items belong to, and the ranks of their tasks.

    `jobs`: of the items themselves.
    """
    items, numbers = planner.items, planner.numbers
    jobs = _widest(planner, jobs)
    graph = make_graph(
        [[p for p in item.parents if items[p[0]].number == item.number] for item in items]
    )
    rank = graph.bottom(jobs.seconds)
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    counts = np.diff(np.append(first, numbers.size))
    head = np.maximum(planner.compiled.problem.item_release - planner.snapshot.time, 0.0)
    tasks = np.array([item.task is not None for item in items], dtype=np.bool_)
    left = np.repeat(np.maximum.reduceat(rank + np.where(tasks, head, 0.0), first), counts)
    area = np.repeat(np.add.reduceat(jobs.seconds * jobs.procs, first), counts)
    whole = replace(
        jobs,
        seconds=np.where(tasks, left, jobs.seconds),
        procs=np.where(tasks, area / np.maximum(left, 1e-9), jobs.procs),
    )
    ranks = Ranks(number=numbers, first=first.astype(np.int64), rank=rank)
    return whole, ranks


def _widest(planner: Planner, jobs: Traits) -> Traits:
    """The same, tasks on the widest allotment that they have."""
    seconds, procs = jobs.seconds.copy(), jobs.procs.copy()
    for n, item in enumerate(planner.items):
        if item.task is not None and len(item.modes) > 1:
            width, scaled, fixed, _ = item.modes[-1]
            seconds[n], procs[n] = scaled + fixed, width
    return replace(jobs, seconds=seconds, procs=procs)
