"""Run times predicted from the history of jobs like the one that waits.

A user's estimate is what a job may take, not what it will: on real logs the median job runs for a
tenth to two fifths of it. What jobs of the same class took, by what was planned for them, says
more.

Notes
-----
With the ratios x_1, x_2, ... of real to planned run time of the class, the newest first, and the
mean m of all classes, a job with planned run time p is predicted to take

    p * ((sum_i a^(i-1) x_i + w m) / (sum_i a^(i-1) + w)) ^ g,

a = 0.9, w = 0.02, g = 0.8: a mean in which newer runs count more, drawn a little towards the
planned time, since a prediction that is too short costs more than one that is too long. Without
any history it is the planned time itself. A job is killed, and room is promised to others, by the
planned time; the prediction decides on the order alone.

References
----------
D. Tsafrir, Y. Etsion, D. Feitelson, "Backfilling using system-generated predictions rather than
user runtime estimates", IEEE TPDS 18(6), 2007.

Deviations
----------
Theirs is the mean of the user's last two runs, and promises by it as well; here that did worse on
real logs (docs/policies/auto.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from coalloc.model.history import History
from coalloc.policies.array_types import Floats
from coalloc.policies.kernel.state import Problem

AGEING = 0.9
"""Weight of a run by that of the next newer one."""
POOL_WEIGHT = 0.02
"""Weight of the mean of all classes, in newest runs."""
TRUST = 0.8
"""Exponent of the ratio: 1 predicts the mean, 0 the planned time."""
LEAST = 1e-3
"""A prediction is at least this share of the planned time."""


def ratios(history: History, jobs: Iterable[str]) -> Floats:
    """Predicted by planned run time of each job; 1 where nothing is known."""
    known: dict[int, float] = {}
    pool = sum(history.pool) / len(history.pool) if history.pool else 1.0
    unknown = _trusted(pool) if history.pool else 1.0
    out = []
    for job in jobs:
        place = history.of.get(job)
        if place is None:
            out.append(unknown)
            continue
        if place not in known:
            known[place] = _trusted(_mean(history.samples[place], pool))
        out.append(known[place])
    return np.array(out, dtype=np.float64)


def _mean(sample: Sequence[float], pool: float) -> float:
    """The mean of a class, newer runs first, and a little of all classes."""
    total, weight, share = POOL_WEIGHT * pool, POOL_WEIGHT, 1.0
    for ratio in reversed(sample):
        total += share * ratio
        weight += share
        share *= AGEING
    return total / weight


def _trusted(ratio: float) -> float:
    return float(max(min(ratio, 1.0), LEAST) ** TRUST)


def expected_shares(shares: Floats) -> Floats:
    """The means behind predicted shares, not drawn towards the planned time (g = 1)."""
    return shares ** (1.0 / TRUST)


def predicted(problem: Problem, shares: Floats) -> Problem:
    """The problem of the same queue whose jobs take these shares of their planned run times."""
    of_modes = np.repeat(shares, np.diff(problem.mode_first))
    return problem._replace(
        mode_scaled=problem.mode_scaled * of_modes,
        mode_fixed=problem.mode_fixed * of_modes,
        item_limit=problem.item_limit * shares,
    )
