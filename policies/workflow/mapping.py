"""From an order and an allotment for each item to starts and ends, by earliest finish time.

A policy says in which order items are taken, and which allotments each may have on each cluster;
the mapper gives each the place where it ends first, with or without insertion into gaps. It knows
what the kernel's decoders know (what runs, reservations, powers, features, memory, links), and
tasks that are spread over clusters besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from coalloc.model.split import TOLERANCE, low_side, split
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.kernel.instance.arrays import make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.instance.graph import Graph, graph_of
from coalloc.policies.kernel.search.earliest_finish import map_items
from coalloc.policies.kernel.search.serial_state import Choices
from coalloc.policies.workflow.arrays import (
    begun_of,
    desk_of,
    items_of,
    out_of,
    outcome_of,
    problem_of,
    site_of,
)
from coalloc.policies.workflow.costs import MappingCosts, costs_of
from coalloc.policies.workflow.forms import form_of


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
        low = [low_side(procs, item.proc_gbps, link, link * TOLERANCE) for link in links]
        take = item.parts or split(procs, self.capacity[n].tolist(), low)
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
        self._work += map_items(
            self.problem,
            self.site,
            self.items,
            self.desk,
            self.out,
            order,
            choices,
            insertion,
            self.least_loaded,
        )
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
