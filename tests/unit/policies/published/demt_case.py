"""Small queues of moldable jobs for the tests of `demt`."""

from __future__ import annotations

from typing import Any

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.options import read_options
from coalloc.policies.published.options import DemtOptions
from coalloc.policies.registry import lookup

Row = tuple[str, list[float], float]
"""Name, times on 1, 2, … processors, weight."""


def snapshot_of(rows: list[Row], procs: int, **more: Any) -> Snapshot:
    queue = [
        {"id": name, "kind": "moldable", "times": times, "weight": weight}
        for name, times, weight in rows
    ]
    given = {"format": "coalloc-snapshot/1", "overrun_s": 0.0} | more
    nodes = [{"name": f"a{n}"} for n in range(procs)]
    given.setdefault("clusters", [{"name": "alpha", "nodes": nodes}])
    return read_snapshot(given | {"queue": queue + more.get("queue", [])})


def planner_of(snapshot: Snapshot, **options: Any) -> Planner:
    return Planner(snapshot, read_options(options, DemtOptions))


def queue_of(snapshot: Snapshot) -> MoldableQueue:
    return of_planner(planner_of(snapshot))


def solved(
    name: str, snapshot: Snapshot, *, seed: int = 1, work: int | None = None, **given: Any
) -> Plan:
    policy = lookup(name)
    budget = Budget(seed=seed, work=work)
    return policy.solve(snapshot, read_options(given, policy.options), budget)


def starts(plan: Plan) -> dict[str, float]:
    return {placement.job: placement.start for placement in plan.placements}
