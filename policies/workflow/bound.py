"""Lower bounds of all plans of a queue with workflows.

Two bounds on the makespan. *window*: a guess is refuted if a task cannot meet it between the
longest chains before and behind it, or if all tasks, each on the fewest processes that meet it,
need more power x seconds than there is. *program*: a linear program that chooses for all
tasks at once between time and processes, along every path; solved by HiGHS:

    min  sum_j w_j C_j  or  C
    s_i >= earliest start;  C_j >= s_i + t_i for the tasks i of job j;  C >= C_j
    s_c >= s_p + t_p          for p before c
    t_i = sum_v x_iv time_v;  sum_v x_iv = 1
    sum_iv x_iv area_v [band of v <= b] <= supply_b(L) + rate_b (C - L)   for each band b

The vertices v of a task are corners of an outer polygon of what it can choose: time against
processes x seconds, for each band of power. So what no plan can do stays impossible whatever
number of processes it takes, also between the corners.

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
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints, entries
from coalloc.policies.base import never
from coalloc.policies.bounds.case import BoundCase, read_case
from coalloc.policies.bounds.lp import LinearProgram
from coalloc.policies.bounds.rows import domains, integral_at
from coalloc.policies.bounds.supply import join_bands
from coalloc.policies.halving import largest_refuted
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.workflow.forms import form_of

PRECISION = 1e-7
"""Share of a guess to which it is halved."""
CORNERS = 14
"""Tangents of each task's trade between time and processes, in each band."""
BANDS = 6
"""Bands of power that the program keeps apart."""
DOMAINS = 8
"""Sets of classes that it keeps apart."""
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


class WorkflowBound:
    """The bounds of one planner."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.case: BoundCase = read_case(planner, "quick")
        self.counted = np.flatnonzero(self.case.heads.counted)
        problem = planner.compiled.problem
        power = problem.class_power
        top, band = join_bands(power, BANDS)
        self.supply = supply = replace(self.case.supply, top=top, band=band)
        # Largest and least power of each band.
        self.spans = [(float(most), float(power[band == b].min())) for b, most in enumerate(top)]
        slots = np.minimum(supply.room, supply.slots.max(axis=0, initial=0.0))
        room = supply.by_band(slots)
        alone = planner.options.get("coallocation") == "forbidden"
        # Processes of each group at each band's power and above: G x B.
        self.room = room.max(axis=-1, initial=0.0) if alone else room.sum(axis=-1)
        self.intra = float(problem.inverse_intra.min(initial=inf))
        weakest = float(problem.class_power.min(initial=1.0))
        self.forms = [form_of(i).below(i.limit, weakest, self.intra) for i in planner.items]

    def parts(self, stop: Callable[[], bool], effort: str) -> Mapping[str, Mapping[str, float]]:
        """Bounds by objective and name."""
        if not self.counted.size:
            return {}
        found = {"window": self.window()}
        out: dict[str, Mapping[str, float]] = {"makespan": found, "weighted_completion": {}}
        if effort == "quick" or stop() or self._program is None:
            return out
        found["program"], _ = self._solve(self._program, found["window"], stop, weighted=False)
        weight = self._program.weight
        if not stop() and weight.any():
            value = found["program"] * float(weight[0])
            if weight.size > 1:
                value, _ = self._solve(self._program, found["window"], stop)
            out["weighted_completion"] = {"program": value}
        return out

    def times(self, share: float) -> Floats | None:
        """Run times that the program chooses where only a share of the processes is there.

        Of N tasks, seconds; 0 for what is not counted.
        """
        if self._program is None:
            return None
        longest = self.case.heads.longest
        _, found = self._solve(self._program, longest, never, weighted=False, share=share)
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
        rate = self.supply.slots @ self.planner.compiled.problem.class_power
        return total > float(integral_at(rate, self.supply.time, guess)) * (1.0 + 1e-9)

    def _least_work(self, n: int, seconds: float) -> float:
        """Least power x seconds of an item that runs for at most so long.

        Weaker nodes need more processes for that, but a fixed part takes less of their power.
        """
        form = self.forms[n]
        spans = self.spans if form.partly_fixed(self.intra) else self.spans[:1]
        return min(form.least_work(seconds, *span, self.intra) for span in spans)

    @cached_property
    def _program(self) -> Program | None:
        """The program of the weighted completion; None where there is nothing, or too much."""
        planner, items = self.planner, self.planner.items
        if not 0 < self.counted.size <= MOST_ITEMS:
            return None
        groups = planner.compiled.problem.item_group
        place = np.full(len(items), -1, dtype=np.int64)
        place[self.counted] = np.arange(self.counted.size)
        parts: list[tuple[int, int, Floats, Floats]] = []
        for n in self.counted.tolist():
            for b, power in enumerate(self.supply.top.tolist()):
                most = int(self.room[groups[n], b])
                time, area = self.forms[n].corners(most, power, self.intra, CORNERS)
                if time.size:
                    parts.append((n, b, time, area))
        sizes = [time.size for _, _, time, _ in parts]
        if sum(sizes) > MOST_CHOICES:
            return None
        item = np.repeat([n for n, _, _, _ in parts], sizes)
        band = np.repeat([b for _, b, _, _ in parts], sizes)
        kept = domains(self.supply, groups[item], DOMAINS)
        edges = [
            (place[parent], place[n])
            for n in self.counted.tolist()
            for parent in {p for p, _ in items[n].parents}
        ]
        edge = np.array(edges, dtype=np.int64).reshape(-1, 2)
        numbers, job = np.unique(planner.numbers[self.counted], return_inverse=True)
        inside = [band <= b for b in range(self.supply.top.size)]
        return Program(
            item=place[item],
            time=np.concatenate([time for _, _, time, _ in parts]),
            area=np.concatenate([area for _, _, _, area in parts]),
            counts=np.array([these & domain.columns for domain in kept for these in inside]),
            rates=np.concatenate(
                [self.supply.by_band(domain.slots).sum(axis=-1).T for domain in kept]
            ),
            steps=self.supply.time,
            start=self.case.heads.start[self.counted],
            parent=edge[:, 0],
            child=edge[:, 1],
            job=job.astype(np.int64),
            weight=np.array([planner.snapshot.queue[j].weight for j in numbers.tolist()]),
            ends=np.setdiff1d(np.arange(self.counted.size), edge[:, 0]),
        )

    def _solve(
        self,
        program: Program,
        known: float,
        stop: Callable[[], bool],
        *,
        weighted: bool = True,
        share: float = 1.0,
    ) -> tuple[float, Floats | None]:
        weight = program.weight if weighted else np.zeros(0)
        program = replace(program, weight=weight, rates=program.rates * share)
        return solve_program(program, known, stop)


MARGIN = 1e-6
"""Share of the value that is given up for the solver's tolerances."""
ROUNDS = 4
"""Times that the supply is laid anew behind a better bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Data of the program; V corners, by item, E edges, B rows of area."""

    item: Ints
    """Seconds, and slot-seconds."""
    time: Floats
    area: Floats
    counts: Flags
    """Whether a corner draws on a row."""
    rates: Floats
    """What each row offers in a second (B x T) from each of T steps on, seconds from now."""
    steps: Floats
    start: Floats
    """No earlier, seconds from now."""
    parent: Ints
    child: Ints
    job: Ints
    """The job of each item; empty weights minimise the last end."""
    weight: Floats
    ends: Ints
    """Items that no other waits for."""


def solve_program(
    program: Program, known: float, stop: Callable[[], bool]
) -> tuple[float, Floats | None]:
    """A lower bound on the program's objective, and the run times of the last solution.

    The bound is 0, and there are no times, where the solver has no optimum.

    `known`: a lower bound on the last end, seconds.
    """
    best, last = 0.0, known
    times: Floats | None = None
    for _ in range(ROUNDS):
        base, rate = _lines(program, last)
        found = _optimum(program, base, rate, last)
        if found is None:
            break
        value, chosen = found
        value *= 1.0 - MARGIN
        shares = chosen[: program.item.size] * program.time
        times = np.zeros(program.start.size)
        np.add.at(times, program.item, shares)
        best = max(best, value)
        steady = program.weight.size > 0 or value <= last * (1.0 + 1e-9)
        if steady or np.allclose(base, _lines(program, value)[0], rtol=1e-9):
            break
        last = value
        if stop():
            break
    return best, times


def _lines(program: Program, at: float) -> tuple[Floats, Floats]:
    """Lines above what each row has offered from a time on: at 0, and their slopes."""
    step = max(int(np.searchsorted(program.steps, at, side="right")) - 1, 0)
    rate = program.rates[:, step:].max(axis=1)
    return integral_at(program.rates, program.steps, at) - rate * at, rate


def _optimum(
    program: Program, base: Floats, rate: Floats, last: float
) -> tuple[float, Floats] | None:
    items, corners, jobs = program.start.size, program.item.size, program.weight.size
    columns = corners + items + jobs + 1
    lower = np.zeros(columns)
    lower[corners : corners + items] = program.start
    lower[-1] = last
    cost = np.zeros(columns)
    cost[corners + items : -1] = program.weight
    if not jobs:
        cost[-1] = 1.0
    rows = LinearProgram(cost, lower, np.inf)
    rows.add(program.item, np.arange(program.item.size), 1.0)
    rows.close(program.start.size, 1.0, 1.0)  # shares of an item's corners add up to 1
    _add_precedence(rows, program)
    _add_ends(rows, program, columns - 1)
    band, col = np.nonzero(program.counts)
    bands = np.arange(rate.size)
    rows.add(band, col, program.area[col])
    rows.add(bands, np.full(bands.size, columns - 1), -rate)
    rows.close(bands.size, -np.inf, base)
    return rows.solve()


def _add_precedence(rows: LinearProgram, program: Program) -> None:
    """No child starts before its parent has ended."""
    corners, edges = program.item.size, np.arange(program.parent.size)
    rows.add(edges, corners + program.child, 1.0)
    rows.add(edges, corners + program.parent, -1.0)
    _add_times(rows, program, edges, program.parent)
    rows.close(edges.size, 0.0, np.inf)


def _add_ends(rows: LinearProgram, program: Program, end: int) -> None:
    """A job ends behind its last items, and all end by the column `end`."""
    corners, jobs = program.item.size, program.weight.size
    first_job, exits = corners + program.start.size, np.arange(program.ends.size)
    whole = np.full(exits.size, end, dtype=np.int64)
    rows.add(exits, first_job + program.job[program.ends] if jobs else whole, 1.0)
    rows.add(exits, corners + program.ends, -1.0)
    _add_times(rows, program, exits, program.ends)
    rows.close(exits.size, 0.0, np.inf)
    if jobs:
        of_job = np.arange(jobs)
        rows.add(of_job, first_job + of_job, -1.0)
        rows.add(of_job, np.full(jobs, end), 1.0)
        rows.close(jobs, 0.0, np.inf)


def _add_times(rows: LinearProgram, program: Program, row: Ints, who: Ints) -> None:
    """Minus the run time of an item, in each row."""
    place = np.searchsorted(program.item, np.arange(program.start.size + 1))
    sizes = place[who + 1] - place[who]
    mine = entries(place[who], sizes)
    rows.add(np.repeat(row, sizes), mine, -program.time[mine])
