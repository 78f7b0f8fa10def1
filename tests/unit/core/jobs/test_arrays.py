"""Arrays of more members than the queue takes: one record, of which members follow."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.records import ArrayRest, JobState
from coalloc.core.base.requests import Cancel, Done, Hold, Refused, Release, SetPriority, Update
from coalloc.core.jobs import arrays
from coalloc.daemon.queries.job_views import queue_page
from coalloc.model.sites.parts import PartReport, PartState
from tests.support.core_site import Site


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "WINDOW", 4)
    monkeypatch.setattr(arrays, "BATCH", 2)


def array_of(site: Site, **fields: Any) -> str:
    return site.submit(array=fields.pop("array", "0-9"), **fields)


def rest_of(site: Site, number: str = "1") -> ArrayRest:
    rest = site.job(f"{number}_").rest
    assert rest is not None
    return rest


def run_through(site: Site, code: int = 0) -> list[str]:
    """Run what is placed until nothing is; returns the jobs in the order of their starts."""
    order: list[str] = []
    while site.state.placed:
        for job in list(site.state.placed):
            order.append(job)
            site.run(job)
            site.finish(job, code)
            site.wait(0.1)
    return order


def listed(site: Site, *, everything: bool = False) -> list[tuple[str, str]]:
    rows, _ = queue_page(
        site.state, everything=everything, user="", now=site.now, after="", limit=1000
    )
    return [(row.id, row.reason) for row in rows]


def test_members_follow_each_runs_once_and_the_array_ends_with_the_last() -> None:
    site = Site({"a": 2})
    number = array_of(site, array="0-8:2,20-24")
    assert (rest_of(site).members, rest_of(site).left) == (10, 6)
    site.wait(0.0)
    assert listed(site)[0] == ("1_[8,20-24]", "array_order")
    order = run_through(site)
    assert order == [f"{number}_{i}" for i in (0, 2, 4, 6, 8, 20, 21, 22, 23, 24)]
    assert site.job("1_").state is JobState.COMPLETED
    assert rest_of(site).ends == {"completed": 10}
    assert not site.state.pending.members
    assert site.state.pending.behind == 0
    assert not site.state.pending.entries["ann"]
    assert "1_" not in [id for id, _ in listed(site, everything=True)]


def test_the_record_weighs_the_same_whatever_the_number() -> None:
    site = Site({"a": 2}, max_array=10**9)
    array_of(site, array="0-999999998")
    assert len(site.state.jobs) == 5
    assert rest_of(site).indices == "4-999999998"
    refused = site.ask(Update(job="1_7", fields={"nonsense": 1}))
    assert isinstance(refused, Refused)


def test_a_restart_makes_no_member_twice() -> None:
    site = Site({"a": 1})
    array_of(site)
    for index in range(3):
        site.run(f"1_{index}")
        site.finish(f"1_{index}")
    again = site.restarted()
    again.run("1_3")
    again.finish("1_3")
    again.wait(0.1)
    assert run_through(again) == [f"1_{i}" for i in range(4, 10)]
    site = again
    assert rest_of(site).ends == {"completed": 10}


def test_commands_act_on_members_and_on_those_to_follow() -> None:
    site = Site({"a": 1})
    array_of(site)
    assert isinstance(site.ask(Hold(job="1")), Done)
    done = site.ask(Update(job="1", fields={"time_limit": 7.0}, throttle=1))
    assert isinstance(done, Done)
    assert done.body["jobs"] == ["1_[4-9%1]", "1_1", "1_2", "1_3"]
    assert isinstance(site.ask(SetPriority(job="1", priority=2.0), operator=True), Done)
    assert site.job("1_").state is JobState.HELD
    site.ask(Release(job="1"))
    run_through(site)
    made = [record for id, record in site.state.jobs.items() if id not in {"1_", "1_0"}]
    assert len(made) == 9
    assert {(r.job.time_limit, r.throttle, r.priority) for r in made} == {(7.0, 1, 2.0)}


def test_a_cancelled_array_makes_no_more_and_ends_with_what_runs() -> None:
    site = Site({"a": 1})
    array_of(site)
    site.run("1_0")
    site.ask(Cancel(job="1"))
    assert rest_of(site).ends.get("cancelled", 0) >= 8
    assert not site.job("1_").is_ended
    site.finish("1_0", 143)
    assert site.job("1_").state in {JobState.CANCELLED, JobState.FAILED}
    assert sum(rest_of(site).ends.values()) == 10
    assert isinstance(site.ask(Cancel(job="1")), Refused)


def test_one_member_is_reached_by_its_number() -> None:
    site = Site({"a": 1})
    array_of(site)
    refused = site.ask(Cancel(job="1_7"), user="bob")
    assert isinstance(refused, Refused)
    assert "1_7" not in site.state.jobs
    assert isinstance(site.ask(Cancel(job="1_7")), Done)
    assert site.job("1_7").state is JobState.CANCELLED
    assert "1_7" not in run_through(site)
    assert rest_of(site).ends == {"completed": 9, "cancelled": 1}


@pytest.mark.parametrize(
    ("kind", "code", "runs"),
    [("afterok", 0, True), ("afterok", 1, False), ("afternotok", 1, True), ("afterany", 1, True)],
)
def test_others_wait_until_the_whole_array_is_over(kind: str, code: int, runs: bool) -> None:
    site = Site({"a": 4})
    array_of(site)
    after = site.submit(needs=((kind, "1"),))
    order = run_through(site, code)
    assert (after in order) is runs
    assert order[9:] == ["1_9", after][: 1 + runs]


def test_others_wait_for_one_member_or_one_each() -> None:
    site = Site({"a": 1})
    array_of(site)
    after = site.submit(needs=(("afterok", "1_9"),))
    site.submit(needs=(("aftercorr", "1"),), array="0-9")
    assert rest_of(site).left == 0
    order = run_through(site)
    assert len(order) == 21
    assert order.index(after) > order.index("1_9")
    assert all(order.index(f"3_{i}") > order.index(f"1_{i}") for i in range(10))


def test_a_dependency_that_cannot_be_met_ends_the_array_as_one() -> None:
    site = Site({"a": 1})
    first = site.submit()
    array_of(site, needs=(("afterok", first),))
    site.run(first)
    site.finish(first, 1)
    site.wait(0.1)
    assert site.job("2_").state is JobState.CANCELLED
    assert rest_of(site, "2").ends == {"cancelled": 10}


def test_what_an_executor_has_started_since_the_backup_is_not_made_again() -> None:
    site = Site({"a": 1})
    array_of(site)
    site.report("a", PartReport(job="1_8", attempt=1, part=0, state=PartState.RUNNING))
    assert site.job("1_8").state is JobState.HELD
    assert site.job("1_8").reason == "started_after_backup"
    assert "1_8" not in run_through(site)


@pytest.mark.parametrize("text", ["5-1", "x", "0-10"])
def test_what_is_no_array_is_refused(text: str) -> None:
    site = Site({"a": 1}, max_array=10)
    with pytest.raises(AssertionError, match="array: "):
        array_of(site, array=text)


def test_what_waits_for_the_array_is_not_waited_for_by_its_members() -> None:
    site = Site({"a": 1})
    array_of(site)
    after = site.submit(needs=(("afterok", "1"),))
    for job, needed in (("1_3", after), ("1", after), ("1", "1")):
        refused = site.ask(Update(job=job, needs=(("afterany", needed),)))
        assert isinstance(refused, Refused), (job, needed)
        assert "waits for job" in refused.message
