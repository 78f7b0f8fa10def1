"""Usage: the integral under the half-life, days, and what is kept of an attempt that has run."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import AddUsage, SaveAccount, SaveUsage
from coalloc.core.base.projects import DAY_S, Usage, added, by_day, decay, decayed_proc_s
from coalloc.model.sites.parts import PartState
from tests.support.core_site import Site

HALF = 3600.0


def test_usage_is_the_integral_of_what_is_left() -> None:
    steps = 10_000
    width = 5400.0 / steps
    summed = sum(
        3 * width * decay(7200.0 - (1800.0 + (i + 0.5) * width), HALF) for i in range(steps)
    )
    assert decayed_proc_s(3, 1800.0, 7200.0, 7200.0, HALF) == pytest.approx(summed, rel=1e-6)


def test_usage_in_pieces_and_later_is_the_same() -> None:
    whole = decayed_proc_s(4, 0.0, 5000.0, 9000.0, HALF)
    first = added(None, decayed_proc_s(4, 0.0, 2000.0, 2000.0, HALF), 2000.0, HALF)
    both = added(first, decayed_proc_s(4, 2000.0, 5000.0, 5000.0, HALF), 5000.0, HALF)
    assert both.now(9000.0, HALF) == pytest.approx(whole)


def test_a_long_half_life_counts_everything() -> None:
    assert decayed_proc_s(2, 0.0, 100.0, 100.0, 1e9) == pytest.approx(200.0, rel=1e-6)


def test_nothing_has_run_before_its_start() -> None:
    assert decayed_proc_s(2, 100.0, 100.0, 200.0, HALF) == 0.0
    assert Usage(8.0, 0.0).now(2 * HALF, HALF) == 2.0


def test_an_interval_is_divided_at_midnight() -> None:
    assert list(by_day(DAY_S - 10.0, 2 * DAY_S + 5.0)) == [(0, 10.0), (1, DAY_S), (2, 5.0)]
    assert list(by_day(5.0, 5.0)) == []


def run(site: Site, job: str, seconds: float, code: int = 0, **more: Any) -> None:
    site.run(job)
    started, site.now = site.now, site.now + seconds
    site.say(job, PartState.FINISHED, exit_code=code, started=started, ended=site.now, **more)


def test_an_ended_job_is_charged_and_has_an_account() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(3)
    site.now += 20.0
    run(site, job, 50.0)
    days = [e for e in site.effects if isinstance(e, AddUsage)]
    assert {e.cluster: e.proc_s for e in days} == {"a": 100.0, "b": 50.0}
    assert sum(e.coallocated_proc_s for e in days) == 150.0
    assert [(e.jobs, e.wait_s) for e in days] == [(1, 20.0), (0, 0.0)]
    (account,) = [e for e in site.effects if isinstance(e, SaveAccount)]
    assert (account.record.id, account.record.state, account.proc_s) == (job, "completed", 150.0)
    kept = [e for e in site.effects if isinstance(e, SaveUsage)][-1]
    assert kept.user == "ann"
    assert kept.proc_s == pytest.approx(150.0, rel=1e-3)
    assert site.state.sharing.days == {("", "ann"): {0: 150.0}}


def test_a_job_that_never_ran_has_an_account_and_no_usage() -> None:
    from coalloc.core.base.requests import Cancel

    site = Site({"a": 1}, solving=False)
    job = site.submit()
    site.ask(Cancel(job=job))
    (account,) = [e for e in site.effects if isinstance(e, SaveAccount)]
    assert (account.record.state, account.proc_s) == ("cancelled", 0.0)
    assert not [e for e in site.effects if isinstance(e, AddUsage | SaveUsage)]


def test_every_try_of_a_task_is_charged() -> None:
    site = Site({"a": 1}, backoff_first_s=1.0)
    flow = site.submit_workflow("x", retries=1)
    run(site, f"{flow}.1", 30.0, code=1)
    site.wait(2.0)
    run(site, f"{flow}.1", 40.0)
    days = [e for e in site.effects if isinstance(e, AddUsage)]
    assert [(e.proc_s, e.jobs) for e in days] == [(30.0, 0), (40.0, 1)]
