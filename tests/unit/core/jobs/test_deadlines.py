"""Deadlines: what is refused, what is not started, and what is ended instead."""

from __future__ import annotations

import pytest

from coalloc.core.base.events import Solved, StatementReceived
from coalloc.core.base.messages import Abort, Prepare, Read, Start
from coalloc.core.base.requests import (
    Cancel,
    Done,
    Hold,
    Refused,
    Reserve,
    Submit,
    SubmitWorkflow,
    Update,
)
from coalloc.core.rounds.snapshots import snapshot
from coalloc.daemon.queries.job_views import expectation
from coalloc.model.plan import Deferred, Placement, Plan, Reason
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site, first_fit, reading

LIMIT = {"base_time": 50.0, "time_limit": 100.0}


def busy(**job: object) -> tuple[Site, str, str]:
    """A site of one node, the job that runs there, and one that may start until 1400."""
    site = Site({"a": 1})
    running = site.submit()
    site.run(running)
    return site, running, site.submit(job={**LIMIT, **job}, finish_by=1500.0)


def refused(site: Site, finish_by: float, **job: object) -> str:
    fields = {"kind": "rigid", **({} if "kind" in job else {"procs": 1}), **job}
    launch = Launch(argv=("x",))
    command = Submit(token=f"t{len(site.answers)}", job=fields, launch=launch, finish_by=finish_by)
    answer = site.ask(command)
    assert isinstance(answer, Refused), answer
    assert answer.code == "bad_request"
    return answer.message


def test_a_job_that_cannot_end_in_time_is_refused_and_one_that_just_can_starts() -> None:
    site = Site({"a": 1})
    told = "deadline: with its time limit of 100 s it ends 1 s too late at the earliest"
    assert refused(site, 1099.0, **LIMIT) == told
    assert site.state.last.job == 0
    just = site.submit(job=LIMIT, finish_by=1100.0)
    assert site.job(just).state == "preparing"


def test_the_begin_time_counts_and_without_a_limit_the_shortest_run_time() -> None:
    site = Site({"a": 2})
    assert "with its time limit" in refused(site, 1500.0, **LIMIT, earliest=1450.0)
    assert "a run time of at least 30 s" in refused(site, 1029.0, base_time=30.0)
    table = {"model": "table", "procs": [1, 2], "times": [90.0, 60.0]}
    moldable = {"kind": "moldable", "min_procs": 1, "max_procs": 2, "speedup": table}
    assert "at least 1 min" in refused(site, 1050.0, **moldable)


def test_a_deadline_is_a_time() -> None:
    assert "finish_by" in refused(Site({"a": 1}), 1e300, **LIMIT)


CHUNKS = {"kind": "divisible", "work": 400.0, "chunk_s": 100.0}


def test_workflows_and_divisible_jobs_are_refused_by_what_they_take_at_the_least() -> None:
    site = Site({"a": 9})
    told = "deadline: with a run time of at least 5 min it ends 1 s too late at the earliest"
    tasks = [{"id": name, "work": 100.0, "max_procs": 2} for name in "abcd"]
    tasks[1] |= {"work": 200.0, "parallel_fraction": 1.0}
    edges = [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}]
    job = {"kind": "workflow", "tasks": tasks, "edges": edges, "time_limit": 1.0}
    answer = site.ask(
        SubmitWorkflow(token="w", job=job, launch=Launch(argv=("x",)), finish_by=1299)
    )
    assert answer == Refused(code="bad_request", message=told)
    assert "at least 100 s" in refused(site, 1099.0, **CHUNKS)
    assert site.state.last.job == 0


def test_a_workflow_starts_only_along_a_plan_that_ends_all_of_it_in_time() -> None:
    site = Site({"a": 1})
    job = site.submit_workflow("a b", finish_by=2000.0)  # b would follow after an hour
    record = site.job(job)
    assert (record.state, site.state.findings.outlook[job].reason) == ("pending", "deadline")
    assert site.state.findings.outlook[job].detail == "by the plan it would end after its deadline"
    assert site.state.schedule.plan is not None
    assert {placement.task for placement in site.state.schedule.plan.placements} == {"a", "b"}
    site.wait(900.0)
    site.wait(0.1)
    record = site.job(job)
    assert (record.state, record.reason) == ("cancelled", "deadline")
    assert record.detail.endswith("with a run time of at least 100 s")


@pytest.mark.parametrize("finish_by", [9000.0, 0.0])
def test_a_later_deadline_or_none_lets_it_start_and_go_on_beyond(finish_by: float) -> None:
    site = Site({"a": 1})
    job = site.submit_workflow("a b", finish_by=2000.0)
    assert isinstance(site.ask(Update(job=job, finish_by=finish_by)), Done)
    site.run(f"{job}.1")
    site.wait(9000.0)
    assert (site.job(job).state, site.job(f"{job}.1").state) == ("running", "running")
    assert site.state.deadlines.latest_starts == {}


def test_what_a_plan_does_not_place_whole_does_not_start() -> None:
    class Half(Site):
        @staticmethod
        def plan_of(snapshot: Snapshot) -> Plan:
            plan = first_fit(snapshot)
            missing = [p for p in plan.placements if p.task == "b"]
            deferred = [Deferred(job=p.job, task=p.task, reason=Reason.DEPENDENCY) for p in missing]
            kept = tuple(p for p in plan.placements if p not in missing)
            return replace(plan, placements=kept, deferred=(*plan.deferred, *deferred))

    site = Half({"a": 2})
    assert site.job(site.submit_workflow("a b", finish_by=9e9)).state == "pending"
    assert site.job(site.submit_workflow("a")).state == "running"


@pytest.mark.parametrize(("finish_by", "state"), [(1199.0, "pending"), (1200.0, "running")])
def test_divisible_work_starts_only_if_its_last_chunk_ends_in_time(
    finish_by: float, state: str
) -> None:
    site = Site({"a": 2})
    launch = Launch(argv=("x",))
    answer = site.ask(Submit(token="d", job=CHUNKS, launch=launch, finish_by=finish_by))
    assert isinstance(answer, Done)
    job = str(answer.body["job"])
    assert site.job(job).state == state
    assert bool(site.orders_for(f"{job}.1", Prepare)) is (state == "running")
    if state == "pending":
        assert site.state.findings.outlook[job].reason == "deadline"


def test_reservations_that_leave_no_nodes_in_time_refuse_it() -> None:
    site = Site({"a": 1})
    site.ask(Reserve(targets=("a",), start=1050.0, duration_s=1000.0), operator=True)
    assert "deadline: reservations hold it up" in refused(site, 1500.0, **LIMIT)
    later = site.submit(job=LIMIT, finish_by=2200.0)
    assert site.job(later).state == "pending"


@pytest.mark.parametrize("is_held", [False, True])
def test_what_cannot_be_kept_any_more_is_cancelled_at_once(*, is_held: bool) -> None:
    site, _, job = busy()
    follower = site.submit(needs=(("afterok", job),))
    if is_held:
        site.ask(Hold(job=job))
    site.wait(400.0)
    assert site.job(job).is_waiting
    site.wait(0.1)
    record = site.job(job)
    told = "could not end by its deadline any more with its time limit of 100 s"
    assert (record.state, record.reason, record.detail) == ("cancelled", "deadline", told)
    assert site.notes("job_ended")[0]["detail"] == told
    assert site.job(follower).state == "cancelled"
    assert site.state.deadlines.latest_starts == {}


def test_nothing_that_has_started_is_ended_for_its_deadline() -> None:
    site, running, job = busy()
    site.wait(300.0)
    site.finish(running)
    site.run(job)
    site.wait(5000.0)
    assert site.job(job).state == "running"
    assert not site.job(job).cancelled_by


def test_nodes_that_are_ready_too_late_are_given_back() -> None:
    site, running, job = busy()
    site.wait(399.0)
    site.finish(running)
    assert site.job(job).state == "preparing"
    site.now += 2.0
    site.say(job, PartState.READY)
    assert site.job(job).reason == "deadline"
    assert site.job(job).state == "cancelled"
    assert site.orders_for(job, Start) == []
    assert site.orders_for(job, Abort)


def test_a_plan_that_starts_it_on_slow_nodes_does_not_start_it() -> None:
    site = Site({"a": 1}, solving=False)
    job = site.submit(job={"base_time": 50.0}, finish_by=1100.0)
    (solve,) = site.pending_solves
    slow = Placement(job=job, start=1000.0, end=1150.0, nodes={"a1": 1})
    plan = replace(first_fit(solve.snapshot), placements=(slow,))
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))
    assert site.job(job).state == "pending"
    assert expectation(site.job(job), site.state, site.now)[1] == "deadline"
    assert not site.state.rounds.wanted


def test_without_a_limit_it_is_planned_only_on_nodes_that_are_fast_enough() -> None:
    site = Site({"a": 2, "b": 2}, solving=False)
    for name, power in (("a", 0.5), ("b", 1.0)):
        read = reading(name, 2, power=power)
        site.do(StatementReceived(statement=Read(cluster=name, reading=read)))
    tight = site.submit(job={"base_time": 50.0}, finish_by=1055.0)
    loose = site.submit(job={"base_time": 50.0}, finish_by=1200.0)
    with_limit = site.submit(job={"base_time": 50.0, "time_limit": 55.0}, finish_by=1055.0)
    seen = snapshot(site.state, site.now)
    features = {job.id: job.features for job in seen.queue}
    assert features == {tight: ("fast enough for its deadline",), loose: (), with_limit: ()}
    marked = {node.name for _, node in seen.nodes() if set(features[tight]) <= set(node.features)}
    assert marked == {"b1", "b2"}
    site.do(StatementReceived(statement=Read(cluster="b", reading=reading("b", 2, power=0.5))))
    site.state.clusters["b"].powers.clear()
    plan = POLICIES["plain"].solve(snapshot(site.state, site.now), {}, Budget())
    assert tight not in {placement.job for placement in plan.placements}


def test_an_expected_start_that_is_too_late_is_said() -> None:
    site, _, job = busy()
    late = Placement(job=job, start=1450.0, end=1500.0, nodes={"a1": 1})
    site.solving = False
    site.state.rounds.want("test")
    site.wait(1.0)
    solve = site.pending_solves[-1]
    plan = replace(first_fit(solve.snapshot), placements=(late,))
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))
    start, reason, detail = expectation(site.job(job), site.state, site.now)
    assert (start, reason) == (1450.0, "deadline")
    assert "too late for its deadline" in detail


def test_a_deadline_is_changed_and_taken_away() -> None:
    site, _, job = busy()
    answer = site.ask(Update(job=job, finish_by=1050.0))
    assert isinstance(answer, Refused)
    assert isinstance(site.ask(Update(job=job, finish_by=3000.0)), Done)
    assert site.notes("job_updated")[-1]["changes"] == "finish_by=3000"
    longer = site.ask(Update(job=job, fields={"time_limit": 2500.0}))
    assert isinstance(longer, Refused)
    assert "deadline" in longer.message
    site.wait(1000.0)
    assert site.job(job).is_waiting
    assert isinstance(site.ask(Update(job=job, finish_by=0.0)), Done)
    site.wait(5000.0)
    assert site.job(job).state == "pending"
    assert site.job(job).finish_by is None


def test_a_deadline_survives_a_restart_and_a_clock_that_is_set_back() -> None:
    site, _, job = busy()
    after = site.restarted()
    assert after.job(job).finish_by == 1500.0
    after.wait(300.0)
    after.now -= 200.0
    after.wait(0.0)
    assert after.state.deadlines.due == 1400.0
    after.wait(300.1)
    assert after.job(job).reason == "deadline"


def test_a_cancelled_job_is_not_ended_again() -> None:
    site, _, job = busy()
    site.ask(Cancel(job=job))
    site.wait(1000.0)
    assert site.job(job).reason == "cancelled"
    assert len(site.notes("job_ended")) == 1
