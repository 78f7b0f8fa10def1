"""Reservations of operators: what is kept, from whom, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import Wake
from coalloc.core.base.events import Solved, Ticked
from coalloc.core.base.requests import Done, Refused, Reserve, Unreserve
from coalloc.core.rounds.snapshots import snapshot
from coalloc.policies.base import Budget
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site


def reserve(site: Site, *targets: str, **what: Any) -> Any:
    answer = site.ask(Reserve(targets=targets, **what), operator=True)
    assert isinstance(answer, Done), answer
    return answer.body


def planned(site: Site) -> list[Any]:
    """The reservations of the snapshot of the next round."""
    site.submit(hold=False)
    return list(site.pending_solves[-1].snapshot.reservations)


def test_nodes_and_clusters_are_kept_from_everybody() -> None:
    site = Site({"a": 2, "b": 2}, solving=False)
    body = reserve(site, "a", "b2", start=site.now + 60.0, duration_s=600.0, reason="new\nswitch")
    assert body == {"reservation": "r1", "nodes": ["a1", "a2", "b2"], "running": []}
    (kept,) = planned(site)
    assert (kept.id, kept.nodes, kept.jobs) == ("r1", ("a1", "a2", "b2"), ())
    assert (kept.start, kept.end) == (1060.0, 1660.0)
    assert site.state.maintenance.reserved["r1"].reason == "new switch"
    assert site.restarted().state.maintenance.reserved == site.state.maintenance.reserved


def test_the_users_named_may_run_there() -> None:
    site = Site({"a": 2}, solving=False)
    reserve(site, "a1", users=("eve",), duration_s=600.0)
    mine = site.submit(user="eve")
    site.submit(user="ann")
    solve = site.pending_solves[-1]
    site.do(Solved(round=solve.round, plan=site.plan_of(solve.snapshot), solve_s=0.0))
    (kept,) = site.pending_solves[-1].snapshot.reservations
    assert kept.jobs == (mine,)


def test_a_plan_made_without_it_starts_nothing() -> None:
    site = Site({"a": 1}, solving=False)
    job = site.submit()
    solve = site.pending_solves.pop()
    reserve(site, "a1", duration_s=600.0)
    site.do(Solved(round=solve.round, plan=site.plan_of(solve.snapshot), solve_s=0.0))
    assert not site.job(job).is_placed
    assert site.pending_solves.pop().snapshot.reservations  # another round knows of it


def test_a_plan_that_comes_after_the_clock_has_jumped_into_it_starts_nothing() -> None:
    site = Site({"a": 2}, solving=False)
    reserve(site, "a1", start=site.now + 11.0, duration_s=600.0)
    solve = site.pending_solves.pop()
    site.do(Solved(round=solve.round, plan=site.plan_of(solve.snapshot), solve_s=0.0))
    site.now += 1.0
    job = site.submit(2, job={"base_time": 1.0})
    solve = site.pending_solves.pop()
    assert [each.id for each in solve.snapshot.queue] == [job]
    site.now += 12.0
    site.do(Solved(round=solve.round, plan=site.plan_of(solve.snapshot), solve_s=0.0))
    assert not site.job(job).is_placed


def test_the_nodes_that_are_free_the_soonest_are_chosen() -> None:
    site = Site({"a": 4})
    long = site.submit(2, job={"base_time": 5000.0})
    site.run(long)
    busy = {node for part in site.job(long).parts for node in part.nodes}
    reserve(site, next(iter({"a1", "a2", "a3", "a4"} - busy)), duration_s=100.0)
    body = reserve(site, "a", count=1, duration_s=100.0)
    assert body["nodes"][0] not in busy
    answer = site.ask(Reserve(targets=("a",), count=2, duration_s=100.0), operator=True)
    assert isinstance(answer, Done)  # those that are free are kept: the busy ones are left
    assert set(answer.body["nodes"]) == busy
    assert answer.body["running"] == [long]


def plan(site: Site, policy: str) -> dict[str, tuple[float, set[str]]]:
    """Start, seconds from now, and nodes of each job by a policy."""
    made = POLICIES[policy].solve(snapshot(site.state, site.now), {}, Budget())
    return {each.job: (each.start - site.now, set(each.nodes)) for each in made.placements}


@pytest.mark.parametrize("policy", ["plain", "fcfs", "easy", "conservative"])
@pytest.mark.parametrize(
    ("limit_s", "nodes"), [(40.0, {"a1"}), (60.0, {"b1"}), (None, {"a1"})], ids=str
)
def test_a_time_limit_may_not_run_into_it(
    limit_s: float | None, nodes: set[str], policy: str
) -> None:
    """However short it is expected to be; who has no limit goes by what is expected."""
    site = Site({"a": 1, "b": 1}, solving=False)
    reserve(site, "a1", start=site.now + 50.0, duration_s=600.0)
    job = site.submit(job={"base_time": 1.0, "time_limit": limit_s}, user="ann")
    assert plan(site, policy) == {job: (0.0, nodes)}


def test_one_that_could_run_into_the_only_nodes_waits_until_its_end() -> None:
    site = Site({"a": 1}, solving=False)
    reserve(site, "a1", start=site.now + 50.0, duration_s=600.0, users=("eve",))
    job = site.submit(job={"base_time": 1.0, "time_limit": 60.0}, user="ann")
    mine = site.submit(job={"base_time": 1.0, "time_limit": 60.0}, user="eve")
    assert plan(site, "easy") == {job: (650.0, {"a1"}), mine: (0.0, {"a1"})}
    site.ask(Unreserve(name="r1"), operator=True)
    assert plan(site, "easy")[job] == (0.0, {"a1"})


def test_one_without_an_end_is_not_waited_for() -> None:
    site = Site({"a": 1, "b": 1}, solving=False)
    reserve(site, "a1", start=site.now + 50.0)
    job = site.submit(2, job={"base_time": 1.0, "time_limit": 60.0}, user="ann")
    while site.pending_solves:
        solve = site.pending_solves.pop(0)
        made = POLICIES["easy"].solve(solve.snapshot, {}, Budget())
        site.do(Solved(round=solve.round, plan=made, solve_s=0.0))
    assert not site.job(job).is_placed
    assert job not in site.state.findings.aside
    assert site.state.findings.outlook[job].detail == (
        "with its time limit of 1 min it could run into reservation r1 (a1)"
    )
    site.ask(Unreserve(name="r1"), operator=True)
    assert plan(site, "easy")[job][0] == 0.0


def test_jobs_that_still_run_when_it_begins_are_named_and_go_on() -> None:
    site = Site({"a": 1})
    job = site.submit(job={"base_time": 100.0})
    site.run(job)
    assert reserve(site, "a", start=site.now + 50.0, duration_s=9.0)["running"] == [job]
    site.ask(Unreserve(name="r1"), operator=True)
    assert reserve(site, "a", start=site.now + 150.0, duration_s=9.0)["running"] == []
    assert site.job(job).is_placed


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ({"targets": ("c",)}, "not_found", "there is no cluster and no node c"),
        ({"targets": ()}, "bad_request", "no node is named"),
        ({"targets": ("a",), "count": 3}, "bad_request", "count: 3 is outside 1..2"),
        ({"targets": ("a",), "duration_s": 0.0}, "bad_request", "has no length"),
        ({"targets": ("a",), "start": 10.0, "duration_s": 5.0}, "bad_request", "time is over"),
        ({"targets": ("a",), "start": float("nan")}, "bad_request", "time is over"),
        (
            {"targets": ("b1",), "name": "kept"},
            "wrong_state",
            "a reservation kept already",
        ),
        ({"targets": ("b",)}, "wrong_state", "b1 is in reservation kept then"),
    ],
)
def test_what_cannot_be_kept_is_refused(what: dict[str, Any], code: str, words: str) -> None:
    site = Site({"a": 2, "b": 2})
    reserve(site, "b1", name="kept")
    answer = site.ask(Reserve(**what), operator=True)
    assert isinstance(answer, Refused)
    assert (answer.code, words in answer.message) == (code, True), answer
    assert set(site.state.maintenance.reserved) == {"kept"}


def test_only_an_operator_makes_and_takes_back() -> None:
    site = Site({"a": 1})
    for command in (Reserve(targets=("a",)), Unreserve(name="r1")):
        answer = site.ask(command)
        assert isinstance(answer, Refused)
        assert answer.code == "not_allowed"


def test_it_ends_with_its_time_or_when_it_is_taken_back() -> None:
    site = Site({"a": 1, "b": 1})
    reserve(site, "a", duration_s=30.0)
    reserve(site, "b")
    waiting = site.submit()
    due = site.now + 30.0
    assert due in [e.at for e in site.effects if isinstance(e, Wake)]
    again = site.restarted()
    again.do(Ticked())  # the daemon's first
    assert due in [e.at for e in again.effects if isinstance(e, Wake)]
    site.wait(10.0)
    assert set(site.state.maintenance.reserved) == {"r1", "r2"}
    site.wait(30.0)
    assert set(site.state.maintenance.reserved) == {"r2"}
    assert site.ask(Unreserve(name="r2"), operator=True) == Done(body={})
    assert site.restarted().state.maintenance.reserved == {}
    refused = site.ask(Unreserve(name="r2"), operator=True)
    assert isinstance(refused, Refused)
    assert [note["name"] for note in site.notes("unreserved")] == ["r1", "r2"]
    assert waiting in site.state.jobs


def test_it_ends_on_time_by_a_clock_that_was_set_back() -> None:
    site = Site({"a": 1})
    reserve(site, "a", duration_s=30.0)
    due = site.now + 30.0
    site.now -= 20.0
    site.submit()
    site.effects.clear()
    site.wait(30.0)  # its alarm comes now, which is too early
    assert due in [e.at for e in site.effects if isinstance(e, Wake)]
    assert "r1" in site.state.maintenance.reserved
    site.wait(20.0)
    assert site.state.maintenance.reserved == {}
