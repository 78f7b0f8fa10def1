"""Policies compared over replays of one workload: table, waits, use, Gantt charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from coalloc.model.pictures.svg import ticks_of
from coalloc.simulation.gantt import can_draw_jobs, column_means, draw_gantt
from coalloc.simulation.metrics import Metrics, load_profile
from coalloc.simulation.report.page import (
    Axis,
    Points,
    html_page,
    html_table,
    line_chart,
    section,
)
from coalloc.simulation.reports import figure_rows, refusals
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
        + section("Utilisation", _utilisation(results, begin, end))
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


def _percent(name: str) -> Axis:
    return Axis(name, 0.0, 1.0, [(k / 5, f"{20 * k}%") for k in range(6)])
