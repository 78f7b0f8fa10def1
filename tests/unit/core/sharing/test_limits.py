"""Limits of users and projects: what they hold, how they say so, and what frees a job."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.requests import (
    CommandAnswer,
    PauseRounds,
    Refused,
    ResumeRounds,
    Submit,
    Update,
)
from coalloc.core.rounds.snapshots import snapshot
from coalloc.core.sharing.limits import OVERBOOKED
from coalloc.daemon.queries.job_views import expectation, why
from coalloc.model.jobs import WorkflowJob
from coalloc.model.settings import LimitsConfig, ProjectConfig
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace
from tests.support.core_site import Site, workflow
from tests.unit.core.base.test_usage import run


def limited(slots: int = 4, **limits: Any) -> Site:
    """A cluster of some slots where everybody has the same limits."""
    users = {"*": LimitsConfig(**limits)}
    return Site({"a": slots}, users=users)


def ask(site: Site, user: str = "ann", **job: Any) -> CommandAnswer:
    """Submit a job of any kind."""
    launch = Launch(argv=("x",))
    return site.ask(Submit(token=f"j{len(site.answers)}", job=job, launch=launch), user=user)


def reason(site: Site, job: str) -> tuple[str, str]:
    """Why a job waits, and the same in words."""
    _, word, detail = expectation(site.job(job), site.state, site.now)
    return word, detail


def test_processes_that_run_at_once() -> None:
    site = limited(max_procs=2)
    first, second, third = site.submit(2), site.submit(1), site.submit(1, user="bob")
    assert [site.job(job).state for job in (first, second, third)] == [
        "preparing",
        "pending",
        "preparing",
    ]
    told = "user ann runs 2 of 2 processes; it starts when 1 of them has ended"
    assert reason(site, second) == ("limit", told)
    assert why(site.job(second), site.state, site.now).detail == told
    site.run(first)
    site.finish(first)
    assert site.job(second).state == "preparing"
    assert second not in site.state.findings.limited


@pytest.mark.parametrize("limit", ["max_procs", "max_running_jobs", "throttle"])
def test_jobs_with_shapes_start_as_soon_as_their_limit_lets_them(limit: str) -> None:
    site = limited(**({} if limit == "throttle" else {limit: 1}))
    job = {"kind": "rigid", "procs": 1, "base_time": 9.0, "shape": {"cpus_per_proc": 1}}
    site.ask(
        Submit(
            token="array",
            job=job,
            launch=Launch(argv=("x",)),
            array=(0, 1),
            throttle=int(limit == "throttle"),
        ),
        user="ann",
    )
    first, second = site.state.jobs
    assert [site.job(n).state for n in (first, second)] == ["preparing", "pending"]
    site.run(first)
    site.finish(first)
    assert site.job(second).state == "preparing"


def test_jobs_that_run_at_once_and_a_workflow_is_one() -> None:
    site = limited(max_running_jobs=1)
    flow = site.submit_workflow("x y")
    assert site.job(f"{flow}.1").state == site.job(f"{flow}.2").state == "preparing"
    after = site.submit(1)
    assert reason(site, after) == (
        "limit",
        "user ann runs 1 of 1 jobs; it starts when one has ended",
    )


def test_jobs_that_wait_for_another_take_no_room_from_it() -> None:
    site = limited(max_procs=1)
    site.ask(PauseRounds(), operator=True)
    before = [site.submit(1) for _ in range(int(OVERBOOKED) + 1)]
    needed = site.submit(1)
    for job in before:
        site.ask(Update(job=job, needs=(("afterok", needed),)))
    site.ask(ResumeRounds(), operator=True)
    assert site.job(needed).state == "preparing"


def test_starts_of_one_round_are_added_up() -> None:
    site = limited(max_procs=3)
    site.state.rounds.paused = True
    jobs = [site.submit(2), site.submit(1), site.submit(1)]
    site.state.rounds.paused = False
    site.state.rounds.want("test")
    site.wait(1.0)
    assert [site.job(job).state for job in jobs] == ["preparing", "preparing", "pending"]
    assert reason(site, jobs[2])[0] == "limit"


def test_processor_hours_of_a_window() -> None:
    site = limited(max_proc_hours=1.0, window_days=2)
    first = site.submit(2, job={"base_time": 1000.0})
    run(site, first, 1000.0)
    second = site.submit(2, job={"base_time": 1000.0})
    assert reason(site, second) == (
        "limit",
        "needs 0.5556 processor-hours; user ann has used or committed 0.5556 of 1 in 2 days; "
        "enough of that is past on 1970-01-03",
    )
    site.now = 2 * 86_400.0 + 1.0
    site.wait(60.0)
    site.state.rounds.want("test")
    site.wait(1.0)
    assert site.job(second).state == "preparing"


def test_what_can_never_start_is_refused() -> None:
    site = limited(max_procs=2, max_proc_hours=0.1)
    for procs, seconds, words in (
        (3, 10.0, "needs 3 processes, and user ann may run 2"),
        (2, 500.0, "needs 0.2778 processor-hours, and user ann may use 0.1 in 30 days"),
    ):
        with pytest.raises(AssertionError) as caught:
            site.submit(procs, job={"base_time": seconds})
        assert words in str(caught.value)


def test_waiting_jobs_of_a_project() -> None:
    tree = {
        "top": ProjectConfig(max_waiting_jobs=2),
        "in": ProjectConfig(parent="top", users=("*",)),
    }
    site = Site({"a": 1}, projects=tree, solving=False)
    site.submit(user="ann")
    site.submit(user="bob")
    refused = ask(site, "cy", kind="rigid", procs=1)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.message) == (
        "too_many",
        "project top has 2 waiting jobs, at most 2",
    )


def test_a_moldable_job_is_planned_no_wider_than_its_room() -> None:
    site = Site(
        {"a": 8},
        users={"*": LimitsConfig(max_procs=5)},
        solving=False,
    )
    ask(site, kind="moldable", times=[80.0, 40.0, 30.0, 20.0, 16.0, 14.0, 12.0])
    (job,) = snapshot(site.state, site.now).queue
    assert getattr(job, "max_procs", None) == 5


def test_tasks_are_planned_no_wider_than_their_limit_by_their_own_shapes() -> None:
    users = {"*": LimitsConfig(max_procs=4)}
    site = Site({"a": 1}, slots=8, users=users, solving=False)
    command = workflow("w", "t0 t1", job={"shape": {"cpus_per_proc": 2}})
    tasks = [{**task, "max_procs": 8} for task in command.job["tasks"]]
    tasks[1]["shape"] = {"cpus_per_proc": 1}
    site.ask(replace(command, job={**command.job, "tasks": tasks}), user="ann")
    (view,) = snapshot(site.state, site.now).queue
    assert isinstance(view, WorkflowJob)
    assert [task.max_procs for task in view.tasks] == [2, 4]


def test_a_divisible_job_takes_what_its_limit_leaves() -> None:
    site = limited(6, max_procs=4)
    site.submit(1)
    ask(site, kind="divisible", work=3000.0, chunk_s=100.0)
    placed = site.state.placed_records()
    assert sum(n for record in placed for part in record.parts for n in part.nodes.values()) == 4


def test_nodes_are_kept_for_a_guarantee_while_its_jobs_wait() -> None:
    tree = {"own": ProjectConfig(users=("ann",), guarantees={"a": 2})}
    site = Site({"a": 4}, projects=tree, solving=False)
    assert snapshot(site.state, site.now).reservations == ()
    site.submit(3, user="bob")
    mine = site.submit(3, user="ann", job={"base_time": 50.0})
    (kept,) = snapshot(site.state, site.now).reservations
    assert (kept.jobs, len(kept.nodes)) == ((mine,), 2)
    assert (kept.start, kept.end) == (site.now, site.now + 50.0)


def test_no_more_is_kept_than_is_asked_for() -> None:
    tree = {"own": ProjectConfig(users=("ann",), guarantees={"a": 3})}
    site = Site({"a": 4}, projects=tree)
    site.submit(2, user="ann")
    site.state.rounds.paused = True
    site.submit(2, user="ann")
    (kept,) = snapshot(site.state, site.now).reservations
    assert len(kept.nodes) == 1  # 2 of the 3 run
    assert not set(kept.nodes) & {n for r in site.state.placed_records() for n in r.parts[0].nodes}
