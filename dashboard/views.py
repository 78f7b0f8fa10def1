"""Answers of the REST interface, made from the known."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from coalloc.dashboard import answers
from coalloc.dashboard.access import Viewer
from coalloc.dashboard.known import ENDED, ON_NODES, WAITING, Known
from coalloc.model.output_names import BATCH_MARKS, DEFAULT_OUTPUT, filled, marks_of
from coalloc.model.values import replace
from coalloc.wire.job_rows import JobDetails, QueueRow

BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0)
"""Of the classes of wait times, seconds."""
GROUPS = 30
"""Groups in one answer; the others are left out, those with the fewest jobs first."""

STATES = {"waiting": WAITING, "active": ON_NODES, "ended": ENDED}
"""Words for several states."""
GROUP_OF: Mapping[str, Callable[[QueueRow], str]] = {
    "cluster": lambda row: "+".join(row.clusters),
    "user": lambda row: row.user,
    "project": lambda row: row.project,
}


def status(known: Known, viewer: Viewer) -> answers.SiteStatus:
    """Whether the daemon answers, and how the queue is."""
    return answers.SiteStatus(
        instance=known.instance,
        revision=known.revision,
        reachable=known.reachable,
        heard=known.heard,
        fault=known.fault,
        loaded=known.loaded,
        daemon=known.status,
        states=dict(Counter(row.state for row in known.jobs())),
        reasons=dict(
            Counter(row.reason or "next_round" for row in known.jobs() if row.state in WAITING)
        ),
        planned_on=dict(Counter(_planned_on(known))),
        viewer=viewer.user,
        sees_all=viewer.sees_all,
        time=time.time(),
    )


def _planned_on(known: Known) -> Iterator[str]:
    """The clusters that each waiting job is planned on, once for a job."""
    places: dict[str, set[str]] = {}
    for bar in known.bars:
        row = known.rows.get(bar.job)
        if bar.kind == "planned" and row is not None and row.reason == "planned":
            places.setdefault(bar.job, set()).update(bar.clusters)
    return (" + ".join(sorted(names)) for names in places.values())


def clusters(known: Known) -> answers.Clusters:
    """All clusters in figures."""
    running: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for bar in known.bars:
        if bar.kind != "local":
            (waiting if bar.kind == "planned" else running).update(bar.clusters)
    return answers.Clusters(
        clusters=tuple(
            answers.ClusterSummary(
                row=replace(row, nodes=()),
                nodes=len(row.nodes),
                nodes_up=sum(node.state == "up" for node in row.nodes),
                slots=sum(node.slots for node in row.nodes),
                free=sum(node.free for node in row.nodes),
                power=sum(node.power * node.slots for node in row.nodes if node.state == "up"),
                waiting=waiting[row.cluster],
                running=running[row.cluster],
            )
            for row in known.nodes.clusters
        ),
        time=known.nodes.time,
    )


def nodes(known: Known) -> answers.Nodes:
    """All nodes and what is on them."""
    jobs = known.on_node()
    return answers.Nodes(
        nodes=tuple(
            answers.NodeEntry(cluster=row.cluster, node=node, jobs=tuple(jobs.get(node.name, ())))
            for row in known.nodes.clusters
            for node in row.nodes
        ),
        time=known.nodes.time,
    )


def jobs(known: Known, asked: answers.JobsAsked) -> answers.Jobs:
    """Jobs, the newest first."""
    found = [row for row in known.jobs() if _fits(row, asked)]
    found.sort(key=lambda row: row.submitted, reverse=True)
    end = asked.offset + asked.limit
    return answers.Jobs(
        jobs=tuple(found[asked.offset : end]),
        total=len(found),
        more=end < len(found),
        time=time.time(),
    )


def _fits(row: QueueRow, asked: answers.JobsAsked) -> bool:
    text = asked.q.lower()
    return (
        (asked.state in {"", row.state} or row.state in STATES.get(asked.state, ()))
        and asked.user in {"", row.user}
        and (not asked.cluster or asked.cluster in row.clusters)
        and (not asked.node or asked.node in row.nodes)
        and asked.reason in {"", row.reason or "next_round"}
        and (
            not text
            or row.id.startswith(text)
            or text in row.name.lower()
            or text == row.user.lower()
            or any(text == node.lower() for node in row.nodes)
        )
    )


def plan(known: Known) -> answers.SitePlan:
    """Work that runs, and the newest plan."""
    answer = known.plan
    made: Mapping[str, Any] = {} if answer is None else answer.plan.plan
    return answers.SitePlan(
        round=0 if answer is None else answer.plan.round,
        planned=0.0 if answer is None else answer.plan.time,
        policy=made.get("policy", ""),
        status=made.get("status", ""),
        bars=known.bars,
        deferred=dict(Counter(item["reason"] for item in made.get("deferred", ()))),
        time=0.0 if answer is None else answer.time,
    )


def rounds(known: Known) -> answers.Rounds:
    """Rounds, the newest first."""
    return answers.Rounds(rounds=tuple(reversed(known.rounds)), time=time.time())


def waits(known: Known, asked: answers.WaitsAsked) -> answers.Waits:
    """Wait times of jobs that have started."""
    group_of = GROUP_OF[asked.by]
    found: dict[str, list[float]] = {}
    for row in known.jobs():
        if row.started is not None:
            found.setdefault(group_of(row), []).append(max(0.0, row.started - row.submitted))
    groups = sorted(found.items(), key=lambda item: -len(item[1]))[:GROUPS]
    return answers.Waits(
        by=asked.by,
        bounds_s=BOUNDS_S,
        groups=tuple(_group(name, values) for name, values in groups),
        time=time.time(),
    )


def _group(name: str, values: list[float]) -> answers.WaitGroup:
    values.sort()
    counts = [0] * (len(BOUNDS_S) + 1)
    for value in values:
        counts[bisect.bisect_left(BOUNDS_S, value)] += 1
    return answers.WaitGroup(
        name=name,
        jobs=len(values),
        mean_s=sum(values) / len(values),
        median_s=values[(len(values) - 1) // 2],
        p95_s=values[min(len(values) - 1, int(0.95 * len(values)))],
        counts=tuple(counts),
    )


def timeline(known: Known, asked: answers.TimelineAsked) -> answers.Timeline:
    """Rows of the Gantt chart, in a short form."""
    rows, revision, more = known.ended_since(asked.since, asked.limit)
    numbers = {row.cluster: i for i, row in enumerate(known.nodes.clusters)}
    return answers.Timeline(
        instance=known.instance,
        revision=revision,
        more=more,
        lanes=known.lanes,
        clusters=[(row.cluster, row.link_gbps) for row in known.nodes.clusters],
        ended=[_ended_row(known, numbers, row) for row in rows if row.started and row.nodes],
        live=[_live_row(known, numbers, bar) for bar in known.bars] if asked.live else None,
        reachable=known.reachable,
        time=known.heard or 0.0,
    )


def _ended_row(known: Known, numbers: Mapping[str, int], row: QueueRow) -> list[Any]:
    lanes, loads = known.lanes_of(row.nodes), _flat(numbers, known.loads_of(row.id))
    times = row.started, row.ended
    return [row.id, row.name, row.user, row.state, *times, lanes, loads, row.project]


def _live_row(known: Known, numbers: Mapping[str, int], bar: answers.Bar) -> list[Any]:
    name = bar.name if bar.task is None else f"{bar.name} {bar.task}".strip()
    lanes, loads = known.lanes_of(bar.nodes), _flat(numbers, bar.link_gbps)
    row = known.rows.get(bar.job)
    project = "" if row is None else row.project
    return [bar.job, name, bar.user, bar.kind, bar.start, bar.end, lanes, loads, project]


def _flat(numbers: Mapping[str, int], loads: Mapping[str, float]) -> list[float]:
    known: Iterable[tuple[int, float]] = (
        (numbers[name], load) for name, load in loads.items() if name in numbers
    )
    return [value for pair in known for value in pair]


def output_path(details: JobDetails) -> str:
    """Path of a job's output file; parts that the ranks fill in stay as they are."""
    launch = details.launch
    pattern = launch.stdout or DEFAULT_OUTPUT
    marks = {**marks_of(details.id, details.name, details.user), "%": "%"}
    marks |= BATCH_MARKS if details.record.once else {}
    return str(PurePosixPath(launch.cwd) / filled(pattern, marks))
