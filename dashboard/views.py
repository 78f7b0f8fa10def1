"""Answers of the REST interface, made from the cache."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from coalloc.dashboard.access import Viewer
from coalloc.dashboard.answers import (
    Bar,
    Clusters,
    ClusterSummary,
    Jobs,
    NodeEntry,
    Nodes,
    Rounds,
    SitePlan,
    SiteStatus,
    Timeline,
    WaitGroup,
    Waits,
)
from coalloc.dashboard.cache import WAITING, Cache
from coalloc.dashboard.history import ENDED, ON_NODES
from coalloc.model.output_names import DEFAULT_OUTPUT, filled, marks_of
from coalloc.model.values import replace
from coalloc.wire.job_rows import JobDetails, QueueRow

BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0)
"""Of the classes of wait times, seconds."""
GROUPS = 30
"""Groups in one answer; the others are left out, those with the fewest jobs first."""
ROWS = 5_000
"""Rows of a time line in one answer."""

GROUP_OF: Mapping[str, Callable[[QueueRow], str]] = {
    "cluster": lambda row: "+".join(row.clusters),
    "user": lambda row: row.user,
    "project": lambda row: row.project,
}


def status(cache: Cache, viewer: Viewer) -> SiteStatus:
    """State of the site."""
    return SiteStatus(
        instance=cache.instance,
        revision=cache.revision,
        reachable=cache.reachable,
        heard=cache.heard,
        fault=cache.fault,
        loaded=cache.loaded,
        daemon=cache.status,
        states=dict(cache.states()),
        reasons=dict(cache.reasons()),
        viewer=viewer.user,
        sees_all=viewer.sees_all,
        time=time.time(),
    )


def clusters(cache: Cache) -> Clusters:
    """All clusters in figures."""
    running: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for bar in cache.bars:
        if bar.kind != "local":
            (waiting if bar.kind == "planned" else running).update(bar.clusters)
    return Clusters(
        clusters=tuple(
            ClusterSummary(
                row=replace(row, nodes=()),
                nodes=len(row.nodes),
                nodes_up=sum(node.state == "up" for node in row.nodes),
                slots=sum(node.slots for node in row.nodes),
                free=sum(node.free for node in row.nodes),
                power=sum(node.power * node.slots for node in row.nodes if node.state == "up"),
                waiting=waiting[row.cluster],
                running=running[row.cluster],
            )
            for row in cache.nodes.clusters
        ),
        time=cache.nodes.time,
    )


def nodes(cache: Cache) -> Nodes:
    """All nodes with what is on them."""
    jobs = cache.on_node()
    return Nodes(
        nodes=tuple(
            NodeEntry(cluster=row.cluster, node=node, jobs=tuple(jobs.get(node.name, ())))
            for row in cache.nodes.clusters
            for node in row.nodes
        ),
        time=cache.nodes.time,
    )


def jobs(cache: Cache, asked: Mapping[str, str], limit: int, offset: int) -> Jobs:
    """A page of jobs, the newest first."""
    found = [
        row for name, row in reversed(cache.rows.items()) if "." not in name and _fits(row, asked)
    ]
    return Jobs(
        jobs=tuple(found[offset : offset + limit]),
        total=len(found),
        more=offset + limit < len(found),
        time=time.time(),
    )


def _fits(row: QueueRow, asked: Mapping[str, str]) -> bool:
    text = asked.get("q", "").lower()
    return (
        _in_state(row.state, asked.get("state", ""))
        and asked.get("user", row.user) == row.user
        and ("cluster" not in asked or asked["cluster"] in row.clusters)
        and ("node" not in asked or asked["node"] in row.nodes)
        and ("reason" not in asked or asked["reason"] == (row.reason or "next_round"))
        and (
            not text
            or row.id.startswith(text)
            or text in row.name.lower()
            or text == row.user.lower()
            or any(text == node.lower() for node in row.nodes)
        )
    )


def _in_state(state: str, asked: str) -> bool:
    groups = {"waiting": WAITING, "active": ON_NODES, "ended": ENDED}
    return not asked or state == asked or state in groups.get(asked, ())


def plan(cache: Cache) -> SitePlan:
    """Running jobs, and the newest plan."""
    answer = cache.plan
    made: Mapping[str, Any] = {} if answer is None else answer.plan.plan
    return SitePlan(
        round=0 if answer is None else answer.plan.round,
        planned=0.0 if answer is None else answer.plan.time,
        policy=made.get("policy", ""),
        status=made.get("status", ""),
        bars=cache.bars,
        deferred=dict(Counter(item["reason"] for item in made.get("deferred", ()))),
        time=0.0 if answer is None else answer.time,
    )


def rounds(cache: Cache) -> Rounds:
    """Rounds, the newest first."""
    return Rounds(rounds=tuple(reversed(cache.rounds)), time=time.time())


def waits(cache: Cache, by: str) -> Waits:
    """Waits of the jobs that have started."""
    group_of = GROUP_OF[by]
    found: dict[str, list[float]] = {}
    for name, row in cache.rows.items():
        if row.started is not None and "." not in name:
            found.setdefault(group_of(row), []).append(max(0.0, row.started - row.submitted))
    groups = sorted(found.items(), key=lambda item: -len(item[1]))[:GROUPS]
    return Waits(
        by=by,
        bounds_s=BOUNDS_S,
        groups=tuple(_group(name, values) for name, values in groups),
        time=time.time(),
    )


def _group(name: str, values: list[float]) -> WaitGroup:
    values.sort()
    counts = [0] * (len(BOUNDS_S) + 1)
    for value in values:
        counts[bisect.bisect_left(BOUNDS_S, value)] += 1
    return WaitGroup(
        name=name,
        jobs=len(values),
        mean_s=sum(values) / len(values),
        median_s=values[(len(values) - 1) // 2],
        p95_s=values[min(len(values) - 1, int(0.95 * len(values)))],
        counts=tuple(counts),
    )


def timeline(cache: Cache, since: int, limit: int, *, live: bool) -> Timeline:
    """Rows for the Gantt chart behind a revision, and with the last of them what is live."""
    rows, revision, more = cache.ended_since(since, limit)
    numbers = {row.cluster: i for i, row in enumerate(cache.nodes.clusters)}
    return Timeline(
        instance=cache.instance,
        revision=revision,
        more=more,
        lanes=cache.lanes,
        clusters=[(row.cluster, row.link_gbps) for row in cache.nodes.clusters],
        ended=[_ended_row(cache, numbers, row) for row in rows if row.started and row.nodes],
        live=_live_rows(cache, numbers) if live else None,
        reachable=cache.reachable,
        time=cache.heard or 0.0,
    )


def _ended_row(cache: Cache, numbers: Mapping[str, int], row: QueueRow) -> list[Any]:
    loads = _flat(numbers, cache.loads_of(row.id))
    lanes = cache.lanes_of(row.nodes)
    return [row.id, row.name, row.user, row.state, row.started, row.ended, lanes, loads]


def _live_rows(cache: Cache, numbers: Mapping[str, int]) -> list[list[Any]]:
    return [_live_row(cache, numbers, bar) for bar in cache.bars]


def _live_row(cache: Cache, numbers: Mapping[str, int], bar: Bar) -> list[Any]:
    name = bar.name if bar.task is None else f"{bar.name} {bar.task}".strip()
    lanes, loads = cache.lanes_of(bar.nodes), _flat(numbers, bar.link_gbps)
    return [bar.job, name, bar.user, bar.kind, bar.start, bar.end, lanes, loads]


def _flat(numbers: Mapping[str, int], loads: Mapping[str, float]) -> list[float]:
    known: Iterable[tuple[int, float]] = (
        (numbers[name], load) for name, load in loads.items() if name in numbers
    )
    return [value for pair in known for value in pair]


def output_path(details: JobDetails) -> str:
    """Path of a job's output file; parts that the ranks fill in stay as they are."""
    launch = details.launch
    pattern = str(launch.get("stdout") or DEFAULT_OUTPUT)
    marks = {**marks_of(details.id, details.name, details.user), "%": "%"}
    return str(PurePosixPath(launch.get("cwd") or "/") / filled(pattern, marks))
