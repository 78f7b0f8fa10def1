"""Workflows in the daemon's core: order, failure, cancel, hold, and starts along the plan."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import force_setattr

from coalloc.core.base.events import Disconnected, Solved, StatementReceived
from coalloc.core.base.messages import Abort, Prepare, Read
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Hold, Refused, Release
from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Reservation
from coalloc.model.values import replace
from tests.support.core_site import Site, patient

DIAMOND = ("a b c d", "a>b a>c b>d c>d")


def states(site: Site, job: str) -> dict[str, str]:
    """Of the tasks that were ever placed."""
    return {r.task: str(r.state) for r in site.state.jobs.values() if r.flow == job}


def complete(site: Site, task: str, code: int = 0) -> None:
    """Run a placed task to its end, in the time it was planned for."""
    site.run(task)
    site.wait(site.job(task).planned)
    started = site.job(task).started
    site.say(
        task, PartState.FINISHED, exit_code=code, started=started, ended=site.now, reason="exited"
    )


def plan_of(*placements: tuple[str, str, float, float, str]) -> Plan:
    """Job, task, start, end and node of each placement."""
    return Plan(
        policy="by-hand",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=tuple(
            Placement(job=job, task=task or None, start=start, end=end, nodes={node: 1})
            for job, task, start, end, node in placements
        ),
    )


def planned(site: Site, *placements: tuple[str, str, float, float, str]) -> None:
    """Answer the pending solve; times are from its snapshot's on."""
    solve = site.pending_solves.pop()
    time = solve.snapshot.time
    shifted = [(j, t, time + s, time + e, n) for j, t, s, e, n in placements]
    site.do(Solved(round=solve.round, plan=plan_of(*shifted), solve_s=0.0))


def test_tasks_start_when_those_they_need_have_completed() -> None:
    site = patient()
    job = site.submit_workflow(*DIAMOND)
    assert states(site, job) == {"a": "preparing"}
    complete(site, f"{job}.1")
    assert states(site, job) == {"a": "completed", "b": "preparing", "c": "preparing"}
    complete(site, f"{job}.2")
    assert "d" not in states(site, job)
    complete(site, f"{job}.3")
    complete(site, f"{job}.4")
    record = site.job(job)
    assert record.state is JobState.COMPLETED
    assert (record.exit_code, record.reason) == (0, "")
    assert [job for _, o in site.orders_for(f"{job}.4", Prepare) for job in [o.task]] == ["d"]


def test_the_plan_is_followed_without_a_round_for_each_task() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b c d", "a>b b>c c>d")
    rounds = site.state.last.round
    for number in range(1, 5):
        complete(site, f"{job}.{number}")
    assert site.job(job).state is JobState.COMPLETED
    assert site.state.last.round == rounds  # nor for its end, behind which nothing waits


def test_nothing_is_started_before_what_the_plan_has_first_on_its_node() -> None:
    site = patient({"a": 2}, solving=False)
    job = site.submit_workflow("a b c", "a>b")
    hour = 3600.0
    planned(
        site,
        (job, "a", 0.0, 100.0, "a1"),
        (job, "b", 100.0, 200.0, "a2"),
        (job, "c", hour, hour + 100.0, "a2"),
    )
    # a2 is idle and c is ready, but b comes first there.
    assert states(site, job) == {"a": "preparing"}
    complete(site, f"{job}.1")
    assert states(site, job) == {"a": "completed", "b": "preparing"}
    complete(site, f"{job}.2")
    assert states(site, job)["c"] == "preparing"


def test_a_job_that_is_planned_before_a_task_keeps_its_turn() -> None:
    site = patient({"a": 1}, solving=False)
    flow = site.submit_workflow("a b", "a>b")
    planned(site, (flow, "a", 0.0, 100.0, "a1"), (flow, "b", 100.0, 200.0, "a1"))
    plain = site.submit(1)
    planned(site, (plain, "", 100.0, 200.0, "a1"), (flow, "b", 200.0, 300.0, "a1"))
    complete(site, f"{flow}.1")
    assert states(site, flow) == {"a": "completed"}
    assert site.job(plain).state is JobState.PREPARING
    complete(site, plain)
    assert states(site, flow)["b"] == "preparing"


def test_tasks_that_are_split_take_their_share_of_the_links() -> None:
    site = patient(solving=False)
    for cluster in site.state.clusters.values():
        force_setattr(cluster.settings, "link_gbps", 1.0)
    wide = {"work": 100.0, "min_procs": 2, "max_procs": 2, "comm_gb": 1.0}
    job = site.submit_workflow("t u", job={"tasks": [{"id": name, **wide} for name in "tu"]})
    solve = site.pending_solves.pop()
    now = solve.snapshot.time
    both = {name: {f"a{n}": 1, f"b{n}": 1} for n, name in enumerate("tu", 1)}
    placements = tuple(
        Placement(job=job, task=name, start=now, end=now + 104.0, nodes=nodes)
        for name, nodes in both.items()
    )
    site.do(Solved(round=solve.round, plan=replace(plan_of(), placements=placements), solve_s=0.0))
    assert states(site, job) == {"t": "preparing"}
    assert site.job(f"{job}.1").link_gbps == {"a": 1.0, "b": 1.0}


def test_a_task_waits_for_the_data_of_its_parents() -> None:
    site = patient({"a": 1, "b": 1}, solving=False)
    for cluster in site.state.clusters.values():
        force_setattr(cluster.settings, "link_gbps", 1.0)
    edges = [{"from": "a", "to": "b", "gb": 1.0}]
    job = site.submit_workflow("a b", job={"edges": edges})
    planned(site, (job, "a", 0.0, 100.0, "a1"), (job, "b", 108.0, 208.0, "b1"))
    complete(site, f"{job}.1")
    assert "b" not in states(site, job)
    site.wait(7.9)
    assert "b" not in states(site, job)
    site.wait(0.2)
    assert states(site, job)["b"] == "preparing"


def test_a_task_does_not_start_early_into_a_reservation() -> None:
    site = patient({"a": 1, "b": 1}, solving=False)
    kept = Reservation(id="r", nodes=("a1",), start=site.now + 150.0, end=site.now + 400.0)
    reading = ClusterReading(cluster="a", nodes=(NodeReading(name="a1"),), reservations=(kept,))
    site.do(StatementReceived(statement=Read(cluster="a", reading=reading)))
    job = site.submit_workflow("a b", "a>b")
    planned(site, (job, "a", 0.0, 100.0, "b1"), (job, "b", 400.0, 500.0, "a1"))
    complete(site, f"{job}.1")
    assert "b" not in states(site, job)


def test_a_cluster_that_goes_has_what_was_planned_on_it_planned_anew() -> None:
    site = patient({"a": 1, "b": 1}, solving=False)
    job = site.submit_workflow("a b c", "a>b a>c")
    planned(
        site,
        (job, "a", 0.0, 100.0, "a1"),
        (job, "b", 100.0, 200.0, "b1"),
        (job, "c", 100.0, 200.0, "a1"),
    )
    site.do(Disconnected(cluster="b"))
    (solve,) = site.pending_solves
    assert [cluster.name for cluster in solve.snapshot.clusters if cluster.stale] == ["b"]
    planned(site, (job, "b", 100.0, 200.0, "a1"), (job, "c", 200.0, 300.0, "a1"))
    for number in (1, 2, 3):
        complete(site, f"{job}.{number}")
    assert site.job(job).state is JobState.COMPLETED
    assert site.job(f"{job}.2").parts[0].nodes == {"a1": 1}


@pytest.mark.parametrize(("took", "rounds"), [(100.0, 0), (119.0, 0), (121.0, 1), (79.0, 1)])
def test_a_task_that_ends_off_its_time_has_the_rest_planned_anew(took: float, rounds: int) -> None:
    site = patient({"a": 2}, solving=False)
    job = site.submit_workflow("a b c", "a>b b>c")
    planned(
        site,
        (job, "a", 0.0, 100.0, "a1"),
        (job, "b", 100.0, 200.0, "a1"),
        (job, "c", 200.0, 300.0, "a1"),
    )
    site.run(f"{job}.1")
    started = site.now
    site.wait(took)
    site.say(
        f"{job}.1", PartState.FINISHED, exit_code=0, started=started, ended=site.now, reason="x"
    )
    assert states(site, job)["b"] == "preparing"
    assert len(site.pending_solves) == rounds
    if rounds:
        (rest,) = site.pending_solves[0].snapshot.queue
        assert isinstance(rest, WorkflowJob)
        assert [task.id for task in rest.tasks] == ["c"]
        assert [(one.task, one.clusters) for one in rest.started] == [("b", ("a",))]


def test_after_a_failure_nothing_new_is_started_and_what_runs_goes_on() -> None:
    site = patient({"a": 3})
    job = site.submit_workflow("a b c d", "a>d b>d")
    for number in (1, 2, 3):
        site.run(f"{job}.{number}")
    site.finish(f"{job}.1", code=3)
    assert site.job(job).detail == "task a failed: exit code 3"
    assert not site.job(job).is_ended
    assert not site.orders_for(f"{job}.2", Abort)
    site.finish(f"{job}.2")
    site.finish(f"{job}.3")
    record = site.job(job)
    assert (record.state, record.reason, record.exit_code) == (JobState.FAILED, "task_failed", 3)
    assert record.detail == "task a failed: exit code 3; 2 of 4 tasks completed, 1 not run"


def test_keep_going_runs_what_does_not_depend_on_the_failure() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b c d", "a>c b>d", keep_going=True)
    complete(site, f"{job}.1", code=1)
    complete(site, f"{job}.2")
    complete(site, f"{job}.4")
    assert states(site, job) == {"a": "failed", "b": "completed", "d": "completed"}
    assert site.job(job).state is JobState.FAILED
    assert "2 of 4 tasks completed, 1 not run" in site.job(job).detail


def test_what_failed_is_named_in_the_end_though_the_workflow_was_held_since() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b", "", keep_going=True)
    complete(site, f"{job}.1", code=1)
    assert site.job(job).detail == "task a failed: exit code 1"
    site.ask(Hold(job=job))
    site.ask(Release(job=job))
    complete(site, f"{job}.2")
    assert site.job(job).detail == "task a failed: exit code 1; 1 of 2 tasks completed"


def test_a_failed_task_is_tried_again_after_a_pause() -> None:
    site = patient({"a": 1}, backoff_first_s=5.0)
    job = site.submit_workflow("a b", "a>b", retries=2)
    for failures in (1, 2):
        complete(site, f"{job}.1", code=1)
        record = site.job(f"{job}.1")
        assert (record.state, record.failures) == (JobState.PENDING, failures)
        site.wait(4.0)
        assert site.job(f"{job}.1").state is JobState.PENDING
        site.wait(20.0)
        assert site.job(f"{job}.1").attempt == failures + 1
    complete(site, f"{job}.1", code=1)
    assert site.job(job).state is JobState.FAILED


def test_while_a_task_rests_others_are_planned_without_it_and_what_needs_it() -> None:
    site = patient({"a": 1}, backoff_first_s=1000.0)
    job = site.submit_workflow("a b c d", "a>c b>d", retries=1)
    complete(site, f"{job}.1", code=1)
    complete(site, f"{job}.2")
    complete(site, f"{job}.4")
    assert states(site, job) == {"a": "pending", "b": "completed", "d": "completed"}
    site.wait(1000.0)
    complete(site, f"{job}.1")
    complete(site, f"{job}.3")
    assert site.job(job).state is JobState.COMPLETED


def test_a_refused_task_is_prepared_again_and_counts_as_no_failure() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a", retries=0)
    site.say(f"{job}.1", PartState.REFUSED, reason="nodes_taken")
    assert site.job(f"{job}.1").state is JobState.PENDING
    site.wait(5.0)
    complete(site, f"{job}.1")
    assert site.job(job).state is JobState.COMPLETED
    assert (site.job(f"{job}.1").failures, site.job(f"{job}.1").attempt) == (0, 2)


def test_a_task_whose_command_is_missing_fails_its_workflow() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b", "a>b")
    site.say(f"{job}.1", PartState.REFUSED, reason="not_found", detail="no such file: run")
    assert site.job(job).state is JobState.FAILED
    assert "task a failed" in site.job(job).detail


def test_cancelling_a_workflow_ends_what_runs_and_starts_nothing_more() -> None:
    site = patient({"a": 2})
    job = site.submit_workflow("a b c", "a>c")
    site.run(f"{job}.1")
    site.ask(Cancel(job=job))
    assert site.orders_for(f"{job}.1", Abort)
    assert states(site, job) == {"a": "running", "b": "cancelled"}
    assert not site.job(job).is_ended
    site.finish(f"{job}.1", code=143)
    assert site.job(job).state is JobState.CANCELLED
    assert site.job(f"{job}.1").state is JobState.CANCELLED
    assert isinstance(site.ask(Cancel(job=job)), Refused)


def test_a_workflow_that_waits_is_cancelled_at_once() -> None:
    site = patient(solving=False)
    job = site.submit_workflow(*DIAMOND)
    site.ask(Cancel(job=job))
    assert site.job(job).state is JobState.CANCELLED
    assert states(site, job) == {}


@pytest.mark.parametrize("name", ["b", "2"])
def test_one_task_can_be_cancelled_by_name_or_number(name: str) -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b c", "a>b", keep_going=True)
    site.ask(Cancel(job=f"{job}.{name}"))
    assert states(site, job) == {"a": "preparing", "b": "cancelled"}
    complete(site, f"{job}.1")
    complete(site, f"{job}.3")
    assert site.job(job).state is JobState.FAILED
    assert site.job(job).detail.startswith("task b cancelled: cancelled by ann")


def test_there_is_no_task_of_that_name() -> None:
    site = patient()
    job = site.submit_workflow("a b")
    for wrong in ("c", "3", "0"):
        answer = site.ask(Cancel(job=f"{job}.{wrong}"))
        assert isinstance(answer, Refused)
        assert answer.code == "not_found"


def test_a_workflow_can_be_held_while_it_runs() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b", "a>b")
    site.run(f"{job}.1")
    assert site.job(job).state is JobState.RUNNING
    site.ask(Hold(job=job))
    site.finish(f"{job}.1")
    assert states(site, job) == {"a": "completed"}
    assert site.job(job).state is JobState.HELD
    site.ask(Release(job=job))
    assert site.job(job).state is JobState.RUNNING
    complete(site, f"{job}.2")
    assert site.job(job).state is JobState.COMPLETED
    assert isinstance(site.ask(Hold(job=f"{job}.2")), Refused)


def test_a_job_after_a_workflow_starts_when_all_of_it_has_completed() -> None:
    site = patient({"a": 2})
    flow = site.submit_workflow("a b", "a>b")
    after = site.submit(1, needs=(("afterok", flow),))
    complete(site, f"{flow}.1")
    assert site.job(after).state is JobState.PENDING
    complete(site, f"{flow}.2")
    assert site.job(after).state is JobState.PREPARING


def test_a_restart_goes_on_where_the_tasks_are() -> None:
    site = patient({"a": 1})
    job = site.submit_workflow("a b c", "a>b b>c")
    complete(site, f"{job}.1")
    site.run(f"{job}.2")
    again = site.restarted(prepare_timeout_s=1e9)
    assert states(again, job) == {"a": "completed", "b": "running"}
    again.finish(f"{job}.2")
    complete(again, f"{job}.3")
    assert again.job(job).state is JobState.COMPLETED


def test_ended_tasks_of_a_living_workflow_are_never_forgotten() -> None:
    site = patient({"a": 1}, keep_ended=1)
    names = [f"t{n}" for n in range(6)]
    chain = " ".join(f"{a}>{b}" for a, b in pairwise(names))
    job = site.submit_workflow(" ".join(names), chain)
    for number in range(1, 6):
        complete(site, f"{job}.{number}")
    assert len(states(site, job)) == 6
    complete(site, f"{job}.6")
    assert len(site.state.ended) == 1
