"""Arguments of `serial_annealing` for a queue, its calls, and schedules from its results."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from coalloc.policies.array_types import Ints
from coalloc.policies.kernel.annealing_loop import LIMIT, make_annealing
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.instance.graph import Graph, graph_of
from coalloc.policies.kernel.record import copy_of
from coalloc.policies.kernel.search.serial_annealing import SerialSearch, anneal
from coalloc.policies.kernel.search.serial_state import (
    ANY,
    APPEND,
    BLEND,
    CHAIN,
    IDLE,
    MADE,
    PACK,
    SPLIT,
    SUM,
    Items,
    SerialGenes,
    SerialState,
    Site,
)
from coalloc.policies.kernel.state import MAKESPAN, Outcome, Problem
from coalloc.policies.workflow.arrays import (
    StartedTasks,
    begun_of,
    desk_of,
    items_of,
    out_of,
    outcome_of,
    problem_of,
    site_of,
    spread,
)
from coalloc.policies.workflow.forms import Form, form_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCase:
    """Instance that is searched."""

    planner: Planner
    problem: Problem
    site: Site
    items: Items
    inside: Ints
    """Items that are not booked already."""
    graph: Graph
    """Of all items."""
    forms: list[Form]
    """Of all items."""
    begun: StartedTasks
    """What they wait for, tasks that have started included."""
    booked: Outcome
    """The places of the others."""
    mean_power: float
    """Of the slots, `slots` of them."""
    mean_intra: float
    """Seconds for a Gbit inside the slots' clusters, likewise."""
    slots: int

    @property
    def size(self) -> int:
        """Items that are searched."""
        return self.inside.size


def read_case(planner: Planner, overhead: float) -> WorkflowCase:
    """Lay out what a planner has to place, around what its guard books first.

    `overhead`: share of a task's time that its communication between clusters may take.
    """
    booked = planner.decode([], "insert").outcome
    inside = np.flatnonzero(np.isnan(booked.end)).astype(np.int64)
    graph, begun = graph_of(planner.items), begun_of(planner)
    problem = problem_of(planner, begun)
    site = site_of(planner, problem, planner.availability())
    forms = [form_of(item) for item in planner.items]
    items = items_of(planner, site, graph, forms, overhead)
    given = planner.compiled.problem
    power, intra = given.class_power, given.inverse_intra[given.class_cluster]
    last = planner.compiled.base.free[-1].astype(np.float64) // given.class_grain
    slots = float(last.sum())
    return WorkflowCase(
        planner=planner,
        problem=problem,
        site=site,
        items=items,
        inside=inside,
        graph=graph,
        forms=forms,
        begun=begun,
        booked=booked,
        mean_power=float((last * power).sum() / slots) if slots else 1.0,
        mean_intra=float((last * intra).sum() / slots) if slots else 0.0,
        slots=int(slots),
    )


class WorkflowSearch:
    """Calls of the kernel on one case."""

    def __init__(self, case: WorkflowCase, seed: int, objective: int, blend: float) -> None:
        self.case, self.objective = case, objective
        jobs = len(case.planner.snapshot.queue)
        self.desk = desk_of(case.problem, case.site, case.begun, jobs)
        most = np.array([form.high for form in case.forms], dtype=np.int64)
        self.out = out_of(case.planner, most, case.begun)
        booked, cluster = case.booked, case.planner.compiled.problem.class_cluster
        for n in np.flatnonzero(~np.isnan(booked.end)).tolist():
            self.out.start[n], self.out.end[n] = booked.start[n], booked.end[n]
            a = booked.use_first[n]
            self.out.parts[n, cluster[booked.use_class[a : a + booked.use_count[n]]]] = 1
        self.state = make_annealing(seed)
        self.state.value[BLEND] = blend

    def genes(self, order: Ints, procs: Ints) -> SerialGenes:
        """Every item where it ends earliest, on at most so many processes."""
        size, clusters = len(self.case.planner.items), self.case.problem.link_gbps.size
        home = np.full(size, ANY, dtype=np.int64)
        parts = np.zeros((size, clusters), dtype=np.int64)
        problem, items = self.case.problem, self.case.items
        room = self.case.site.room[problem.item_group]
        for n in np.flatnonzero((room.max(axis=1, initial=0) < items.low) & (items.splits > 0)):
            item, links = self.case.planner.items[n], problem.link_gbps.tolist()
            found = spread(item, int(procs[n]), room[n].tolist(), links)
            if found is not None:
                home[n], parts[n] = SPLIT, found
        return SerialGenes(
            order=np.array(order, dtype=np.int64),
            procs=np.array(procs, dtype=np.int64),
            home=home,
            parts=parts,
            low=np.zeros(size),
        )

    def measure(self, genes: SerialGenes, *, append: bool = False, pack: bool = False) -> float:
        """Schedule genes into `out`; the makespan or weighted completion, inf without a place."""
        self.state.count[APPEND], self.state.count[PACK] = append, pack
        energy = self.run(genes, genes, 0)
        self.state.count[APPEND] = self.state.count[PACK] = 0
        if energy == inf:
            return inf
        return float(self.state.value[MADE if self.objective == MAKESPAN else SUM])

    def run(self, genes: SerialGenes, best: SerialGenes, trials: int) -> float:
        """Schedule genes, then so many moves; the energy of what was scheduled last.

        The best genes are left in `best`; `out` is the schedule of the last trial.
        """
        case, state = self.case, self.state
        self.desk.place[:] = -1
        self.desk.place[genes.order] = np.arange(genes.order.size)
        state.value[LIMIT], state.count[CHAIN], state.count[IDLE] = inf, 0, 0
        builder = SerialState(case.problem, case.site, case.items, self.desk, self.out)
        return anneal(SerialSearch(builder, genes, best, self.objective), state, trials, True)

    def genes_of(self, out: Outcome) -> SerialGenes:
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
                    minlength=case.problem.link_gbps.size,
                )
                self._set_home(made, n)
        return made

    def _set_home(self, genes: SerialGenes, n: int) -> None:
        """Let `parts` say where an item runs."""
        used = np.flatnonzero(genes.parts[n])
        genes.procs[n] = genes.parts[n].sum()
        genes.home[n] = SPLIT if used.size > 1 else used[0]

    def settled(self, genes: SerialGenes) -> SerialGenes:
        """Genes that say what `out` did: by start, each on the processes and clusters it had."""
        out = self.out
        order = genes.order[
            np.lexsort((self.desk.place[genes.order], out.start[genes.order]))
        ]  # parents end before their children start
        made = copy_of(genes)
        made.order[:] = order
        for n in order.tolist():
            made.parts[n] = out.parts[n]
            self._set_home(made, n)
        return made

    def decoded(self, work: int = 0) -> Schedule:
        """`out` as a schedule of the planner."""
        case = self.case
        return case.planner.measure(
            outcome_of(case.planner, self.out, case.booked, case.inside), work
        )
