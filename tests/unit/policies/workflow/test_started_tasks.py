"""Workflows in the middle of their run: decoders and checker, on cases worked out by hand."""

from typing import Any

import pytest

from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.jobs import WorkflowJob
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.checking.check import check
from tests.support.planned import planned
from tests.unit.policies.kernel.kernel_case import case, cluster, reasons, rigid, spans

EVERY = ("fcfs", "fpfs", "easy", "conservative", "oas", "auto")


def flow(
    tasks: list[dict[str, Any]],
    edges: list[tuple[str, str, float]],
    started: list[tuple[str, str, float]],
    **fields: Any,
) -> dict[str, Any]:
    return {
        "id": "w",
        "kind": "workflow",
        "tasks": tasks,
        "edges": [{"from": a, "to": b, "gb": gb} for a, b, gb in edges],
        "started": [
            {"task": task, "clusters": names.split("+"), "end": end} for task, names, end in started
        ],
        **fields,
    }


ONE = [{"id": "t", "work": 10.0}]


def ready(started: list[tuple[str, str, float]], **fields: Any) -> Snapshot:
    """Two clusters with links of 1 and 0.5 Gbit/s, .25 s away; each parent sends 1 GB to t."""
    clusters = [cluster("alpha", 1, link=1.0), cluster("beta", 2, link=0.5)]
    for one in clusters:
        one["link_latency_s"] = 0.25
    edges = [(name, "t", 1.0) for name, _, _ in started]
    return case(clusters, [flow(ONE, edges, started)], time=100.0, **fields)


@pytest.mark.parametrize("policy", EVERY)
@pytest.mark.parametrize(
    ("started", "start", "node"),
    [
        ([("s", "alpha", 90.0)], 100.0, "alpha1"),  # data are there; nothing starts in the past
        ([("s", "alpha", 105.0)], 105.0, "alpha1"),  # on its own cluster at once
        ([("s", "beta", 105.0)], 105.0, "beta1"),
        ([("s", "alpha+beta", 70.0)], 100.0, "alpha1"),  # 70 + 16.25 < 100
        ([("s", "alpha+beta", 90.0)], 106.25, "alpha1"),  # one cluster is another set than two
        ([("s", "alpha", 104.0), ("u", "beta", 105.0)], 120.25, "beta1"),  # 104 + 16 + .25
        ([("s", "alpha", 104.0), ("u", "beta", 101.0)], 117.25, "alpha1"),  # 101 + 16.25
    ],
)
def test_a_child_waits_for_data_of_what_has_started(
    policy: str, started: list[tuple[str, str, float]], start: float, node: str
) -> None:
    plan = planned(policy, ready(started))
    (placement,) = plan.placements
    assert (placement.start, placement.end) == (start, start + 10.0)
    # Where its data lay on both clusters, either is as good: a search keeps what it finds first.
    is_tie = policy == "auto" and started[0][1] == "alpha+beta"
    assert set(placement.nodes) == {node} or is_tie


@pytest.mark.parametrize("policy", EVERY)
def test_a_busy_cluster_is_worth_the_transfer_or_not(policy: str) -> None:
    # s ran on alpha, which is taken until 130: beta has the data at 90 + 16.25
    running = [{"id": "r", "nodes": {"alpha1": 1}, "start": 0.0, "end": 130.0}]
    plan = planned(policy, ready([("s", "alpha", 90.0)], running=running, overrun_s=0.0))
    assert spans(plan) == {"w.t": (106.25, 116.25)}


@pytest.mark.parametrize("policy", EVERY)
def test_who_waits_for_the_workflow_waits_for_what_runs(policy: str) -> None:
    tasks = [{"id": "u", "work": 1.0}, {"id": "t", "work": 10.0}]
    started = [("s", "alpha", 5.0), ("exit", "alpha", 30.0), ("old", "alpha", -9.0)]
    queue = [flow(tasks, [("s", "t", 0.0)], started), rigid("after", 1, 1.0, after=["w"])]
    snapshot = case([cluster("alpha")], queue)
    assert spans(planned(policy, snapshot)) == {"w.t": (5, 15), "w.u": (0, 1), "after": (30, 31)}


@pytest.mark.parametrize("policy", EVERY)
def test_data_that_no_link_carries_stay_where_they_are(policy: str) -> None:
    queue = [
        flow(
            [{"id": "t", "work": 2.0}, {"id": "u", "work": 2.0}, {"id": "v", "work": 2.0}],
            [("s", "t", 1.0), ("t", "u", 1.0), ("z", "v", 1.0)],
            [("s", "beta", -5.0), ("z", "alpha", -5.0)],
        )
    ]
    snapshot = case([cluster("alpha", 1, power=0.5), cluster("beta", 1, link=0.0)], queue)
    plan = planned(policy, snapshot)
    where = {p.task: next(iter(p.nodes)) for p in plan.placements}
    assert where == {"t": "beta1", "u": "beta1", "v": "alpha1"}


def test_data_that_can_meet_nowhere_are_named() -> None:
    queue = [flow(ONE, [("s", "t", 1.0), ("z", "t", 1.0)], [("s", "a", 0.0), ("z", "b", 0.0)])]
    plan = planned("fcfs", case([cluster("a", 1, link=0.0), cluster("b", 1, link=0.0)], queue))
    assert reasons(plan) == {"w.t": "insufficient"}
    assert plan.deferred[0].detail == "the data of what ran before reach no cluster that it may use"


def test_tasks_that_share_data_need_one_place() -> None:
    # the data of t are on a, u fits b only, and no link carries what t gives to u
    tasks = [{"id": "t", "work": 1.0}, {"id": "u", "work": 1.0, "min_procs": 5}]
    edges = [("s", "t", 1.0), ("t", "u", 1.0)]
    clusters = [cluster("a", 4, link=0.0), cluster("b", 6, link=0.0)]
    plan = planned("easy", case(clusters, [flow(tasks, edges, [("s", "a", 0.0)])]))
    assert reasons(plan) == {"w.t": "insufficient", "w.u": "dependency"}
    what = "no clusters between which its data can move take all tasks that share them"
    assert [d.detail for d in plan.deferred] == [
        what,
        f"task t of this workflow cannot run: {what}",
    ]


@pytest.mark.parametrize("policy", EVERY)
def test_data_on_their_way_are_an_event(policy: str) -> None:
    # u fits beta only, and nothing else happens between the end of t and the arrival of its data
    tasks = [{"id": "t", "work": 10.0}, {"id": "u", "work": 4.0, "min_procs": 2}]
    clusters = [cluster("alpha", 1, link=1.0), cluster("beta", 2, link=1.0, power=0.5)]
    snapshot = case(clusters, [flow(tasks, [("t", "u", 1.0)], [])])
    assert spans(planned(policy, snapshot)) == {"w.t": (0, 10), "w.u": (18, 26)}


def test_plain_plans_a_task_where_and_when_the_data_are() -> None:
    snapshot = ready([("s", "beta", 99.0)])
    (placement,) = planned("plain", snapshot).placements
    assert (set(placement.nodes), placement.start) == ({"beta1"}, 100.0)
    (placement,) = planned("plain", ready([("s", "beta", 101.0)])).placements
    assert (set(placement.nodes), placement.start) == ({"beta1"}, 101.0)


def corrupted(snapshot: Snapshot, shift: float) -> tuple[str, ...]:
    """What the checker says of the plan of conservative, with ends that are later by `shift`."""
    plan = planned("conservative", snapshot)
    (job,) = (job for job in snapshot.queue if isinstance(job, WorkflowJob))
    late = tuple(replace(one, end=one.end + shift) for one in job.started)
    queue = tuple(
        replace(other, started=late) if isinstance(other, WorkflowJob) else other
        for other in snapshot.queue
    )
    return check(replace(snapshot, queue=queue), plan).violations


def test_the_checker_names_a_child_before_its_data() -> None:
    snapshot = ready([("s", "alpha+beta", 90.0)])
    assert corrupted(snapshot, 1e-7) == ()
    assert corrupted(snapshot, 0.5) == ("job w task t: starts at 106.25 s, task s allows 106.75 s",)


def test_the_checker_names_a_job_before_what_runs() -> None:
    queue = [flow(ONE, [], [("s", "alpha", 30.0)]), rigid("after", 1, 1.0, after=["w"])]
    snapshot = case([cluster("alpha")], queue)
    assert corrupted(snapshot, 2.0) == ("job after: starts at 30 s, before job w ends at 32 s",)


def test_started_tasks_are_written_as_they_are_read() -> None:
    snapshot = ready([("s", "alpha+beta", 90.0)])
    assert write_snapshot(snapshot)["queue"][0]["started"] == [
        {"task": "s", "clusters": ["alpha", "beta"], "end": 90.0}
    ]
