"""One case of the search for workflows, and cycles of annealing on it.

The case is the arguments of `serial_annealing` for a queue; its schedules are made of the results.
Each cycle starts from the best genes that are known, calm, hot and warm in turn, and is twice as
long as the one before, up to a limit. With few tasks, two cycles in five anneal many schedules side
by side. Two tracks that anneal the same case, one without splits, keep what co-allocation might
cost in check: the better of them is at least as good as the one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from math import inf

import numpy as np

from coalloc.policies.array_types import Ints
from coalloc.policies.kernel.annealing_loop import (
    BEST,
    COOLING,
    CURRENT,
    LIMIT,
    WARMTH,
    make_annealing,
    warm_up,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Cooling of a cycle."""

    hot: float
    """First and last temperature, by the value."""
    cold: float = 0.0001
    walkers: int = 1
    """Schedules that are annealed side by side."""


CALM, WARM, HERD = Course(hot=0.0015), Course(hot=0.01), Course(hot=0.03, cold=0.002, walkers=40)
COURSES = CALM, Course(hot=0.1), WARM
"""Of the cycles in turn."""
COURSES_FEW = CALM, Course(hot=0.5), HERD, WARM, HERD
"""The same with few tasks."""
STAGES = 15
"""Temperatures of a cycle of many walkers."""
FEW = 40
"""Tasks up to which a hot cycle forgets where it began."""
FIRST_CYCLE = 200
"""Moves per item in the first cycle; each is as long as two of the one before."""
LEAST_CYCLE = 1_000_000
"""Items placed in any other cycle, at least: a few tasks need as many moves as a hundred."""
MOST_CYCLE = 3_000_000, 3000
"""Items placed in a cycle, or moves per item if those are more, at most: with few tasks many
beginnings find more than a long one.
"""
BLENDS = (0.1, 0.0)
"""Weight of the mean end beside the makespan, of the cycles in turn. It leads the way where many
schedules are equally long, and past the shortest where few are.
"""
IN_VAIN = 4
"""Factor by which a cycle is shorter after one that could not beat another track."""


class Track:
    """The best genes so far, what they reach of the objective, and the cycles after them."""

    def __init__(self, case: WorkflowCase, seed: int, objective: int) -> None:
        self.case = case
        self.listing = WorkflowSearch(case, seed, objective, BLENDS[0])
        self.top: SerialGenes | None = None
        self.reached = inf
        self.length = FIRST_CYCLE * max(case.size, 1)
        self.in_vain = False
        self._courses: Iterator[Course] = cycle(COURSES_FEW if case.size <= FEW else COURSES)
        self._random = np.random.default_rng(seed)
        self._blends = cycle(BLENDS)

    def adopt(self, genes: SerialGenes, value: float) -> bool:
        """Go on from other genes if they are better and this track may have them."""
        split = genes.home[genes.order] == SPLIT
        if value >= self.reached or (split & (self.case.items.splits[genes.order] == 0)).any():
            return False
        self.top = copy_of(genes)
        self.reached = value
        return True

    def cycle(self, chunk: Callable[[], int]) -> Iterator[tuple[int, bool]]:
        """One cycle in chunks of at most so many moves; yields them, and whether it improved."""
        if self.top is None:
            return
        state, course = self.listing.state, next(self._courses)
        state.value[BLEND] = next(self._blends)
        length = max(self.length // IN_VAIN if self.in_vain else self.length, 1)
        self.length = self._next_length()
        energy = self.listing.run(self.top, self.top, 0)
        state.value[BEST] = self.reached
        state.value[CURRENT] = energy
        steps = self._alone if course.walkers == 1 else self._together
        for moves in steps(course, energy, length, chunk):
            better = bool(state.value[BEST] < self.reached)
            self.reached = min(self.reached, float(state.value[BEST]))
            yield moves, better

    def _alone(
        self, course: Course, energy: float, length: int, chunk: Callable[[], int]
    ) -> Iterator[int]:
        """Cool after each move."""
        assert self.top is not None
        current = copy_of(self.top)
        warm_up(self.listing.state, course.hot, course.cold, energy, length)
        while length > 0:
            moves = min(chunk(), length)
            self.listing.run(current, self.top, moves)
            length -= moves
            yield moves

    def _together(
        self, course: Course, energy: float, length: int, chunk: Callable[[], int]
    ) -> Iterator[int]:
        """Cool in stages; before each, the better walkers multiply and the worse give way.

        A walker of energy E goes on as exp((1 / T - 1 / T') E) copies in the mean, where T' is the
        next temperature: so the walkers stay near the distribution of the temperature.

        References
        ----------
        Hukushima, Iba, "Population annealing and its application to a spin glass", AIP Conference
        Proceedings 690, 2003.
        """
        assert self.top is not None
        value, count = self.listing.state.value, course.walkers
        walkers = [copy_of(self.top) for _ in range(count)]
        reached, share = np.zeros(count), max(length // (count * STAGES), 1)
        temperatures = energy * np.geomspace(course.hot, course.cold, STAGES)
        value[COOLING] = 1.0
        for stage, temperature in enumerate(temperatures.tolist()):
            if stage > 0:
                colder = 1.0 / temperature - 1.0 / temperatures[stage - 1]
                weight = np.exp(-colder * (reached - reached.min()))
                draws = (np.arange(count) + self._random.random()) / count
                chosen = np.searchsorted(np.cumsum(weight / weight.sum()), draws)
                walkers = [copy_of(walkers[x]) for x in np.minimum(chosen, count - 1).tolist()]
            for x, walker in enumerate(walkers):
                value[WARMTH] = temperature
                left = share
                while left > 0:
                    moves = min(chunk(), left)
                    self.listing.run(walker, self.top, moves)
                    left -= moves
                    yield moves
                reached[x] = value[CURRENT]

    def _next_length(self) -> int:
        size = max(self.case.size, 1)
        placed, moves = MOST_CYCLE
        longest = max(placed // size, moves * size)
        return min(max(2 * self.length, LEAST_CYCLE // size), longest)

    def schedule(self) -> None:
        """Leave the best genes' schedule in `listing`, and the walk where it is."""
        assert self.top is not None
        state = self.listing.state
        kept = float(state.value[CURRENT])
        self.listing.measure(self.top)
        state.value[CURRENT] = kept


def tracks(case: WorkflowCase, seed: int, objective: int) -> list[Track]:
    """One without splits but of what no cluster holds, and one with, where anything else splits."""
    items = case.items
    widest = case.site.room[case.problem.item_group].max(axis=1, initial=0)
    needed = np.where(items.low > widest, items.splits, 0)
    whole = replace(case, items=items._replace(splits=needed))
    out = [Track(whole, seed, objective)]
    if (items.splits != needed)[case.inside].any():
        out.append(Track(case, seed, objective))
    return out
