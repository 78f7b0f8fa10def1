"""`bicriteria` as a policy: its front, what is proved of it, and what it does elsewhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance

from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import defaults_of, parse_options
from coalloc.policies.registry import lookup
from tests.unit.policies.published.demt_case import snapshot_of, solved

WORK = 6_000
CLUSTERS: list[dict[str, Any]] = [
    {"name": "alpha", "nodes": [{"name": "a[1-6]"}, {"name": "b[1-4]", "power": 0.5}]},
    {"name": "beta", "link_gbps": 1.0, "nodes": [{"name": "c[1-8]", "power": 0.75, "slots": 2}]},
]
LISTS = ("gang", "sequential", "list-shelf", "list-lptf", "list-saf", "list-smith")


def bicriteria(snapshot: Snapshot, *, work: int = WORK, **given: Any) -> Plan:
    plan = solved("bicriteria", snapshot, work=work, **({"certify": False} | given))
    assert check(snapshot, plan).violations == ()
    return plan


def of_clusters(queue: list[dict[str, Any]], **more: Any) -> Snapshot:
    given = {"format": "coalloc-snapshot/1", "overrun_s": 0.0, "clusters": CLUSTERS}
    return read_snapshot(given | more | {"queue": queue})


def moldable(number: int, **more: Any) -> dict[str, Any]:
    speedup = {"model": "amdahl", "time": 20.0 + 7.0 * number, "parallel_fraction": 0.9}
    return {"id": str(number), "kind": "moldable", "speedup": speedup, "max_procs": 8, **more}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_front_with_what_is_proved_of_it(family: str) -> None:
    snapshot = moldable_instance(family, 40, 30, 4)
    plan = bicriteria(snapshot, certify=True)
    assert plan.status is Status.FEASIBLE
    assert plan.pareto_gap == min(point.pareto_gap or 0.0 for point in plan.front)
    assert plan.certificates
    for point in plan.front:
        assert point.pareto_gap is not None
        assert 0.0 <= point.pareto_gap < 0.2
        assert len(point.placements) == 40
    for one, other in pairwise(plan.front):
        assert one.cmax < other.cmax
        assert one.weighted_completion > other.weighted_completion
    assert read_plan(write_plan(plan)).front == plan.front


@pytest.mark.parametrize("family", FAMILIES)
def test_the_balanced_point_is_better_than_demt_and_the_front_than_lists(family: str) -> None:
    snapshot = moldable_instance(family, 60, 40, 2)
    plan = bicriteria(snapshot, work=40_000)
    assert plan.chosen is not None
    chosen = plan.front[plan.chosen]
    for guess in ("reached", "accepted"):
        other = front_values(snapshot, solved("demt", snapshot, guess=guess))
        assert chosen.cmax < other[0]
        assert chosen.weighted_completion < other[1]
    for name in LISTS:
        cmax, total = front_values(snapshot, solved(name, snapshot))
        assert any(p.cmax <= cmax and p.weighted_completion <= total for p in plan.front)


def front_values(snapshot: Snapshot, plan: Plan) -> tuple[float, float]:
    weight = {job.id: job.weight for job in snapshot.queue}
    ends = [(placement.end, weight[placement.job]) for placement in plan.placements]
    return max(end for end, _ in ends), sum(end * w for end, w in ends)


def test_what_is_preferred_is_the_plan() -> None:
    snapshot = moldable_instance("highly", 40, 30, 1)
    plans = {
        name: bicriteria(snapshot, prefer=name, work=20_000)
        for name in ("cmax", "minsum", "balanced")
    }
    first, last = plans["cmax"].front[0], plans["cmax"].front[-1]
    assert len(plans["cmax"].front) > 2
    assert plans["cmax"].chosen == 0
    assert plans["minsum"].chosen == len(plans["minsum"].front) - 1
    cap = (first.cmax + last.cmax) / 2.0
    plan = bicriteria(snapshot, prefer=f"cmax<={cap}", work=20_000)
    assert plan.chosen is not None
    assert plan.front[plan.chosen].cmax <= cap
    assert plan.front[plan.chosen].weighted_completion < first.weighted_completion
    # nothing ends by then: the first to end
    assert bicriteria(snapshot, prefer="cmax<=0.001").chosen == 0


def test_preferences_are_read_from_the_command_line() -> None:
    table = lookup("bicriteria").options
    assert parse_options(["prefer=cmax<=3600"], table) == {"prefer": "cmax<=3600"}
    for text in ("cmin", "cmax<=", "cmax<=-1", "cmax<=nan", "cmax<=soon"):
        with pytest.raises(InputError, match=r"prefer: .* is not cmax, balanced, minsum or"):
            parse_options([f"prefer={text}"], table)


def test_the_same_work_and_seed_give_the_same_plan() -> None:
    snapshot = moldable_instance("mixed", 30, 20, 3)
    plans = [bicriteria(snapshot) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].stats["seed"] == 1


def test_a_stop_at_once_still_gives_a_plan() -> None:
    snapshot = moldable_instance("mixed", 30, 20, 3)
    policy = lookup("bicriteria")
    options = defaults_of(policy.options)
    told: list[Plan] = []
    plan = policy.solve(snapshot, options, Budget(stop=lambda: True), told.append)
    assert plan.status is Status.TIME_LIMIT
    assert len(plan.placements) == 30
    assert told
    for each in (plan, *told):
        assert check(snapshot, each).violations == ()


@pytest.mark.parametrize("points", [3, 5])
def test_no_more_points_than_asked_for(points: int) -> None:
    plan = bicriteria(moldable_instance("highly", 40, 30, 1), points=points, work=20_000)
    assert len(plan.front) <= points


def test_one_job_is_optimal() -> None:
    plan = bicriteria(snapshot_of([("a", [10.0, 6.0, 4.5], 2.0)], 4))
    assert plan.status is Status.OPTIMAL
    assert plan.objective.value == pytest.approx(9.0)
    assert plan.pareto_gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("rows", "procs"),
    [
        # one processor: Smith's rule
        ([("a", [3.0], 2.0), ("b", [1.0], 4.0), ("c", [7.0], 1.0)], 1),
        # a job longer than all others together
        ([("a", [500.0, 400.0], 1.0), *((f"b{n}", [2.0, 1.5], 3.0) for n in range(8))], 4),
        # a weight of nothing
        ([("a", [3.0, 2.0], 0.0), ("b", [4.0, 2.5], 0.0)], 3),
    ],
)
def test_odd_queues(rows: list[Any], procs: int) -> None:
    plan = bicriteria(snapshot_of(rows, procs))
    assert len(plan.placements) == len(rows)
    assert (plan.objective.bound or 0.0) <= plan.objective.value * (1.0 + 1e-9)


def test_running_work_and_releases_count() -> None:
    snapshot = moldable_instance("weakly", 20, 10, 1)
    queue = tuple(replace(job, earliest=3.0 * (n % 3)) for n, job in enumerate(snapshot.queue))
    running = (Running(id="x", nodes={"n1": 1, "n2": 1}, start=0.0, end=9.0),)
    plan = bicriteria(replace(snapshot, queue=queue, running=running))
    assert plan.pareto_gap is not None
    assert plan.pareto_gap < 0.25


def test_clusters_powers_links_and_rigid_jobs() -> None:
    rigid = {"id": "r", "kind": "rigid", "procs": 12, "base_time": 30.0, "proc_gbps": 0.01}
    queue = [rigid, *(moldable(n, weight=1.0 + n, proc_gbps=0.05) for n in range(12))]
    held = {"id": "closed", "nodes": ["a[1-2]"], "start": 20.0, "end": 50.0, "jobs": []}
    plan = bicriteria(of_clusters(queue, reservations=[held]))
    assert len(plan.placements) == 13
    assert plan.pareto_gap is not None
    assert plan.objective.bound is not None


def test_over_clusters_the_makespan_is_no_worse_than_by_oas() -> None:
    snapshot = of_clusters([moldable(n, proc_gbps=0.05 * (n % 2)) for n in range(14)])
    shortest = bicriteria(snapshot, work=40_000, objective="makespan", prefer="cmax")
    by_oas = solved("oas", snapshot, work=20_000)
    assert shortest.objective.value <= by_oas.objective.value * (1.0 + 1e-9)


def test_dependencies_and_workflows_have_a_front_without_bounds() -> None:
    tasks = [{"id": "t1", "work": 20.0, "max_procs": 4}, {"id": "t2", "work": 5.0}]
    flow = {"id": "f", "kind": "workflow", "tasks": tasks, "edges": [{"from": "t1", "to": "t2"}]}
    queue = [moldable(0), moldable(1, after=["0"]), flow, moldable(2)]
    plan = bicriteria(of_clusters(queue))
    assert len(plan.placements) == 5
    assert plan.status is Status.HEURISTIC
    assert plan.pareto_gap is None
    assert plan.front
    assert plan.certificates == ()
