"""The will of a job's user, and of an administrator, that a waiting claim meets in Slurm."""

from __future__ import annotations

import pytest

from coalloc.core.base.messages import Abort, Forget, Prepare
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Release
from coalloc.core.starts.negotiation import in_words
from coalloc.model.sites.parts import PartReport, PartState
from tests.unit.core.starts.test_negotiation import Crowded, negotiating

ALONE = {"a": 2}
TWO = {"a": 2, "b": 2}


def waiting(clusters: dict[str, int], **job: object) -> tuple[Crowded, str, str]:
    """A job of one process whose claim waits, and where."""
    site = Crowded(clusters)
    number = site.submit(1, job=job)
    (name,) = site.job(number).clusters
    site.waits(number, name)
    return site, number, name


WILL = (
    # reason, clusters, state then, words
    ("cancelled_there", TWO, JobState.CANCELLED, "cancelled in {}"),
    ("ended_by_admin", ALONE, JobState.CANCELLED, "cancelled by an administrator of {}"),
    ("ended_by_admin", TWO, JobState.PREPARING, "cancelled by an administrator of {}"),
    ("not_permitted", ALONE, JobState.HELD, "not_permitted"),
)


@pytest.mark.parametrize(("reason", "clusters", "then", "words"), WILL)
def test_a_cancelled_claim(
    reason: str, clusters: dict[str, int], then: JobState, words: str
) -> None:
    site, job, there = waiting(clusters)
    site.say(job, PartState.REFUSED, reason=reason, detail="" if "a" not in words else "job 7")
    site.wait(0.0)
    record = site.job(job)
    assert record.state is then
    if record.is_placed:
        assert there not in record.clusters
        assert record.barred == {there: words.format(there)}
    else:
        assert words.format(there) in record.detail
        site.wait(60.0)
        assert site.job(job).state is then, "it does not come back"


def test_an_administrators_hold_sends_a_job_elsewhere() -> None:
    site, job, there = waiting(TWO)
    attempt = site.job(job).attempt
    site.tell(job, there, PartState.WAITING, reason="held_by_admin", detail="JobHeldAdmin")
    site.wait(0.0)
    assert (there, attempt) in [(c, o.attempt) for c, o in site.orders_for(job, Abort)]
    record = site.job(job)
    assert record.state is JobState.PREPARING
    assert there not in record.clusters
    assert record.barred == {there: f"held by an administrator of {there}"}
    late = PartReport(job=job, attempt=attempt, part=0, state=PartState.REFUSED, reason="aborted")
    site.report(there, late)
    assert site.orders_for(job, Forget)[-1][1].attempt == attempt
    assert site.job(job) == record, "our own withdrawal is nobody's will"


@pytest.mark.parametrize("reason", ["held_by_owner", "held_by_admin"])
def test_a_claim_that_is_held_waits_until_it_is_released_there(reason: str) -> None:
    site, job, there = waiting(ALONE if reason == "held_by_admin" else TWO)
    site.tell(job, there, PartState.WAITING, reason=reason, detail="JobHeld")
    site.wait(3600.0)
    start, word, text = in_words(site.state, site.job(job), site.now) or (0.0, "", "")
    assert (start, word) == (None, reason)
    assert text.startswith("held ")
    assert len(site.orders_for(job, Prepare)) == 1
    site.tell(job, there, PartState.WAITING, reason="others_first", detail="Priority")
    assert (in_words(site.state, site.job(job), site.now) or ("", ""))[1] == "others_first"
    site.grants(job, there, f"{there}1")
    site.run(job)
    assert site.job(job).state is JobState.RUNNING


@pytest.mark.parametrize("reason", ["held_by_owner", "held_by_admin"])
def test_a_job_of_several_parts_is_held_here(reason: str) -> None:
    site, job = negotiating()
    site.tell(job, "b", PartState.WAITING, reason=reason, detail="JobHeld")
    record = site.job(job)
    assert record.state is JobState.HELD
    assert {c for c, _ in site.orders_for(job, Abort)} == {"a", "b"}
    site.ask(Release(job=job))
    site.wait(0.0)
    assert site.job(job).state is JobState.PREPARING


def test_what_we_cancel_is_not_taken_for_an_administrators_act() -> None:
    site, job, there = waiting(TWO)
    attempt = site.job(job).attempt
    site.ask(Cancel(job=job))
    end = PartReport(
        job=job, attempt=attempt, part=0, state=PartState.REFUSED, reason="ended_by_admin"
    )
    site.report(there, end)
    assert site.job(job).detail == "cancelled by ann"
