"""Policies compared over replays of one workload: table, waits, slowdown, use, Gantt charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from coalloc.model.pictures.svg import ticks_of
from coalloc.simulation.gantt import can_draw_jobs, column_means, draw_gantt
from coalloc.simulation.metrics import TAU_S, Metrics, by_width, load_profile
from coalloc.simulation.report.page import (
    Axis,
    Points,
    bar_chart,
    html_page,
    html_table,
    line_chart,
    linear,
    section,
)
from coalloc.simulation.reports import duration, figure_rows, refusals
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Floats

COLUMNS = 240
"""Points of a line over time."""
WAIT_TICKS = (
    *((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h")),
    *((6 * 3600.0, "6 h"), (86400.0, "1 d"), (7 * 86400.0, "7 d"), (30 * 86400.0, "30 d")),
)

Results = Sequence[tuple[Trace, Metrics]]


def compare_page(
    results: Results, title: str = "", head: Sequence[str] = (), foot: Sequence[str] = ()
) -> str:
    """The page, with sections before and after the figures.

    `results` (sequence of (Trace, Metrics)): at least one; all of the same workload on the same
    platform.
    """
    trace = results[0][0]
    platform, jobs = trace.slot_map.platform, len(trace.start)
    names = ", ".join(each.policy for each, _ in results)
    begin = float(trace.workload.submit[0])
    ends = [float(each.end[each.ran].max()) for each, _ in results if each.ran.any()]
    end = max([*ends, begin + 1.0])
    title = title or f"{names} on {platform.name}"
    subtitle = (
        f"{trace.workload.name}: {jobs} jobs, {len(platform.clusters)} clusters, "
        f"{trace.slot_map.slots} slots"
    )
    by_job = can_draw_jobs(each for each, _ in results)
    parts = [
        *head,
        section("Figures", table_of(results), *(f"<p>{escape(x)}</p>" for x in refusals(results))),
        '<div class="pair">'
        + section("Waits", _waits(results))
        + section("Slowdown by width", _slowdown(results))
        + section("Utilisation", _utilisation(results, begin, end))
        + section("Estimates", _estimates(trace))
        + "</div>",
        *(
            section(
                f"{each.policy}: jobs over time",
                f'<div class="gantt">{draw_gantt(each, end, by_job=by_job)}</div>',
            )
            for each, _ in results
        ),
        *foot,
    ]
    return html_page(title, subtitle, parts)


def table_of(results: Results) -> str:
    """All figures, a column for each policy; the best waits and slowdowns are marked."""
    rows = [[row[0].strip(), *row[1:]] for row in figure_rows(results)]
    values = {
        "makespan": [m.makespan_s for _, m in results],
        "mean wait": [m.mean_wait_s for _, m in results],
        "95th percentile wait": [m.p95_wait_s for _, m in results],
        "longest wait": [m.max_wait_s for _, m in results],
        "mean bounded slowdown": [m.mean_bounded_slowdown for _, m in results],
        "95th percentile bsld": [m.p95_bounded_slowdown for _, m in results],
    }
    best = []
    for row in rows:
        found = values.get(row[0], [])
        least = min(found, default=0.0)
        # where all are alike none is best
        marked = {i + 1 for i, value in enumerate(found) if value == least < max(found)}
        best.append(frozenset(marked))
    return html_table(["", *(trace.policy for trace, _ in results)], rows, best)


def _waits(results: Results) -> str:
    """Share of the jobs that waited at most so long."""
    waits = [np.sort((t.start - t.workload.submit)[t.ran]) for t, _ in results]
    longest = max((float(w[-1]) for w in waits if len(w)), default=1.0)
    high = next((at for at, _ in WAIT_TICKS if at >= longest), longest)
    high = max(high, WAIT_TICKS[1][0])
    x = Axis("wait, at most", 1.0, high, [tick for tick in WAIT_TICKS if tick[0] <= high], True)
    series = [
        (trace.policy, _distribution(w)) for (trace, _), w in zip(results, waits, strict=True)
    ]
    return line_chart("Share of the jobs by wait", x, _percent("share of the jobs"), series)


def _distribution(waits: Floats) -> Points:
    """The empirical distribution, thinned to what can be seen."""
    if not len(waits):
        return []
    shares = np.linspace(1.0 / len(waits), 1.0, min(len(waits), COLUMNS))
    places = np.ceil(shares * len(waits)).astype(int) - 1
    return list(zip(waits[places].tolist(), shares.tolist(), strict=True))


def _slowdown(results: Results) -> str:
    """Mean bounded slowdown of each class of widths."""
    series: list[tuple[str, list[float | None]]] = []
    for trace, _ in results:
        ran = trace.ran
        start, end = trace.start[ran], trace.end[ran]
        turnaround = end - trace.workload.submit[ran]
        slowdown = np.maximum(1.0, turnaround / np.maximum(end - start, TAU_S))
        classes = [(name, slowdown[mine]) for name, mine in by_width(trace.workload.procs[ran])]
        series.append((trace.policy, [float(c.mean()) if len(c) else None for _, c in classes]))
    names = [name for name, _ in by_width(results[0][0].workload.procs)]
    used = [i for i in range(len(names)) if any(values[i] is not None for _, values in series)]
    groups = [names[i] for i in used]
    shown = [(name, [values[i] for i in used]) for name, values in series]
    top = max((v for _, values in shown for v in values if v is not None), default=1.0)
    y = linear("mean bounded slowdown", top, "{:g}".format)
    return bar_chart("Mean bounded slowdown by processes", groups, y, shown, "processes")


def _utilisation(results: Results, begin: float, end: float) -> str:
    """Share of the slots that are busy, mean of each piece of time."""
    edges = np.linspace(begin, end, COLUMNS + 1)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    series: list[tuple[str, Points]] = []
    for trace, _ in results:
        ran = trace.ran
        if not ran.any():
            continue
        time, load = load_profile(trace.start[ran], trace.end[ran], trace.procs[ran])
        means = column_means(time, load / trace.slot_map.slots, edges)
        series.append((trace.policy, list(zip(middles, means.tolist(), strict=True))))
    x = Axis("time since the first submit", begin, end, ticks_of(begin, end, begin)[::2])
    return line_chart("Busy slots over time", x, _percent("busy slots"), series)


def _estimates(trace: Trace) -> str:
    """Run times as shares of their estimates: the log's, the same for every policy."""
    estimate, run = trace.workload.estimate, trace.workload.run
    known = estimate > 0.0
    if not known.any():
        return "<p>No job has an estimate.</p>"
    ratio = np.minimum(run[known] / estimate[known], 1.0)
    counts, _ = np.histogram(ratio, bins=10, range=(0.0, 1.0))
    shares = (counts / counts.sum()).tolist()
    groups = [f"{10 * i} to {10 * (i + 1)} %" if i in {0, 9} else f"{10 * i}" for i in range(10)]
    y = linear("share of the jobs", max(shares), "{:.0%}".format)
    chart = bar_chart("Run time by estimate", groups, y, [("jobs", shares)], "run time by estimate")
    used = float(run[known].sum() / estimate[known].sum())
    words = (
        f"The median job runs for {np.median(ratio):.0%} of its estimate, all together for "
        f"{used:.0%}; {float((ratio >= 1.0).mean()):.0%} reach it. "
        f"The median estimate is {duration(float(np.median(estimate[known])))}."
    )
    return f'{chart}<p class="quiet">{words}</p>'


def _percent(name: str) -> Axis:
    return linear(name, 1.0, "{:.0%}".format)
