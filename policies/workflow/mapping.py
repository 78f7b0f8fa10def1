"""From an order and an allotment for each item to starts and ends, by earliest finish time.

A policy says in which order items are taken, and which allotments each may have on each cluster;
the mapper gives each the place where it ends first, with or without insertion into gaps. It knows
what the kernel's decoders know (what runs, reservations, powers, features, memory, links), and
tasks that are spread over clusters besides.

Notes
-----
A *row* is one item on one number of processes. A task has a row for every count from its smallest
on, up to `DENSE` counts, and a geometric ladder of as many beyond that; a plain job has the modes
that the kernel offers. On p processes of a cluster it runs on the p strongest slots: unequal powers
inside a cluster make a row slower, never faster, once those are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from coalloc.policies.array_types import Floats, Ints, firsts
from coalloc.policies.kernel.instance.arrays import held, make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.instance.graph import Graph, graph_of
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.search.earliest_finish import map_items
from coalloc.policies.kernel.search.serial_state import Choices, SerialState
from coalloc.policies.kernel.state import SHORTEST, Problem
from coalloc.policies.workflow.arrays import (
    begun_of,
    desk_of,
    items_of,
    out_of,
    outcome_of,
    problem_of,
    site_of,
    spread,
)
from coalloc.policies.workflow.forms import form_of

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
    capacity, powers = held(problem, free), _powers(problem, free)
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


def _powers(problem: Problem, free: Ints) -> list[list[Floats]]:
    """Powers of the processes of each group on each empty cluster, the strongest first."""
    counts = np.where(problem.need > 0, free // np.maximum(problem.need, 1), 0)
    mine = [problem.class_cluster == k for k in range(problem.link_gbps.size)]
    return [[np.repeat(problem.class_power[m], count[m]) for m in mine] for count in counts]


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


class Mapper:
    """Maps what a planner has to place, any number of times.

    `single` are the last rows of each item that fit on each cluster alone; before its first row if
    none does. With `least_loaded`, which is false at first, nodes that became free first are taken
    of equal ones without insertion; else those that became free last. `wide_row` and `wide_want`
    say how items that no cluster holds alone are spread; -1 for the others.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.costs: MappingCosts = costs_of(planner)
        self.graph: Graph = graph_of(planner.items)
        problem, begun = planner.compiled.problem, begun_of(planner)
        forms = [form_of(item) for item in planner.items]
        self.problem = problem_of(planner, begun)
        self.site = site_of(planner, self.problem, planner.compiled.base)
        self.items = items_of(planner, self.site, self.graph, forms, 0.0)
        most = np.array([form.high for form in forms], dtype=np.int64)
        self.desk = desk_of(self.problem, self.site, begun, 0)
        self.out = out_of(planner, most, begun)
        self.capacity = self.costs.capacity[problem.item_group].reshape(-1, problem.link_gbps.size)
        self.single = self.costs.last_rows(self.capacity)
        self.wide_row = np.full(len(planner.items), -1, dtype=np.int64)
        self.wide_want = np.zeros(self.capacity.shape, dtype=np.int64)
        for n in np.flatnonzero((self.single < self.costs.first[:-1, None]).all(axis=1)).tolist():
            self._spread(n)
        none = np.full(self.capacity.shape, -1, dtype=np.int64)
        self._nowhere = (np.zeros_like(none), none)
        self._row, self._want = np.full_like(self.wide_row, -1), np.zeros_like(self.wide_want)
        self.clear()

    def _spread(self, n: int) -> None:
        item, row = self.planner.items[n], int(self.costs.first[n])
        procs = int(self.costs.procs[row])
        links = self.planner.compiled.problem.link_gbps.tolist()
        take = item.parts or spread(item, procs, self.capacity[n].tolist(), links)
        if take is not None:
            self.wide_row[n], self.wide_want[n] = row, take

    @property
    def work(self) -> int:
        """Places looked for so far."""
        return self._work

    def clear(self) -> None:
        """Take everything back."""
        self.least_loaded, self._work = False, 0
        for mine, given in (
            (self.desk.rows, self.site.rows),
            (self.desk.time, self.site.time),
            (self.desk.free, self.site.free),
            (self.desk.load, self.site.load),
        ):
            mine[...] = given
        size = self.out.start.size
        self.out.start[:] = self.out.end[:size] = inf
        self.out.used[0] = 0

    def map(
        self,
        order: Ints,
        low: Ints,
        high: Ints,
        insertion: bool = True,
        wide_row: Ints | None = None,
        wide_want: Ints | None = None,
    ) -> float:
        """Map items on top of what is mapped, each where it ends first; the latest end, seconds.

        `order`: items, parents first; those mapped already are passed by.
        `low`, `high` (N x K): rows of `costs` that an item may take on each cluster alone, both
        included; none where high < low.
        `insertion`: whether gaps between earlier placements are used.
        `wide_row`, `wide_want` (N and N x K): a row that an item may also take spread over
        clusters, with the processes on each; -1 is none. Without them, what no cluster holds alone
        is spread.

        What found no place is left out of the end. Ties go to fewer processes, then to a single
        cluster, then to the first.
        """
        choices = Choices(
            procs=self.costs.procs,
            low=low,
            high=high,
            wide_row=self.wide_row if wide_row is None else wide_row,
            wide_want=self.wide_want if wide_want is None else wide_want,
        )
        state = SerialState(self.problem, self.site, self.items, self.desk, self.out)
        self._work += map_items(state, order, choices, insertion, self.least_loaded)
        ends = self.out.end[order]
        return float(ends[ends < inf].max(initial=self.site.time[0, 0]))

    def place(self, n: int, row: int, want: Sequence[int] | Ints, insertion: bool = True) -> bool:
        """Map one item with so many processes on each cluster; whether it found a place."""
        self._row[n], self._want[n] = row, want
        self.map(np.array([n], dtype=np.int64), *self._nowhere, insertion, self._row, self._want)
        self._row[n] = -1
        return bool(self.out.end[n] < inf)

    def free_from(self, n: int, time: float) -> Ints:
        """Processes of an item that each cluster could take for good from a time on."""
        problem, site, desk = self.problem, self.site, self.desk
        made = np.zeros(problem.link_gbps.size, dtype=np.int64)
        for k in range(made.size):
            mine, rows = slice(site.first[k], site.first[k + 1]), int(desk.rows[k])
            need = problem.need[problem.item_group[n], mine]
            at = max(int(np.searchsorted(desk.time[k, :rows], time, side="right")) - 1, 0)
            least = desk.free[k, at:rows, : need.size].min(axis=0)
            made[k] = np.where(need > 0, least // np.maximum(need, 1), 0).sum()
        return made

    def in_order(self, priority: Floats) -> Ints:
        """The items by falling priority, parents first.

        Those passed over too often lead, and those that may not start yet come last.
        """
        order = self.graph.by_priority(priority)
        guarded = self.graph.with_ancestors(self.planner.guarded)
        waits = np.array([item.waits for item in self.planner.items], dtype=np.bool_)
        rank = np.where(guarded, 0, np.where(waits, 2, 1))
        return order[np.argsort(rank[order], kind="stable")]

    def schedule(self) -> Schedule:
        """Read what is mapped, with its measures."""
        placed = np.flatnonzero(self.out.start < inf)
        empty = make_outcome(self.planner.compiled.problem)
        return self.planner.measure(outcome_of(self.planner, self.out, empty, placed), self.work)
