"""What `workflow` and `mca-heft` planned, process by process: data, and split tasks.

Traffic of workflows books no link, so a plan is exact where its transfers do not meet, and the
replay ends later where they do: never earlier.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.papers.workflow_instances import Shape, draw_workflow

from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.simgrid.workflows import clusters_of, replay_workflow


def site(link_gbps: float) -> tuple[Cluster, ...]:
    return tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=link_gbps * (k + 1),
            nodes=tuple(Node(name=f"c{k}n{n}", power=1.0 - 0.1 * k) for n in range(size)),
        )
        for k, size in enumerate((8, 6, 4))
    )


def planned(snapshot: Snapshot, name: str = "workflow", **given: Any) -> Plan:
    policy = lookup(name)
    plan = policy.solve(snapshot, read_options(given, policy.options), Budget(work=200_000))
    assert check(snapshot, plan).ok
    return plan


def makespans(program: Path, snapshot: Snapshot, plan: Plan) -> tuple[float, float]:
    """Planned and replayed."""
    ended = replay_workflow(program, snapshot, plan).values()
    return max(p.end for p, _ in ended) - snapshot.time, max(e for _, e in ended) - snapshot.time


def test_split_tasks_one_after_another_end_as_planned(program: Path) -> None:
    """Wide tasks gain by two clusters or three, narrow ones between them do not: data move."""
    tasks = tuple(
        Task(id=f"t{n}", work=500.0, parallel_fraction=0.99, max_procs=most, comm_gb=0.3)
        for n, most in enumerate((18, 4, 18, 4, 18))
    )
    edges = tuple(Edge(parent=f"t{n}", child=f"t{n + 1}", gb=0.5) for n in range(4))
    snapshot = Snapshot(clusters=site(1.0), queue=(WorkflowJob(id="w", tasks=tasks, edges=edges),))
    plan = planned(snapshot)
    used = [set(clusters_of(snapshot, placement)) for placement in plan.placements]
    assert sum(len(names) > 1 for names in used) >= 2
    assert len({frozenset(names) for names in used}) > 1
    for placement, ended in replay_workflow(program, snapshot, plan).values():
        assert ended == pytest.approx(placement.end, abs=1e-3 * (placement.end - placement.start))


@pytest.mark.parametrize("seed", range(4))
def test_workflows_without_data_take_as_long_as_planned(program: Path, seed: int) -> None:
    job = draw_workflow(Shape(tasks=20, levels=5, pf=0.9, chatter=0.0), seed)
    snapshot = Snapshot(clusters=site(1.0), queue=(job,))
    told, took = makespans(program, snapshot, planned(snapshot))
    assert took == pytest.approx(told, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_transfers_that_meet_only_make_it_later(program: Path, seed: int) -> None:
    job = draw_workflow(Shape(tasks=20, levels=5, pf=0.9, chatter=0.01, edge_gb=1.0), seed)
    snapshot = Snapshot(clusters=site(1.0), queue=(job,))
    told, took = makespans(program, snapshot, planned(snapshot))
    assert told * (1.0 - 1e-4) <= took <= told * 1.25


@pytest.mark.parametrize("nodes", ["least-loaded", "best-fit"])
@pytest.mark.parametrize("seed", range(3))
def test_plans_of_mca_heft_take_as_long_as_planned(program: Path, seed: int, nodes: str) -> None:
    """Malleable tasks without data, as the paper's are but for what they send."""
    job = draw_workflow(Shape(tasks=24, levels=4, pf=0.9, chatter=0.0), seed)
    snapshot = Snapshot(clusters=site(1.0), queue=(job,))
    told, took = makespans(program, snapshot, planned(snapshot, "mca-heft", nodes=nodes))
    assert took == pytest.approx(told, rel=1e-4)


@pytest.mark.parametrize("nodes", ["least-loaded", "best-fit"])
def test_tasks_that_mca_heft_spreads_end_as_planned(program: Path, nodes: str) -> None:
    """Of two levels of six tasks, of three processes each, the last has room on no one cluster."""
    tasks = tuple(
        Task(id=f"t{n}", work=500.0, parallel_fraction=1.0, max_procs=3, comm_gb=0.3)
        for n in range(12)
    )
    edges = tuple(
        Edge(parent=f"t{a}", child=f"t{b}", gb=0.0) for a in range(6) for b in range(6, 12)
    )
    snapshot = Snapshot(clusters=site(1.0), queue=(WorkflowJob(id="w", tasks=tasks, edges=edges),))
    plan = planned(snapshot, "mca-heft", nodes=nodes, mca_share=1.0)
    assert plan.stats["spread"] == 2
    for placement, ended in replay_workflow(program, snapshot, plan).values():
        assert ended == pytest.approx(placement.end, abs=1e-3 * placement.end)
