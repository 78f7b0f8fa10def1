"""Changes of waiting jobs: what may be changed, what is refused, and what a round makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.events import Solved
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Done, Refused, Submit, Update
from coalloc.model.jobs import MoldableJob, RigidJob, WorkflowJob
from coalloc.model.shape import Shape
from coalloc.model.sites.parts import Launch
from tests.support.core_site import Site


def full(**settings: Any) -> tuple[Site, str]:
    """A site of one node, busy, and a job that waits there."""
    site = Site({"a": 1, "b": 1}, **settings)
    running = site.submit(2)
    site.run(running)
    return site, site.submit(1, job={"time_limit": 600.0})


def changed(site: Site, job: str, **what: Any) -> Done:
    answer = site.ask(Update(job=job, **what))
    assert isinstance(answer, Done), answer
    return answer


def test_every_part_of_a_waiting_job_is_changed() -> None:
    site, job = full()
    other = site.submit(1)
    fields = {
        "procs": 2,
        "base_time": 50.0,
        "time_limit": 60.0,
        "weight": 4.0,
        "clusters": ["a", "b"],
    }
    needs = (("afterany", other),)
    answer = changed(site, job, fields=fields, name="new", needs=needs, batch={"account": "bio"})
    assert answer.body["jobs"] == [job]
    record = site.job(job)
    assert isinstance(record.job, RigidJob)
    assert (record.job.procs, record.job.base_time, record.job.time_limit) == (2, 50.0, 60.0)
    assert (record.job.weight, record.job.clusters) == (4.0, ("a", "b"))
    assert (record.name, record.needs) == ("new", (("afterany", other),))
    assert record.account == "bio"
    assert record.job.submitted == record.submitted
    assert site.restarted().job(job) == record
    assert site.notes("job_updated")[-1]["changes"] == (
        "procs=2 base_time=50 time_limit=60 weight=4 clusters=a,b"
        " account=bio name=new needs=afterany:3"
    )


def test_what_is_not_named_of_a_shape_stays() -> None:
    site, job = full()
    changed(site, job, fields={"shape": {"cpus_per_proc": 1, "memory_mb_per_node": 10}})
    changed(site, job, fields={"shape": {"memory_mb_per_node": 20}})
    assert site.job(job).job.shape == Shape(cpus_per_proc=1, memory_mb_per_node=20)


def test_a_run_time_that_nobody_named_is_estimated_again() -> None:
    site = Site({"a": 1})
    site.run(site.submit())
    launch = Launch(argv=("work",))
    fields = {"kind": "rigid", "procs": 1, "time_limit": 600.0}
    answer = site.ask(Submit(token="x", job=fields, launch=launch))
    assert isinstance(answer, Done)
    job = answer.body["job"]
    assert site.job(job).job.base_time == 600.0  # type: ignore[union-attr]
    changed(site, job, fields={"time_limit": 60.0})
    assert site.job(job).job.base_time == 60.0  # type: ignore[union-attr]
    assert site.job(job).sources["base_time"] == "time_limit"
    changed(site, job, fields={"base_time": 40.0})
    changed(site, job, fields={"time_limit": None})
    assert site.job(job).job.base_time == 40.0  # type: ignore[union-attr]
    assert site.job(job).job.time_limit is None


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ({"fields": {"procs": 9}}, "infeasible", "needs 9 processes; 2 slots exist"),
        ({"fields": {"clusters": ["c"]}}, "bad_request", "there is no cluster 'c'"),
        ({"fields": {"weight": -1.0}}, "bad_request", "job.weight"),
        ({"fields": {"kind": "moldable"}}, "bad_request", "job.kind: cannot be changed"),
        ({"fields": {"submitted": 0.0}}, "bad_request", "job.submitted: is set by the daemon"),
        ({"fields": {"nodes": 1}}, "bad_request", "nodes"),
        ({"batch": {"colour": "red"}}, "bad_request", "batch.colour: is not one of account"),
        ({"needs": (("afterok", "77"),)}, "not_found", "there is no job 77"),
        ({"job": "1"}, "wrong_state", "job 1 is running; only a waiting job"),
        ({"job": "5"}, "not_found", "there is no job 5"),
    ],
)
def test_a_change_is_refused_for_one_reason_and_changes_nothing(
    what: dict[str, Any], code: str, words: str
) -> None:
    site, job = full()
    before = site.job(job)
    answer = site.ask(Update(**{"job": job, **what}))
    assert isinstance(answer, Refused)
    assert (answer.code, words in answer.message) == (code, True), answer
    assert site.job(job) is before


def test_only_its_user_or_an_operator_changes_a_job() -> None:
    site, job = full()
    command = Update(job=job, name="mine")
    refused = site.ask(command, user="bob")
    assert isinstance(refused, Refused)
    assert refused.code == "not_allowed"
    assert isinstance(site.ask(command, user="bob", operator=True), Done)


def test_members_of_an_array_cannot_be_made_to_wait_for_each_other() -> None:
    site, _ = full()
    array = site.submit(array=(1, 2)).partition("_")[0]
    answer = site.ask(Update(job=array, needs=(("afterany", array),)))
    assert isinstance(answer, Refused)
    assert answer.message == f"dependency: job {array}_2 waits for job {array}_1"
    one = site.ask(Update(job=f"{array}_2", needs=(("afterany", array),)))
    assert isinstance(one, Done)
    assert site.job(f"{array}_2").needs == (("afterany", f"{array}_1"),)


def test_a_dependency_in_a_circle_is_refused() -> None:
    site, job = full()
    later = site.submit(needs=(("afterok", job),))
    last = site.submit(needs=(("afterany", later),))
    answer = site.ask(Update(job=job, needs=(("afterok", last),)))
    assert isinstance(answer, Refused)
    assert answer.message == f"dependency: job {last} waits for job {job}"
    answer = site.ask(Update(job=job, needs=(("afterok", job),)))
    assert isinstance(answer, Done)  # on itself: nothing to wait for
    assert site.job(job).needs == ()


def test_of_an_array_the_members_that_wait_are_changed() -> None:
    site = Site({"a": 1})
    launch = Launch(argv=("work",))
    fields = {"kind": "rigid", "procs": 1, "base_time": 10.0}
    site.ask(Submit(token="x", job=fields, launch=launch, array=(1, 2, 3)))
    site.run("1_1")
    assert changed(site, "1", fields={"weight": 3.0}).body["jobs"] == ["1_2", "1_3"]
    assert [site.job(f"1_{n}").job.weight for n in (1, 2, 3)] == [1.0, 3.0, 3.0]


def test_what_the_round_at_work_plans_of_the_job_as_it_was_does_not_start() -> None:
    site = Site({"a": 2}, solving=False)
    job = site.submit(1)
    solve = site.pending_solves.pop()
    plan = site.plan_of(solve.snapshot)
    assert [placement.job for placement in plan.placements] == [job]
    changed(site, job, fields={"procs": 2})
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))
    assert not site.job(job).is_placed
    solve = site.pending_solves.pop()  # the change asked for another round
    site.do(Solved(round=solve.round, plan=site.plan_of(solve.snapshot), solve_s=0.0))
    assert sum(site.job(job).parts[0].nodes.values()) == 2


def test_a_held_job_that_could_never_run_is_queued_by_a_change_that_lets_it() -> None:
    site, _ = full()
    launch = Launch(argv=("work",))
    fields = {"kind": "rigid", "procs": 9, "base_time": 10.0}
    answer = site.ask(Submit(token="x", job=fields, launch=launch, hold_infeasible=True))
    assert isinstance(answer, Done)
    job = answer.body["job"]
    assert site.job(job).reason == "infeasible"
    changed(site, job, fields={"procs": 1})
    assert (site.job(job).state, site.job(job).reason) == (JobState.PENDING, "")


def test_a_moldable_job_takes_other_times_and_sizes() -> None:
    site, _ = full()
    speedup = {"model": "amdahl", "parallel_fraction": 0.9, "time": 100.0}
    fields = {"kind": "moldable", "min_procs": 1, "max_procs": 2, "speedup": speedup}
    answer = site.ask(Submit(token="x", job=fields, launch=Launch(argv=("work",))))
    assert isinstance(answer, Done), answer
    job = answer.body["job"]
    changed(site, job, fields={"max_procs": 1, "speedup": {**speedup, "time": 40.0}})
    new = site.job(job).job
    assert isinstance(new, MoldableJob)
    assert (new.max_procs, new.speedup.time(1)) == (1, 40.0)


def test_a_workflow_changes_until_it_has_begun_and_its_tasks_never_by_themselves() -> None:
    site = Site({"a": 1})
    running = site.submit()
    site.run(running)
    flow = site.submit_workflow("x y", "x>y")
    changed(site, flow, fields={"weight": 2.0})
    job = site.job(flow).job
    assert isinstance(job, WorkflowJob)
    assert (job.weight, [task.id for task in job.tasks]) == (2.0, ["x", "y"])
    refused = site.ask(Update(job=f"{flow}.y", fields={"weight": 2.0}))
    assert isinstance(refused, Refused)
    assert "a task is not changed by itself" in refused.message
    site.finish(running)
    refused = site.ask(Update(job=flow, fields={"weight": 3.0}))
    assert isinstance(refused, Refused)
    assert refused.code == "wrong_state"
