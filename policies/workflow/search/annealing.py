"""Cycles of annealing on one case, with tasks split over clusters or without.

Each cycle starts from the best genes that are known, calm, hot and warm in turn, and is twice as
long as the one before, up to a limit. With few tasks, two cycles in five anneal many schedules side
by side. Two tracks that anneal the same case, one without splits,
keep what co-allocation might cost in check: the better of them is at least as good as the one
without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from math import inf

import numpy as np

from coalloc.policies.kernel.annealing_loop import BEST, COOLING, CURRENT, WARMTH, warm_up
from coalloc.policies.kernel.record import copy_of
from coalloc.policies.kernel.search.serial_state import BLEND, SPLIT, SerialGenes
from coalloc.policies.workflow.search.search_case import WorkflowCase, WorkflowSearch


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
