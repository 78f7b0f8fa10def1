"""The contract of all policies, as one call for the tests of a package that brings its own.

::

    from coalloc.policies.contract import faults

    def test_contract() -> None:
        assert faults("narrow-first") == []
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, Policy
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

WORK = 5_000
"""Limit of a search in each case, in its own counts."""

_RIGID = {"kind": "rigid", "procs": 2, "base_time": 10.0}
_CLUSTERS: list[dict[str, Any]] = [
    {
        "name": "alpha",
        "link_gbps": 1.0,
        "nodes": [
            {"name": "a[1-4]", "slots": 2, "memory_mb": 100},
            {"name": "a5", "state": "down"},
        ],
    },
    {"name": "beta", "link_gbps": 0.5, "nodes": [{"name": "b[1-6]", "power": 0.5}]},
]
_EMPTY = {"format": "coalloc-snapshot/1", "clusters": [], "queue": []}
CASES: Mapping[str, Mapping[str, Any]] = {
    "something of everything": {
        "format": "coalloc-snapshot/1",
        "time": 5.0,
        "clusters": _CLUSTERS,
        "queue": [
            {"id": "wide", **_RIGID, "procs": 12, "proc_gbps": 0.01, "sigma": 0.7},
            {"id": "never", **_RIGID, "procs": 99},
            {"id": "large", **_RIGID, "memory_mb_per_proc": 60},
            {"id": "held", **_RIGID, "held": True},
            {"id": "waits", **_RIGID, "after": ["held"]},
            {"id": "second", **_RIGID, "after": ["wide", "running"]},
            {"id": "later", **_RIGID, "earliest": 33.0, "weight": 3.0},
            {"id": "bends", "kind": "moldable", "times": [30.0, 16.0, 12.0]},
            {
                "id": "flow",
                "kind": "workflow",
                "tasks": [{"id": "x", "work": 9.0, "max_procs": 4}, {"id": "y", "work": 5.0}],
                "edges": [{"from": "x", "to": "y", "gb": 0.1}],
            },
            {"id": "chunks", "kind": "divisible", "work": 100.0, "chunk_s": 10.0},
        ],
        "running": [{"id": "running", "nodes": {"a1": 1}, "start": 0.0, "end": 20.0}],
        "reservations": [{"id": "r", "nodes": ["a[2-3]"], "start": 12.0, "end": 60.0}],
    },
    "a day's clock": {
        **_EMPTY,
        "time": 1_795_299_950.123,
        "clusters": _CLUSTERS,
        "queue": [{"id": str(n), **_RIGID, "base_time": 1e4 / (n + 3)} for n in range(6)],
    },
    "nothing to do": {**_EMPTY, "clusters": _CLUSTERS},
    "no cluster": _EMPTY,
    "stale": {
        **_EMPTY,
        "clusters": [{**_CLUSTERS[0], "stale": True}],
        "queue": [{"id": "1", **_RIGID}],
    },
}


def faults(policy: str | Policy) -> list[str]:
    """List the breaches of the contract in these cases, a line each; none if it is kept.

    A name is looked up, entry points included, as solver and daemon do.
    """
    row = lookup(policy) if isinstance(policy, str) else policy
    out = []
    for name, body in CASES.items():
        out += [f"{name}: {fault}" for fault in _of_case(row, read_snapshot(body))]
    return out


def _of_case(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    options = read_options({}, policy.options)
    before, seen = copy.deepcopy(snapshot), list[Plan]()
    plan = policy.solve(snapshot, options, Budget(seed=7, work=WORK), seen.append)
    if snapshot != before:
        yield "changes the snapshot"
    if policy.solve(snapshot, options, Budget(seed=7, work=WORK)) != plan:
        yield "the same work and seed give another plan"
    if plan.policy != policy.name:
        yield f"its plan is one of {plan.policy!r}"
    if read_plan(write_plan(plan)) != plan:
        yield "its plan is not what is read of it"
    yield from _unanswered(snapshot, plan)
    for told in (*seen, plan):
        yield from check(snapshot, told).violations
    values = [told.objective.value for told in (*seen, plan)]
    if not plan.front and values != sorted(values, reverse=True):
        yield f"incumbents become worse: {values}"
    stopped = policy.solve(snapshot, options, Budget(stop=lambda: True))
    yield from (f"stopped at once: {fault}" for fault in check(snapshot, stopped).violations)


def _unanswered(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Every job, or each of its tasks, is placed or deferred."""
    answered = {(placement.job, placement.task) for placement in plan.placements}
    answered |= {(deferred.job, deferred.task) for deferred in plan.deferred}
    for job in snapshot.queue:
        tasks = [task.id for task in job.tasks] if isinstance(job, WorkflowJob) else [None]
        for task in tasks:
            if (job.id, task) not in answered:
                yield f"job {job.id}: {task or 'it'} has neither a place nor a reason"
