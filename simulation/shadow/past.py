"""Replay of the past of several clusters, and its worth as a measure.

Notes
-----
- The window begins when the accounts of each cluster have a job that ended: of what ended before,
  rows may be missing. What ran then holds its nodes, what waited comes then, and waits count from
  then. The window ends with the accounts that end first.
- Slurm backfills and reserves for all, as `conservative` does: with jobs bound to their clusters,
  each cluster is by itself. Its order is by arrival, or by priorities as they were when jobs
  started: that which comes nearer, job by job.
- Between an end and the next start Slurm takes a moment: the mean one, of jobs that waited, is
  added to all run times of the cluster.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from msgspec import Struct

from coalloc.adapters.formats.platforms import Platform
from coalloc.adapters.formats.swf_jobs import LoggedJob
from coalloc.model.errors import InputError
from coalloc.model.ranges import WEIGHT
from coalloc.model.values import replace
from coalloc.simulation.metrics import mean
from coalloc.simulation.progress import Report
from coalloc.simulation.replay import replay
from coalloc.simulation.reproduce.rows import Estimate, resampled
from coalloc.simulation.shadow.site import Site
from coalloc.simulation.trace import Trace
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Floats, Workload

ALONE = {"coallocation": "forbidden"}
LONGEST_TURN_S = 60.0
"""Of an end to the next start; a longer pause has other causes."""
LONGER_S = 60.0
"""A job that waits so much longer loses, seconds."""
BLOCKS = 20
"""Consecutive pieces of the window, of which intervals resample the ratio of the waits."""


class ClusterPast(Struct, frozen=True, kw_only=True):
    """A cluster's past beside its replay."""

    cluster: str
    jobs: int
    real_wait_s: float
    """Means, as the next."""
    replayed_wait_s: float
    astray_s: float
    """Mean difference of single jobs."""


class Gain(Struct, frozen=True, kw_only=True):
    """One case against the replay of the past."""

    saved: Estimate
    """Share of the mean wait, with its interval of 95 %."""
    longer: float
    """Share of the jobs that wait over a minute longer."""
    home_wait_s: tuple[float, ...]
    """Mean wait of the jobs of each cluster, seconds."""


def replay_past(
    sites: Sequence[Site], report: Report
) -> tuple[tuple[float, float], Trace, list[ClusterPast]]:
    """The window, seconds since 1970, its replay, and how near that is. Raises `InputError`."""
    begin = max(min(one.logged_end for one in site.jobs) for site in sites)
    end = min(max(one.logged_end - one.run_s for one in site.jobs) for site in sites)
    if begin >= end:
        raise InputError("the accounts", "have no time in common in which jobs started and ended")
    jobs = [one for site in sites for one in _within(site, begin, end)]
    jobs.sort(key=lambda one: (one.job.submitted, one.waited_s > 0.0))
    platform = Platform(name="the site", clusters=tuple(site.cluster for site in sites))
    traces = [replayed(jobs, platform, "conservative", ALONE, report, "as it was, by arrival")]
    if any(0.0 < one.job.weight < WEIGHT.high for one in jobs):
        label = "as it was, by priority"
        traces.append(replayed(jobs, platform, "conservative", ALONE, report, label, True))
    real = np.array([one.waited_s for one in jobs])

    def astray(trace: Trace) -> Floats:
        off: Floats = np.abs(trace.start - trace.workload.submit - real)
        return off

    trace, rows = min(traces, key=lambda trace: float(np.nanmean(astray(trace)))), []
    for site in sites:
        mine = trace.ran & [one.job.clusters == (site.cluster.name,) for one in jobs]
        if not mine.any():
            raise InputError(site.cluster.name, "has no job in the time that all accounts have")
        rows.append(
            ClusterPast(
                cluster=site.cluster.name,
                jobs=int(mine.sum()),
                real_wait_s=float(real[mine].mean()),
                replayed_wait_s=float((trace.start - trace.workload.submit)[mine].mean()),
                astray_s=float(astray(trace)[mine].mean()),
            )
        )
    return (begin, end), trace, rows


def replayed(
    jobs: Sequence[LoggedJob],
    platform: Platform,
    policy: str,
    options: Mapping[str, Any],
    report: Report,
    label: str,
    by_weight: bool = False,
) -> Trace:
    """These jobs under a policy; a fault is one of ours."""
    trace = replay(
        Workload(name="accounts", jobs=tuple(jobs)),
        platform,
        policy,
        options,
        path="general" if any(one.job.features for one in jobs) else "auto",
        by_weight=by_weight,
        on_progress=lambda done: report(label, done, len(jobs)),
    )
    if faults := verify(trace):
        raise AssertionError(f"{label}: {faults[0]}")
    return dataclasses.replace(trace, policy=label.partition(",")[0])


def missed(past: Trace, rows: Sequence[ClusterPast]) -> float:
    """Miss of replayed mean waits, by the real ones, or the share of the jobs that do not fit.

    Clusters do not cancel.
    """
    off = sum(one.jobs * abs(one.replayed_wait_s - one.real_wait_s) for one in rows)
    waits = sum(one.jobs * one.real_wait_s for one in rows)
    return max(off / max(waits, 1.0), float(1.0 - past.ran.mean()))


def _within(site: Site, begin: float, end: float) -> Iterator[LoggedJob]:
    """The jobs that lie in the window, on its axis."""
    ends = sorted(one.logged_end for one in site.jobs)
    starts = [one.logged_end - one.run_s for one in site.jobs if one.waited_s]
    gaps = [at - ends[n - 1] for at in starts if (n := bisect_right(ends, at))]
    turn = fmean([gap for gap in gaps if gap < LONGEST_TURN_S] or [0.0])
    for logged in site.jobs:
        job, start = logged.job, logged.logged_end - logged.run_s
        if logged.logged_end <= begin or job.submitted > end:
            continue
        at, left = max(job.submitted, begin) - begin, logged.logged_end - max(start, begin) + turn
        weight = WEIGHT.high if start <= begin else job.weight
        planned = job.base_time + turn if start >= begin else left
        yield replace(
            logged,
            job=replace(job, submitted=at, earliest=at, base_time=planned, weight=weight),
            run_s=left,
            waited_s=max(start - begin - at, 0.0),
        )


def gain_of(past: Trace, trace: Trace) -> Gain:
    """Worth of a case, by the jobs that ran in both."""
    ran, submit = past.ran & trace.ran, past.workload.submit
    before, after = (past.start - submit)[ran], (trace.start - submit)[ran]
    blocks = np.array_split(np.column_stack((before, after)), BLOCKS)
    low, high = resampled(
        [one.sum(axis=0) for one in blocks],
        lambda means: 1.0 - means[:, 1] / np.maximum(means[:, 0], 1e-9),
    )
    saved = 1.0 - mean(after) / max(mean(before), 1e-9)
    homes = np.array([one.job.clusters for one in past.workload.jobs])[ran, 0]
    names = [one.name for one in past.slot_map.platform.clusters]
    return Gain(
        saved=Estimate(mean=saved, low=low, high=high),
        longer=float((after > before + LONGER_S).mean()),
        home_wait_s=tuple(mean(after[homes == name]) for name in names),
    )
