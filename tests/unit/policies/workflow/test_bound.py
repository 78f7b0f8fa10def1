"""The bounds on workflows: worked by hand, below every plan, and in what `check` shows."""

from __future__ import annotations

from math import inf

import pytest
from benchmarks.papers.workflow_instances import table_1
from hypothesis import given, settings

from coalloc.model.jobs import Edge, Job, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup, TableSpeedup
from coalloc.policies.base import Budget
from coalloc.policies.checking.proofs import proofs_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.policies.workflow.bound import WorkflowBound, workflow_parts
from coalloc.policies.workflow.forms import Form, form_of
from tests.support.snapshots import snapshots

ONE = (Cluster(name="a", nodes=tuple(Node(name=f"a{n}") for n in range(4))),)


def task(name: str, work: float, pf: float = 1.0, most: int = 4) -> Task:
    return Task(id=name, work=work, parallel_fraction=pf, max_procs=most)


def program(snapshot: Snapshot, objective: str = "makespan") -> float:
    return workflow_parts(Planner(snapshot, {}))[objective]["program"]


def test_area_decides_for_tasks_that_scale_perfectly() -> None:
    flow = WorkflowJob(id="w", tasks=tuple(task(f"t{n}", 10.0) for n in range(6)))
    assert program(Snapshot(clusters=ONE, queue=(flow,))) == pytest.approx(15.0, rel=1e-5)


def test_path_decides_for_a_chain() -> None:
    tasks = tuple(task(f"t{n}", 10.0, pf=0.5, most=2) for n in range(3))
    edges = (Edge(parent="t0", child="t1", gb=5.0), Edge(parent="t1", child="t2"))
    flow = WorkflowJob(id="w", tasks=tasks, edges=edges, weight=2.0)
    snapshot = Snapshot(clusters=ONE, queue=(flow,))
    assert program(snapshot) == pytest.approx(22.5, rel=1e-5)
    assert program(snapshot, "weighted_completion") == pytest.approx(45.0, rel=1e-5)


def test_traffic_inside_the_fastest_cluster_counts() -> None:
    """Four tasks on four slots: their processes share work of 10 s and traffic of 8 s each."""
    clusters = tuple(
        Cluster(name=name, nodes=tuple(Node(name=f"{name}{n}") for n in range(2)), intra_gbps=gbps)
        for name, gbps in (("a", 0.5), ("b", 1.0))
    )
    talks = [
        Task(id=f"t{n}", work=10.0, parallel_fraction=1.0, max_procs=2, comm_gb=1.0)
        for n in range(4)
    ]
    flow = WorkflowJob(id="w", tasks=tuple(talks))
    parts = workflow_parts(Planner(Snapshot(clusters=clusters, queue=(flow,)), {}))["makespan"]
    assert parts["program"] == pytest.approx(18.0, rel=1e-5)
    assert parts["window"] == pytest.approx(18.0, rel=1e-5)


def test_path_and_area_are_traded_against_each_other() -> None:
    """Two chains of two: the path alone says 11, the area alone 10, both together more."""
    tasks = tuple(task(f"t{n}", 10.0, pf=0.6) for n in range(4))
    edges = (Edge(parent="t0", child="t1"), Edge(parent="t2", child="t3"))
    snapshot = Snapshot(clusters=ONE, queue=(WorkflowJob(id="w", tasks=tasks, edges=edges),))
    # time 4 + 6 / n, area 4 n + 6: two processes each, 7 s and 14 slot-seconds, fill four slots
    parts = workflow_parts(Planner(snapshot, {}))["makespan"]
    assert parts["program"] == pytest.approx(14.0, rel=5e-3)
    assert parts["program"] <= 14.0
    assert parts["window"] < 13.0


def test_slots_that_are_busy_offer_nothing() -> None:
    flow = WorkflowJob(id="w", tasks=(task("t", 40.0),))
    nodes = {f"a{n}": 1 for n in range(3)}
    running = (Running(id="r", nodes=nodes, start=0.0, end=100.0),)
    snapshot = Snapshot(clusters=ONE, queue=(flow,), running=running)
    # one slot for 40 s, or four behind 100 s
    assert workflow_parts(Planner(snapshot, {}))["makespan"]["program"] <= 40.0
    assert program(snapshot) > 20.0


@pytest.mark.parametrize("pf", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("power", [0.7, 1.0])
def test_corners_lie_outside_every_allotment(pf: float, power: float) -> None:
    flow = WorkflowJob(id="w", tasks=(Task(id="t", work=50.0, parallel_fraction=pf, max_procs=40),))
    form = form_of(Planner(Snapshot(clusters=ONE, queue=(flow,)), {}).items[0])
    time, area = form.corners(40, power, 0.0, 6)
    for procs in range(1, form.high + 1):
        seconds = 50.0 / power * (1.0 - pf + pf / procs)
        left = time <= seconds * (1.0 + 1e-12)
        assert left.any()
        best = area[left].min()
        for x in range(time.size - 1):
            low, high = time[x + 1], time[x]
            if low <= seconds <= high and high > low:
                share = (seconds - low) / (high - low)
                best = min(best, area[x + 1] + share * (area[x] - area[x + 1]))
        assert best <= procs * seconds * (1.0 + 1e-9)


@settings(max_examples=8, deadline=None)
@given(snapshots())
def test_no_plan_is_below(snapshot: Snapshot) -> None:
    for name in ("fpfs", "m-heft"):
        policy = lookup(name)
        plan = policy.solve(snapshot, read_options({}, policy.options), Budget())
        for proof in proofs_of(snapshot, plan, effort="full"):
            assert proof.bound.value <= proof.value * (1.0 + 1e-9) + 1e-6


def test_published_plans_are_above_and_check_shows_it() -> None:
    snapshot = table_1("few", seed=3)[0]
    policy = lookup("hcpa")
    plan = policy.solve(snapshot, read_options({}, policy.options), Budget())
    makespan, weighted = proofs_of(snapshot, plan)
    assert {"window", "program"} <= makespan.bound.parts.keys()
    assert 0.0 < (makespan.gap or 0.0) < 0.25
    assert weighted.bound.value == pytest.approx(makespan.bound.value, rel=1e-6)


def test_jobs_beside_workflows_count() -> None:
    flow = WorkflowJob(id="w", tasks=(task("t", 4.0),))
    job = RigidJob(id="j", procs=4, base_time=9.0)
    assert program(Snapshot(clusters=ONE, queue=(flow, job))) == pytest.approx(10.0, rel=1e-5)


def test_without_workflows_there_is_none() -> None:
    job = RigidJob(id="j", procs=1, base_time=9.0)
    assert workflow_parts(Planner(Snapshot(clusters=ONE, queue=(job,)), {})) == {}


MIXED = (Cluster(name="a", nodes=(Node(name="a0"), Node(name="a1", power=0.5))),)
TABLE = TableSpeedup(procs=(2,), times=(10.0,))
AMDAHL = AmdahlSpeedup(time_1=20.0, parallel_fraction=1.0)
TEN_SECONDS: dict[str, Job] = {
    "rigid": RigidJob(id="j", procs=2, base_time=10.0, sigma=0.0),
    "table": MoldableJob(id="j", speedup=TABLE, min_procs=2, max_procs=2, sigma=0.0),
    "amdahl": MoldableJob(id="j", speedup=AMDAHL, min_procs=1, max_procs=2, sigma=0.0),
}


@pytest.mark.parametrize("kind", TEN_SECONDS)
def test_time_that_no_power_shortens_takes_less_work_on_weak_nodes(kind: str) -> None:
    """10 s on both nodes; counted at the strongest node's power it would be more than 13 s."""
    planner = Planner(Snapshot(clusters=MIXED, queue=(TEN_SECONDS[kind],)), {})
    assert WorkflowBound(planner).window() == pytest.approx(10.0, rel=1e-6)


def test_weak_nodes_need_more_processes_for_a_limit() -> None:
    """12 / n + 4 s: 8 s on 3 of power 1, of power 1/2 on 6, which take the less of both."""
    form = Form(scaled=(0.0, 12.0), fixed=(4.0, 0.0), low=1, high=6)
    assert form.least_work(8.0, 1.0, 1.0, 0.0) == pytest.approx(3 * 8.0)
    assert form.least_work(8.0, 0.5, 0.5, 0.0) == pytest.approx(6 * 8.0 / 2)
    assert form.least_work(8.0, 1.0, 0.5, 0.0) == pytest.approx(3 * 4.0 * 0.5 + 12.0)
    assert form.least_work(5.0, 0.5, 0.5, 0.0) == inf
