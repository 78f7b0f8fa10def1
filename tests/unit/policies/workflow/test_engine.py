"""The engine of `workflow`: members, constraints, co-allocation, budgets."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.workflow_instances import Shape, das_3, draw_workflow, table_1
from hypothesis import given, settings

from coalloc.model.jobs import Edge, RigidJob, Started, Task, WorkflowJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.search.serial_state import SPLIT
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.policies.workflow.search.portfolio import MEMBERS, trajectory
from coalloc.policies.workflow.search.search_case import (
    FIRST_CYCLE,
    HERD,
    STAGES,
    WorkflowSearch,
    read_case,
    tracks,
)
from tests.support.snapshots import snapshots

POLICY = lookup("workflow")


def solve(snapshot: Snapshot, work: int, seed: int = 0, **options: Any) -> Plan:
    complete = read_options(options, POLICY.options)
    plan = POLICY.solve(snapshot, complete, Budget(work=work, seed=seed))
    assert check(snapshot, plan).violations == ()
    return plan


def site(*sizes: int, link_gbps: float = 0.8) -> tuple[Cluster, ...]:
    return tuple(
        Cluster(
            name=f"c{k}",
            nodes=tuple(Node(name=f"c{k}n{n}") for n in range(size)),
            link_gbps=link_gbps,
            intra_gbps=8.0,
        )
        for k, size in enumerate(sizes)
    )


def wide(tasks: int, comm_gb: float, max_procs: int = 100) -> WorkflowJob:
    """One level of equal tasks that scale well."""
    return WorkflowJob(
        id="w",
        tasks=tuple(
            Task(
                id=f"t{n}",
                work=100.0,
                parallel_fraction=1.0,
                min_procs=1,
                max_procs=max_procs,
                comm_gb=comm_gb,
            )
            for n in range(tasks)
        ),
    )


def clusters_used(plan: Plan) -> list[set[str]]:
    return [{name.split("n")[0] for name in placement.nodes} for placement in plan.placements]


@settings(max_examples=10, deadline=None)
@given(snapshots())
def test_plans_of_any_queue_are_allowed_and_repeat(snapshot: Snapshot) -> None:
    plan = solve(snapshot, 1_000, seed=3)
    assert plan == solve(snapshot, 1_000, seed=3)
    bound = plan.objective.bound
    assert bound is None or plan.objective.value >= bound * (1.0 - 1e-9)


@pytest.mark.parametrize("name", ["few", "many"])
def test_never_worse_than_a_published_policy(name: str) -> None:
    snapshot = table_1(name, seed=5)[0]
    ours = solve(snapshot, 60_000).objective
    for member in MEMBERS:
        policy = lookup(member)
        theirs = policy.solve(snapshot, read_options({}, policy.options), Budget())
        assert ours.value <= theirs.objective.value * (1.0 + 1e-9)
    assert ours.bound is not None
    assert ours.value >= ours.bound


def test_the_search_improves_on_the_portfolio() -> None:
    snapshot = table_1("few", seed=5, pf=0.95)[1]
    found = solve(snapshot, 400_000)
    assert found.stats["order"] == "annealing"
    assert found.objective.value < solve(snapshot, 3_000).objective.value


def test_tasks_are_split_where_that_saves_time() -> None:
    snapshot = Snapshot(clusters=site(12, 4), queue=(wide(2, comm_gb=0.0),))
    free = solve(snapshot, 60_000)
    whole = solve(snapshot, 60_000, coallocation="forbidden")
    assert free.objective.value == pytest.approx(12.5)  # eight processes each
    assert max(len(used) for used in clusters_used(free)) == 2
    assert whole.objective.value > 14.0
    assert max(len(used) for used in clusters_used(whole)) == 1


def test_overhead_of_co_allocation_is_limited() -> None:
    """Split 4 + 4, a task sends 8 * 9 * .5 * 4 / 7 / .8 = 25.7 s between clusters."""
    snapshot = Snapshot(clusters=site(4, 4), queue=(wide(1, comm_gb=9.0, max_procs=8),))
    assert clusters_used(solve(snapshot, 20_000)) == [{"c0"}]
    quick = Snapshot(clusters=site(4, 4, link_gbps=8.0), queue=(wide(1, 9.0, 8),))
    assert len(clusters_used(solve(quick, 20_000))[0]) == 2
    planner = Planner(quick, read_options({}, POLICY.options))
    for overhead, ends in ((0.2, 12.5 + 9.0 / 8.0 + 18.0 / 7.0), (0.18, inf)):
        search = WorkflowSearch(read_case(planner, overhead), 0, MAKESPAN, 0.0)
        genes = search.genes(np.zeros(1, dtype=np.int64), np.full(1, 8))
        genes.home[0], genes.parts[0] = SPLIT, (4, 4)
        assert search.measure(genes) == pytest.approx(ends)


def test_sequential_and_rigid_tasks_keep_their_processes() -> None:
    tasks = (
        Task(id="s", work=10.0),
        Task(id="r", work=10.0, parallel_fraction=0.5, min_procs=3, max_procs=3),
        Task(id="m", work=10.0, parallel_fraction=0.5, min_procs=2, max_procs=4),
    )
    job = WorkflowJob(id="w", tasks=tasks, edges=(Edge(parent="s", child="r"),))
    plan = solve(Snapshot(clusters=site(4, 4), queue=(job,)), 5_000)
    procs = {placement.task: sum(placement.nodes.values()) for placement in plan.placements}
    assert procs["s"] == 1
    assert procs["r"] == 3
    assert 2 <= procs["m"] <= 4
    assert plan.status is Status.OPTIMAL


def test_workflows_and_jobs_on_a_busy_platform() -> None:
    flows = tuple(
        draw_workflow(Shape(tasks=12, levels=3, edge_gb=0.5), seed, f"w{seed}") for seed in (1, 2)
    )
    begun = replace(
        flows[0],
        tasks=flows[0].tasks[1:],
        started=(Started(task="t0", clusters=("vu",), end=30.0),),
    )
    jobs = (
        RigidJob(id="wide", procs=120, base_time=50.0, proc_gbps=0.001, sigma=0.5),
        RigidJob(id="narrow", procs=3, base_time=5.0, after=("w2",)),
    )
    snapshot = Snapshot(
        clusters=das_3(),
        queue=(begun, *jobs, flows[1]),
        running=(Running(id="r", nodes={f"vu{n}": 1 for n in range(1, 41)}, start=-5.0, end=70.0),),
        reservations=(
            Reservation(
                id="v",
                nodes=tuple(f"delft{n}" for n in range(1, 69)),
                start=20.0,
                end=60.0,
                jobs=("w2",),
            ),
        ),
    )
    for objective in ("makespan", "weighted_completion"):
        plan = solve(snapshot, 40_000, objective=objective)
        assert plan.deferred == ()
        assert plan.objective.bound is not None


def test_told_to_stop_it_has_a_plan() -> None:
    snapshot = table_1("various", seed=1)[0]
    asked = []

    def stop() -> bool:
        asked.append(1)
        return True

    shown: list[Plan] = []
    budget = Budget(stop=stop)
    plan = POLICY.solve(snapshot, read_options({}, POLICY.options), budget, shown.append)
    assert asked
    assert shown
    assert len(plan.placements) == 55
    assert check(snapshot, plan).ok


def test_a_short_patience_lets_few_tasks_cool() -> None:
    """Too few moves to cool once would leave what the portfolio found."""
    shape = Shape(tasks=12, levels=3, edge_gb=1.0, mix=(0.25, 0.25, 0.5))
    job = draw_workflow(shape, 3100)
    tasks = tuple(replace(t, min_procs=min(t.min_procs, 4)) for t in job.tasks)
    snapshot = Snapshot(clusters=site(4, 3, 2), queue=(replace(job, tasks=tasks),))
    options = read_options({"patience": 50}, POLICY.options)
    plan = POLICY.solve(snapshot, options, Budget())
    assert plan.status is Status.FEASIBLE
    assert plan.stats["work"] > 1_000_000
    assert plan.objective.value <= solve(snapshot, 4_000_000).objective.value * 1.03


def test_many_walkers_side_by_side_shorten_a_schedule() -> None:
    planner = Planner(table_1("few", seed=1)[0], read_options({}, POLICY.options))
    case = read_case(planner, 0.25)
    track = tracks(case, 1, MAKESPAN)[0]
    genes = track.listing.genes(case.graph.order, case.items.low)
    begun = track.listing.measure(genes)
    assert track.adopt(track.listing.settled(genes), begun)
    track._courses = iter((HERD,))
    moves = [moves for moves, _ in track.cycle(lambda: 3)]
    assert set(moves) == {1, 3}  # 200 moves an item make 7 of each walker at each temperature
    assert sum(moves) == FIRST_CYCLE * case.size // (HERD.walkers * STAGES) * HERD.walkers * STAGES
    assert track.top is not None
    assert track.listing.measure(track.top) == track.reached < 0.9 * begun


def test_incumbents_get_better() -> None:
    snapshot = table_1("few", seed=2)[2]
    shown: list[Plan] = []
    options = read_options({}, POLICY.options)
    plan = POLICY.solve(snapshot, options, Budget(work=200_000), shown.append)
    values = [one.objective.value for one in shown]
    assert values == sorted(values, reverse=True)
    assert len(values) > 1
    assert plan.objective.value <= values[-1]
    assert all(check(snapshot, one).ok for one in shown)


def test_the_last_plan_is_tried_first() -> None:
    """A hint where to begin never makes the plan worse."""
    times = {"a": 3.0, "b": 3.0, "c": 2.0, "d": 2.0, "e": 2.0}
    jobs = tuple(RigidJob(id=name, procs=1, base_time=time) for name, time in times.items())
    task = WorkflowJob(id="f", tasks=(Task(id="t", work=0.5),))
    snapshot = Snapshot(clusters=site(2), queue=(*jobs[2:], *jobs[:2], task))
    budget = Budget(work=1, previous=("a", "b", "c", "d", "e", "f"))
    options = read_options({}, POLICY.options)
    before = POLICY.solve(snapshot, options, budget)
    assert before.objective.value <= POLICY.solve(snapshot, options, Budget(work=1)).objective.value
    assert check(snapshot, before).ok


def test_auto_uses_the_engine() -> None:
    snapshot = table_1("few", seed=5)[0]
    auto = lookup("auto")
    budget = Budget(work=60_000)
    shown: list[Plan] = []
    plan = auto.solve(snapshot, read_options({}, auto.options), budget, shown.append)
    assert "program" in plan.stats["bounds"]
    assert plan.objective.value <= shown[0].objective.value
    assert check(snapshot, plan).ok


def test_nothing_to_place() -> None:
    empty = Snapshot(clusters=site(2))
    assert solve(empty, 10).placements == ()
    stale = Snapshot(clusters=(replace(site(2)[0], stale=True),), queue=(wide(2, 0.0),))
    assert len(solve(stale, 10).deferred) == 2


def test_a_planner_is_left_as_it_was() -> None:
    snapshot = table_1("few", seed=1)[0]
    before = replace(snapshot)
    solve(snapshot, 2_000)
    assert snapshot == before
    assert Planner(snapshot, read_options({}, POLICY.options)).items


def pair(*edges: Edge, max_procs: int) -> WorkflowJob:
    """100 s of work, and 90 s with 30 GB of communication: 30 s at 8 Gbit/s."""
    return WorkflowJob(
        id="w",
        tasks=tuple(
            Task(id=name, work=work, parallel_fraction=1.0, max_procs=max_procs, comm_gb=comm_gb)
            for name, work, comm_gb in (("still", 100.0, 0.0), ("talks", 90.0, 30.0))
        ),
        edges=edges,
    )


def test_allotments_grow_by_the_time_of_communication_inside_clusters() -> None:
    case = read_case(Planner(Snapshot(clusters=site(4, 4), queue=(pair(max_procs=2),)), {}), 0.25)
    assert case.mean_intra == 1 / 8
    grown = [procs.tolist() for procs in trajectory(case, lambda: False)]
    assert grown[::-1][:2] == [[1, 1], [1, 2]]


def test_what_follows_a_task_takes_its_communication_inside_the_fastest_cluster() -> None:
    slow, fast = site(4, 4)
    clusters = (replace(slow, intra_gbps=1.0), fast)
    job = pair(Edge(parent="still", child="talks"), max_procs=1)
    case = read_case(Planner(Snapshot(clusters=clusters, queue=(job,)), {}), 0.25)
    assert case.items.tail.tolist() == pytest.approx([120.0, 0.0])
    assert case.mean_intra == pytest.approx((1.0 + 1 / 8) / 2)
