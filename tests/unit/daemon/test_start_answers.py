"""Intervals and their accuracy in answers, in the figures for Prometheus and on the screen."""

from __future__ import annotations

import json

import pytest

from coalloc.cli import estimates
from coalloc.cli.jobs.job_details import job_lines
from coalloc.cli.jobs.queue_columns import COLUMNS, Now
from coalloc.cli.jobs.why import why_lines
from coalloc.cli.main import main
from coalloc.core.base.accuracy import start_accuracy
from coalloc.core.base.start_intervals import ENOUGH, FIRST
from coalloc.core.rounds import snapshots
from coalloc.daemon.monitoring.figures import Survey
from coalloc.daemon.monitoring.metrics import DaemonMetrics
from coalloc.daemon.queries import answers, job_views
from coalloc.model.plan import OVERDUE, Objective, Placement, Plan, Status
from coalloc.runtime.texts import clock
from tests.support.core_site import HOUR, Site
from tests.unit.core.learning.test_start_intervals import Promising
from tests.unit.daemon.test_queue_pages import Local


@pytest.fixture
def site() -> Promising:
    """Starts were late by up to half of the lead time; one job runs and one waits."""
    site = Promising({"a": 1})
    made = site.state.learning.calibration
    for n in range(3 * ENOUGH):
        made.learn(made.promise(HOUR, 0.0, FIRST), HOUR + 30.0 * n, f"u{n}")
    site.run(site.submit())
    site.submit()
    return site


def test_a_waiting_job_is_shown_with_its_interval(site: Site) -> None:
    row = job_views.job_row(site.job("2"), site.state, site.now)
    assert row.start_estimate == site.now + 2 * HOUR
    assert row.start_early is not None
    assert row.start_late is not None
    assert site.now < row.start_early < row.start_late
    assert row.start_late > site.now + 2.5 * HOUR
    cell = COLUMNS["likely"].text([row], Now(time=site.now))
    assert cell.count(":") >= 2
    why = job_views.why(site.job("2"), site.state, site.now)
    assert (why.start_early, why.start_late) == (row.start_early, row.start_late)
    assert any("90 %: " in line for line in why_lines(why, site.now))
    details = job_views.job_details(site.job("2"), site.state, site.now)
    assert any("90 %: " in line for line in job_lines(details, site.now))


@pytest.mark.parametrize(
    ("in_s", "says"), [(900.0, "goes first from {} on"), (-900.0, "since {}, and goes first")]
)
def test_why_says_when_a_job_goes_first(site: Site, in_s: float, says: str) -> None:
    at = site.now + in_s
    policy = site.state.settings.rounds.policy
    site.state.learning.notes[policy] = {OVERDUE: {"1": at, "2": at}}
    lines = why_lines(job_views.why(site.job("2"), site.state, site.now), site.now)
    assert any(says.format(clock(at, site.now)) in line for line in lines)
    assert job_views.why(site.job("1"), site.state, site.now).overdue_at is None


def test_what_does_not_wait_for_nodes_has_none(site: Site) -> None:
    running = job_views.job_row(site.job("1"), site.state, site.now)
    assert (running.start_early, running.start_late) == (None, None)
    assert COLUMNS["likely"].text([running], Now(time=site.now)) == "-"
    new = Promising({"a": 1})
    new.run(new.submit())
    new.submit()
    row = job_views.job_row(new.job("2"), new.state, new.now)
    assert row.start_estimate is not None
    assert (row.start_early, row.start_late) == (None, None)


@pytest.mark.parametrize(
    ("ahead_s", "known"),
    [pytest.param(HOUR, True, id="later"), pytest.param(0.0, False, id="at once")],
)
def test_a_job_that_was_not_submitted(site: Site, ahead_s: float, known: bool) -> None:
    snapshot = snapshots.snapshot(site.state, site.now)
    start = site.now + ahead_s
    placement = Placement(job="2", start=start, end=start + 100.0, nodes={"a1": 1})
    objective = Objective(name="makespan", value=0.0)
    plan = Plan(policy="x", status=Status.HEURISTIC, objective=objective, placements=(placement,))
    found = answers.estimate_of(plan, "2", site.now, site.state.learning.calibration, snapshot)
    assert (found.start_early is not None, found.start_late is not None) == (known, known)


def test_the_accuracy_is_asked_for_and_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.state.learning.ratios["ann\nwork"] = (0.5, 0.5, 1.0)
    monkeypatch.setattr(estimates, "connect", lambda args: Local(site))
    assert main(["estimates"]) == 0
    shown = capsys.readouterr().out
    assert "at first" in shown
    assert "up to 1 h" in shown
    assert "3 runs took 0.5 of what was planned" in shown
    assert main(["estimates", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["starts"][0]["starts"] == 3 * ENOUGH
    assert answer["run_times"]["error"] == 0.5
    monkeypatch.setattr(estimates, "connect", lambda args: Local(Site()))
    assert main(["estimates"]) == 0
    assert "no job that waited has started" in capsys.readouterr().out


def test_figures_for_prometheus(site: Site) -> None:
    metrics = DaemonMetrics()
    rows = start_accuracy(site.state.learning.calibration.newest())
    metrics.survey(Survey(time=site.now, starts=rows))
    figure = metrics.registry.get_sample_value
    first = {"promise": "first"}
    assert figure("coalloc_start_interval_held_ratio", first) == rows[0].held
    assert figure("coalloc_start_interval_seconds", first) == rows[0].width_s
    assert figure("coalloc_start_error_seconds", first) == rows[0].error_s
