"""A picture of a replay: who ran where, or how full each cluster was.

Up to `MOST_BARS` bars, each job is drawn on its slots. Beyond that bars would be thinner than a
pixel, so each cluster gets its number of busy slots over time, with co-allocated jobs in a
colour of their own. Below both stands the number of waiting jobs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from coalloc.model.pictures.plans import LEGEND, LOCAL, LOCAL_SHADES, SPLIT, SPLIT_SHADES
from coalloc.model.pictures.svg import COLUMNS, Area, Bar, Chart, Lane, draw
from coalloc.simulation.metrics import load_profile
from coalloc.simulation.trace import Trace
from coalloc.simulation.workload import Floats, Ints

MOST_BARS = 2500
GAP = 6
BODY = 560
"""Height of all clusters together, pixels."""
LEAST = 24
"""Height of the smallest cluster, pixels."""
QUEUE = 90
WAITING = "#8a6d9e"


def can_draw_jobs(traces: Iterable[Trace]) -> bool:
    """Whether each of these pictures, which are to be alike, has room for every job."""
    return all(len(trace.low) <= MOST_BARS for trace in traces)


def draw_gantt(trace: Trace, until: float | None = None, *, by_job: bool) -> str:
    """The picture as SVG: each job on its slots, or how many are busy; until the last end."""
    ran = trace.ran
    begin = float(trace.workload.submit[0])
    last = float(trace.end[ran].max()) if ran.any() else begin + 1.0
    end = max(last if until is None else until, begin + 1e-9)
    kind = "jobs" if by_job else "busy slots, mean per pixel"
    edges = np.linspace(begin, end, COLUMNS + 1)
    split, clusters = trace.clusters_used(), trace.slot_map.platform.clusters
    lanes = [
        Lane(
            label=cluster.name,
            aside=str(cluster.slots),
            height=height,
            gap=GAP if k else 0,
            bars=_bars(trace, k, split) if by_job else (),
            areas=() if by_job else _areas(trace, k, split, edges),
        )
        for k, (cluster, height) in enumerate(
            zip(clusters, _heights(np.diff(trace.slot_map.cluster_first)), strict=True)
        )
    ]
    return draw(
        Chart(
            title=f"{trace.policy} on {trace.slot_map.platform.name}: {trace.workload.name}, "
            f"{len(trace.start)} jobs ({kind})",
            lanes=(*lanes, _queue(trace, edges)),
            begin=begin,
            end=end,
            zero=begin,
            legend=LEGEND,
        )
    )


def _heights(slots: Ints) -> list[int]:
    """Heights by the square root of the slots, so that small clusters can be seen."""
    roots = np.sqrt(slots.astype(float))
    return [max(LEAST, round(BODY * root / roots.sum())) for root in roots.tolist()]


def _bars(trace: Trace, k: int, split: Ints) -> list[Bar]:
    first, jobs = int(trace.slot_map.cluster_first[k]), trace.range_jobs()
    slots = trace.slot_map.platform.clusters[k].slots
    out = []
    for index in np.flatnonzero(trace.range_clusters() == k).tolist():
        i, low, high = int(jobs[index]), int(trace.low[index]), int(trace.high[index])
        name = trace.workload.jobs[i].job.id
        out.append(
            Bar(
                start=float(trace.start[i]),
                end=float(trace.end[i]),
                top=(low - first) / slots,
                bottom=(high - first) / slots,
                # one of several tints, so that neighbours can be told apart
                fill=(SPLIT_SHADES if split[i] > 1 else LOCAL_SHADES)[i % 5],
                title=f"job {name}: {trace.start[i]:g} to {trace.end[i]:g} s, "
                f"{high - low} slots here of {trace.procs[i]}",
                name=name,
            )
        )
    return out


def _areas(trace: Trace, k: int, split: Ints, edges: Floats) -> list[Area]:
    job, cluster, count = trace.cluster_counts()
    mine = cluster == k
    job, count = job[mine], count[mine]
    is_split, slots = split[job] > 1, trace.slot_map.platform.clusters[k].slots
    out = []
    for chosen, fill in ((np.ones(len(job), np.bool_), LOCAL), (is_split, SPLIT)):
        if chosen.any():
            rows = job[chosen]
            time, load = load_profile(trace.start[rows], trace.end[rows], count[chosen])
            out.append(_area(time, load / slots, edges, fill))
    return out


def _area(time: Floats, share: Floats, edges: Floats, fill: str) -> Area:
    return Area(shares=column_means(time, share, edges).tolist(), fill=fill)


def column_means(time: Floats, share: Floats, edges: Floats) -> Floats:
    """Mean of a step function between each two edges; `share[i]` holds from `time[i]` on."""
    integral = np.concatenate(([0.0], np.cumsum(share[:-1] * np.diff(time))))
    means: Floats = np.diff(np.interp(edges, time, integral)) / np.diff(edges)
    return means


def _queue(trace: Trace, edges: Floats) -> Lane:
    submit = trace.workload.submit
    # A job that never runs waits in no queue.
    ran = trace.ran & (trace.start > submit)
    if not ran.any():
        return Lane(label="waiting jobs", height=QUEUE, gap=GAP)
    time, waiting = load_profile(submit[ran], trace.start[ran], np.ones(int(ran.sum())))
    peak = float(waiting.max())
    area = _area(time, waiting / peak, edges, WAITING)
    note = f"at most {peak:.0f}"
    return Lane(label="waiting jobs", height=QUEUE, gap=GAP, areas=(area,), note=note)
