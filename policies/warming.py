"""Tiny cases whose solution has the kernels compiled that policies ask for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, Policy
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

WORK = 5_000
"""Limit of a search that has its kernels compiled."""

TINY: dict[str, Any] = {
    "format": "coalloc-snapshot/1",
    "clusters": [
        {"name": name, "link_gbps": 1.0, "nodes": [{"name": f"{name}[1-2]", "power": power}]}
        for name, power in (("a", 1.0), ("b", 0.5))
    ],
    "queue": [
        {"id": "1", "kind": "rigid", "procs": 3, "base_time": 9.0, "sigma": 0.5, "proc_gbps": 0.1},
        {"id": "2", "kind": "rigid", "procs": 1, "base_time": 5.0, "features": []},
        {"id": "3", "kind": "moldable", "times": [10.0, 6.0]},
        {
            "id": "4",
            "kind": "workflow",
            "tasks": [{"id": "x", "work": 9.0}, {"id": "y", "work": 5.0}],
            "edges": [{"from": "x", "to": "y", "gb": 0.1}],
        },
    ],
    "running": [{"id": "5", "nodes": {"a1": 1}, "start": -5.0, "end": 5.0}],
    "reservations": [{"id": "r", "nodes": ["b2"], "start": 50.0, "end": 60.0}],
}
RIGID = {**TINY, "queue": [job for job in TINY["queue"] if job["kind"] == "rigid"]}
"""The exact search plans no workflows, and is only asked where bounds alone prove nothing."""
EVEN: dict[str, Any] = {
    "format": "coalloc-snapshot/1",
    "clusters": [{"name": "a", "nodes": [{"name": "a[1-2]"}]}],
    "queue": [
        {"id": str(n), "kind": "rigid", "procs": 1, "base_time": seconds}
        for n, seconds in enumerate((5.0, 4.0, 4.0))
    ],
}
"""Equal nodes, and a bound of 7 s that no plan meets."""

COUNTED = {
    **EVEN,
    "queue": [{**EVEN["queue"][0], "shape": {"memory_mb_per_node": 1}}, *EVEN["queue"][1:]],
}
"""A job whose shape has resources counted."""

Case = tuple[str, dict[str, Any], dict[str, Any]]
"""Policy, snapshot and options of a solve that has kernels compiled."""
CASES: tuple[Case, ...] = (
    ("easy", RIGID, {}),
    ("fcfs", RIGID, {}),
    ("oas", RIGID, {}),
    ("workflow", TINY, {}),
    ("oas", RIGID, {"objective": "weighted_completion"}),
    ("bicriteria", EVEN, {}),
    ("oas", EVEN, {"exact_work": 0}),
    ("bicriteria-batch", EVEN, {}),
    ("conservative", TINY, {}),
    ("auto", TINY, {}),
    ("oas-balanced", TINY, {}),
    ("easy", COUNTED, {}),
)
"""By need. Two processes that take them in turn have hardly a kernel in common."""
_warm: set[tuple[str, frozenset[Any]]] = set()
"""Policies, and the kinds of jobs that they were warmed for."""


def warmed(case: Case) -> str:
    """Solve a case; returns what failed, one line, or nothing."""
    name, body, options = case
    try:
        snapshot, policy = read_snapshot(body), lookup(name)
        complete = read_options(options, policy.options)
        plan = policy.solve(snapshot, complete, Budget(work=WORK, live=True))
        return "; ".join(f"{name}: {one}" for one in check(snapshot, plan).violations)
    except Exception as error:
        return " ".join(f"{name}: {type(error).__name__}: {error}".split())


def warm_off_line(policy: Policy, snapshot: Snapshot, options: Mapping[str, Any]) -> None:
    """Have compiled what a solve off line of such a queue asks for; faults are the solve's own."""
    kinds = frozenset(type(job).__struct_config__.tag for job in snapshot.queue)
    if (policy.name, kinds) in _warm:
        return
    _warm.add((policy.name, kinds))
    queue = [job for job in TINY["queue"] if job["kind"] in kinds]
    tiny = read_snapshot({**TINY, "queue": queue or TINY["queue"]})
    with suppress(Exception):
        policy.solve(tiny, options, Budget(work=WORK))
