"""MCA-HEFT: workflows level by level, with tasks that may be spread over clusters.

Three steps (section III of the paper). *Allocation*: a task begins with its smallest allotment and
takes one more process while that shortens equation (5) by `mca_imp` or more, up to its share of all
nodes by rank among the tasks of its level, equation (3), and to `mca_max` of all nodes. *Cluster
allocation*: a task whose MCACCR, equation (2), passes the threshold may run on several clusters.
*Mapping*, by falling rank: the most loaded cluster, equation (7), with enough free nodes; if none
has enough, a task above the threshold is spread over the free nodes of several, and another takes
what is free on the least loaded. Within a cluster the least loaded nodes are chosen: of those of
one power, the ones that became free first.

Notes
-----
========= =================================================================================
rank      equation (1), in seconds: work at power 1, and communication inside a cluster
MCACCR    equation (2): work / communication * pf, seconds per GB; infinite without any
MCA       `mca`, or what leaves the share `mca_share` of the tasks above it
MCAMC     equation (3), rounded down
MCAMAX    `mca_max`, of all nodes
MCAIMP    `mca_imp`: n grows while ET(n + 1) <= (1 - MCAIMP) ET(n), communication left out
load      equation (7), used nodes counted by level; ties: faster, then larger, then the first
========= =================================================================================

A level is the longest path from an entry task. Plain jobs in the queue are tasks of the first
level, or of the level behind what they wait for.

Deviations
----------
The text has neither time nor a case in which nothing is free. Here *free* is what the level's
earlier tasks have left, or, with ``free=time``, what is free for good when the task's parents have
ended; if no cluster has enough then, what ends first of waiting for it, of taking less and of
spreading. With ``free=level`` a task takes what is free if that is at least its smallest allotment;
else it gets this on the least loaded cluster that holds it, and waits there. What no cluster holds
alone is spread as the links allow. Rigid tasks take no other number of processes, sequential ones a
single one.
With ``nodes=best-fit`` a task takes the nodes that became free last, which leaves the idle time of
the others to later tasks. Nodes of one power are alike, so a plan may name others than those that
were counted. Equations (4) and (5) leave out communication, as the text does, and priorities leave
out data on edges unless `edge_data` is set; the plan's times charge both. The text knows no load of
links: with ``workflow_links=idle`` they are found idle, and no plan that is started has that.

References
----------
Stanzani, Sato, Netto, "Scheduling Workflows in Multi-Cluster Environments".
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.published.m_heft import SLACK, Run, improving_rows, mean_delays, solvers
from coalloc.policies.workflow.mapping import Mapper

GBIT = 8.0


def volume_of(item: Item) -> tuple[float, float, float]:
    """Work in seconds on one node of power 1, gigabytes of communication, and pf.

    Of a plain job, what its smallest allotment computes and sends.
    """
    if item.task is not None:
        return item.task.work, item.task.comm_gb, item.task.parallel_fraction
    procs, scaled, fixed, _ = item.modes[0]
    return procs * (scaled + fixed), item.proc_gbps * procs * fixed / GBIT, 1.0


def threshold(ratios: Floats, share: float) -> float:
    """MCA such that about this share of the ratios is larger; inf if none is to be."""
    if share <= 0.0 or not ratios.size:
        return inf
    above = min(round(share * ratios.size), ratios.size)
    if above == ratios.size:
        return -inf
    return float(np.sort(ratios)[::-1][above])


class SpreadAllotments:
    """The first two steps: allotments, and who may be spread.

    `comp`, `comm` and `fraction` are those of equation (2). `rank` is equation (1), seconds; `row`
    is the row of `Mapper.costs` each item is allotted; `spreads` says whether it may run on several
    clusters.
    """

    def __init__(self, mapper: Mapper, options: Mapping[str, Any]) -> None:
        self.mapper = mapper
        items = mapper.planner.items
        self.comp, self.comm, self.fraction = np.array(
            [volume_of(item) for item in items], dtype=np.float64
        ).T.reshape(3, -1)
        costs = mapper.costs
        used = costs.slots > 0
        intra = float(mapper.problem.inverse_intra[used].max(initial=0.0))
        delay = mean_delays(mapper) if options["edge_data"] else None
        self.rank = mapper.graph.bottom(self.comp + GBIT * self.comm * intra, delay)
        self.row = self._rows(options)
        self.spreads = self._spreading(options)

    def _rows(self, options: Mapping[str, Any]) -> Ints:
        costs, total = self.mapper.costs, int(self.mapper.costs.slots.sum())
        level = self.mapper.graph.level
        by_level = np.bincount(level, weights=self.rank)[level]
        share = np.divide(self.rank, by_level, out=np.zeros_like(self.rank), where=by_level > 0.0)
        limit = np.minimum(np.floor(share * total + SLACK), np.floor(options["mca_max"] * total))
        last = np.maximum(costs.last_rows(limit.astype(np.int64)), costs.first[:-1])
        # equations (4) and (5) without the power, which cancels
        seconds = (costs.scaled + costs.fixed)[:, None]
        return improving_rows(costs, last[:, None], options["mca_imp"], seconds)[:, 0]

    def _spreading(self, options: Mapping[str, Any]) -> Flags:
        """Equation (2) against MCA, where the options and the job allow it."""
        items = self.mapper.planner.items
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(self.comm > 0.0, self.comp / self.comm * self.fraction, inf)
        given, share = options["mca"], options["mca_share"]
        level = threshold(ratios, share) if given is None else given
        allowed = [
            options["coallocation"] == "sooner" and (item.task is not None or item.splits)
            for item in items
        ]
        # without communication nothing speaks against it, whatever the threshold
        above = (ratios > level) | (np.isinf(ratios) & (given is not None or share > 0.0))
        return above & np.array(allowed, dtype=np.bool_)


class LevelMapping:
    """The third step: clusters by load, level by level."""

    def __init__(
        self, mapper: Mapper, allocation: SpreadAllotments, options: Mapping[str, Any]
    ) -> None:
        self.mapper, self.allocation = mapper, allocation
        self.insertion = bool(options["insertion"])
        self.by_time = options["free"] == "time"
        costs = mapper.costs
        self.total, self.power = costs.slots, costs.power
        levels = int(mapper.graph.level.max(initial=0)) + 1
        self.used = np.zeros((levels, self.total.size), dtype=np.int64)
        self._rows = (np.zeros_like(mapper.single), np.zeros_like(mapper.single))
        self._spread = (mapper.wide_row.copy(), mapper.wide_want.copy())

    def run(self) -> int:
        """Map everything by falling rank; the number of items that are spread."""
        for n in self.mapper.in_order(self.allocation.rank).tolist():
            self._place(n)
        spread = (self.mapper.out.parts[: self.mapper.graph.size] > 0).sum(axis=1) > 1
        return int(spread.sum())

    def _place(self, n: int) -> None:
        used = self.total - self._left(n) if self.by_time else self._used(n)
        free = np.clip(self.total - used, 0, self.mapper.capacity[n])
        if self.by_time and self._place_soonest(n, used, free):
            return
        for row, want in self._choices(n, used, free):
            if self.mapper.place(n, row, want, self.insertion):
                self._used(n)[:] += want
                return

    def _used(self, n: int) -> Ints:
        """Nodes that earlier tasks of the level have been given."""
        mine: Ints = self.used[self.mapper.graph.level[n]]
        return mine

    def _left(self, n: int) -> Ints:
        """Processes that are free for good when the item's parents have ended."""
        problem, out = self.mapper.problem, self.mapper.out
        mine = slice(int(problem.parent_first[n]), int(problem.parent_first[n + 1]))
        ready = max(out.end[problem.parent[mine]].max(initial=-inf), problem.item_release[n])
        return self.mapper.free_from(n, float(ready))

    def _place_soonest(self, n: int, used: Ints, free: Ints) -> bool:
        """Place it where no cluster has enough free: by waiting, shrinking or spreading."""
        mapper, first = self.mapper, int(self.mapper.costs.first[n])
        row = int(self.allocation.row[n])
        if (free >= mapper.costs.procs[row]).any():
            return False
        low, high = self._rows
        low[n] = [max(self._row(n, int(count), row), first) for count in free]
        high[n] = np.minimum(mapper.single[n], row)
        low[n] = np.minimum(low[n], np.maximum(high[n], first))
        wide_row, wide_want = mapper.wide_row, mapper.wide_want
        if self.allocation.spreads[n] and free.sum() >= mapper.costs.procs[first]:
            wide_row, wide_want = self._spread
            wide_row[n] = self._row(n, int(free.sum()), row)
            wide_want[n] = _greedy(int(mapper.costs.procs[wide_row[n]]), free, self._by_load(used))
        mapper.map(np.array([n]), low, high, self.insertion, wide_row, wide_want)
        return bool(mapper.out.end[n] < inf)

    def _choices(self, n: int, used: Ints, free: Ints) -> list[tuple[int, Ints]]:
        """Rows and processes on each cluster, the best first; the last ones fit somewhen."""
        mapper = self.mapper
        costs, capacity = mapper.costs, mapper.capacity[n]
        row = int(self.allocation.row[n])
        procs, least = int(costs.procs[row]), int(costs.procs[costs.first[n]])
        order = self._by_load(used)
        out: list[tuple[int, Ints]] = []
        enough = [k for k in order if free[k] >= procs]
        if enough:
            out.append((row, _alone(enough[0], procs, free.size)))
        elif self.allocation.spreads[n] and free.sum() >= least:
            row = self._row(n, int(free.sum()), row)
            out.append((row, _greedy(int(costs.procs[row]), free, order)))
        holding = [k for k in self._by_load(used, rising=True) if capacity[k] >= least]
        if holding:
            k = holding[0]
            row = self._row(n, max(int(free[k]), least), int(self.allocation.row[n]))
            out.append((row, _alone(k, int(costs.procs[row]), free.size)))
            out += [(int(costs.first[n]), _alone(k, least, free.size)) for k in holding]
        if mapper.wide_row[n] >= 0:
            out.append((int(mapper.wide_row[n]), mapper.wide_want[n]))
        return out

    def _by_load(self, used: Ints, rising: bool = False) -> list[int]:
        """Clusters by falling load, equation (7), or by rising load."""
        load = self.power * used / np.maximum(self.total, 1)
        by = load if rising else -load
        return [int(k) for k in np.lexsort((-self.total, -self.power, by))]

    def _row(self, n: int, most: int, row: int) -> int:
        """Last row up to this one with at most so many processes."""
        costs = self.mapper.costs
        first = int(costs.first[n])
        mine = costs.procs[first : row + 1]
        return first + max(int(np.searchsorted(mine, most, side="right")) - 1, 0)


def _alone(k: int, procs: int, clusters: int) -> Ints:
    want = np.zeros(clusters, dtype=np.int64)
    want[k] = procs
    return want


def _greedy(procs: int, free: Ints, order: list[int]) -> Ints:
    """Take from the cluster with most free nodes first; of equal ones, the more loaded."""
    want = np.zeros(free.size, dtype=np.int64)
    for k in sorted(order, key=lambda k: -int(free[k])):
        want[k] = min(procs, int(free[k]))
        procs -= int(want[k])
    return want


def run(mapper: Mapper, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Map everything on a mapper that is clear; how many items are spread, and might be."""
    mapper.least_loaded = options["nodes"] == "least-loaded"
    allocation = SpreadAllotments(mapper, options)
    spread = LevelMapping(mapper, allocation, options).run()
    return {"spread": spread, "above_mca": int(allocation.spreads.sum())}


RUNS: Mapping[str, Run] = {"mca-heft": run}
SOLVERS = solvers(RUNS)
