"""Dependencies on starts, on members of arrays, and on a user's other jobs of a name."""

from __future__ import annotations

from typing import Any

from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, CommandAnswer, Refused, Submit
from coalloc.core.rounds.snapshots import snapshot
from coalloc.model.sites.parts import Launch
from tests.support.core_site import Site

FIELDS = {"kind": "rigid", "procs": 1, "base_time": 10.0}


def array(site: Site, *indices: int, **more: Any) -> CommandAnswer:
    launch = Launch(argv=("work",))
    return site.ask(
        Submit(token=f"a{len(site.answers)}", job=FIELDS, launch=launch, array=indices, **more)
    )


def test_after_waits_for_a_start_and_no_longer() -> None:
    site = Site({"a": 1, "b": 1})
    first = site.submit()
    later = site.submit(needs=(("after", first),))
    assert site.job(first).is_placed
    assert not site.job(later).is_placed
    site.run(first)
    assert site.job(later).is_placed
    assert site.job(first).state is JobState.RUNNING


def test_after_is_met_by_a_job_that_never_starts() -> None:
    site = Site({"a": 1, "b": 1})
    first = site.submit(hold=True)
    later = site.submit(needs=(("after", first),))
    assert not site.job(later).is_placed
    site.ask(Cancel(job=first))
    site.wait(1.0)
    site.submit()
    assert site.job(later).is_placed


def test_after_waits_some_minutes_longer() -> None:
    site = Site({"a": 1, "b": 1})
    first = site.submit()
    later = site.submit(needs=(("after+5", first),))
    site.run(first)
    begun = site.job(first).started
    assert begun is not None
    (view,) = snapshot(site.state, site.now).queue
    assert (view.id, view.earliest) == (later, begun + 300.0)


def test_one_of_several_dependencies_is_enough() -> None:
    site = Site({"a": 1, "b": 1})
    ahead = site.submit(), site.submit()
    one, none = (
        site.submit(needs=tuple((kind, job) for job in ahead))
        for kind in ("afterok?", "afternotok?")
    )
    site.run(ahead[0])
    site.finish(ahead[0], code=1)
    assert site.job(none).is_placed
    assert not site.job(one).is_placed
    assert site.job(one).is_waiting
    site.run(ahead[1])
    site.finish(ahead[1], code=1)
    assert site.job(one).state is JobState.CANCELLED
    assert "cannot be met" in site.job(one).detail
    refused = site.ask(
        Submit(token="x", job=FIELDS, launch=Launch(argv=("w",)), needs=(("singleton?", ""),))
    )
    assert isinstance(refused, Refused)


def test_aftercorr_waits_for_the_same_member() -> None:
    site = Site({"a": 2})
    array(site, 1, 2)
    array(site, 1, 2, needs=(("aftercorr", "1"),))
    assert site.job("2_1").needs == (("aftercorr", "1_1"),)
    site.run("1_1")
    site.run("1_2")
    site.finish("1_2")
    assert site.job("2_2").is_placed
    assert not site.job("2_1").is_placed
    site.finish("1_1", code=1)
    assert site.job("2_1").state is JobState.CANCELLED
    assert site.job("2_1").detail == "aftercorr:1_1 cannot be met: job 1_1 is failed"


def test_aftercorr_of_a_member_that_is_not_there_is_refused() -> None:
    site = Site({"a": 2})
    array(site, 1, 2)
    answer = array(site, 2, 3, needs=(("aftercorr", "1"),))
    assert isinstance(answer, Refused)
    assert answer.message == "dependency: aftercorr: no job 1_3"


def test_a_singleton_waits_for_the_users_other_jobs_of_its_name() -> None:
    site = Site({"a": 4})
    first = site.submit(name="nightly")
    site.submit(name="other")
    site.submit(name="nightly", user="bob")
    second = site.submit(name="nightly", needs=(("singleton", ""),))
    third = site.submit(name="nightly", needs=(("singleton", ""),))
    assert site.job(second).needs == (("singleton", first),)
    assert set(site.job(third).needs) == {("singleton", first), ("singleton", second)}
    site.run(first)
    site.finish(first, code=1)
    assert site.job(second).is_placed
    assert not site.job(third).is_placed
    refused = array(site, 1, 2, needs=(("singleton", ""),))
    assert isinstance(refused, Refused)
    assert "an array is no singleton" in refused.message
