"""Short notation for small problems, as the tests of the kernel use them."""

from __future__ import annotations

from typing import Any

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot


def cluster(name: str, nodes: int = 4, link: float | None = None, **fields: Any) -> dict[str, Any]:
    """A cluster of equal nodes; fields go to the nodes."""
    entry = {"name": f"{name}[1-{nodes}]" if nodes > 1 else f"{name}1", **fields}
    return {"name": name, "link_gbps": link, "nodes": [entry]}


def rigid(number: int | str, procs: int, base_time: float, **fields: Any) -> dict[str, Any]:
    return {"id": str(number), "kind": "rigid", "procs": procs, "base_time": base_time, **fields}


def case(
    clusters: list[dict[str, Any]],
    queue: list[dict[str, Any]],
    running: list[dict[str, Any]] | None = None,
    reservations: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> Snapshot:
    return read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "clusters": clusters,
            "queue": queue,
            "running": running or [],
            "reservations": reservations or [],
            **fields,
        }
    )


def spans(plan: Plan) -> dict[str, Any]:
    """Start and end of each job, or of each task as ``job.task``."""
    return {
        p.job if p.task is None else f"{p.job}.{p.task}": (p.start, p.end) for p in plan.placements
    }


def nodes(plan: Plan, job: str) -> dict[str, int]:
    return next(dict(p.nodes) for p in plan.placements if p.job == job)


def inside(plan: Plan, job: str) -> dict[str, int]:
    """Processes by cluster, named by the letters of the node names."""
    out: dict[str, int] = {}
    for name, count in nodes(plan, job).items():
        key = name.rstrip("0123456789")
        out[key] = out.get(key, 0) + count
    return out


def reasons(plan: Plan) -> dict[str, str]:
    return {d.job if d.task is None else f"{d.job}.{d.task}": str(d.reason) for d in plan.deferred}
