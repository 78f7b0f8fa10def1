"""Run time of each item, by processes and cluster, if the cluster were empty.

Notes
-----
A *row* is one item on one number of processes. A task has a row for every count from its smallest
on, up to `DENSE` counts, and a geometric ladder of as many beyond that; a plain job has the modes
that the kernel offers. On p processes of a cluster it runs on the p strongest slots: unequal powers
inside a cluster make a row slower, never faster, once those are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coalloc.policies.array_types import Floats, Ints, firsts
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.state import SHORTEST

DENSE = 512
"""Allotments of a task that are all listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingCosts:
    """Run times of all items. N items, S rows, G groups, K clusters."""

    first: Ints
    """Rows of each item, by rising processes."""
    procs: Ints
    scaled: Floats
    """Seconds that scale with 1 / power, and that do not."""
    fixed: Floats
    gbit: Floats
    """What each process sends inside the item, Gbit."""
    seconds: Floats
    """Run time on the strongest slots of an empty cluster; inf where it does not fit."""
    capacity: Ints
    """Processes that an empty cluster takes."""
    power: Floats
    """Mean power of a usable slot; 0 where there is none."""
    slots: Ints
    """Usable slots."""

    def last_rows(self, limit: Ints) -> Ints:
        """Last row of each item with at most so many processes; else the row before its first."""
        step = int(self.procs.max(initial=0)) + 1
        item = np.arange(self.first.size - 1)
        key = self.procs + np.repeat(item, np.diff(self.first)) * step
        base = (item * step).reshape((-1,) + (1,) * (limit.ndim - 1))
        return np.searchsorted(key, base + np.clip(limit, 0, step - 1), side="right") - 1


def costs_of(planner: Planner) -> MappingCosts:
    """Tabulate what a planner has to place."""
    problem = planner.compiled.problem
    free = planner.compiled.base.free[-1].astype(np.int64)
    capacity, powers = _capacity(planner, free)
    groups, clusters = capacity.shape
    tables = [_table(item, int(capacity[item.group].sum())) for item in planner.items]
    sizes = [table.shape[1] for table in tables]
    first = firsts(sizes)
    table = np.concatenate(tables, axis=1) if tables else np.zeros((4, 0))
    procs, (scaled, fixed, gbit) = table[0].astype(np.int64), table[1:]
    group, limit = (np.repeat(of, sizes) for of in (problem.item_group, problem.item_limit))
    seconds = np.full((procs.size, clusters), np.inf)
    for g in range(groups):
        for k in range(clusters):
            rows = np.flatnonzero((group == g) & (procs <= capacity[g, k]))
            run = scaled[rows] / powers[g][k][procs[rows] - 1] + fixed[rows]
            run = np.minimum(run + gbit[rows] * problem.inverse_intra[k], limit[rows])
            seconds[rows, k] = np.maximum(run, SHORTEST)
    slots = np.zeros(clusters, dtype=np.int64)
    power = np.zeros(clusters)
    count = free // problem.class_grain
    np.add.at(slots, problem.class_cluster, count)
    np.add.at(power, problem.class_cluster, count * problem.class_power)
    return MappingCosts(
        first=first,
        procs=procs,
        scaled=np.ascontiguousarray(scaled),
        fixed=np.ascontiguousarray(fixed),
        gbit=np.ascontiguousarray(gbit),
        seconds=seconds,
        capacity=capacity,
        power=power / np.maximum(slots, 1),
        slots=slots,
    )


def _capacity(planner: Planner, free: Ints) -> tuple[Ints, list[list[Floats]]]:
    """Processes of each group on each empty cluster, and the powers of those, strongest first."""
    problem = planner.compiled.problem
    groups, clusters = problem.need.shape[0], problem.link_gbps.size
    capacity = np.zeros((groups, clusters), dtype=np.int64)
    powers: list[list[Floats]] = []
    for g in range(groups):
        need = problem.need[g]
        count = np.where(need > 0, free // np.maximum(need, 1), 0)
        np.add.at(capacity[g], problem.class_cluster, count)
        mine = [problem.class_cluster == k for k in range(clusters)]
        powers.append([np.repeat(problem.class_power[m], count[m]) for m in mine])
    return capacity, powers


def _table(item: Item, most: int) -> Floats:
    """Processes, scaled seconds, fixed seconds and Gbit a process: 4 x rows."""
    task = item.task
    if task is None:
        return np.array(item.modes, dtype=np.float64).T
    low, high = task.min_procs, max(min(task.max_procs, most), task.min_procs)
    if task.parallel_fraction == 0.0 and task.comm_gb == 0.0:
        high = low
    if high - low < DENSE:
        procs = np.arange(low, high + 1, dtype=np.float64)
    else:
        procs = np.unique(np.geomspace(low, high, DENSE).round())
    share = 1.0 - task.parallel_fraction + task.parallel_fraction / procs
    return np.stack((procs, task.work * share, np.zeros(procs.size), 8.0 * task.comm_gb / procs))
