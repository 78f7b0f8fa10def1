"""The will of a job's user, and of an administrator, that a waiting claim meets in Slurm."""

from __future__ import annotations

import pytest

from coalloc.core.base.events import TimerFired
from coalloc.core.base.messages import Abort, Limit, Prepare
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Release
from coalloc.core.starts.negotiation import in_words
from coalloc.model.sites.parts import PartReport, PartState
from tests.unit.core.starts.test_negotiation import Crowded, negotiating

ALONE = {"a": 2}
TWO = {"a": 2, "b": 2}


def waiting(clusters: dict[str, int]) -> tuple[Crowded, str]:
    """A job of one process whose siblings wait in all clusters."""
    site = Crowded(clusters)
    job = site.submit(1)
    assert set(site.job(job).clusters) == set(clusters)
    site.waits(job, *clusters)
    return site, job


def ends(site: Crowded, job: str, reason: str, attempt: int) -> None:
    end = PartReport(job=job, attempt=attempt, part=0, state=PartState.REFUSED, reason=reason)
    site.report("a", end)
    site.wait(0.0)


WILL = (
    # reason, clusters, state then, words
    ("cancelled_there", ALONE, JobState.CANCELLED, "cancelled in a"),
    ("cancelled_there", TWO, JobState.CANCELLED, "cancelled in a"),
    ("ended_by_admin", ALONE, JobState.CANCELLED, "cancelled by an administrator of a"),
    ("ended_by_admin", TWO, JobState.PREPARING, "cancelled by an administrator of a"),
    ("not_permitted", ALONE, JobState.HELD, "not_permitted"),
)


@pytest.mark.parametrize(("reason", "clusters", "then", "words"), WILL)
def test_a_cancelled_claim(
    reason: str, clusters: dict[str, int], then: JobState, words: str
) -> None:
    site, job = waiting(clusters)
    ends(site, job, reason, site.job(job).attempt)
    record = site.job(job)
    assert record.state is then
    if record.is_placed:
        assert (record.clusters, dict(record.barred)) == (("b",), {"a": words})
        ends(site, job, reason, record.attempt)
        assert site.job(job).state is then
        site.say(job, PartState.REFUSED, reason=reason)
        assert site.job(job).state is JobState.CANCELLED
        assert site.job(job).detail == f"a: {words}; b: cancelled by an administrator of b"
    else:
        assert words in record.detail
        site.wait(60.0)
        assert site.job(job).state is then, "it does not come back"
        assert len(site.orders_for(job, Abort)) == len(clusters) - 1


def test_an_administrators_hold_is_obeyed_by_waiting_elsewhere() -> None:
    site, job = waiting(TWO)
    site.tell(job, "a", PartState.WAITING, reason="held_by_admin", detail="JobHeldAdmin")
    assert [c for c, _ in site.orders_for(job, Abort)] == ["a"]
    record = site.job(job)
    assert (record.state, record.clusters) == (JobState.PREPARING, ("b",))
    assert record.barred == {"a": "held by an administrator of a"}
    ends(site, job, "aborted", record.attempt)
    site.wait(3600.0)
    assert site.job(job).clusters == ("b",)
    assert [c for c, _ in site.orders_for(job, Prepare)] == ["a", "b"], "our own is nobody's will"


@pytest.mark.parametrize("reason", ["held_by_owner", "held_by_admin"])
def test_a_claim_that_is_held_waits_until_it_is_released_there(reason: str) -> None:
    site, job = waiting(ALONE if reason == "held_by_admin" else TWO)
    site.tell(job, "a", PartState.WAITING, reason=reason, detail="JobHeld")
    others = [c for c, _ in site.orders_for(job, Abort)]
    assert others == ([] if reason == "held_by_admin" else ["b"])
    for name in others:
        end = PartReport(job=job, attempt=1, part=1, state=PartState.REFUSED, reason="aborted")
        site.report(name, end)
    site.wait(3600.0)
    site.do(TimerFired(trigger=0))
    assert site.job(job).clusters == ("a",), "it waits nowhere else"
    start, word, text = in_words(site.state, site.job(job), site.now) or (0.0, "", "")
    assert (start, word) == (None, reason)
    assert text.startswith("held ")
    site.tell(job, "a", PartState.WAITING, reason="others_first", detail="Priority")
    assert (in_words(site.state, site.job(job), site.now) or ("", ""))[1] == "others_first"
    site.grants(job, "a", "a1")
    site.run(job)
    assert site.job(job).state is JobState.RUNNING


@pytest.mark.parametrize("reason", ["held_by_owner", "held_by_admin"])
def test_a_job_of_several_parts_is_held_here(reason: str) -> None:
    site, job = negotiating()
    site.tell(job, "b", PartState.WAITING, reason=reason, detail="JobHeld")
    assert site.job(job).state is JobState.HELD
    assert {c for c, _ in site.orders_for(job, Abort)} == {"a", "b"}
    site.ask(Release(job=job))
    site.wait(0.0)
    assert site.job(job).state is JobState.PREPARING


def test_what_we_cancel_is_not_taken_for_an_administrators_act() -> None:
    site, job = waiting(TWO)
    site.ask(Cancel(job=job))
    ends(site, job, "ended_by_admin", 1)
    assert site.job(job).detail == "cancelled by ann"


def test_a_limit_that_is_changed_for_one_sibling_is_its_own() -> None:
    site, job = waiting(TWO)
    site.tell(job, "a", PartState.WAITING, time_limit=120.0)
    assert site.job(job).job.time_limit is None
    assert not site.orders_for(job, Limit)
    site.grants(job, "a", "a1")
    site.tell(job, "a", PartState.READY, time_limit=120.0)
    assert site.job(job).job.time_limit == 120.0
