"""The arrays of `serial_annealing` from a planner, its calls, and schedules from its results."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from coalloc.policies.kernel.instance.arrays import Ints
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.search.serial_annealing import search
from coalloc.policies.kernel.search.serial_state import (
    ANY,
    APPEND,
    BLEND,
    LIMIT,
    MADE,
    PACK,
    SPLIT,
    SUM,
    Desk,
    Genes,
    Items,
    Out,
    Site,
    State,
)
from coalloc.policies.kernel.split import TOLERANCE, low_side, split
from coalloc.policies.kernel.state import MAKESPAN, Outcome
from coalloc.policies.kernel.xorshift import seeded
from coalloc.policies.workflow.forms import Form, form_of
from coalloc.policies.workflow.graph import Graph, graph_of

MOST_CLUSTERS = 62
"""Clusters are bits of a number."""
MOST_CELLS = 20_000_000
"""Items times classes that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Instance that is searched.

    Attributes
    ----------
    inside : array of int
        Items that are not booked already.
    graph : Graph
        Of all items.
    forms : list of Form
        Of all items.
    booked : Outcome
        The places of the others.
    mean_power : float
        Of the slots, `slots` of them.
    mean_intra : float
        Seconds for a Gbit inside the slots' clusters, likewise.
    """

    planner: Planner
    site: Site
    items: Items
    inside: Ints
    graph: Graph
    forms: list[Form]
    booked: Outcome
    mean_power: float
    mean_intra: float
    slots: int

    @property
    def size(self) -> int:
        """Items that are searched."""
        return self.inside.size


def why_not(planner: Planner) -> str | None:
    """Reason why this search cannot take a queue, or None."""
    problem = planner.compiled.problem
    if problem.link_gbps.size > MOST_CLUSTERS:
        return f"there are more than {MOST_CLUSTERS} clusters"
    if problem.class_power.size * len(planner.items) > MOST_CELLS:
        return "there are too many kinds of nodes for so many tasks"
    return None


def read_case(planner: Planner, overhead: float) -> Case:
    """Lay out what a planner has to place, around what its guard books first.

    Parameters
    ----------
    overhead : float
        Share of a task's time that its communication between clusters may take.
    """
    booked = planner.decode([], "insert").outcome
    inside = np.flatnonzero(np.isnan(booked.end)).astype(np.int64)
    graph = graph_of(planner.items)
    site = _site(planner)
    forms = [form_of(item) for item in planner.items]
    items = _items(planner, site, graph, forms, overhead)
    power = planner.compiled.problem.class_power
    intra = site.inverse_intra[planner.compiled.problem.class_cluster]
    last = planner.compiled.base.free[-1].astype(np.float64) // planner.compiled.problem.class_grain
    slots = float(last.sum())
    return Case(
        planner=planner,
        site=site,
        items=items,
        inside=inside,
        graph=graph,
        forms=forms,
        booked=booked,
        mean_power=float((last * power).sum() / slots) if slots else 1.0,
        mean_intra=float((last * intra).sum() / slots) if slots else 0.0,
        slots=int(slots),
    )


def class_order(planner: Planner) -> Ints:
    """The planner's classes, cluster by cluster, each cluster's by falling power."""
    cluster = planner.compiled.problem.class_cluster
    return np.argsort(cluster, kind="stable").astype(np.int64)


def _site(planner: Planner) -> Site:
    problem = planner.compiled.problem
    order = class_order(planner)
    clusters = problem.link_gbps.size
    counts = np.bincount(problem.class_cluster, minlength=clusters)
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    time, free, load = planner.availability()
    bounds = np.unique(np.concatenate((time, problem.reserved.ravel())))
    bounds = bounds[bounds >= time[0]]
    at = np.searchsorted(time, bounds, side="right") - 1
    size = bounds.size + 2 * len(planner.items) + 4
    times = np.zeros((clusters, size))
    frees = np.zeros((clusters, size, max(int(counts.max(initial=0)), 1)), dtype=np.int64)
    loads = np.zeros((clusters, size), dtype=np.int64)
    rows = np.zeros(clusters, dtype=np.int64)
    for k in range(clusters):
        mine = order[first[k] : first[k + 1]]
        table = np.concatenate((free[at][:, mine], load[at, k : k + 1]), axis=1)
        closes = np.isin(bounds, problem.reserved[_covering(problem, mine)])
        kept = np.concatenate(([True], (table[1:] != table[:-1]).any(axis=1) | closes[1:]))
        rows[k] = kept.sum()
        times[k, : rows[k]] = bounds[kept]
        frees[k, : rows[k], : mine.size] = table[kept, :-1]
        loads[k, : rows[k]] = table[kept, -1]
    need = problem.need[:, order]
    held = _capacity(planner)[order]
    room = np.zeros((need.shape[0], clusters), dtype=np.int64)
    fits = np.where(need > 0, held // np.maximum(need, 1), 0)
    for k in range(clusters):
        room[:, k] = fits[:, first[k] : first[k + 1]].sum(axis=1)
    closed = [problem.closed[problem.closed_first[c] : problem.closed_first[c + 1]] for c in order]
    return Site(
        first=first,
        power=problem.class_power[order],
        rows=rows,
        time=times,
        free=frees,
        load=loads,
        need=np.ascontiguousarray(need),
        room=room,
        link=problem.link_gbps,
        inverse_intra=problem.inverse_intra,
        latency=problem.latency,
        closed_first=np.concatenate(([0], np.cumsum([c.size for c in closed]))).astype(np.int64),
        closed=np.concatenate([*closed, np.zeros(0, dtype=np.int64)]).astype(np.int64),
        reserved=problem.reserved,
        exempt=problem.exempt,
    )


def _covering(problem: Any, classes: Ints) -> Ints:
    found = [problem.closed[problem.closed_first[c] : problem.closed_first[c + 1]] for c in classes]
    return np.unique(np.concatenate([*found, np.zeros(0, dtype=np.int64)])).astype(np.int64)


def _capacity(planner: Planner) -> Ints:
    """Most units of each class that are ever free."""
    free = planner.compiled.base.free
    return free.max(axis=0).astype(np.int64) if free.size else np.zeros(free.shape[1], np.int64)


def _items(planner: Planner, site: Site, graph: Graph, forms: list[Form], overhead: float) -> Items:
    problem, items = planner.compiled.problem, planner.items
    count, clusters = len(items), site.link.size
    tables = [form.table for form in forms]
    table = [mode for modes in tables for mode in modes]
    room = site.room[problem.item_group]
    widest = room.max(axis=1, initial=0)
    wide = room.sum(axis=1)
    rule = planner.options.get("coallocation", "sooner")
    splits = np.zeros(count, dtype=np.int64)
    for n, item in enumerate(items):
        if item.task is not None:
            splits[n] = int(rule == "sooner" and clusters > 1 and forms[n].high > 1)
        elif item.splits:
            splits[n] = int(rule == "sooner" or forms[n].low > widest[n])
    low = np.array([form.low for form in forms], dtype=np.int64)
    high = np.array([form.high for form in forms], dtype=np.int64)
    high = np.minimum(high, np.where(splits > 0, wide, widest))
    power = float(site.power.max(initial=1e-9))
    intra = float(site.inverse_intra.min()) if clusters else 0.0
    shortest = np.array(
        [form.shortest(power, intra, int(n)) for form, n in zip(forms, high, strict=True)]
    )
    shortest = np.where(np.isfinite(shortest), shortest, 0.0) * (1.0 - 1e-12)
    return Items(
        group=problem.item_group,
        arrival=problem.item_arrival,
        scaled=np.array([form.scaled for form in forms], dtype=np.float64).reshape(-1, 2),
        fixed=np.array([form.fixed for form in forms], dtype=np.float64).reshape(-1, 2),
        comm=np.array([form.comm for form in forms], dtype=np.float64),
        low=low,
        high=np.maximum(high, low),
        table_first=np.cumsum([0, *(len(modes) for modes in tables)]).astype(np.int64),
        table_procs=np.array([mode[0] for mode in table], dtype=np.int64),
        table_scaled=np.array([mode[1] for mode in table], dtype=np.float64),
        table_fixed=np.array([mode[2] for mode in table], dtype=np.float64),
        parent_first=graph.parent_first,
        parent=graph.parent,
        parent_gbit=graph.parent_gbit,
        child_first=graph.child_first,
        child=graph.child,
        gbps=problem.item_gbps,
        splits=splits,
        weight=planner.weights,
        job=planner.numbers,
        tail=graph.bottom(shortest) - shortest,
        overhead=np.array([overhead]),
    )


class Search:
    """Calls of the kernel on one case."""

    def __init__(self, case: Case, seed: int, objective: int, blend: float) -> None:
        self.case, self.objective = case, objective
        size, clusters = len(case.planner.items), case.site.link.size
        classes = case.site.power.size
        self.desk = Desk(
            rows=np.zeros(clusters, dtype=np.int64),
            time=np.zeros_like(case.site.time),
            free=np.zeros_like(case.site.free),
            load=np.zeros_like(case.site.load),
            least=np.zeros(classes, dtype=np.int64),
            want=np.zeros(clusters, dtype=np.int64),
            best=np.zeros(clusters, dtype=np.int64),
            place=np.zeros(size, dtype=np.int64),
            chain=np.zeros(size, dtype=np.int64),
            saved=np.zeros(clusters, dtype=np.int64),
            last=np.zeros(len(case.planner.snapshot.queue)),
        )
        self.out = Out(
            start=np.array(case.booked.start),
            end=np.array(case.booked.end),
            mask=np.zeros(size, dtype=np.int64),
            used=np.zeros((size, classes), dtype=np.int64),
        )
        self._settle()
        self.state = State(
            value=np.array([inf, inf, 0.0, 1.0, blend, 0.0, 0.0, inf]),
            count=np.zeros(8, dtype=np.int64),
            random=seeded(seed),
        )

    def _settle(self) -> None:
        """The clusters of what is booked."""
        booked, cluster = self.case.booked, self.case.planner.compiled.problem.class_cluster
        for n in np.flatnonzero(~np.isnan(booked.end)).tolist():
            a = booked.use_first[n]
            for c in booked.use_class[a : a + booked.use_count[n]].tolist():
                self.out.mask[n] |= 1 << int(cluster[c])

    def genes(self, order: Ints, procs: Ints) -> Genes:
        """Every item where it ends earliest, on at most so many processes."""
        size, clusters = len(self.case.planner.items), self.case.site.link.size
        home = np.full(size, ANY, dtype=np.int64)
        parts = np.zeros((size, clusters), dtype=np.int64)
        items, room = self.case.items, self.case.site.room[self.case.items.group]
        for n in np.flatnonzero((room.max(axis=1, initial=0) < items.low) & (items.splits > 0)):
            low = [
                low_side(int(procs[n]), float(items.gbps[n]), float(link), float(link) * TOLERANCE)
                for link in self.case.site.link
            ]
            found = split(int(procs[n]), room[n].tolist(), low)
            if found is not None:
                home[n], parts[n] = SPLIT, found
        return Genes(
            order=np.array(order, dtype=np.int64),
            procs=np.array(procs, dtype=np.int64),
            home=home,
            parts=parts,
            low=np.zeros(size),
        )

    def measure(self, genes: Genes, *, append: bool = False, pack: bool = False) -> float:
        """Schedule genes into `out`; the makespan or weighted completion, inf without a place."""
        self.state.count[APPEND], self.state.count[PACK] = append, pack
        energy = self.run(genes, genes, 0)
        self.state.count[APPEND] = self.state.count[PACK] = 0
        if energy == inf:
            return inf
        return float(self.state.value[MADE if self.objective == MAKESPAN else SUM])

    def run(self, genes: Genes, best: Genes, trials: int) -> float:
        """So many moves."""
        return float(
            search(
                self.case.site, self.case.items, genes, best, self.desk, self.out, self.state,
                self.objective, trials,
            )
        )  # fmt: skip

    def genes_of(self, out: Outcome) -> Genes:
        """Choices of another schedule: by start, each on the processes and clusters it had."""
        case, cluster = self.case, self.case.planner.compiled.problem.class_cluster
        start = np.where(np.isnan(out.start), inf, out.start)
        rank = np.empty(case.graph.size, dtype=np.int64)
        rank[case.graph.order] = np.arange(case.graph.size)
        order = case.inside[np.lexsort((rank[case.inside], start[case.inside]))]
        made = self.genes(order, case.items.low)
        for n in order.tolist():
            uses = slice(out.use_first[n], out.use_first[n] + out.use_count[n])
            if start[n] < inf:
                made.parts[n] = np.bincount(
                    cluster[out.use_class[uses]],
                    weights=out.use_procs[uses],
                    minlength=case.site.link.size,
                )
                self._set_home(made, n)
        return made

    def _set_home(self, genes: Genes, n: int) -> None:
        """Let `parts` say where an item runs."""
        used = np.flatnonzero(genes.parts[n])
        genes.procs[n] = genes.parts[n].sum()
        genes.home[n] = SPLIT if used.size > 1 else used[0]

    def settled(self, genes: Genes) -> Genes:
        """Genes that say what `out` did: by start, each on the processes and clusters it had."""
        out, site = self.out, self.case.site
        order = genes.order[
            np.lexsort((self.desk.place[genes.order], out.start[genes.order]))
        ]  # parents end before their children start
        made = Genes._make(np.array(entry) for entry in genes)
        made.order[:] = order
        for n in order.tolist():
            count = np.add.reduceat(np.append(out.used[n], 0), site.first[:-1])
            count = np.where(np.diff(site.first) > 0, count, 0)
            inside = np.array([(int(out.mask[n]) >> k) & 1 for k in range(site.link.size)])
            made.parts[n] = count * inside
            self._set_home(made, n)
        return made

    def outcome(self) -> Outcome:
        """The schedule in `out`, as a decoder would say it."""
        case, order = self.case, class_order(self.case.planner)
        booked, site = case.booked, case.site
        out = Outcome._make(np.array(entry) for entry in booked)
        classes, procs = [booked.use_class[: _used(booked)]], [booked.use_procs[: _used(booked)]]
        top = _used(booked)
        for n in case.inside.tolist():
            out.start[n], out.end[n] = self.out.start[n], self.out.end[n]
            mask = int(self.out.mask[n])
            mine = [
                c
                for k in range(site.link.size)
                if (mask >> k) & 1
                for c in range(site.first[k], site.first[k + 1])
                if self.out.used[n, c] > 0
            ]
            out.use_first[n], out.use_count[n] = top, len(mine)
            classes.append(order[mine])
            procs.append(self.out.used[n, mine])
            top += len(mine)
        return out._replace(
            use_class=np.concatenate(classes).astype(np.int64),
            use_procs=np.concatenate(procs).astype(np.int64),
        )

    def decoded(self, work: int = 0) -> Schedule:
        """`out` as a schedule of the planner."""
        return self.case.planner.measure(self.outcome(), work)


def _used(booked: Outcome) -> int:
    placed = ~np.isnan(booked.end)
    return int((booked.use_first + booked.use_count)[placed].max(initial=0))


__all__ = ["BLEND", "LIMIT", "Case", "Search", "read_case", "why_not"]
