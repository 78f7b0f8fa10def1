"""The least sum of run times over levels of power, by best-first search with learned exclusions.

A solution is worth what the levels of its jobs are worth (`counts`), and weaker levels fit wherever
stronger ones do. The search keeps a queue of *corners*: level vectors of which every solution
that is left is nowhere stronger than one. The corner of least value is asked for. If it fits, it is
optimal. If not, it is made as weak as it can be without fitting; that excludes a box: every
solution has a job with a weaker level than the box's, and there is a new corner for each job.

Notes
-----
The least value in the queue is a bound at any time. Every vector that fits on the way is a
solution; corners that are worth no less than the best one are dropped. Equal jobs have levels that
do not rise along the queue: the others are the same solutions under other names.

*Easing.* Of allocations that run equally long, one that loads the links least is taken (`ease`).
SC is clamped at 1 in the run times, so many allocations share the least total. Equation (8) as
printed tells them apart: it counts SC_j below 1 too. Here the levels of power stay as they are
found, and the sum of T'_j (1 - sigma_j) SC_j with equation (7) as printed is minimised over the
splits that are left, by the tables of `counts` and the search of `levels`. Where splits are alike
in that too, the job that computes most gets most of the strongest clusters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum, inf

from coalloc.policies.allocation.counts import Counts
from coalloc.policies.allocation.placing import (
    Allocation,
    in_order,
    is_allowed,
    lengths,
    link_seconds,
    total_execution,
)
from coalloc.policies.allocation.scene import Scene

SAME = 1.0 - 1e-12
"""Values closer than this are the same."""
STEPS = 8
"""Halvings of the common extent of a box."""

Vector = tuple[int, ...]
"""Of each job, the place of its level among its levels, the strongest first."""


@dataclass(slots=True, kw_only=True)
class DescentResult:
    """Result of a search over levels."""

    proved: bool
    """Whether nothing is better than `at_most` or the last solution told."""
    bound: float
    """No solution takes fewer seconds."""
    checks: int
    """Level vectors that were decided by the tables."""
    stopped: bool
    """By the stop condition; without a proof or that, by the work limit."""


@dataclass(slots=True, kw_only=True)
class Axes:
    """Axes of a vector: for each job a level of power, then for each job one of SC."""

    powers: list[list[float]] = field(default_factory=list)
    """Per job, the strongest first."""
    slows: list[list[int]] = field(default_factory=list)
    """Per job places in the slowdowns of the tables, the least first."""
    seconds: list[list[float]] = field(default_factory=list)
    """Per axis what the levels add to the run time."""
    alike: list[list[int]] = field(default_factory=list)
    """Groups of equal jobs."""

    def levels(self, at: Vector) -> tuple[list[float], list[int]]:
        """Powers and places of slowdowns of a vector."""
        half = len(self.powers)
        return (
            [own[i] for own, i in zip(self.powers, at[:half], strict=True)],
            [own[i] for own, i in zip(self.slows, at[half:], strict=True)],
        )

    def value(self, at: Vector) -> float:
        """Sum of the run times of a vector."""
        return fsum(own[i] for own, i in zip(self.seconds, at, strict=True))

    def named(self, at: Vector) -> Vector:
        """The vector with the levels of equal jobs in order."""
        out, half = list(at), len(self.powers)
        for group in self.alike:
            ordered = sorted((at[n], at[half + n]) for n in group)
            for n, (power, slow) in zip(group, ordered, strict=True):
                out[n], out[half + n] = power, slow
        return tuple(out)


def axes_of(counts: Counts) -> Axes:
    """The axes of some candidates; what costs a job nothing has its weakest level alone."""
    axes, groups, pace = Axes(), dict[object, list[int]](), counts.slowdowns
    slowed = []
    for n, j in enumerate(counts.jobs):
        job = counts.scene.candidates[j]
        powers = counts.scene.levels(job)[::-1]
        loads = job.splits and job.gbps > 0 and job.procs > 1 and job.fixed > 0
        slows = list(range(len(pace))) if loads else [len(pace) - 1]
        axes.powers.append(powers if job.scaled > 0 else powers[-1:])
        axes.slows.append(slows)
        limit = job.item.limit
        axes.seconds.append([min(job.scaled / power, limit) for power in axes.powers[-1]])
        paces = [pace[i] if loads else counts.unloaded for i in slows]
        slowed.append([min(job.fixed * one, limit) for one in paces])
        key = (job.procs, job.scaled, job.fixed, limit, job.gbps, job.splits, *job.room.items())
        groups.setdefault(key, []).append(n)
    axes.seconds += slowed
    axes.alike = [group for group in groups.values() if len(group) > 1]
    return axes


class Descent:
    """One search.

    `counts` says whether a vector has a solution; `tell` gets every better one, and returns the
    seconds of the best one known. `stop` is polled before every check, and `work` limits their
    number.
    """

    def __init__(
        self,
        axes: Axes,
        counts: Counts,
        tell: Callable[[Allocation], float],
        *,
        at_most: float,
        stop: Callable[[], bool],
        work: int | None,
    ) -> None:
        self.axes, self.counts, self.tell = axes, counts, tell
        self.best, self.stop, self.work = at_most, stop, work
        self.checks, self.stopped = 0, False
        self.last: Vector | None = None
        self.boxes: list[Vector] = []
        spans = [own[-1] - own[0] for own in axes.seconds]
        self.order = sorted(range(len(spans)), key=lambda n: spans[n])
        self.unpolished: Vector | None = None

    def run(self) -> DescentResult:
        """Search to the end, or to a limit."""
        start = (0,) * len(self.axes.seconds)
        queue, seen = [(self.axes.value(start), start)], {start}
        while queue and queue[0][0] < self.best * SAME:
            value, at = queue[0]
            if self._ends():
                return DescentResult(
                    proved=False, bound=value, checks=self.checks, stopped=self.stopped
                )
            box = self._box(at)
            if box is None:
                if self._fits(at):
                    break
                box = self._excluded(at)
                self.boxes.append(box)
                self._polish()
            heappop(queue)
            for n, i in enumerate(box):
                if i + 1 < len(self.axes.seconds[n]):
                    corner = self.axes.named((*at[:n], i + 1, *at[n + 1 :]))
                    worth = self.axes.value(corner)
                    if corner not in seen and worth < self.best * SAME:
                        seen.add(corner)
                        heappush(queue, (worth, corner))
        return DescentResult(proved=True, bound=self.best, checks=self.checks, stopped=False)

    def _ends(self) -> bool:
        self.stopped = self.stopped or self.stop()
        return self.stopped or (self.work is not None and self.checks >= self.work)

    def _box(self, at: Vector) -> Vector | None:
        """A box that excludes a vector."""
        for box in reversed(self.boxes):
            if all(i <= most for i, most in zip(at, box, strict=True)):
                return box
        return None

    def _fits(self, at: Vector) -> bool:
        self.checks += 1
        if not self.counts.fits(*self.axes.levels(at)):
            return False
        value = self.axes.value(at)
        if value < self.best * SAME:
            self.best = min(value, self.tell(self.counts.allocation(*self.axes.levels(at))))
            self.unpolished = at
        return True

    def _open(self, at: Vector) -> bool:
        return self._box(at) is None and self._fits(at)

    def _excluded(self, at: Vector) -> Vector:
        """Weaken a vector as far as it still does not fit: all axes by the same cost, then each."""
        box, low, high = at, 0.0, self.best - self.axes.value(at)
        for _ in range(STEPS if high < inf else 0):
            middle = (low + high) / 2.0
            weaker = self._dearer(at, middle)
            if self._ends() or self._open(weaker):
                high = middle
            else:
                box, low = weaker, middle
        for n in self.order:
            least, most = box[n], len(self.axes.seconds[n]) - 1
            while least < most and not self._ends():
                tried = (least + most + 1) // 2
                if self._open((*box[:n], tried, *box[n + 1 :])):
                    most = tried - 1
                else:
                    least = tried
            box = (*box[:n], least, *box[n + 1 :])
        return box

    def _dearer(self, at: Vector, seconds: float) -> Vector:
        """The weakest levels that cost no axis more than so many seconds."""
        return tuple(
            max(i, bisect_right(own, own[i] + seconds) - 1)
            for own, i in zip(self.axes.seconds, at, strict=True)
        )

    def _polish(self) -> None:
        """Strengthen the last solution as far as it fits, where it saves most first."""
        at, self.unpolished = self.unpolished, None
        if at is None:
            return
        for n in reversed(self.order):
            least, most = 0, at[n]
            while least < most and not self._ends():
                tried = (least + most) // 2
                if self._open((*at[:n], tried, *at[n + 1 :])):
                    most = tried
                else:
                    least = tried + 1
            at = (*at[:n], most, *at[n + 1 :])


CHECKS = 400
"""Level vectors that are looked at by default."""


def ease(
    scene: Scene,
    allocation: Allocation,
    *,
    stop: Callable[[], bool],
    work: int,
) -> tuple[Allocation, int]:
    """Unload the links without a longer sum of run times; the allocation, and the checks made.

    `stop` is polled before every check; after `work` checks the best so far stands.
    """
    best, least = allocation, link_seconds(scene, allocation)
    if least <= 0.0:
        return best, 0
    longest = total_execution(scene, allocation) * (1.0 + 1e-12)
    heaviest = sorted(allocation.jobs, key=lambda j: -scene.candidates[j].scaled)
    counts = Counts(scene, heaviest, below=True)

    def tell(found: Allocation) -> float:
        nonlocal best, least
        value = link_seconds(scene, found)
        if value < least and total_execution(scene, found) <= longest and is_allowed(scene, found):
            best, least = found, value
        return least

    axes = _axes(counts, in_order(allocation, heaviest))
    descent = Descent(axes, counts, tell, at_most=least, stop=stop, work=work)
    checks = descent.run().checks
    return in_order(best, allocation.jobs), checks


def _axes(counts: Counts, allocation: Allocation) -> Axes:
    """One level of power for each job, the one it has, and of SC all that lengthen no run."""
    axes, scene = axes_of(counts), counts.scene
    for n, (uses, (_, sc)) in enumerate(
        zip(allocation.uses, lengths(scene, allocation), strict=True)
    ):
        fixed = scene.candidates[counts.jobs[n]].fixed
        if scene.candidates[counts.jobs[n]].scaled > 0:
            axes.powers[n] = [min(scene.classes[c].power for c in uses)]
        axes.seconds[n] = [0.0]
        cost = len(allocation.jobs) + n
        if len(axes.slows[n]) == 1:  # it loads no link, and its one level costs nothing
            axes.seconds[cost] = [0.0]
            continue
        most = sc * (1.0 + 1e-12)
        axes.slows[n] = [i for i in axes.slows[n] if counts.slowdowns[i] <= most]
        axes.seconds[cost] = [fixed * counts.slowdowns[i] for i in axes.slows[n]]
    axes.alike = [
        same
        for group in axes.alike
        for power in {axes.powers[n][0] for n in group}
        if len(same := [n for n in group if axes.powers[n][0] == power]) > 1
    ]
    return axes
