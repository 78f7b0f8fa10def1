"""A picture of a replay: who ran where, or how full each cluster was.

Up to `MOST_BARS` bars, each job is drawn on its slots. Beyond that bars would be thinner than a
pixel, so each cluster gets its number of busy slots over time, with co-allocated jobs in a
colour of their own. Below both stands the number of waiting jobs.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from coalloc.simulation.metrics import load_profile
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Floats, Ints

MOST_BARS = 2500
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1200, 150, 20, 46, 34
GAP = 6
PLOT = WIDTH - LEFT - RIGHT
BODY = 560
"""Height of all clusters together, pixels."""
LEAST = 24
"""Height of the smallest cluster, pixels."""
QUEUE = 90
LOCAL, SPLIT, WAITING, PAPER, FRAME = "#7a9cc6", "#d9822b", "#8a6d9e", "#f5f6f8", "#9aa3ad"


def write_gantt(trace: Trace, path: Path) -> None:
    """Write the picture as SVG."""
    path.write_text(draw_gantt(trace), encoding="utf-8")


def draw_gantt(trace: Trace) -> str:
    """Return the picture as SVG."""
    ran = trace.ran
    begin = float(trace.workload.submit[0])
    end = float(trace.end[ran].max()) if ran.any() else begin + 1.0
    axis = _Axis(begin, max(end, begin + 1e-9))
    bars = len(trace.low) <= MOST_BARS
    parts: list[str] = []
    top = TOP
    heights = _heights(np.diff(trace.slot_map.cluster_first))
    for k, height in enumerate(heights):
        parts += _frame(trace.slot_map.platform.clusters[k].name, _slots(trace, k), top, height)
        parts += _bars(trace, k, axis, top, height) if bars else _areas(trace, k, axis, top, height)
        top += height + GAP
    parts += _queue(trace, axis, top)
    top += QUEUE
    parts += _ticks(axis, top)
    return _document(trace, parts, top + BOTTOM, bars)


class _Axis:
    """From seconds to pixels."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end
        self.scale = PLOT / (end - begin)

    def x(self, time: float) -> float:
        return LEFT + (time - self.begin) * self.scale


def _heights(slots: Ints) -> list[int]:
    """Heights by the square root of the slots, so that small clusters can be seen."""
    roots = np.sqrt(slots.astype(float))
    return [max(LEAST, round(BODY * root / roots.sum())) for root in roots.tolist()]


def _slots(trace: Trace, cluster: int) -> int:
    first = trace.slot_map.cluster_first
    return int(first[cluster + 1] - first[cluster])


def _frame(name: str, slots: int, top: float, height: float) -> list[str]:
    middle = top + height / 2
    return [
        f'<rect x="{LEFT}" y="{top}" width="{PLOT}" height="{height}" fill="{PAPER}"/>',
        f'<text x="{LEFT - 8}" y="{middle:.1f}" text-anchor="end">{escape(name)} '
        f'<tspan fill="#667">{slots}</tspan></text>',
    ]


def _split_jobs(trace: Trace) -> Ints:
    """How many clusters each job uses."""
    job, _, _ = trace.cluster_counts()
    return np.bincount(job, minlength=len(trace.start)).astype(np.int64)


def _bars(trace: Trace, k: int, axis: _Axis, top: float, height: float) -> list[str]:
    first, split, jobs = (
        int(trace.slot_map.cluster_first[k]),
        _split_jobs(trace),
        trace.range_jobs(),
    )
    row = height / _slots(trace, k)
    out = []
    for index in np.flatnonzero(trace.range_clusters() == k).tolist():
        i, low, high = int(jobs[index]), int(trace.low[index]), int(trace.high[index])
        x, right = axis.x(float(trace.start[i])), axis.x(float(trace.end[i]))
        y, tall = top + (low - first) * row, (high - low) * row
        name = escape(trace.workload.jobs[i].job.id)
        out.append(
            f'<rect class="job" x="{x:.2f}" y="{y:.2f}" width="{max(right - x, 0.3):.2f}" '
            f'height="{tall:.2f}" fill="{_shade(i, split[i] > 1)}">'
            f"<title>job {name}: {trace.start[i]:g} to {trace.end[i]:g} s, "
            f"{high - low} slots here of {trace.procs[i]}</title></rect>"
        )
        if right - x > 7 * len(name) and tall > 10:
            out.append(
                f'<text class="in" x="{(x + right) / 2:.1f}" y="{y + tall / 2:.1f}">{name}</text>'
            )
    return out


LOCAL_SHADES = (LOCAL, "#9bb7d9", "#5f86b5", "#b3c9e3", "#8aabd0")
SPLIT_SHADES = (SPLIT, "#e8a463", "#c06c17", "#f0bd8b", "#e09448")


def _shade(i: int, is_split: bool) -> str:
    """One of several tints, so that neighbours can be told apart."""
    return (SPLIT_SHADES if is_split else LOCAL_SHADES)[i % 5]


def _areas(trace: Trace, k: int, axis: _Axis, top: float, height: float) -> list[str]:
    job, cluster, count = trace.cluster_counts()
    mine = cluster == k
    job, count = job[mine], count[mine]
    split = _split_jobs(trace)[job] > 1
    out = []
    for chosen, colour in ((np.ones(len(job), np.bool_), LOCAL), (split, SPLIT)):
        if chosen.any():
            rows = job[chosen]
            time, load = load_profile(trace.start[rows], trace.end[rows], count[chosen])
            out.append(_area(time, load / _slots(trace, k), axis, top, height, colour))
    return out


def _area(time: Floats, share: Floats, axis: _Axis, top: float, height: float, colour: str) -> str:
    """Draw a step function as its mean over each pixel column."""
    edges = np.linspace(axis.begin, axis.end, PLOT + 1)
    integral = np.concatenate(([0.0], np.cumsum(share[:-1] * np.diff(time))))
    means = np.diff(np.interp(edges, time, integral)) / np.diff(edges)
    y = top + height * (1.0 - np.clip(means, 0.0, 1.0))
    steps = " ".join(f"V{value:.1f}H{LEFT + i + 1}" for i, value in enumerate(y.tolist()))
    bottom = top + height
    return f'<path fill="{colour}" d="M{LEFT} {bottom}{steps}V{bottom}Z"/>'


def _queue(trace: Trace, axis: _Axis, top: float) -> list[str]:
    submit = trace.workload.submit
    # A job that never runs waits in no queue.
    ran = trace.ran & (trace.start > submit)
    out = [
        f'<rect x="{LEFT}" y="{top}" width="{PLOT}" height="{QUEUE}" fill="{PAPER}"/>',
        f'<text x="{LEFT - 8}" y="{top + QUEUE / 2}" text-anchor="end">waiting jobs</text>',
    ]
    if not ran.any():
        return out
    time, waiting = load_profile(submit[ran], trace.start[ran], np.ones(int(ran.sum())))
    peak = float(waiting.max())
    out.append(_area(time, waiting / peak, axis, top, QUEUE, WAITING))
    out.append(f'<text x="{LEFT + 4}" y="{top + 9}" fill="#445">at most {peak:.0f}</text>')
    return out


STEPS_S = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 86400),
    *(2 * 86400, 5 * 86400, 10 * 86400, 20 * 86400, 50 * 86400, 100 * 86400),
)

UNITS_S = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def _ticks(axis: _Axis, top: float) -> list[str]:
    span = axis.end - axis.begin
    step = next((float(s) for s in STEPS_S if span / s <= 10), span / 10)
    unit, name = next(pair for pair in UNITS_S if step >= pair[0] or pair[0] == 1)
    out = []
    for number in range(int(span / step) + 1):
        x = axis.x(axis.begin + number * step)
        out.append(f'<path class="tick" d="M{x:.1f} {TOP}V{top + 5}"/>')
        label = f"{number * step / unit:g} {name}"
        out.append(f'<text x="{x:.1f}" y="{top + 17}" text-anchor="middle">{label}</text>')
    return out


def _document(trace: Trace, parts: list[str], height: float, bars: bool) -> str:
    kind = "jobs" if bars else "busy slots, mean per pixel"
    title = (
        f"{trace.policy} on {trace.slot_map.platform.name}: {trace.workload.name}, "
        f"{len(trace.start)} jobs ({kind})"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" font-size="11" '
        'dominant-baseline="middle" fill="#223">'
        "<style>.job{stroke:#fff;stroke-width:.4}.in{fill:#fff;text-anchor:middle;font-size:10px}"
        f".tick{{stroke:{FRAME};stroke-width:.5;stroke-dasharray:2 3;fill:none}}</style>"
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>'
        f'<rect x="{LEFT}" y="30" width="10" height="10" fill="{LOCAL}"/>'
        f'<text x="{LEFT + 15}" y="35">on one cluster</text>'
        f'<rect x="{LEFT + 115}" y="30" width="10" height="10" fill="{SPLIT}"/>'
        f'<text x="{LEFT + 130}" y="35">split over clusters</text>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"
