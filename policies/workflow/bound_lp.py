"""The linear program behind the bound on workflows, in HiGHS.

    min  sum_j w_j C_j  or  C
    s_i >= earliest start;  C_j >= s_i + t_i for the tasks i of job j;  C >= C_j
    s_c >= s_p + t_p          for p before c
    t_i = sum_v x_iv time_v;  sum_v x_iv = 1
    sum_iv x_iv area_v [band of v <= b] <= supply_b(L) + rate_b (C - L)   for each band b

The vertices v of a task are corners of an outer polygon of what it can choose: time against
processes x seconds, for each band of power. So what no plan can do stays impossible whatever
number of processes it takes, also between the corners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints, entries
from coalloc.policies.bounds.lp import LinearProgram
from coalloc.policies.bounds.rows import integral_at

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
