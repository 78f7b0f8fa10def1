"""Moldable jobs and a pool of equal processors, as compiled code takes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coalloc.policies.kernel.jit import kernel
from coalloc.policies.kernel.record import Floats, Ints, record


@record
class Jobs(NamedTuple):
    """N jobs with A allotments in all, of one pool of processors; see `MoldableQueue`."""

    first: Ints  # N + 1, allotments of each job
    procs: Ints  # A, rising in a job
    times: Floats  # A, s, falling in a job
    weight: Floats  # N
    release: Floats  # N, s


@record
class Processors(NamedTuple):
    """The processors of a pool over S stretches of time."""

    starts: Floats  # S, s
    capacity: Ints  # S


@kernel
def canonical_allotments(
    jobs: Jobs, guess: float, out_procs: Ints, out_work: Floats, out_half: Floats
) -> bool:
    """For each job, what it needs at least to end by a guess; false if one cannot.

    That is the fewest processors, the least work in processor-seconds, and the least work of an
    allotment that runs for at most half the guess; inf where there is none.
    """
    for i in range(jobs.release.size):
        limit = guess - jobs.release[i]
        out_procs[i], out_work[i], out_half[i] = 0, np.inf, np.inf
        for a in range(jobs.first[i], jobs.first[i + 1]):
            if jobs.times[a] > limit:
                continue
            if out_procs[i] == 0:
                out_procs[i] = jobs.procs[a]
            work = jobs.procs[a] * jobs.times[a]
            out_work[i] = min(out_work[i], work)
            if jobs.times[a] <= guess / 2.0:
                out_half[i] = min(out_half[i], work)
        if out_procs[i] == 0:
            return False
    return True
