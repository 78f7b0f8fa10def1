"""Lower bounds of all plans of a queue with workflows.

Two bounds on the makespan. *window*: a guess is refuted if a task cannot meet it between the
longest chains before and behind it, or if all tasks, each on the fewest processes that meet it,
need more power x seconds than there is. *program*: a linear program that chooses for all
tasks at once between time and processes, along every path (`bound_lp`).

Both hold for plans that split tasks over clusters and move data: an edge takes no time at best, and
a split task runs no faster than on one cluster of its strongest nodes.

References
----------
The trade between critical path and area is that of CPA: A. Radulescu, A. van Gemund, "A low-cost
approach towards mixed task and data parallel scheduling", ICPP 2001; the program is the relaxation
of R. Lepere, D. Trystram, G. Woeginger, "Approximation algorithms for scheduling malleable tasks
under precedence constraints", IJFCS 2002, by corners of the trade-off instead of rounded times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints
from coalloc.policies.base import never
from coalloc.policies.bounds.case import BoundCase, read_case
from coalloc.policies.bounds.halving import largest_refuted
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.workflow.bound_lp import Program, solve_program
from coalloc.policies.workflow.forms import form_of

PRECISION = 1e-7
"""Share of a guess to which it is halved."""
CORNERS = 14
"""Tangents of each task's trade between time and processes, in each band."""
BANDS = 6
"""Bands of power that the program keeps apart."""
MOST_ITEMS = 500
"""Items up to which the program is solved."""
MOST_CHOICES = 40_000
"""Corners up to which it is."""


def workflow_parts(
    planner: Planner, stop: Callable[[], bool] = never, effort: str = "full"
) -> Mapping[str, Mapping[str, float]]:
    """Bounds by objective and name; none where nothing waits for data or another task.

    `effort`: quick (milliseconds) or full (up to some seconds).
    """
    if not any(item.task is not None for item in planner.items):
        return {}
    return WorkflowBound(planner).parts(stop, effort)


@dataclass(slots=True)
class Corners:
    """Corners of all tasks' polygons, by item."""

    item: Ints
    band: Ints
    time: Floats
    area: Floats


class WorkflowBound:
    """The bounds of one planner."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.case: BoundCase = read_case(planner, "quick")
        self.counted = np.flatnonzero(self.case.heads.counted)
        problem = planner.compiled.problem
        self.power = np.unique(problem.class_power)[::-1]
        if self.power.size > BANDS:
            self.power = self.power[np.linspace(0, self.power.size - 1, BANDS + 1).astype(int)[:-1]]
        self.spans = self._spans()
        self.room = self._room()
        self.intra = float(problem.inverse_intra.min(initial=inf))
        weakest = float(problem.class_power.min(initial=1.0))
        self.forms = [form_of(i).below(i.limit, weakest, self.intra) for i in planner.items]

    def _room(self) -> Floats:
        """Processes of each group at each band's power and above: G x B."""
        problem, supply = self.planner.compiled.problem, self.case.supply
        slots = np.minimum(supply.room, supply.slots.max(axis=0, initial=0.0)[None, :])
        slots = slots * (problem.need > 0)
        band = self._band(problem.class_power)
        clusters = problem.link_gbps.size
        out = np.zeros((problem.need.shape[0], self.power.size))
        alone = self.planner.options.get("coallocation") == "forbidden"
        for b in range(self.power.size):
            inside = band <= b
            each = np.zeros((problem.need.shape[0], clusters))
            for k in range(clusters):
                each[:, k] = slots[:, inside & (problem.class_cluster == k)].sum(axis=1)
            out[:, b] = each.max(axis=1, initial=0.0) if alone else each.sum(axis=1)
        return out

    def _spans(self) -> list[tuple[float, float]]:
        """Largest and least power of each band."""
        power = self.planner.compiled.problem.class_power
        band = self._band(power)
        return [(float(top), float(power[band == b].min())) for b, top in enumerate(self.power)]

    def _band(self, power: Floats) -> Ints:
        """The band of each power: the last whose top is at least it."""
        return np.searchsorted(-self.power, -power, side="right") - 1

    def parts(self, stop: Callable[[], bool], effort: str) -> Mapping[str, Mapping[str, float]]:
        """Bounds by objective and name."""
        if not self.counted.size:
            return {}
        found = {"window": self.window()}
        out: dict[str, Mapping[str, float]] = {"makespan": found, "weighted_completion": {}}
        if effort == "quick" or stop() or self.counted.size > MOST_ITEMS:
            return out
        corners = self._corners()
        if corners.item.size > MOST_CHOICES:
            return out
        found["program"], _ = self._solve(corners, found["window"], False, stop)
        jobs = np.unique(self.planner.numbers[self.counted])
        weights = np.array([job.weight for job in self.planner.snapshot.queue])
        if not stop() and weights[jobs].any():
            if jobs.size == 1:
                value = found["program"] * float(weights[jobs[0]])
            else:
                value, _ = self._solve(corners, found["window"], True, stop)
            out["weighted_completion"] = {"program": value}
        return out

    def times(self, share: float) -> Floats | None:
        """Run times that the program chooses where only a share of the processes is there.

        Of N tasks, seconds; 0 for what is not counted.
        """
        if not self.counted.size or self.counted.size > MOST_ITEMS:
            return None
        corners = self._corners()
        if corners.item.size > MOST_CHOICES:
            return None
        _, found = self._solve(corners, self.case.heads.longest, False, never, share)
        if found is None:
            return None
        out = np.zeros(len(self.planner.items))
        out[self.counted] = found
        return out

    def window(self) -> float:
        """The largest guess, in seconds from now, that is refuted."""
        return largest_refuted(self.case.heads.longest, PRECISION, self._refuted)

    def _refuted(self, guess: float) -> bool:
        heads = self.case.heads
        limit = guess - heads.start - heads.tail
        total = sum(self._least_work(n, float(limit[n])) for n in self.counted.tolist())
        return total > self._offered_power(guess) * (1.0 + 1e-9)

    def _least_work(self, n: int, seconds: float) -> float:
        """Least power x seconds of an item that runs for at most so long.

        Weaker nodes need more processes for that, but a fixed part takes less of their power.
        """
        form = self.forms[n]
        spans = self.spans if form.partly_fixed(self.intra) else self.spans[:1]
        return min(form.least_work(seconds, *span, self.intra) for span in spans)

    def _offered_power(self, until: float) -> float:
        supply = self.case.supply
        power = self.planner.compiled.problem.class_power
        rate = supply.slots @ power
        edges = np.append(supply.time[supply.time < until], until)
        return float((rate[: edges.size - 1] * np.diff(edges)).sum())

    def _corners(self) -> Corners:
        parts: list[tuple[int, int, Floats, Floats]] = []
        group = self.planner.compiled.problem.item_group
        for n in self.counted.tolist():
            for b, power in enumerate(self.power.tolist()):
                most = int(self.room[group[n], b])
                time, area = self.forms[n].corners(most, power, self.intra, CORNERS)
                if time.size:
                    parts.append((n, b, time, area))
        sizes = [time.size for _, _, time, _ in parts]
        return Corners(
            item=np.repeat([n for n, _, _, _ in parts], sizes),
            band=np.repeat([b for _, b, _, _ in parts], sizes),
            time=np.concatenate([time for _, _, time, _ in parts]),
            area=np.concatenate([area for _, _, _, area in parts]),
        )

    def _solve(
        self,
        corners: Corners,
        known: float,
        weighted: bool,
        stop: Callable[[], bool],
        share: float = 1.0,
    ) -> tuple[float, Floats | None]:
        items, planner = self.planner.items, self.planner
        place = np.full(len(items), -1, dtype=np.int64)
        place[self.counted] = np.arange(self.counted.size)
        edges = [
            (place[parent], place[n])
            for n in self.counted.tolist()
            for parent in {p for p, _ in items[n].parents}
        ]
        edge = np.array(edges, dtype=np.int64).reshape(-1, 2)
        groups = planner.compiled.problem.item_group[corners.item]
        used = np.unique(groups)
        allowed = planner.compiled.problem.need > 0
        every = np.array(allowed[used].any(axis=0), dtype=np.bool_)
        domains = {every.tobytes(): every}
        for g in used.tolist():
            domains.setdefault(allowed[g].tobytes(), allowed[g])
        chosen = list(domains.values())[:8]
        bands = np.arange(self.power.size)
        counts = np.array(
            [
                (corners.band <= b) & ~(allowed[groups] & ~classes).any(axis=1)
                for classes in chosen
                for b in bands
            ]
        )
        numbers, job = np.unique(planner.numbers[self.counted], return_inverse=True)
        weight = np.array([planner.snapshot.queue[j].weight for j in numbers.tolist()])
        program = Program(
            item=place[corners.item],
            time=corners.time,
            area=corners.area,
            counts=counts,
            start=self.case.heads.start[self.counted],
            parent=edge[:, 0],
            child=edge[:, 1],
            job=job.astype(np.int64),
            weight=weight if weighted else np.zeros(0),
            ends=np.setdiff1d(np.arange(self.counted.size), edge[:, 0]),
        )
        return solve_program(program, self._supply(chosen, share), known, stop)

    def _supply(
        self, domains: list[Flags], share: float
    ) -> Callable[[float], tuple[Floats, Floats]]:
        supply = self.case.supply
        band = self._band(self.planner.compiled.problem.class_power)
        rates = np.array(
            [
                (supply.slots * (classes & (band <= b))).sum(axis=1)
                for classes in domains
                for b in range(self.power.size)
            ]
        )
        rates = rates * share

        def offered(at: float) -> tuple[Floats, Floats]:
            edges = np.append(supply.time[supply.time < at], at)
            past = (rates[:, : edges.size - 1] * np.diff(edges)).sum(axis=1)
            step = max(int(np.searchsorted(supply.time, at, side="right")) - 1, 0)
            return past, rates[:, step:].max(axis=1)

        return offered
