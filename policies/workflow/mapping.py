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
from numpy.typing import NDArray

from coalloc.model.jobs import Started, WorkflowJob
from coalloc.policies.kernel.instance.arrays import make_outcome
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.search.eft_mapping import lay_out, reset
from coalloc.policies.kernel.search.eft_state import Board, Ground
from coalloc.policies.kernel.split import TOLERANCE, low_side, split
from coalloc.policies.kernel.state import Outcome
from coalloc.policies.workflow.costs import Costs, costs_of
from coalloc.policies.workflow.graph import Graph, graph_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Mapper:
    """Maps what a planner has to place, any number of times.

    Attributes
    ----------
    costs : Costs
    graph : Graph
    single : array of int, N x K
        Last row of each item that fits on each cluster alone; before its first row if none does.
    least_loaded : bool
        Without insertion, take of equal nodes those that became free first; else those that
        became free last. False at first.
    wide_row, wide_want : arrays of int, N and N x K
        For items that no cluster holds alone: how they are spread; -1 for the others.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.costs: Costs = costs_of(planner)
        self.graph: Graph = graph_of(planner.items)
        self.ground = _ground(planner, self.costs)
        self.board = _board(self.ground, self.costs)
        problem = planner.compiled.problem
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
        take = split(procs, self.capacity[n].tolist(), low)
        if take is not None:
            self.wide_row[n], self.wide_want[n] = row, take

    @property
    def work(self) -> int:
        """Places looked for so far."""
        return int(self.board.size[2])

    def clear(self) -> None:
        """Take everything back."""
        self.least_loaded = False
        reset(self.ground, self.board)

    def map(
        self,
        order: Ints,
        low: Ints,
        high: Ints,
        insertion: bool = True,
        wide_row: Ints | None = None,
        wide_want: Ints | None = None,
    ) -> float:
        """Map items on top of what is mapped, each where it ends first.

        Parameters
        ----------
        order : array of int
            Items, parents first; those mapped already are passed by.
        low, high : array of int, N x K
            Rows of `costs` that an item may take on each cluster alone, both included; none where
            high < low.
        insertion : bool
            Whether gaps between earlier placements are used.
        wide_row, wide_want : arrays of int, N and N x K, optional
            A row that an item may also take spread over clusters, with the processes on each; -1
            is none. Without them, what no cluster holds alone is spread.

        Returns
        -------
        float
            The latest end, seconds; what found no place is left out.

        Notes
        -----
        Ties go to fewer processes, then to a single cluster, then to the first.
        """
        return float(
            lay_out(
                self.ground,
                self.board,
                order,
                low,
                high,
                self.wide_row if wide_row is None else wide_row,
                self.wide_want if wide_want is None else wide_want,
                insertion,
                self.least_loaded,
            )
        )

    def place(self, n: int, row: int, want: Sequence[int] | Ints, insertion: bool = True) -> bool:
        """Map one item with so many processes on each cluster; whether it found a place."""
        self._row[n], self._want[n] = row, want
        self.map(np.array([n], dtype=np.int64), *self._nowhere, insertion, self._row, self._want)
        self._row[n] = -1
        return bool(self.board.end[n] < inf)

    def free_from(self, n: int, time: float) -> Ints:
        """Processes of an item that each cluster could take for good from a time on."""
        board, need = self.board, self.ground.need[self.ground.group[n]]
        size = int(board.size[0])
        at = max(int(np.searchsorted(board.time[:size], time, side="right")) - 1, 0)
        least = board.free[board.slot[at:size]].min(axis=0)
        out = np.zeros(self.capacity.shape[1], dtype=np.int64)
        count = np.where(need > 0, least // np.maximum(need, 1), 0)
        np.add.at(out, self.ground.class_cluster, count)
        return out

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
        board = self.board
        out: Outcome = make_outcome(self.planner.compiled.problem)
        placed = board.start < inf
        out.start[:] = np.where(placed, board.start, np.nan)
        out.end[:] = np.where(placed, board.end[: placed.size], np.nan)
        out.use_first[:] = np.where(placed, board.use_first, 0)
        out.use_count[:] = np.where(placed, board.use_count, 0)
        used = int(board.size[1])
        uses = out._replace(
            use_class=board.use_class[:used].copy(), use_procs=board.use_procs[:used].copy()
        )
        return self.planner.measure(uses, self.work)


def _ground(planner: Planner, costs: Costs) -> Ground:
    problem, base = planner.compiled.problem, planner.compiled.base
    begun, parents = _begun(planner)
    first = np.zeros(len(parents) + 1, dtype=np.int64)
    np.cumsum([len(mine) for mine in parents], out=first[1:])
    clusters = {cluster.name: k for k, cluster in enumerate(planner.snapshot.clusters)}
    spread = np.zeros((len(begun), len(clusters)), dtype=np.int64)
    for x, task in enumerate(begun):
        spread[x, [clusters[name] for name in task.clusters if name in clusters]] = 1
    return Ground(
        parent_first=first,
        parent=np.array([p for mine in parents for p, _ in mine], dtype=np.int64),
        parent_gbit=np.array([gbit for mine in parents for _, gbit in mine], dtype=np.float64),
        release=problem.item_release,
        group=problem.item_group,
        gbps=problem.item_gbps,
        procs=costs.procs,
        scaled=costs.scaled,
        fixed=costs.fixed,
        gbit=costs.gbit,
        need=problem.need,
        group_class=problem.group_class,
        group_size=problem.group_size,
        exempt=problem.exempt,
        class_cluster=problem.class_cluster,
        class_power=problem.class_power,
        closed_first=problem.closed_first,
        closed=problem.closed,
        reserved=problem.reserved,
        link_gbps=problem.link_gbps,
        inverse_intra=problem.inverse_intra,
        latency=problem.latency,
        base_time=base.time,
        base_free=base.free,
        base_load=base.load,
        begun_end=np.array([task.end for task in begun], dtype=np.float64),
        begun_spread=spread,
    )


def _begun(planner: Planner) -> tuple[list[Started], list[list[tuple[int, float]]]]:
    """Tasks that have started, and all parents; those among them are numbered behind the items."""
    items = planner.items
    parents = [list(item.parents) for item in items]
    place = {(i.number, i.task.id): n for n, i in enumerate(items) if i.task is not None}
    begun: list[Started] = []
    for number in sorted({item.number for item in items}):
        job = planner.snapshot.queue[number]
        if not isinstance(job, WorkflowJob) or not job.started:
            continue
        seen = {task.task: len(items) + len(begun) + x for x, task in enumerate(job.started)}
        begun += job.started
        for edge in job.edges:
            if edge.parent in seen:
                parents[place[number, edge.child]].append((seen[edge.parent], 8.0 * edge.gb))
    return begun, parents


def _board(ground: Ground, costs: Costs) -> Board:
    items, begun = ground.group.size, ground.begun_end.size
    classes, clusters = ground.class_power.size, ground.link_gbps.size
    instants = ground.base_time.size + 2 * items + 2
    widest = costs.procs[costs.first[1:] - 1]
    pool = int(np.minimum(widest, classes).sum()) + 1

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return Board(
        time=np.zeros(instants),
        slot=ints(instants),
        free=np.zeros((instants, classes), dtype=np.int32),
        load=ints(instants, clusters),
        size=ints(3),
        start=np.full(items, inf),
        end=np.full(items + begun, inf),
        row=ints(items),
        spread=ints(items + begun, clusters),
        use_first=ints(items),
        use_count=ints(items),
        use_class=ints(pool),
        use_procs=ints(pool),
        least=ints(classes),
        shut=np.zeros(classes),
        have=ints(clusters),
        want=ints(clusters),
        units=ints(clusters),
        best_least=ints(classes),
        best_want=ints(clusters),
        best=np.zeros(4),
    )
