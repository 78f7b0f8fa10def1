"""A snapshot and a correct plan that use every rule of the checker, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from coalloc.model.formats.plan_json import read_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Deferred, Plan, Reason
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace

SNAPSHOT: Mapping[str, Any] = {
    "format": "coalloc-snapshot/1",
    "clusters": [
        {
            "name": "alpha",
            "link_gbps": 1.0,
            "intra_gbps": 10.0,
            "link_latency_s": 0.25,
            "nodes": [
                {"name": "a[1-2]", "slots": 2, "memory_mb": 1000},
                {"name": "a[3-4]", "slots": 2, "features": ["gpu", "big"]},
                {"name": "a5", "state": "draining"},
            ],
        },
        {
            "name": "beta",
            "link_gbps": 0.5,
            "nodes": [
                {"name": "b[1-4]", "power": 0.5},
                {"name": "b5", "state": "down"},
                {"name": "b6", "free_at": 40.0},
            ],
        },
        {"name": "gamma", "stale": True, "nodes": [{"name": "g1"}]},
    ],
    "queue": [
        {
            "id": "r",
            "kind": "rigid",
            "procs": 4,
            "base_time": 100.0,
            "sigma": 0.5,
            "proc_gbps": 0.3,
        },
        {
            "id": "m",
            "kind": "moldable",
            "features": ["gpu"],
            "speedup": {"model": "table", "procs": [1, 2, 4], "times": [100.0, 60.0, 40.0]},
        },
        {
            "id": "w",
            "kind": "workflow",
            "tasks": [
                {"id": "t1", "work": 10.0},
                {
                    "id": "t2",
                    "work": 20.0,
                    "parallel_fraction": 1.0,
                    "max_procs": 2,
                    "comm_gb": 1.0,
                },
            ],
            "edges": [{"from": "t1", "to": "t2", "gb": 0.5}],
        },
        {
            "id": "after",
            "kind": "rigid",
            "procs": 1,
            "base_time": 10.0,
            "after": ["r", "run", "gone"],
            "clusters": ["alpha"],
            "memory_mb_per_proc": 600,
        },
        {"id": "res", "kind": "rigid", "procs": 1, "base_time": 5.0},
        {
            "id": "late",
            "kind": "rigid",
            "procs": 1,
            "base_time": 10.0,
            "earliest": 300.0,
            "memory_mb_per_proc": 500,
        },
        {"id": "heavy", "kind": "rigid", "procs": 2, "base_time": 10.0, "proc_gbps": 0.2},
        {"id": "held", "kind": "rigid", "procs": 1, "base_time": 10.0, "held": True},
        {"id": "huge", "kind": "rigid", "procs": 100, "base_time": 10.0},
        {"id": "div", "kind": "divisible", "work": 100.0, "chunk_s": 10.0},
    ],
    "running": [
        {
            "id": "run",
            "nodes": {"a1": 1},
            "start": -10.0,
            "end": 50.0,
            "link_gbps": {"alpha": 0.1, "beta": 0.1},
        },
        {"id": "over", "nodes": {"b3": 1}, "start": -90.0, "end": -5.0, "ours": False},
    ],
    "reservations": [
        {"id": "kept", "nodes": ["b4"], "start": 100.0, "end": 200.0, "jobs": ["res"]}
    ],
}

PLAN: Mapping[str, Any] = {
    "format": "coalloc-plan/1",
    "policy": "by hand",
    "status": "heuristic",
    "objective": {"name": "makespan", "value": 320.0, "deferred": 3},
    "placements": [
        # 100 * (0.5 / 0.5 + 0.5) = 150 s; 0.3 * 2 * 2 / 3 = 0.4 Gbit/s on both links, and beta
        # has 0.5 with 0.1 taken
        {"job": "r", "start": 0.0, "end": 150.0, "nodes": {"a2": 2, "b1": 1, "b2": 1}},
        {"job": "m", "start": 0.0, "end": 60.0, "nodes": {"a3": 2}},
        {"job": "w", "task": "t1", "start": 60.0, "end": 80.0, "nodes": {"b3": 1}},
        # 80 + 8 * 0.5 / 0.5 + 0.25; 20 / 2 + 8 * 1 / (2 * 10)
        {"job": "w", "task": "t2", "start": 88.25, "end": 98.65, "nodes": {"a4": 2}},
        {"job": "after", "start": 150.0, "end": 160.0, "nodes": {"a1": 1}},
        {"job": "res", "start": 100.0, "end": 110.0, "nodes": {"b4": 1}},
        {"job": "late", "start": 300.0, "end": 310.0, "nodes": {"a1": 1}},
        # 0.2 * 1 * 1 / 1 on both links
        {"job": "heavy", "start": 300.0, "end": 320.0, "nodes": {"a1": 1, "b1": 1}},
    ],
    "deferred": [
        {"job": "held", "reason": "held"},
        {"job": "huge", "reason": "infeasible"},
        {"job": "div", "reason": "unsupported"},
    ],
}


def snapshot(**changes: Any) -> Snapshot:
    return replace(read_snapshot(dict(SNAPSHOT)), **changes)


def plan(**changes: Any) -> Plan:
    return replace(read_plan(dict(PLAN)), **changes)


def with_job(name: str, **changes: Any) -> Snapshot:
    """The snapshot with one job changed."""
    base = snapshot()
    assert name in {job.id for job in base.queue}
    queue = [replace(job, **changes) if job.id == name else job for job in base.queue]
    return replace(base, queue=tuple(queue))


def with_placement(name: str, task: str | None = None, /, **changes: Any) -> Plan:
    """The plan with one placement changed; its makespan follows."""
    base = plan()
    keys = [(p.job, p.task) for p in base.placements]
    assert (name, task) in keys
    placements = [
        replace(p, **changes) if (p.job, p.task) == (name, task) else p for p in base.placements
    ]
    return valued(replace(base, placements=tuple(placements)))


def moved(name: str, start: float, task: str | None = None, /, **changes: Any) -> Plan:
    """The plan with one placement at another start, as long as before."""
    old = next(p for p in plan().placements if (p.job, p.task) == (name, task))
    return with_placement(name, task, start=start, end=start + old.end - old.start, **changes)


def without(name: str, task: str | None = None) -> Plan:
    """The plan without one placement."""
    base = plan()
    rest = tuple(p for p in base.placements if (p.job, p.task) != (name, task))
    assert len(rest) == len(base.placements) - 1
    return valued(replace(base, placements=rest))


def valued(spoilt: Plan) -> Plan:
    """The plan with the makespan and the count of deferred jobs that it has."""
    ends = [p.end for p in spoilt.placements if abs(p.end) < 1e300]
    jobs = {item.job for item in spoilt.deferred}
    objective = replace(spoilt.objective, value=max(ends, default=0.0), deferred=len(jobs))
    return replace(spoilt, objective=objective)


class Row(NamedTuple):
    name: str
    snapshot: Snapshot
    plan: Plan
    expected: tuple[str, ...]


def spoilt(name: str, spoilt_plan: Plan, *expected: str) -> Row:
    return Row(name, snapshot(), spoilt_plan, expected)


def deferred(*items: Deferred) -> Plan:
    """The plan with more jobs deferred."""
    return valued(replace(plan(), deferred=(*plan().deferred, *items)))


def with_reason(name: str, reason: Reason) -> Plan:
    items = [replace(d, reason=reason) if d.job == name else d for d in plan().deferred]
    return replace(plan(), deferred=tuple(items))


def with_options(**options: Any) -> Plan:
    return replace(plan(), options=options)


def with_objective(**changes: Any) -> Plan:
    return replace(plan(), objective=replace(plan().objective, **changes))


def with_nodes(*names: str, **changes: Any) -> Snapshot:
    """The snapshot with some nodes changed."""
    clusters = [
        replace(
            cluster,
            nodes=tuple(
                replace(node, **changes) if node.name in names else node for node in cluster.nodes
            ),
        )
        for cluster in snapshot().clusters
    ]
    return snapshot(clusters=tuple(clusters))


def with_cluster(name: str, **changes: Any) -> Snapshot:
    clusters = [replace(c, **changes) if c.name == name else c for c in snapshot().clusters]
    return snapshot(clusters=tuple(clusters))


def running_also(**fields: Any) -> Snapshot:
    return snapshot(running=(*snapshot().running, Running(**fields)))


def placed_twice() -> Plan:
    base = plan()
    return replace(base, placements=(*base.placements, base.placements[1]))
