"""The linear program that the bi-criteria paper bounds the weighted completion with.

Time is cut at t_j = C* / 2**(K - j) into intervals I_j = (t_j, t_{j+1}], as `demt` cuts its
shelves; x_ij is the share of job i that ends in I_j, and S_ij its least work if it does:

    min  sum_i w_i sum_j t_j x_ij
    s.t. sum_j x_ij >= 1                              for each job i
         sum_i sum_{l <= j} S_il x_il <= m t_{j+1}    for each interval j
         x >= 0,  x_ij = 0 where no allotment ends by t_{j+1}

The areas are summed up from interval to interval, so that the matrix stays sparse.

Deviations
----------
The formulation is missing from the text that we have, and is put together from the words around it.
As printed, intervals run from t_0 to t_{K+1}, and a job that ends before or behind is not covered:
no bound, strictly. *Repaired*, there is an interval (0, t_0] at cost 0, and the last one is open.

Where processors come and go, m t is what they do until t; a job ends no sooner than its release
allows. Both leave the repaired program a relaxation.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004, section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, log2

import numpy as np

from coalloc.policies.array_types import Floats
from coalloc.policies.bounds.lp import LinearProgram
from coalloc.policies.kernel.state import SHORTEST
from coalloc.policies.moldable.priced_bound import capacity_area
from coalloc.policies.moldable.queue import MoldableQueue

MARGIN = 1e-7
"""Share of the value that is given up for the solver's tolerances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrid:
    """Intervals of the program: cost and end of each."""

    cost: Floats
    """Seconds; the last end is inf where that interval is open."""
    end: Floats


def published_lp(queue: MoldableQueue, guess: float, *, is_repaired: bool = True) -> float:
    """The optimum of the program; 0 where HiGHS ends without one.

    `queue`: with every allotment there is.
    `guess`: C*, the approximate makespan, seconds.
    `is_repaired`: false for the program as printed, which can be above what a schedule reaches.
    """
    if queue.size == 0:
        return 0.0
    grid = intervals(queue, guess, is_repaired=is_repaired)
    return _optimum(queue, grid, least_work(queue, grid.end))


def intervals(queue: MoldableQueue, guess: float, *, is_repaired: bool = True) -> TimeGrid:
    """I_0 .. I_K of the paper; repaired, one more before them, and I_K open."""
    shortest = max(float(queue.times.min()), SHORTEST)
    last = max(floor(log2(guess / shortest)), 0) if guess > shortest else 0
    edges = guess / 2.0 ** np.arange(last, -2, -1, dtype=np.float64)
    if not is_repaired:
        return TimeGrid(cost=edges[:-1], end=edges[1:])
    return TimeGrid(
        cost=np.concatenate(([0.0], edges[:-1])),
        end=np.concatenate((edges[:-1], [inf])),
    )


def least_work(queue: MoldableQueue, ends: Floats) -> Floats:
    """S_ij, N x J: processor-seconds of a job that ends by then; inf where it cannot."""
    first = queue.first[:-1]
    done = np.repeat(queue.release, np.diff(queue.first)) + queue.times
    work = queue.procs * queue.times
    columns = [np.minimum.reduceat(np.where(done <= end, work, inf), first) for end in ends]
    return np.stack(columns, axis=1)


def _optimum(queue: MoldableQueue, grid: TimeGrid, work: Floats) -> float:
    """Columns: x_ij where S_ij is finite, then the area used up to the end of each interval."""
    job, interval = np.nonzero(np.isfinite(work))
    shares, bounded = job.size, int(np.isfinite(grid.end).sum())
    inside = interval < bounded
    share = np.arange(shares)
    areas = np.arange(bounded)
    cap = np.cumsum(capacity_area(queue, np.concatenate(([0.0], grid.end[:bounded]))))
    program = LinearProgram(
        np.concatenate((queue.weight[job] * grid.cost[interval], np.zeros(bounded))),
        np.zeros(shares + bounded),
        np.concatenate((np.full(shares, inf), cap)),
    )
    program.add(job, share, 1.0)
    program.close(queue.size, 1.0, inf)
    # S x + area up to the interval before - area up to this one = 0
    program.add(interval[inside], share[inside], work[job, interval][inside])
    program.add(areas, shares + areas, -1.0)
    program.add(areas[1:], shares + areas[:-1], 1.0)
    program.close(bounded, 0.0, 0.0)
    found = program.solve()
    return 0.0 if found is None else found[0] * (1.0 - MARGIN)
