"""Reports of a replay: a CSV of its jobs, a summary, a table for the eye."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from coalloc.core.base.accuracy import ALL, start_accuracy
from coalloc.simulation.metrics import Metrics
from coalloc.simulation.trace import Outcome, Trace

# Batsim's columns, which evalys reads.
COLUMNS = (
    *("job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources"),
    *("requested_time", "success", "final_state", "starting_time", "execution_time"),
    *("finish_time", "waiting_time", "turnaround_time", "stretch", "allocated_resources"),
    "consumed_energy",
)
FINAL_STATES = {
    Outcome.COMPLETED: "COMPLETED_SUCCESSFULLY",
    Outcome.KILLED: "COMPLETED_WALLTIME_REACHED",
    Outcome.REFUSED: "REJECTED",
    Outcome.WAITING: "REJECTED",
}
NO_ENERGY = -1
"""Batsim's value where energy is not simulated."""


def write_jobs(trace: Trace, path: Path) -> None:
    """Write a row per job, refused ones included, in Batsim's columns.

    Resources are slots, numbered cluster by cluster and node by node, as ``0-3 8``. The profile
    is ``delay``: a job here is its run time.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_job_rows(trace))


def _job_rows(trace: Trace) -> Iterable[tuple[Any, ...]]:
    starts, ends = trace.start.tolist(), trace.end.tolist()
    first, low, high = trace.first.tolist(), trace.low.tolist(), trace.high.tolist()
    for i, logged in enumerate(trace.workload.jobs):
        job, outcome = logged.job, Outcome(int(trace.outcome[i]))
        head = (job.id, trace.workload.name, "delay", _number(job.submitted), job.procs)
        state = (_number(job.base_time), int(outcome is Outcome.COMPLETED), FINAL_STATES[outcome])
        if outcome > Outcome.KILLED:
            yield (*head, *state, -1, -1, -1, -1, -1, -1, "", NO_ENERGY)
            continue
        start, end = starts[i], ends[i]
        ranges = " ".join(
            str(a) if b - a == 1 else f"{a}-{b - 1}"
            for a, b in zip(
                low[first[i] : first[i + 1]], high[first[i] : first[i + 1]], strict=True
            )
        )
        times = (start, end - start, end, start - job.submitted, end - job.submitted)
        stretch = (end - job.submitted) / (end - start)
        yield (*head, *state, *map(_number, (*times, stretch)), ranges, NO_ENERGY)


def _number(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def summarise(trace: Trace, metrics: Metrics, options: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a replay as a JSON object."""
    workload = trace.workload
    reasons = Counter(trace.reasons.values())
    refused = [
        {"job": workload.jobs[i].job.id, "procs": workload.jobs[i].job.procs, "reason": reason}
        for i, reason in trace.reasons.items()
    ]
    return {
        "format": "coalloc-simulation/1",
        "policy": trace.policy,
        "workload": workload.name,
        "platform": trace.slot_map.platform.name,
        "slots": trace.slot_map.slots,
        "path": trace.path,
        "options": options,
        "metrics": asdict(metrics),
        "refused": refused,
        "refused_reasons": dict(reasons),
        "log": {
            "left_out": dict(workload.left_out),
            "adjusted": dict(workload.adjusted),
            "notes": list(workload.notes),
        },
        "start_estimates": [asdict(row) for row in start_accuracy(trace.start_errors)],
        "stats": dict(trace.stats),
    }


def write_json(value: Any, path: Path) -> None:
    """Write JSON, indented, with a newline at the end."""
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


LONGEST = "longest wait"
MOST_REFUSED = 10
ROWS: tuple[tuple[str, Callable[[Metrics], str]], ...] = (
    ("jobs run", lambda m: f"{m.completed + m.killed}"),
    ("  killed at the estimate", lambda m: f"{m.killed}"),
    ("jobs refused", lambda m: f"{m.refused}"),
    ("jobs left waiting", lambda m: f"{m.waiting}"),
    ("makespan", lambda m: duration(m.makespan_s)),
    ("mean wait", lambda m: duration(m.mean_wait_s)),
    ("95th percentile wait", lambda m: duration(m.p95_wait_s)),
    (LONGEST, lambda m: duration(m.max_wait_s)),
    ("mean bounded slowdown", lambda m: f"{m.mean_bounded_slowdown:.2f}"),
    ("95th percentile bsld", lambda m: f"{m.p95_bounded_slowdown:.2f}"),
    ("utilisation", lambda m: f"{m.utilisation:.1%}"),
    ("compaction", lambda m: f"{m.compaction:.1%}"),
    ("co-allocated jobs", lambda m: f"{m.coallocated_share:.2%}"),
    ("peak link use", lambda m: f"{m.peak_link_use:.1%}"),
)


def figure_rows(results: Sequence[tuple[Trace, Metrics]]) -> list[list[str]]:
    """Rows of figures: a label, then a cell for each policy."""
    rows = []
    for label, show in ROWS:
        rows.append([label, *(show(metrics) for _, metrics in results)])
        if label == LONGEST:
            found = [metrics.max_wait_by_width_s for _, metrics in results]
            for name in dict.fromkeys(name for waits in found for name in waits):
                cells = [duration(waits[name]) if name in waits else "-" for waits in found]
                rows.append([f"  on {name} slot{'s' * (name != '1')}", *cells])
    rows.append(["simulated jobs/s", *(speed(trace) for trace, _ in results)])
    return rows


def side_by_side(results: Sequence[tuple[Trace, Metrics]]) -> str:
    """Return a table with one column per policy."""
    cells = [["", *(trace.policy for trace, _ in results)]]
    cells += figure_rows(results)
    return aligned(cells)


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """A table with its head in the first row, and labels in the first column."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        row[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in cells
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def refusals(results: Sequence[tuple[Trace, Metrics]]) -> list[str]:
    """Lines that name the jobs that did not run, once for policies that agree."""
    told: dict[tuple[str, ...], list[str]] = {}
    for trace, _ in results:
        lines = [
            f"  job {trace.workload.jobs[i].job.id}: {reason}"
            for i, reason in list(trace.reasons.items())[:MOST_REFUSED]
        ]
        if len(trace.reasons) > MOST_REFUSED:
            lines.append(f"  and {len(trace.reasons) - MOST_REFUSED} more, see the summaries")
        if lines:
            told.setdefault(tuple(lines), []).append(trace.policy)
    return [
        line
        for lines, policies in told.items()
        for line in (f"did not run ({', '.join(policies)}):", *lines)
    ]


def start_table(results: Sequence[tuple[Trace, Metrics]]) -> str:
    """Accuracy of the expected starts of each policy; empty where none was given."""
    lines = []
    for trace, _ in results:
        for row in start_accuracy(trace.start_errors):
            if row.lead != ALL or row.held is None or row.width_s is None:
                continue
            lines.append(
                f"  {trace.policy}, {row.kind}: {row.held:.1%} of {row.intervals} starts in their "
                f"90 % interval, median width {duration(row.width_s)}; instants alone: median error"
                f" {duration(row.error_s)}, 5th to 95th percentile {duration(row.error_width_s)}"
            )
    return "\n".join(["expected starts:", *lines]) if lines else ""


def speed(trace: Trace) -> str:
    """Jobs that were simulated in a second of computing."""
    seconds = trace.stats.get("elapsed_s", 0.0)
    return f"{len(trace.start) / seconds:,.0f}" if seconds else "-"


def duration(seconds: float) -> str:
    """Show seconds as ``2d 03:04:05``, or as ``12.3 s`` below a minute."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}d {clock}" if days else clock
