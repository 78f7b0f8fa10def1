"""Orders of a queue that a formula gives: smaller keys first, ties by arrival.

Each formula reads what is known of a job before it runs: its processes n, its estimated run time r
at power 1, the time s at which it was submitted, and how long it has waited.

=================  =====================================================================
arrival            all alike
fewest, most       n, rising or falling
shortest, longest  r, rising or falling (SPF, shortest processing time first, and LPF)
smallest-area      r n (SAF)
f1                 log10(r) n + 870 log10(s)
f2                 sqrt(r) n + 25 600 log10(s)
f3                 r n + 6 860 000 log10(s)
f4                 r sqrt(n) + 530 000 log10(s)
wfp3               -(wait / r)^3 n
unicef             -wait / (log2(n) r)
=================  =====================================================================

Deviations
----------
- s counts on the axis of `submitted`, from 1 s on: in a log, from its first job; in a daemon, since
  1970. There log10(s) is the same for all jobs of a month, so that f1 to f4 go by their first terms
  and only the limit on waiting knows who came first.
- r counts from 1 s on, and n of `unicef` from 2 on, where the formulas have no value else.

References
----------
D. Carastan-Santos, R. de Camargo, "Obtaining dynamic scheduling policies with simulation and
machine learning", SC 2017 (F1 to F4).
D. Carastan-Santos, R. de Camargo, D. Trystram, S. Zrigui, "One can only gain by replacing EASY
backfilling: a simple scheduling policies case study", CCGRID 2019 (SPF, SAF, the limit on waiting).
W. Tang, Z. Lan, N. Desai, D. Buettner, "Fault-aware, utility-based job scheduling on Blue Gene/P
systems", CLUSTER 2009 (WFP3, UNICEF).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalloc.policies.array_types import Flags, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Traits that the formulas read; one value for each job, in arrival order."""

    procs: Floats
    """Processes, and estimated run time at power 1."""
    seconds: Floats
    submitted: Floats
    """Seconds."""
    waited: Floats
    priority: Floats | None = None
    """Order of those that are overdue; None: all alike."""

    @property
    def r(self) -> Floats:
        """Estimated run times, 1 s at least."""
        return np.maximum(self.seconds, 1.0)

    @property
    def log_s(self) -> Floats:
        """Decimal logarithms of the submit times."""
        return np.log10(np.maximum(self.submitted, 1.0))


KEYS: Mapping[str, Callable[[Traits], Floats]] = {
    "arrival": lambda jobs: np.zeros(len(jobs.procs)),
    "fewest": lambda jobs: jobs.procs,
    "most": lambda jobs: -jobs.procs,
    "shortest": lambda jobs: jobs.seconds,
    "longest": lambda jobs: -jobs.seconds,
    "smallest-area": lambda jobs: jobs.seconds * jobs.procs,
    "f1": lambda jobs: np.log10(jobs.r) * jobs.procs + 870.0 * jobs.log_s,
    "f2": lambda jobs: np.sqrt(jobs.r) * jobs.procs + 25_600.0 * jobs.log_s,
    "f3": lambda jobs: jobs.r * jobs.procs + 6_860_000.0 * jobs.log_s,
    "f4": lambda jobs: jobs.r * np.sqrt(jobs.procs) + 530_000.0 * jobs.log_s,
    "wfp3": lambda jobs: -((jobs.waited / jobs.r) ** 3) * jobs.procs,
    "unicef": lambda jobs: -jobs.waited / (np.log2(np.maximum(jobs.procs, 2.0)) * jobs.r),
}
AGEING = ("wfp3", "unicef")
"""Orders that change while nothing but time goes by."""


def order_jobs(name: str, jobs: Traits, overdue: Flags | None = None) -> Any:
    """Numbers of the jobs in an order of `KEYS`.

    `overdue` (array of bool): jobs that go first, by falling priority, then in arrival order.
    """
    key = KEYS[name](jobs)
    if overdue is None:
        return np.argsort(key, kind="stable")
    if jobs.priority is None:
        return np.argsort(np.where(overdue, -np.inf, key), kind="stable")
    return np.lexsort((np.where(overdue, -jobs.priority, key), ~overdue))
