"""A wall clock that is set back holds nothing up."""

from __future__ import annotations

import pytest

from coalloc.core.base.events import ClockSet
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Hold, Release
from coalloc.core.sharing.accounting import waited_s
from coalloc.daemon.service import ClockSteps
from coalloc.model.sites.parts import PartState
from tests.support.core_site import HOUR, Site


def refuse(site: Site, job: str) -> None:
    """Its nodes were taken: it backs off."""
    site.say(job, PartState.REFUSED, reason="nodes_taken")


def test_a_job_that_backs_off_waits_no_longer_than_before() -> None:
    site = Site({"a": 1})
    job = site.submit()
    refuse(site, job)
    pause = site.job(job).not_before - site.now
    site.wait(-HOUR)
    assert site.job(job).not_before - site.now == pytest.approx(pause)
    site.wait(pause)
    assert site.job(job).state is JobState.PREPARING


def test_a_back_off_that_is_over_stays_over() -> None:
    site = Site({"a": 1})
    job = site.submit()
    refuse(site, job)
    site.ask(Hold(job=job))
    site.wait(site.settings.start.backoff_max_s)
    site.wait(-HOUR)
    site.ask(Release(job=job))
    site.wait(1.0)
    assert site.job(job).state is JobState.PREPARING


def test_a_job_may_start_that_was_submitted_by_the_clock_as_it_was() -> None:
    site = Site({"a": 1})
    first, second = site.submit(), site.submit()
    site.run(first)
    site.wait(-HOUR)
    site.finish(first)
    site.wait(1.0)
    assert site.job(second).state is JobState.PREPARING


def test_a_preparation_is_given_up_in_time() -> None:
    site = Site({"a": 1}, prepare_timeout_s=8.0)
    job = site.submit()
    site.wait(-HOUR)
    assert site.job(job).state is JobState.PREPARING
    site.wait(9.0)
    assert site.job(job).attempt == 1
    assert site.job(job).state is JobState.PENDING
    assert site.notes("clock_set_back") == [{"seconds": HOUR}]


def test_a_daemon_that_starts_with_an_older_clock_does_not_wait_for_the_newer_one() -> None:
    site = Site({"a": 1})
    site.wait(HOUR)
    job = site.submit()
    refuse(site, job)
    again = site.restarted()
    assert again.now == site.now - HOUR < site.job(job).not_before
    again.wait(again.settings.start.backoff_max_s)
    assert again.job(job).state is JobState.PREPARING


def test_a_task_does_not_wait_for_the_clock_of_the_nodes_its_parent_ran_on() -> None:
    site = Site({"a": 1})
    flow = site.submit_workflow("a b", "a>b")
    site.run(f"{flow}.1")
    ahead = site.now + HOUR
    site.say(
        f"{flow}.1", PartState.FINISHED, exit_code=0, started=ahead, ended=ahead, reason="exited"
    )
    site.wait(1.0)
    assert site.job(f"{flow}.2").state is JobState.PREPARING


@pytest.mark.parametrize("step", [6 * HOUR, -6 * HOUR])
def test_a_step_of_the_clock_is_no_wait(step: float) -> None:
    """What was waited before and after it counts; the next job knows no more."""
    site = Site({"a": 1})
    site.do(ClockSet(seconds=-2 * HOUR))  # long ago
    first = site.submit()
    site.run(first)
    second = site.submit()
    site.wait(100.0)
    site.do(ClockSet(seconds=step))
    site.wait(step)
    site.wait(50.0)
    site.finish(first)
    site.run(second)
    assert waited_s(site.job(second)) == pytest.approx(150.0, abs=1.0)
    third = site.submit()
    site.finish(second)
    site.run(third)
    assert waited_s(site.job(third)) == pytest.approx(0.0, abs=1.0)
    assert site.job(third).clock_set_s == 0.0


def test_steps_are_told_from_drift() -> None:
    wall, steady = 1000.0, [0.0]
    steps = ClockSteps(lambda: steady[0])
    for passed, shown, step in (
        (1.0, 1.0, 0.0),
        (60.0, 60.03, 0.0),
        (1.0, 21_601.0, 21_600.0),
        (1.0, -21_599.0, -21_600.0),
        (86_400.0, 86_400.0, 0.0),
    ):
        steady[0] += passed
        wall += shown
        assert steps.step(wall) == pytest.approx(step)
