"""The cache: what it makes of events, answers, and their absence."""

from __future__ import annotations

import pytest

from coalloc.dashboard import views
from coalloc.dashboard.access import Viewer
from coalloc.dashboard.cache import Cache
from coalloc.model.values import replace
from coalloc.wire.answers import Event
from coalloc.wire.job_rows import QueueRow
from tests.support.dashboard_site import NOW, fill, status_of


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    fill(cache)
    return cache


def test_events_alone_tell_how_a_job_went(cache: Cache) -> None:
    row = cache.rows["1"]
    assert (row.state, row.exit_code, row.detail) == ("failed", 3, "exit 3")
    assert (row.submitted, row.started, row.ended) == (NOW - 900, NOW - 880, NOW - 300)
    assert (row.procs, row.nodes, row.clusters) == (2, {"a1": 2}, ("alpha",))


def test_an_event_is_taken_in_once(cache: Cache) -> None:
    again = list(cache.events)
    assert cache.happened(again) == []
    assert len(cache.events) == len(again)


def test_a_job_of_which_only_the_end_is_known_is_left_out() -> None:
    cache = Cache()
    cache.happened([Event(seq=9, time=NOW, kind="job_ended", job="5", fields={"state": "failed"})])
    assert "5" not in cache.rows


def test_a_refused_start_waits_again(cache: Cache) -> None:
    cache.happened([Event(seq=9, time=NOW, kind="job_requeued", job="2", fields={"detail": "no"})])
    row = cache.rows["2"]
    assert (row.state, row.started, row.nodes, row.detail) == ("pending", None, {}, "no")


def test_bars_are_of_our_jobs_the_plan_and_other_work(cache: Cache) -> None:
    kinds = {bar.job: (bar.kind, bar.clusters) for bar in cache.bars}
    assert kinds == {
        "2": ("running", ("alpha", "beta")),
        "alpha.991": ("local", ("alpha",)),
        "3": ("planned", ("alpha", "beta")),
    }
    (running,) = (bar for bar in cache.bars if bar.job == "2")
    # equation (4): 0.1 * 2 * (4 - 2) / (4 - 1) on both links
    assert running.link_gbps == pytest.approx({"alpha": 0.4 / 3, "beta": 0.4 / 3})


def test_what_a_plan_started_is_not_drawn_as_planned(cache: Cache) -> None:
    assert cache.plan is not None
    started = replace(cache.rows["3"], state="running", started=NOW, nodes={"a1": 2, "b1": 2})
    cache.queued([started], everything=False)
    cache.planned(cache.plan)
    assert "planned" not in {bar.kind for bar in cache.bars}


def test_the_last_state_stays_when_the_daemon_does_not_answer(cache: Cache) -> None:
    cache.unanswered("no daemon listens")
    seen = views.status(cache, Viewer())
    assert (seen.reachable, seen.heard, seen.fault) == (False, NOW, "no daemon listens")
    assert seen.states == {"failed": 1, "running": 1, "pending": 1}
    assert cache.bars
    cache.answered(status_of(NOW + 9))
    assert views.status(cache, Viewer()).heard == NOW + 9
    assert cache.reachable


def test_a_time_line_is_handed_out_in_pieces() -> None:
    cache = Cache()
    for i in range(5):
        cache.queued([_ended(str(i))], everything=False)
    first, revision, more = cache.ended_since(0, 3)
    assert ([row.id for row in first], more) == (["0", "1", "2"], True)
    cache.queued([replace(_ended("0"), detail="known better")], everything=False)
    rest, last, more = cache.ended_since(revision, 10)
    assert ([row.id for row in rest], more) == (["3", "4", "0"], False)
    assert cache.ended_since(last, 10) == ([], last, False)


def test_the_oldest_ended_jobs_are_forgotten() -> None:
    cache = Cache(keep_jobs=10)
    for i in range(3000):
        cache.queued([_ended(str(i))], everything=False)
    assert list(cache.rows) == [str(i) for i in range(2990, 3000)]
    assert len(cache.ended_since(0, 100)[0]) == 10


def test_jobs_that_a_restarted_daemon_does_not_know_are_gone(cache: Cache) -> None:
    cache.queued([cache.rows["2"]], everything=True)
    assert "3" not in cache.rows
    assert "1" in cache.rows, "what has ended stays"


def test_another_store_is_another_site(cache: Cache) -> None:
    before = cache.instance
    cache.reset()
    assert cache.instance != before
    assert (cache.rows, cache.last_seq, cache.revision) == ({}, 0, 0)


def test_a_round_gets_its_gap_and_later_what_its_plan_says(cache: Cache) -> None:
    objective = {"name": "weighted_completion", "value": 110.0, "bound": 100.0}
    body = {"round": 7, "policy": "auto", "status": "feasible", "objective": objective}
    cache.round_ended(body, NOW)
    cache.round_ended({"round": "x"}, NOW)  # not of this protocol
    (known,) = cache.rounds
    assert known.gap == pytest.approx(0.1)
    assert known.placed is None
    assert cache.plan is not None
    cache.planned(cache.plan)
    (known,) = cache.rounds
    assert (known.placed, known.phases_s) == (1, {"elapsed": 0.25})
    assert known.rule_costs is None, "not computed is not nothing"
    limits = {"with_rule": 200.0, "without": 300.0, "cost": -100.0, "jobs": 1, "held": 1}
    costs = {"time": NOW, "policy": "auto", "spent_s": 0.1, "rules": {"limits": limits}}
    cache.costed({"round": 6, **costs})  # one that is forgotten
    cache.costed({"round": "x", **costs})  # not of this protocol
    cache.costed({"round": 7, "watch_seq": 3, **costs})
    (known,) = cache.rounds
    assert known.rule_costs is not None
    assert known.rule_costs["limits"].cost == -100.0


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
    ],
)
def test_jobs_are_found(cache: Cache, asked: dict[str, str], found: list[str]) -> None:
    answer = views.jobs(cache, asked, 10, 0)
    assert [row.id for row in answer.jobs] == found
    assert answer.total == len(found)


def test_jobs_come_in_pages(cache: Cache) -> None:
    page = views.jobs(cache, {}, 2, 1)
    assert ([row.id for row in page.jobs], page.more) == (["2", "1"], False)
    assert views.jobs(cache, {}, 2, 0).more


def test_waits_are_counted_by_class(cache: Cache) -> None:
    (alpha, both) = sorted(views.waits(cache, "cluster").groups, key=lambda group: group.name)
    assert (alpha.name, alpha.jobs, alpha.mean_s) == ("alpha", 1, 20.0)
    assert (both.name, both.median_s) == ("alpha+beta", 11.0)
    assert sum(alpha.counts) == 1
    assert alpha.counts[views.BOUNDS_S.index(60.0)] == 1


def test_waits_are_counted_by_project(cache: Cache) -> None:
    cache.queued([replace(cache.rows["1"], project="climate")], everything=False)
    groups = {group.name: group.jobs for group in views.waits(cache, "project").groups}
    assert groups == {"climate": 1, "": 1}


def test_jobs_of_a_node_are_found_by_its_whole_name(cache: Cache) -> None:
    found = views.jobs(cache, {"node": "a1"}, 10, 0)
    assert [row.id for row in found.jobs] == [
        job for job, row in reversed(cache.rows.items()) if "a1" in row.nodes
    ]
    assert found.total
    assert not views.jobs(cache, {"node": "a"}, 10, 0).total


def test_a_reason_of_a_cancellation_is_told(cache: Cache) -> None:
    fields = {"user": "ann", "reason": "wrong input"}
    cache.happened([Event(seq=99, time=NOW, kind="job_cancelling", job="2", fields=fields)])
    assert cache.rows["2"].detail == "being ended: cancelled by ann: wrong input"


def _ended(job: str) -> QueueRow:
    return QueueRow(
        id=job,
        name="",
        user="ann",
        state="completed",
        procs=1,
        submitted=NOW - 9,
        started=NOW - 8,
        ended=NOW - 1,
        nodes={"a1": 1},
        clusters=("alpha",),
    )
