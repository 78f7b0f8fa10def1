"""Measures of a replay.

Notes
-----
With submit s, start b, end e and processes p of the jobs that ran:

- makespan: last e - first s;
- wait: b - s; turnaround: e - s;
- bounded slowdown: max(1, (e - s) / max(e - b, tau)), tau = 10 s;
- utilisation: share of all slot-seconds that are busy between the first and the last
  *submission*. After the last one a replay only drains, which says little of a policy;
- compaction: sum of (e - b) p by slots times makespan, the draining included;
- co-allocated share: jobs on more than one cluster by jobs that ran;
- link use: load by capacity.

References
----------
D. Feitelson, L. Rudolph, U. Schwiegelshohn, K. Sevcik, P. Wong, "Theory and practice in parallel
job scheduling", JSSPP 1997 (bounded slowdown).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from coalloc.simulation.trace import Outcome, Trace, link_demands
from coalloc.simulation.workload import Floats, Ints

TAU_S = 10.0
"""Shorter run times count as this long in a bounded slowdown, seconds."""
WIDTHS = (1, 2, 5, 17, 65, 257)
"""Least processes of each class of widths; the last has no end."""


class Metrics(Struct, frozen=True, kw_only=True):
    """Figures of one replay; seconds, and shares in 0..1. See the module's notes."""

    jobs: int
    completed: int
    killed: int
    refused: int
    waiting: int
    makespan_s: float
    mean_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    max_wait_by_width_s: Mapping[str, float]
    """Of each class of `WIDTHS` that has jobs, narrow ones first."""
    mean_turnaround_s: float
    mean_bounded_slowdown: float
    p95_bounded_slowdown: float
    utilisation: float
    compaction: float
    coallocated_share: float
    peak_link_use: float
    peak_link_gbps: Mapping[str, float]


def measure(trace: Trace) -> Metrics:
    """Compute the figures of a replay."""
    ran = trace.ran
    submit, procs = trace.workload.submit[ran], trace.procs[ran]
    start, end = trace.start[ran], trace.end[ran]
    count = {outcome: int((trace.outcome == outcome).sum()) for outcome in Outcome}
    some = len(start) > 0
    wait, turnaround, execution = start - submit, end - submit, end - start
    slowdown = np.maximum(1.0, turnaround / np.maximum(execution, TAU_S))
    first, last = (float(submit.min()), float(end.max())) if some else (0.0, 0.0)
    makespan = last - first
    slots = trace.slot_map.slots
    work = float((execution * procs).sum())
    peaks, use = _link_peaks(trace)
    return Metrics(
        jobs=len(trace.start),
        completed=count[Outcome.COMPLETED],
        killed=count[Outcome.KILLED],
        refused=count[Outcome.REFUSED],
        waiting=count[Outcome.WAITING],
        makespan_s=makespan,
        mean_wait_s=mean(wait),
        p95_wait_s=percentile(wait, 95),
        max_wait_s=float(wait.max(initial=0.0)),
        max_wait_by_width_s={
            name: float(wait[mine].max())
            for name, mine in by_width(trace.workload.procs[ran])
            if mine.any()
        },
        mean_turnaround_s=mean(turnaround),
        mean_bounded_slowdown=mean(slowdown),
        p95_bounded_slowdown=percentile(slowdown, 95),
        utilisation=_utilisation(start, end, procs, slots, first, float(submit.max(initial=first))),
        compaction=work / (slots * makespan) if makespan > 0.0 else 0.0,
        coallocated_share=int((trace.clusters_used() > 1).sum()) / len(start) if some else 0.0,
        peak_link_use=use,
        peak_link_gbps=peaks,
    )


def mean(values: Floats) -> float:
    """The mean; 0 of none."""
    return float(values.mean()) if len(values) else 0.0


def percentile(values: Floats, share: float) -> float:
    """A percentile; 0 of none."""
    return float(np.percentile(values, share)) if len(values) else 0.0


def by_width(procs: Ints) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The classes of widths, narrow ones first: name, and which of these jobs belong to it."""
    for low, high in pairwise((*WIDTHS, inf)):
        name = f"{low}" if high == low + 1 else f"{low} to {high - 1:.0f}"
        if high == inf:
            name = f"{low} and more"
        yield name, (procs >= low) & (procs < high)


def _utilisation(
    start: Floats, end: Floats, procs: Ints, slots: int, first: float, last: float
) -> float:
    if not len(start):
        return 0.0
    if last <= first:
        last = float(end.max())
    busy = np.clip(end, first, last) - np.clip(start, first, last)
    return float((busy * procs).sum()) / (slots * (last - first))


def _link_peaks(trace: Trace) -> tuple[dict[str, float], float]:
    """Highest load of each link that is used, Gbit/s, and the highest share of a capacity."""
    job, cluster, gbps = link_demands(trace)
    peaks, use = {}, 0.0
    for k in np.unique(cluster):
        mine = cluster == k
        _, load = load_profile(trace.start[job[mine]], trace.end[job[mine]], gbps[mine])
        home = trace.slot_map.platform.clusters[int(k)]
        peaks[home.name] = float(load.max())
        if home.link_gbps != inf:
            use = max(use, peaks[home.name] / home.link_gbps)
    return peaks, use


def load_profile(start: Floats, end: Floats, amount: Floats | Ints) -> tuple[Floats, Floats]:
    """Sum of the amounts over time; intervals are half open.

    The instants at which it may change, rising, and the sum from each instant to the next.
    """
    time, inverse = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.zeros(len(time))
    np.add.at(change, inverse, np.concatenate((amount, -amount)))
    return time, np.cumsum(change)
