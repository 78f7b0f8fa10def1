"""Measures of a replay of a piece: one row of figures.

Notes
-----
Classes of jobs: *wide* runs on more than `WIDE` of all slots, *long* for more than `LONG_S`.
Fairness: how much later than under conservative backfilling of the same jobs a job started; a job
that started earlier counts as 0. What bounded slowdown and utilisation are, `metrics` says.

A workflow is one job: its run time is its critical path, by the run times that it had, and its wait
is what passed beyond that between its submission and its end (`flow_runs`). Its width is that of
its widest task. Jobs that are no workflows are *others*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coalloc.simulation.flow_runs import wholes
from coalloc.simulation.metrics import TAU_S, measure
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Floats

WIDE = 1 / 16
LONG_S = 3600.0
CLASSES = ("narrow_short", "narrow_long", "wide_short", "wide_long")
SORTS = ("flows", "others")
BY_SORT: Mapping[str, str] = {
    "wait": "mean wait",
    "response": "mean response",
    "slowdown": "mean bounded slowdown",
}

FIGURES: Mapping[str, str] = {
    "jobs": "jobs that ran",
    "refused": "jobs that did not",
    "wait_mean": "mean wait, s",
    "wait_p95": "95th percentile of waits, s",
    "wait_p99": "99th percentile of waits, s",
    "wait_max": "longest wait, s",
    "response_mean": "mean response (wait and run time), s",
    "response_p95": "95th percentile of responses, s",
    "slowdown_mean": "mean bounded slowdown",
    "slowdown_p95": "95th percentile of bounded slowdowns",
    "slowdown_p99": "99th percentile of bounded slowdowns",
    "slowdown_max": "largest bounded slowdown",
    "utilisation": "busy share of slots until the last submission",
    "later_mean": "mean start after that under conservative, s",
    "later_p99": "99th percentile of that, s",
    "later_max": "longest of that, s",
    "coallocated": "share of jobs on several clusters",
    **{f"wait_{one}": f"mean wait of {one.replace('_', ', ')} jobs, s" for one in CLASSES},
    **{f"wait_max_{one}": f"longest wait of {one.replace('_', ', ')} jobs, s" for one in CLASSES},
    **{
        f"slowdown_{one}": f"mean bounded slowdown of {one.replace('_', ', ')} jobs"
        for one in CLASSES
    },
    **{
        f"{one}_{sort}": f"{words} of {'workflows' if sort == 'flows' else 'other jobs'}"
        for sort in SORTS
        for one, words in BY_SORT.items()
    },
    "elapsed_s": "wall time of the replay, s",
}
"""Columns of a row beside its piece, scenario and policy."""


def figures(trace: Trace, conservative: Trace) -> dict[str, Any]:
    """Compute the figures of a replay; None where no job is of a class."""
    every = wholes(trace)
    ran = ~np.isnan(every.end)
    submit, start, end = every.submit[ran], every.begin[ran], every.end[ran]
    length = every.length[ran]
    wait = start - submit
    slowdown = np.maximum(1.0, (end - submit) / np.maximum(length, TAU_S))
    later = np.maximum(start - wholes(conservative).begin[ran], 0.0)
    later = later[~np.isnan(later)]
    known = measure(trace)
    out: dict[str, Any] = {
        "jobs": int(ran.sum()),
        "refused": int((~ran).sum()),
        **_summary("wait", wait),
        "response_mean": _mean(end - submit),
        "response_p95": _percentile(end - submit, 95),
        **_summary("slowdown", slowdown),
        "utilisation": known.utilisation,
        "later_mean": _mean(later),
        "later_p99": _percentile(later, 99),
        "later_max": float(later.max(initial=0.0)),
        "coallocated": known.coallocated_share,
    }
    widest = np.maximum.reduceat(trace.procs, every.first) if len(ran) else trace.procs
    wide = widest[ran] > WIDE * trace.slot_map.slots
    real = np.where(every.is_flow, every.length, trace.workload.run[every.first])
    long = real[ran] > LONG_S
    members = (~wide & ~long, ~wide & long, wide & ~long, wide & long)
    for name, mine in zip(CLASSES, members, strict=True):
        out[f"wait_{name}"] = _mean(wait[mine]) if mine.any() else None
        out[f"wait_max_{name}"] = float(wait[mine].max()) if mine.any() else None
        out[f"slowdown_{name}"] = _mean(slowdown[mine]) if mine.any() else None
    flows = every.is_flow[ran]
    figure = {"wait": wait, "response": end - submit, "slowdown": slowdown}
    for sort, mine in zip(SORTS, (flows, ~flows), strict=True):
        for name, values in figure.items():
            out[f"{name}_{sort}"] = _mean(values[mine]) if mine.any() else None
    return out | {"elapsed_s": float(trace.stats["elapsed_s"])}


def _summary(name: str, values: Floats) -> dict[str, float]:
    return {
        f"{name}_mean": _mean(values),
        f"{name}_p95": _percentile(values, 95),
        f"{name}_p99": _percentile(values, 99),
        f"{name}_max": float(values.max(initial=0.0)),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _percentile(values: Floats, share: float) -> float:
    return float(np.percentile(values, share)) if len(values) else 0.0
