"""The engine of `workflow` and its bound against an exact model in CP-SAT."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.papers.workflow_instances import Shape, draw_workflow

from coalloc.model.cost import edge_delay, task_time
from coalloc.model.plan import Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

ROOT = Path(__file__).resolve().parents[2]
POLICY = lookup("workflow")
TICKS = 1000.0


def instance(
    seed: int, tasks: int, levels: int, sizes: tuple[int, ...], widest: int = 100
) -> Snapshot:
    """A workflow with data on its edges, on clusters of unlike speed."""
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            nodes=tuple(Node(name=f"c{k}n{n}", power=(1.0, 0.85, 0.7)[k]) for n in range(size)),
            link_gbps=0.8,
            intra_gbps=8.0,
            link_latency_s=0.1,
        )
        for k, size in enumerate(sizes)
    )
    shape = Shape(tasks=tasks, levels=levels, pf=0.8, edge_gb=1.0)
    job = draw_workflow(shape, seed)
    tasks_cut = tuple(replace(t, max_procs=min(t.max_procs, widest)) for t in job.tasks)
    return Snapshot(clusters=clusters, queue=(replace(job, tasks=tasks_cut),))


def case_of(snapshot: Snapshot, below: float | None = None) -> dict[str, Any]:
    """The instance as the oracle reads it; times are rounded down, so it errs below."""
    job, by_name = snapshot.queue[0], {cluster.name: cluster for cluster in snapshot.clusters}
    place = {task.id: n for n, task in enumerate(job.tasks)}  # type: ignore[union-attr]
    modes = [
        [
            [k, n, int(task_time(task, {c.name: n}, c.nodes[0].power, by_name) * TICKS)]
            for k, c in enumerate(snapshot.clusters)
            for n in range(1, min(len(c.nodes), task.max_procs) + 1)
        ]
        for task in job.tasks  # type: ignore[union-attr]
    ]
    names = list(by_name)
    edges = [
        [
            place[edge.parent],
            place[edge.child],
            int(edge_delay(edge, [names[0]], [names[1]], by_name) * TICKS),
        ]
        for edge in job.edges  # type: ignore[union-attr]
    ]
    nodes = [len(cluster.nodes) for cluster in snapshot.clusters]
    ticks = None if below is None else int(below * TICKS)
    return {"nodes": nodes, "modes": modes, "edges": edges, "below": ticks}


def oracle(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What CP-SAT finds, in a process of its own."""
    pytest.importorskip("ortools", reason="ortools is not installed", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.cpsat_workflows"],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=1800.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def planned(snapshot: Snapshot, work: int) -> Plan:
    """The engine's plan, on whole clusters."""
    options = read_options({"coallocation": "forbidden"}, POLICY.options)
    plan = POLICY.solve(snapshot, options, Budget(work=work))
    assert check(snapshot, plan).violations == ()
    assert plan.objective.bound is not None
    return plan


def test_small_workflows_are_as_good_as_the_optimum() -> None:
    snapshots = [instance(seed, tasks=7, levels=3, sizes=(4, 3)) for seed in range(4)]
    for snapshot, truth in zip(snapshots, oracle([case_of(s) for s in snapshots]), strict=True):
        objective, rounding = planned(snapshot, 300_000).objective, 7 / TICKS
        assert truth["status"] == "optimal"
        assert truth["bound"] - 1e-6 <= objective.value <= truth["value"] * 1.01 + rounding
        assert objective.bound is not None
        assert objective.bound <= truth["value"] + rounding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "sizes", "widest", "within"),
    [
        (12, (8, 6, 4), 8, 1.01),
        (20, (4, 3, 2), 2, 1.01),  # the oracle proves nothing here with more choices for each task
        pytest.param(30, (4, 3, 2), 2, 1.01, marks=pytest.mark.nightly),
        (40, (4, 3, 2), 2, 1.01),
    ],
)
def test_nothing_is_much_shorter(
    tasks: int, sizes: tuple[int, ...], widest: int, within: float
) -> None:
    """The oracle is asked for less than the plan by more than that, and proves there is nothing."""
    snapshots = [instance(seed, tasks, max(tasks // 4, 3), sizes, widest) for seed in range(2)]
    plans = [planned(snapshot, 1_000_000 * tasks) for snapshot in snapshots]
    below = [plan.objective.value / within - tasks / TICKS for plan in plans]
    cases = [case_of(s, limit) for s, limit in zip(snapshots, below, strict=True)]
    assert [truth["status"] for truth in oracle(cases)] == ["none"] * len(cases)
