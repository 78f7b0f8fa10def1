"""What the checker allows, what it measures, fronts, finished traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coalloc.model.jobs import MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup, TableSpeedup
from coalloc.model.values import replace
from coalloc.policies.checking.check import MOST, check, occupation_violations
from coalloc.policies.checking.jobs import stepped
from coalloc.policies.checking.occupation import range_maxima
from tests.unit.policies.check.check_case import (
    plan,
    snapshot,
    valued,
    with_job,
)

EPOCH = 1.7e9


def one_cluster(*jobs: Any, **changes: Any) -> Snapshot:
    nodes = tuple(Node(name=f"n{i}", slots=2, memory_mb=100) for i in range(2))
    return replace(Snapshot(clusters=(Cluster(name="k", nodes=nodes),), queue=jobs), **changes)


def rigid(name: str, **changes: Any) -> RigidJob:
    return replace(RigidJob(id=name, procs=1, base_time=10.0), **changes)


def listed(**changes: Any) -> MoldableJob:
    """A moldable job whose table lists 2 and 8 processes."""
    table = TableSpeedup(procs=(2, 8), times=(9.0, 5.0))
    return MoldableJob(id="1", speedup=table, **changes)


def at(job: str, start: float, end: float, *nodes: str, **fields: Any) -> Placement:
    return Placement(job=job, start=start, end=end, nodes=dict.fromkeys(nodes, 1), **fields)


def plan_of(*placements: Placement, **changes: Any) -> Plan:
    base = Plan(
        policy="by hand",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=placements,
    )
    return valued(replace(base, **changes))


@pytest.mark.parametrize("off", [-9e-7, 9e-7])
def test_times_may_be_off_by_less_than_a_microsecond(off: float) -> None:
    queue = (rigid("1", procs=4), rigid("2", procs=4, after=("1",)))
    nodes = {"n0": 2, "n1": 2}
    first = Placement(job="1", start=0.0, end=10.0 + off, nodes=nodes)
    second = Placement(job="2", start=10.0, end=20.0, nodes=nodes)
    assert check(one_cluster(*queue), plan_of(first, second)).ok


def test_times_since_1970_are_as_exact_as_doubles_allow() -> None:
    later = one_cluster(rigid("1"), time=EPOCH, overrun_s=0.0)
    assert not check(later, plan_of(at("1", EPOCH, EPOCH + 10.00001, "n0"))).ok
    found = check(
        later,
        replace(
            plan_of(at("1", EPOCH, EPOCH + 10.0, "n0")),
            objective=Objective(name="makespan", value=10.0),
        ),
    )
    assert found.ok
    assert found.metrics["makespan"] == 10.0


def test_jobs_of_a_microsecond_still_collide() -> None:
    queue = [rigid(str(i), base_time=1e-6) for i in range(3)]
    placements = [at(job.id, 0.0, 1e-6, "n0") for job in queue]
    found = check(one_cluster(*queue), plan_of(*placements))
    assert found.violations == ("node n0: 3 processes on 2 slots at 0 s (job 0, job 1, job 2)",)


def test_a_task_without_work_takes_nothing() -> None:
    flow = WorkflowJob(id="w", tasks=(Task(id="t", work=0.0),))
    placements = [
        at("w", 5.0, 5.0, "n0", task="t"),
        at("1", 0.0, 10.0, "n0"),
        at("2", 0.0, 10.0, "n0"),
    ]
    assert check(one_cluster(flow, rigid("1"), rigid("2")), plan_of(*placements)).ok


def test_what_runs_already_may_overload_a_node_and_a_link_by_itself() -> None:
    nodes = (Node(name="n0"), Node(name="n1"))
    clusters = (Cluster(name="k", nodes=nodes, link_gbps=1.0),)
    old = [
        Running(id=str(i), nodes={"n0": 1}, start=0, end=9, link_gbps={"k": 2.0}) for i in (1, 2)
    ]
    busy = Snapshot(clusters=clusters, running=tuple(old), queue=(rigid("1"),), overrun_s=0.0)
    assert check(busy, plan_of(at("1", 0.0, 10.0, "n1"))).ok
    assert check(busy, plan_of(at("1", 9.0, 19.0, "n0"))).ok
    found = check(busy, plan_of(at("1", 8.0, 18.0, "n0"))).violations
    assert found == ("node n0: 3 processes on 1 slots at 8 s (job 1, running 1, running 2)",)


def test_running_work_on_nodes_that_are_gone_is_nobodys() -> None:
    gone = Running(id="old", nodes={"x9": 4}, start=0.0, end=100.0, link_gbps={"lost": 1.0})
    assert check(one_cluster(rigid("1"), running=(gone,)), plan_of(at("1", 0.0, 10.0, "n0"))).ok


def test_sc_lets_a_link_be_shared() -> None:
    clusters = tuple(Cluster(name=k, nodes=(Node(name=f"{k}1"),), link_gbps=0.5) for k in "ab")
    # 0.75 * 1 * 1 / 1 on links of 0.5: sc 1.5
    job = rigid("1", procs=2, sigma=0.5, proc_gbps=0.75)
    shared = Snapshot(clusters=clusters, queue=(job,))
    slow = plan_of(at("1", 0.0, 12.5, "a1", "b1", sc=1.5), options={"saturation_threshold": 1.5})
    assert check(shared, slow).violations == ()
    assert check(shared, slow).metrics["peak_link_use.a"] == 1.5
    # 10 * (0.5 + 0.5 * 1.4)
    fast = plan_of(at("1", 0.0, 12.0, "a1", "b1", sc=1.4), options={"saturation_threshold": 1.5})
    found = check(shared, fast).violations
    assert found == ("link a: 0.75 Gbit/s on 0.5 Gbit/s at sc 1.4 at 0 s (job 1)", *found[1:])
    assert len(found) == 2


def test_each_job_on_a_link_is_bound_by_its_own_sc() -> None:
    clusters = tuple(
        Cluster(name=k, nodes=(Node(name=f"{k}1", slots=2),), link_gbps=0.5) for k in "ab"
    )
    queue = (rigid("1", procs=2, proc_gbps=0.4), rigid("2", procs=2, proc_gbps=0.4))
    options = {"saturation_threshold": 2.0}
    shared = Snapshot(clusters=clusters, queue=queue)
    both = [at(name, 0.0, 10.0, "a1", "b1", sc=1.6) for name in "12"]
    assert check(shared, plan_of(*both, options=options)).ok
    spoilt = plan_of(both[0], replace(both[1], sc=1.5), options=options)
    assert check(shared, spoilt).violations == (
        "link a: 0.8 Gbit/s on 0.5 Gbit/s at sc 1.5 at 0 s (job 1, job 2)",
        "link b: 0.8 Gbit/s on 0.5 Gbit/s at sc 1.5 at 0 s (job 1, job 2)",
    )


def test_moldable_jobs_spread_where_their_traffic_is_known_or_allowed() -> None:
    clusters = tuple(Cluster(name=k, nodes=(Node(name=f"{k}1"),), link_gbps=0.1) for k in "ab")
    speedup = AmdahlSpeedup(time_1=10.0, parallel_fraction=1.0)
    job = MoldableJob(id="1", speedup=speedup, min_procs=1, max_procs=8)
    spread = plan_of(at("1", 0.0, 5.0, "a1", "b1"))
    unknown, known = (
        Snapshot(clusters=clusters, queue=(replace(job, proc_gbps=rate),)) for rate in (None, 0.0)
    )
    assert check(known, spread).ok
    assert check(unknown, spread).violations == ("job 1: is on 2 clusters without proc_gbps",)
    assert check(unknown, replace(spread, options={"coallocate_moldable": True})).ok
    assert not check(unknown, replace(spread, options={"coallocate_moldable": "yes"})).ok


@pytest.mark.parametrize(
    ("power", "step", "expected"),
    [
        (1.0, 0.05, 1.0),
        (0.7, 0.1, 0.7),  # 0.7 / 0.1 is 6.999... in doubles
        (0.74, 0.05, 0.7),
        (0.03, 0.05, 0.025),  # below one step: the half of it
        (0.012, 0.05, 0.00625),
        (0.5, 0.0, 0.5),
        (5e-324, 0.05, 5e-324),  # the smallest double: the way there overflows
        (0.5, 5e-324, 0.5),
    ],
)
def test_powers_are_rounded_down_to_the_step(power: float, step: float, expected: float) -> None:
    assert stepped(np.array([power]), step)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("job", "fits"),
    [
        (rigid("1", procs=4), True),
        (rigid("1", procs=5), False),
        (rigid("1", procs=2, memory_mb_per_proc=51), True),
        (rigid("1", procs=3, memory_mb_per_proc=51), False),
        (rigid("1", memory_mb_per_proc=101), False),
        (rigid("1", features=("gpu",)), False),
        (rigid("1", clusters=("other",)), False),
        (
            MoldableJob(
                id="1",
                speedup=AmdahlSpeedup(time_1=1.0, parallel_fraction=1.0),
                min_procs=4,
                max_procs=9,
            ),
            True,
        ),
        (
            MoldableJob(
                id="1",
                speedup=AmdahlSpeedup(time_1=1.0, parallel_fraction=1.0),
                min_procs=5,
                max_procs=9,
            ),
            False,
        ),
        (listed(min_procs=2, max_procs=9), True),
        (listed(min_procs=1, max_procs=2), True),
        (listed(min_procs=3, max_procs=7), False),  # no listed count lies in the range
        # of the listed counts only 8 lies in the range
        (
            MoldableJob(
                id="1",
                speedup=TableSpeedup(procs=(2, 8), times=(9.0, 5.0)),
                min_procs=3,
                max_procs=9,
            ),
            False,
        ),
    ],
)
def test_infeasible_is_refused_only_where_one_cluster_surely_holds_the_job(
    job: Any, fits: bool
) -> None:
    item = Deferred(job="1", reason=Reason.INFEASIBLE)
    found = check(one_cluster(job), plan_of(deferred=(item,))).violations
    line = "job 1: is deferred as infeasible, and fits an empty cluster"
    assert found == ((line,) if fits else ())


def test_a_cluster_without_nodes_holds_nothing() -> None:
    one = one_cluster(rigid("1", procs=5))
    empty = replace(one, clusters=(*one.clusters, Cluster(name="empty")))
    item = Deferred(job="1", reason=Reason.INFEASIBLE)
    assert check(empty, plan_of(deferred=(item,))).ok
    allowed = replace(empty, queue=(rigid("1", procs=4, clusters=("empty",)),))
    assert check(allowed, plan_of(deferred=(item,))).ok
    bare = replace(one, clusters=(Cluster(name="empty"),))
    for nothing in (bare, replace(bare, clusters=())):
        assert check(nothing, plan_of(deferred=(item,))).ok


def test_a_node_that_is_down_is_not_never() -> None:
    nodes = (Node(name="n0", state=NodeState.DOWN),)
    down = Snapshot(clusters=(Cluster(name="k", nodes=nodes, stale=True),), queue=(rigid("1"),))
    item = Deferred(job="1", reason=Reason.INFEASIBLE)
    assert not check(down, plan_of(deferred=(item,))).ok
    assert check(down, plan_of(deferred=(replace(item, reason=Reason.INSUFFICIENT),))).ok


def test_a_workflow_is_infeasible_where_one_of_its_tasks_is() -> None:
    tasks = (Task(id="a", work=1.0), Task(id="b", work=1.0, min_procs=5, max_procs=5))
    flow = one_cluster(WorkflowJob(id="w", tasks=tasks))
    items = tuple(Deferred(job="w", task=t, reason=Reason.INFEASIBLE) for t in "ab")
    found = check(flow, plan_of(deferred=items))
    assert found.ok
    assert found.metrics["deferred"] == 1


def test_bounds_and_statuses() -> None:
    value = plan().objective
    optimal = replace(
        plan(), status=Status.OPTIMAL, objective=replace(value, bound=value.value * (1 + 5e-10))
    )
    feasible = replace(plan(), status=Status.FEASIBLE, objective=replace(value, bound=160.0))
    assert check(snapshot(), optimal).ok
    assert check(snapshot(), feasible).ok
    assert check(snapshot(), feasible).metrics["gap"] == 1.0
    nothing = plan_of(
        deferred=(Deferred(job="1", reason=Reason.INFEASIBLE),), status=Status.INFEASIBLE
    )
    assert check(one_cluster(rigid("1", procs=9)), nothing).ok


def test_a_workflow_counts_once_at_its_last_task() -> None:
    # 150 + 60 + 98.65 + 160 + 110 + 310 + 320 with weights of 1
    assert check(snapshot(), plan()).metrics["weighted_completion"] == pytest.approx(1208.65)
    heavier = check(with_job("w", weight=10.0), plan()).metrics
    assert heavier["weighted_completion"] == pytest.approx(1208.65 + 9 * 98.65)


def test_metrics() -> None:
    metrics = check(snapshot(), plan()).metrics
    work = 150 * 4 + 60 * 2 + 20 + 10.4 * 2 + 10 + 10 + 10 + 20 * 2
    assert metrics["compaction"] == pytest.approx(work / (16 * 320))
    assert (metrics["placed"], metrics["deferred"], metrics["coallocated"]) == (7, 3, 2)
    assert metrics["peak_link_use.beta"] == pytest.approx(1.0)
    assert metrics["peak_link_use.gamma"] is None
    empty = check(Snapshot(), plan_of()).metrics
    assert (empty["makespan"], empty["compaction"], empty["bound"]) == (0.0, None, None)


def test_a_finished_trace_is_checked_without_the_run_time_rule() -> None:
    ran = [replace(p, end=p.end - 1.0) for p in plan().placements]
    assert occupation_violations(snapshot(), ran) == ()
    assert occupation_violations(snapshot(), ran[:3]) == ()
    longer = [replace(p, end=p.end + 60.0) if p.job == "late" else p for p in plan().placements]
    again = with_job("held", held=False)
    later = [*longer, at("held", 365.0, 366.0, "a1"), at("huge", 365.0, 366.0, "a1")]
    assert occupation_violations(again, later) == (
        "job huge: has 1 processes, needs 100",
        "node a1: 3 processes on 2 slots at 365 s (job late, job held, job huge)",
    )
    assert occupation_violations(snapshot(), ran, {"power_step": "x"}) == (
        "options.power_step: 'x' is not a number of at least 0",
    )


def test_a_plan_that_is_wrong_throughout_is_reported_in_few_lines() -> None:
    queue = [rigid(str(i)) for i in range(3 * MOST)]
    found = check(one_cluster(*queue), plan_of()).violations
    assert len(found) == MOST + 1
    assert found[-1] == f"more than {MOST} violations of this kind; the others are not listed"


def test_the_order_of_placements_and_nodes_does_not_matter() -> None:
    backwards = list(reversed(plan().placements))
    turned = replace(
        plan(),
        placements=tuple(
            replace(p, nodes=dict(reversed(list(p.nodes.items())))) for p in backwards
        ),
    )
    before, after = check(snapshot(), plan()), check(snapshot(), turned)
    assert after.ok
    assert after.metrics == pytest.approx(before.metrics)


def test_many_jobs_on_a_node_are_not_all_named() -> None:
    for count, told in ((5, "job 4)"), (6, "job 4, ...)")):
        queue = [rigid(str(i)) for i in range(count)]
        found = check(one_cluster(*queue), plan_of(*[at(job.id, 0.0, 10.0, "n0") for job in queue]))
        assert len(found.violations) == 1
        assert found.violations[0].endswith(told)


def test_options_may_stand_at_their_lower_bounds() -> None:
    lowest = {"saturation_threshold": 1, "power_step": 0}
    assert check(snapshot(), replace(plan(), options=lowest)).ok
    malformed = {"saturation_threshold": True, "power_step": None}
    assert len(check(snapshot(), replace(plan(), options=malformed)).violations) == 1


def test_far_from_zero_the_rounding_of_times_is_allowed() -> None:
    far = one_cluster(rigid("1", base_time=0.1), time=1e15)
    # doubles are 1/8 s apart there
    end = 1e15 + 0.1
    assert end - 1e15 == 0.125
    assert occupation_violations(far, [at("1", 1e15, end, "n0")]) == ()
    assert not any(
        "runs for" in line for line in check(far, plan_of(at("1", 1e15, end, "n0"))).violations
    )


def test_range_maxima_are_those_of_slices() -> None:
    level = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0])
    pairs = [(i, k) for i in range(len(level)) for k in range(i, len(level))]
    first, last = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    expected = [level[i : k + 1].max() for i, k in pairs]
    assert range_maxima(level, first, last).tolist() == expected


def test_a_job_that_asks_for_one_cluster_is_not_split() -> None:
    clusters = tuple(Cluster(name=k, nodes=(Node(name=f"{k}1"),), link_gbps=1.0) for k in "ab")
    for job in (rigid("1", procs=2), listed(min_procs=2, max_procs=2)):
        told = [
            check(
                Snapshot(
                    clusters=clusters, queue=(replace(job, proc_gbps=0.0, one_cluster=whole),)
                ),
                plan_of(at("1", 0.0, 10.0, "a1", "b1")),
            ).violations
            for whole in (True, False)
        ]
        words = "is on 2 clusters, and asks for one"
        assert [any(words in text for text in texts) for texts in told] == [True, False]


def split_tasks(second: float, link: float = 0.5, **fields: Any) -> tuple[Snapshot, Plan]:
    """Two tasks of 20 s / 2 processes, each on both clusters, and when the second one begins.

    Each sends 8 * 1 * 1/2 * 1/1 = 4 Gbit over each link: 8 s by that of b, at .5 Gbit/s.
    """
    clusters = tuple(
        Cluster(name=k, nodes=(Node(name=f"{k}1", slots=2),), link_gbps=gbps)
        for k, gbps in (("a", 1.0), ("b", link))
    )
    tasks = tuple(
        Task(id=name, work=20.0, parallel_fraction=1.0, min_procs=2, max_procs=2, comm_gb=1.0)
        for name in "tu"
    )
    job = WorkflowJob(id="w", tasks=tasks, **fields)
    run = min(18.0, fields.get("time_limit", 18.0))
    placements = [
        at("w", start, start + run, "a1", "b1", task=name)
        for name, start in (("t", 0.0), ("u", second))
    ]
    return Snapshot(clusters=clusters, queue=(job,)), plan_of(*placements)


def test_tasks_that_are_split_load_links_at_the_pace_of_their_run_time() -> None:
    assert check(*split_tasks(18.0)).ok
    shared, both = split_tasks(9.0)
    full = "link b: 1 Gbit/s on 0.5 Gbit/s at 9 s (job w task t, job w task u)"
    assert check(shared, both).violations == (full,)
    # sc is for jobs, whose run times know it
    slow = replace(both, options={"saturation_threshold": 2.0})
    placements = tuple(replace(p, sc=2.0) for p in both.placements)
    assert check(shared, replace(slow, placements=placements)).violations == (full,)
    busy = Running(id="r", nodes={}, start=-1.0, end=10.0, link_gbps={"a": 0.6})
    line = "link a: 1.1 Gbit/s on 1 Gbit/s at 0 s (job w task t)"
    alone, plan = split_tasks(18.0)
    assert check(replace(alone, running=(busy,)), plan).violations == (line,)
    # as published mappings have it, and say so
    assert check(shared, replace(both, options={"workflow_links": "idle"})).ok


@pytest.mark.parametrize("options", [{}, {"workflow_links": "idle"}])
def test_no_time_limit_ends_what_never_crosses_a_link(options: dict[str, Any]) -> None:
    snapshot, plan = split_tasks(18.0, link=0.0, time_limit=12.0)
    found = check(snapshot, replace(plan, options=options)).violations
    assert "job w task t: runs for 12 s, the cost model says inf s" in found
