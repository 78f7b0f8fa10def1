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

from pathlib import Path
from typing import Any

import numpy as np

from coalloc.simulation.flow_runs import wholes
from coalloc.simulation.metrics import TAU_S, mean, measure, percentile
from coalloc.simulation.reproduce.words import cells
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Floats

WIDE = 1 / 16
LONG_S = 3600.0
CLASSES = ("narrow_short", "narrow_long", "wide_short", "wide_long")
SORTS = ("flows", "others")
TEMPLATE = Path(__file__).parent / "data" / "online.md"
"""The report's words; its last table has the columns of a row."""
FIGURES = dict(cells(TEMPLATE.read_text(encoding="utf-8").rpartition("\n\n")[2]))
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
        "response_mean": mean(end - submit),
        "response_p95": percentile(end - submit, 95),
        **_summary("slowdown", slowdown),
        "utilisation": known.utilisation,
        "later_mean": mean(later),
        "later_p99": percentile(later, 99),
        "later_max": float(later.max(initial=0.0)),
        "coallocated": known.coallocated_share,
    }
    widest = np.maximum.reduceat(trace.procs, every.first) if len(ran) else trace.procs
    wide = widest[ran] > WIDE * trace.slot_map.slots
    real = np.where(every.is_flow, every.length, trace.workload.run[every.first])
    long = real[ran] > LONG_S
    members = (~wide & ~long, ~wide & long, wide & ~long, wide & long)
    for name, mine in zip(CLASSES, members, strict=True):
        out[f"wait_{name}"] = mean(wait[mine]) if mine.any() else None
        out[f"wait_max_{name}"] = float(wait[mine].max()) if mine.any() else None
        out[f"slowdown_{name}"] = mean(slowdown[mine]) if mine.any() else None
    flows = every.is_flow[ran]
    figure = {"wait": wait, "response": end - submit, "slowdown": slowdown}
    for sort, mine in zip(SORTS, (flows, ~flows), strict=True):
        for name, values in figure.items():
            out[f"{name}_{sort}"] = mean(values[mine]) if mine.any() else None
    return out | {"elapsed_s": float(trace.stats["elapsed_s"])}


def _summary(name: str, values: Floats) -> dict[str, float]:
    return {
        f"{name}_mean": mean(values),
        f"{name}_p95": percentile(values, 95),
        f"{name}_p99": percentile(values, 99),
        f"{name}_max": float(values.max(initial=0.0)),
    }
