"""Measures of a replay of a piece: one row of figures.

Notes
-----
Classes of jobs: *wide* runs on more than `WIDE` of all slots, *long* for more than `LONG_S`. What
bounded slowdown and utilisation are, `metrics` says.

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

WIDE = 1 / 16
LONG_S = 3600.0
CLASSES = ("narrow_short", "narrow_long", "wide_short", "wide_long")
SORTS = ("flows", "others")
TEMPLATE = Path(__file__).parent / "data" / "study.md"
"""The report's words; its last table has the columns of a row."""
FIGURES = dict(cells(TEMPLATE.read_text(encoding="utf-8").rpartition("\n\n")[2]))
"""Columns of a row beside those that name it."""


def figures(trace: Trace) -> dict[str, Any]:
    """Compute the figures of a replay; None where no job is of a class."""
    every = wholes(trace)
    ran = ~np.isnan(every.end)
    submit, end, length = every.submit[ran], every.end[ran], every.length[ran]
    values = {
        "wait": every.begin[ran] - submit,
        "response": end - submit,
        "slowdown": np.maximum(1.0, (end - submit) / np.maximum(length, TAU_S)),
    }
    known = measure(trace)
    out: dict[str, Any] = {
        "jobs": int(ran.sum()),
        "refused": int((~ran).sum()),
        "utilisation": known.utilisation,
        "coallocated": known.coallocated_share,
        "elapsed_s": float(trace.stats["elapsed_s"]),
    }
    for name, mine in values.items():
        out[f"{name}_mean"] = mean(mine)
        out |= {f"{name}_p{share}": percentile(mine, share) for share in (95, 99)}
        out[f"{name}_max"] = float(mine.max(initial=0.0))
    widest = np.maximum.reduceat(trace.procs, every.first) if len(ran) else trace.procs
    wide = widest[ran] > WIDE * trace.slot_map.slots
    real = np.where(every.is_flow, every.length, trace.workload.run[every.first])
    long, flows = real[ran] > LONG_S, every.is_flow[ran]
    members = (~wide & ~long, ~wide & long, wide & ~long, wide & long, flows, ~flows)
    for of, some in zip((*CLASSES, *SORTS), members, strict=True):
        for name, mine in values.items():
            out[f"{name}_{of}"] = mean(mine[some]) if some.any() else None
        out[f"wait_max_{of}"] = float(values["wait"][some].max()) if some.any() else None
    return {name: out[name] for name in FIGURES}
