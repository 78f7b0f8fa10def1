"""A look at clusters, queue, solver and disk, every few seconds, for metrics and notifications."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from coalloc.core.base.accuracy import StartAccuracy
from coalloc.core.base.state import State
from coalloc.core.jobs.occupation import occupation
from coalloc.core.rounds import snapshots
from coalloc.daemon.queries.job_views import ARRAY_ORDER
from coalloc.model.platform import NodeState

EVERY_S = 5.0
"""Between two looks, seconds."""


class ClusterFigures(Struct, frozen=True, kw_only=True):
    """One cluster; a figure with words below it is the gauge ``coalloc_cluster_`` and its name."""

    up: bool
    """Its executor is connected and its reading is fresh, 1 or 0."""
    connected: bool
    """Its executor is connected, 1 or 0."""
    drained: bool
    """By an operator, 1 or 0."""
    why: str = ""  # it is not up
    read_timestamp_seconds: float = 0.0
    """When it was read last, seconds since 1970; 0: never."""
    nodes: int = 0
    """Nodes that may get new work."""
    slots: int = 0
    """Slots of the nodes that may get new work."""
    slots_free: int = 0
    """Slots that could take a process now."""
    power: float = 0.0
    """Effective power of these slots, as planned with."""
    link_gbps: float = float("inf")
    """Capacity of its link; +Inf: unlimited."""
    link_used_gbps: float = 0.0
    """Booked by the jobs that run."""
    jobs_waiting_there: int = 0
    """In the batch system's own queue."""
    clock_ahead_seconds: float | None = None
    """Its executor's clock before the daemon's; NaN: not said."""
    requests_per_minute: float | None = None
    """Of its executor to the batch system's controller; NaN: not counted."""


class Survey(Struct, frozen=True, kw_only=True):
    """One look."""

    time: float
    clusters: Mapping[str, ClusterFigures] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    solver_warm: bool = True
    solver_requests: Mapping[str, int] = field(default_factory=dict)
    """Since the start of the daemon."""
    writable: bool = True
    store_bytes: int = 0
    disk: tuple[int, int] | None = None
    """Size and free bytes of the store's disk; None: it cannot be told."""
    notifications: Mapping[str, int] = field(default_factory=dict)
    starts: tuple[StartAccuracy, ...] = ()
    """Of the newest expected starts, by kind and lead time."""


def cluster_figures(state: State, now: float) -> dict[str, ClusterFigures]:
    """Every cluster as it is now."""
    free = occupation(state, now)
    free_of: Counter[str] = Counter()
    for node, count in free.free.items():
        free_of[free.cluster_of[node]] += max(0, count)
    used = dict.fromkeys(state.clusters, 0.0)
    for record in state.placed_records():
        for name, gbps in record.link_gbps.items():
            used[name] = used.get(name, 0.0) + gbps
    out = {}
    for name, cluster in state.clusters.items():
        is_up = not cluster.is_stale(now, state.settings.readings.max_age_s)
        seen = snapshots.cluster_view(name, cluster, state, now).nodes if is_up else ()
        usable = [node for node in seen if node.state is NodeState.UP and node.name in free.free]
        reading = cluster.reading
        out[name] = ClusterFigures(
            up=is_up,
            connected=cluster.connected,
            drained=cluster.drained,
            why=cluster.error,
            read_timestamp_seconds=0.0 if reading is None else cluster.read_at,
            nodes=len(usable),
            slots=sum(node.slots for node in usable),
            slots_free=free_of[name],
            power=sum(node.slots * node.power for node in usable),
            link_gbps=cluster.settings.link_capacity_gbps,
            link_used_gbps=used[name],
            jobs_waiting_there=0 if reading is None else reading.waiting,
            clock_ahead_seconds=cluster.clock_ahead_s,
            requests_per_minute=None if reading is None else reading.rpcs_per_min,
        )
    return out


def waiting_by_reason(state: State) -> dict[str, int]:
    """Waiting jobs by the reason that the latest round gave for each."""
    reasons: Counter[str] = Counter(outlook.reason for outlook in state.findings.outlook.values())
    running = sum(not state.jobs[job].is_waiting for job in state.composites)
    reasons["held"] += max(0, len(state.waiting) - running - state.pending.jobs)
    reasons["next_round"] += max(0, state.pending.jobs - len(state.findings.outlook))
    reasons[ARRAY_ORDER] += state.pending.behind
    return dict(reasons)


def store_bytes(path: Path) -> int:
    """Bytes of the store: its file and those that SQLite keeps beside it."""
    total = 0
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with suppress(OSError):
            total += os.stat(file).st_size
    return total
