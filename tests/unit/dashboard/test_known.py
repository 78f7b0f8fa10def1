"""The site as the dashboard knows it: what it makes of answers, and of their absence."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
from msgspec.structs import replace

from coalloc.cli.output import SLURM_REASONS
from coalloc.dashboard import views
from coalloc.dashboard.access import Viewer
from coalloc.dashboard.answers import JobsAsked, WaitsAsked
from coalloc.dashboard.known import Known
from coalloc.model.plan import Reason
from coalloc.wire.answers import LastRound, QueueAnswer, RuleCostRow, RuleCostsRow
from tests.support.dashboard_site import NOW, ended_job, fill, status_of


@pytest.fixture
def known() -> Known:
    known = Known()
    fill(known)
    return known


def test_an_account_tells_how_a_job_went(known: Known) -> None:
    row = known.row("1")
    assert row is not None
    assert (row.state, row.exit_code, row.detail) == ("failed", 3, "exit 3")
    assert (row.submitted, row.started, row.ended) == (NOW - 900, NOW - 880, NOW - 300)
    assert (row.procs, row.nodes, row.clusters) == (2, {"a1": 2}, ("alpha",))


def test_an_account_is_taken_in_once(known: Known) -> None:
    known.take_accounts([ended_job("1")])
    assert known.revision == 1


def test_a_job_that_ended_between_two_answers_has_ended(known: Known) -> None:
    known.take_accounts([ended_job("2", state="completed")])
    assert views.status(known, Viewer()).states == {"failed": 1, "completed": 1, "pending": 1}
    row = known.row("2")
    assert row is not None
    assert row.state == "completed"


def test_bars_are_of_our_jobs_the_plan_and_other_work(known: Known) -> None:
    kinds = {bar.job: (bar.kind, bar.clusters) for bar in known.bars}
    assert kinds == {
        "2": ("running", ("alpha", "beta")),
        "alpha.991": ("local", ("alpha",)),
        "3": ("planned", ("alpha", "beta")),
    }
    (running,) = (bar for bar in known.bars if bar.job == "2")
    # equation (4): 0.1 * 2 * (4 - 2) / (4 - 1) on both links
    assert running.link_gbps == pytest.approx({"alpha": 0.4 / 3, "beta": 0.4 / 3})
    assert known.loads_of("2") == running.link_gbps


def test_what_a_plan_started_is_not_drawn_as_planned(known: Known) -> None:
    assert known.plan is not None
    started = replace(known.rows["3"], state="running", started=NOW, nodes={"a1": 2, "b1": 2})
    known.take_queue(QueueAnswer(jobs=(started,)))
    known.take_plan(known.plan)
    assert "planned" not in {bar.kind for bar in known.bars}


def test_the_last_state_stays_when_the_daemon_does_not_answer(known: Known) -> None:
    known.unanswered("no daemon listens")
    seen = views.status(known, Viewer())
    assert (seen.reachable, seen.heard, seen.fault) == (False, NOW, "no daemon listens")
    assert seen.states == {"failed": 1, "running": 1, "pending": 1}
    assert known.bars
    known.take_status(status_of(NOW + 9))
    assert views.status(known, Viewer()).heard == NOW + 9
    assert known.reachable


def test_a_time_line_is_handed_out_in_pieces() -> None:
    known = Known()
    known.take_accounts([ended_job(str(i), ended=NOW + i) for i in range(5)])
    first, revision, more = known.ended_since(0, 3)
    assert ([row.id for row in first], more) == (["0", "1", "2"], True)
    known.take_accounts([ended_job("5", ended=NOW + 5)])
    rest, last, more = known.ended_since(revision, 10)
    assert ([row.id for row in rest], more) == (["3", "4", "5"], False)
    assert known.ended_since(last, 10) == ([], last, False)
    assert known.ended_since(1 << 52, 1) == ([], last, False)


def test_the_oldest_ended_jobs_are_forgotten() -> None:
    known = Known(keep_jobs=10)
    jobs = [ended_job(str(i), ended=NOW + i) for i in range(3000)]
    for job in jobs:
        known.take_accounts([job])
    known.take_accounts(jobs)  # those that are forgotten stay so
    assert list(known.ended) == [str(i) for i in range(2990, 3000)]
    rows, last, more = known.ended_since(2995, 3)
    assert ([row.id for row in rows], last, more) == (["2995", "2996", "2997"], 2998, True)
    assert len(known.ended_since(0, 100)[0]) == 10


def test_jobs_that_the_daemon_does_not_know_are_gone(known: Known) -> None:
    known.take_queue(QueueAnswer(jobs=(known.rows["2"],)))
    assert known.row("3") is None
    assert known.row("1") is not None, "what has ended stays"


def test_another_store_is_another_site(known: Known) -> None:
    before = known.instance
    known.reset()
    assert known.instance != before
    assert (known.rows, known.ended, known.revision) == ({}, {}, 0)


def test_a_round_gets_its_gap_and_later_what_its_plan_says(known: Known) -> None:
    last = LastRound(
        round=8,
        time=NOW,
        policy="auto",
        status="feasible",
        objective="weighted_completion",
        value=110.0,
        bound=100.0,
    )
    for _ in range(2):
        known.take_status(replace(status_of(NOW), last_round=last))
    (round_,) = known.rounds
    assert round_.gap == pytest.approx(0.1)
    assert (round_.placed, round_.rule_costs) == (None, None), "not known is not nothing"
    assert known.plan is not None
    limits = RuleCostRow(with_rule=200.0, without=300.0, cost=-100.0, jobs=1, held=1)
    costs = RuleCostsRow(round=8, time=NOW, policy="auto", spent_s=0.1, rules={"limits": limits})
    plan = replace(known.plan, plan=replace(known.plan.plan, round=8), rule_costs=costs)
    known.take_plan(plan)
    known.take_status(replace(status_of(NOW), last_round=last))
    (round_,) = known.rounds
    assert (round_.placed, round_.phases_s) == (1, {"elapsed": 0.25})
    assert round_.rule_costs == {"limits": limits}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["3", "2", "1"]),
        ({"state": "waiting"}, ["3"]),
        ({"state": "active"}, ["2"]),
        ({"state": "failed"}, ["1"]),
        ({"user": "ann"}, ["3", "1"]),
        ({"cluster": "beta"}, ["2"]),
        ({"reason": "planned"}, ["3"]),
        ({"q": "WID"}, ["2"]),
        ({"q": "b1"}, ["2"]),
        ({"q": "bob"}, ["2"]),
        ({"q": "nothing"}, []),
        ({"node": "a1"}, ["2", "1"]),
        ({"node": "a"}, []),  # a node is found by its whole name
    ],
)
def test_jobs_are_found(known: Known, asked: dict[str, Any], found: list[str]) -> None:
    answer = views.jobs(known, JobsAsked(**asked))
    assert [row.id for row in answer.jobs] == found
    assert answer.total == len(found)


def test_jobs_come_in_pages(known: Known) -> None:
    page = views.jobs(known, JobsAsked(limit=2, offset=1))
    assert ([row.id for row in page.jobs], page.more) == (["2", "1"], False)
    assert views.jobs(known, JobsAsked(limit=2)).more


def test_waits_are_counted_by_class(known: Known) -> None:
    (alpha, both) = sorted(views.waits(known, WaitsAsked()).groups, key=lambda group: group.name)
    assert (alpha.name, alpha.jobs, alpha.mean_s) == ("alpha", 1, 20.0)
    assert (both.name, both.median_s) == ("alpha+beta", 11.0)
    assert sum(alpha.counts) == 1
    assert alpha.counts[views.BOUNDS_S.index(60.0)] == 1


def test_waits_are_counted_by_project(known: Known) -> None:
    known.take_accounts([ended_job("9", project="climate")])
    groups = {
        group.name: group.jobs for group in views.waits(known, WaitsAsked(by="project")).groups
    }
    assert groups == {"climate": 1, "": 2}


def test_the_page_has_words_for_each_reason() -> None:
    page = (resources.files("coalloc.dashboard") / "data" / "overview.js").read_text("utf-8")
    found = re.search(r"export const REASONS = \{(.*?)\};", page, re.DOTALL)
    assert found
    assert {*Reason, *SLURM_REASONS} <= set(re.findall(r'(\w+): "', found[1]))
