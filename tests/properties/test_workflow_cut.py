"""A plan of workflows, cut at any instant into what has started and what is left, stays a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.jobs import Job, Started, WorkflowJob
from coalloc.model.plan import Placement, Plan, Status
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES
from tests.support.snapshots import POWERS

NAMES = ("alpha", "beta", "gamma")


@st.composite
def platforms(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "link_gbps": draw(st.sampled_from([None, 1.0, 0.3, 0.0])),
            "intra_gbps": draw(st.sampled_from([None, 8.0])),
            "link_latency_s": draw(st.sampled_from([0.0, 0.5])),
            "nodes": [
                {"name": f"{name}[1-{draw(st.integers(2, 4))}]", "power": draw(POWERS)},
                {"name": f"{name}9", "power": draw(POWERS), "slots": 2},
            ],
        }
        for name in NAMES[: draw(st.integers(1, 3))]
    ]


@st.composite
def flows(draw: st.DrawFn, number: int) -> dict[str, Any]:
    size = draw(st.integers(2, 9))
    tasks = [
        {
            "id": f"t{t}",
            "work": draw(st.sampled_from([0.0, 5.0, 20.0, 33.3])),
            "parallel_fraction": draw(st.sampled_from([0.0, 0.9])),
            "max_procs": draw(st.sampled_from([1, 2, 4])),
            "comm_gb": draw(st.sampled_from([0.0, 0.0, 1.0])),
        }
        for t in range(size)
    ]
    edges = [
        {"from": f"t{a}", "to": f"t{b}", "gb": draw(st.sampled_from([0.0, 2.0]))}
        for b in range(size)
        for a in range(b)
        if draw(st.integers(0, 3)) == 0
    ]
    return {"id": f"w{number}", "kind": "workflow", "tasks": tasks, "edges": edges}


@st.composite
def problems(draw: st.DrawFn) -> Snapshot:
    queue = [draw(flows(n)) for n in range(draw(st.integers(1, 2)))]
    for n in range(draw(st.integers(0, 2))):
        queue.append({"id": f"j{n}", "kind": "rigid", "procs": 2, "base_time": 9.0})
        if draw(st.booleans()):
            queue[-1]["after"] = ["w0"]
    top = {"format": "coalloc-snapshot/1", "time": 50.0, "overrun_s": 0.0}
    return read_snapshot({**top, "clusters": draw(platforms()), "queue": queue})


def cut(snapshot: Snapshot, placements: Sequence[Placement], time: float) -> Snapshot:
    """The snapshot at a later instant, if all ran as planned.

    A workflow of which all has started is in the queue no more, and who waits for it need not.
    """
    cluster_of = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    begun = {(p.job, p.task): p for p in placements if p.start <= time}
    queue: list[Job] = []
    for job in snapshot.queue:
        if isinstance(job, WorkflowJob):
            job = _cut_flow(job, begun, cluster_of)
            if job.tasks:
                queue.append(job)
        elif (job.id, None) not in begun:
            queue.append(job)
    left = {job.id for job in queue}
    running = [
        Running(
            id=p.job if p.job not in left and p.task is None else f"{p.job}/{p.task}",
            nodes=dict(p.nodes),
            start=p.start,
            end=p.end,
        )
        for p in begun.values()
        if p.end > time
    ]
    return replace(snapshot, time=time, queue=tuple(queue), running=tuple(running))


def _cut_flow(
    job: WorkflowJob, begun: dict[tuple[str, str | None], Placement], cluster_of: dict[str, str]
) -> WorkflowJob:
    mine = {task: p for (name, task), p in begun.items() if name == job.id and task is not None}
    new = tuple(
        Started(task=task, clusters=tuple(dict.fromkeys(cluster_of[n] for n in p.nodes)), end=p.end)
        for task, p in mine.items()
    )
    return replace(
        job,
        tasks=tuple(task for task in job.tasks if task.id not in mine),
        edges=tuple(edge for edge in job.edges if edge.child not in mine),
        started=(*job.started, *new),
    )


def rest(plan: Plan, left: Snapshot) -> Plan:
    """What a plan still says of the queue."""
    kept = tuple(p for p in plan.placements if p.start > left.time)
    made = max((p.end for p in kept), default=left.time) - left.time
    return replace(
        plan,
        status=Status.HEURISTIC,
        placements=kept,
        objective=replace(plan.objective, name="makespan", value=made, bound=None),
        certificates=(),
    )


def solved(name: str, snapshot: Snapshot) -> Plan:
    policy = POLICIES[name]
    return policy.solve(snapshot, read_options({}, policy.options), Budget(seed=1, work=2_000))


SIMPLE = ("fcfs", "fpfs", "easy", "conservative", "oas", "auto", "plain")
WORKFLOW = ("workflow", "mca-heft", "m-heft", "hcpa", "mcpa")


@pytest.mark.parametrize("name", [*SIMPLE, *WORKFLOW])
@settings(max_examples=10)
@given(problem=problems(), shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3))
def test_what_is_left_of_a_plan_is_a_plan(
    name: str, problem: Snapshot, shares: list[float]
) -> None:
    snapshot, plan = problem, solved("easy" if name == "plain" else name, problem)
    assert check(snapshot, plan).violations == ()
    deferred = {d.job for d in plan.deferred}
    for share in shares:
        last = max((p.end for p in plan.placements), default=snapshot.time)
        time = snapshot.time + share * (last - snapshot.time)
        after = cut(snapshot, plan.placements, time)
        assert read_snapshot(write_snapshot(after)) == after
        names = {job.id for job in after.queue}
        if "w0" in names or not any(job.after for job in after.queue):
            assert check(after, rest(plan, after)).violations == ()
        again = solved(name, after)
        assert check(after, again).violations == ()
        if name == "plain":
            return
        snapshot, plan = after, again
        assert not {d.job for d in plan.deferred} - deferred
