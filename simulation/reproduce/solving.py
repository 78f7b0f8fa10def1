"""A policy called by name, its plan checked, its time taken."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from coalloc.model.cost import link_loads
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup


class NotAllowedError(Exception):
    """A policy returned a plan that the independent checker refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """A plan that was checked."""

    plan: Plan
    cpu_s: float
    """Processor time of this process in the call, seconds; child processes are not counted."""
    elapsed_s: float
    """Wall time of the call, seconds."""
    metrics: Mapping[str, float | None]
    """Of the checker."""

    @property
    def makespan(self) -> float:
        """Seconds."""
        return self._metric("makespan")

    @property
    def compaction(self) -> float:
        """Share of the machine's time that the jobs fill, 0..1."""
        return self._metric("compaction")

    def _metric(self, name: str) -> float:
        value = self.metrics[name]
        assert value is not None
        return value


def solve(
    snapshot: Snapshot,
    policy: str,
    options: Mapping[str, Any] | None = None,
    *,
    seconds: float | None = None,
    work: int | None = None,
    seed: int = 0,
) -> Solved:
    """Plan a snapshot, after so many seconds as well as can be. Raises `NotAllowedError`."""
    row = lookup(policy)
    complete = read_options(options or {}, row.options)
    began, cpu = time.monotonic(), time.process_time()
    deadline = inf if seconds is None else began + seconds
    budget = Budget(work=work, seed=seed, stop=lambda: time.monotonic() >= deadline)
    plan = row.solve(snapshot, complete, budget)
    cpu_s, elapsed_s = time.process_time() - cpu, time.monotonic() - began
    metrics = checked(snapshot, plan)
    return Solved(plan=plan, cpu_s=cpu_s, elapsed_s=elapsed_s, metrics=metrics)


def checked(snapshot: Snapshot, plan: Plan) -> Mapping[str, float | None]:
    """Measures of a plan by the checker. Raises `NotAllowedError` if it finds a violation."""
    result = check(snapshot, plan)
    if not result.ok:
        raise NotAllowedError(f"{plan.policy}: {result.violations[0]}")
    return result.metrics


def rigid_jobs(snapshot: Snapshot) -> list[RigidJob]:
    """The rigid jobs of the queue; the papers know no others."""
    return [job for job in snapshot.queue if isinstance(job, RigidJob)]


def loads_of(snapshot: Snapshot, plan: Plan) -> dict[str, dict[str, float]]:
    """Load of each rigid job of a plan on each link that it loads, Gbit/s."""
    home = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    gbps = {job.id: job.proc_gbps for job in rigid_jobs(snapshot)}
    out = {}
    for placement in plan.placements:
        inside: dict[str, int] = {}
        for node, count in placement.nodes.items():
            inside[home[node]] = inside.get(home[node], 0) + count
        out[placement.job] = link_loads(gbps[placement.job], inside)
    return out
