"""What executors are told of the jobs that wait, and what the log says of the way in."""

from __future__ import annotations

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Read
from coalloc.core.base.requests import Hold
from coalloc.core.starts.queued_claims import wanted_slots
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import ShareUse
from coalloc.model.values import replace
from tests.support.core_site import Site, reading


def test_waiting_jobs_want_slots_up_to_those_there_are() -> None:
    site = Site({"a": 4, "b": 2}, solving=False)
    assert wanted_slots(site.state, "a") == 0
    job = site.submit(1)
    site.submit(2, job={"clusters": ["b"]})
    assert (wanted_slots(site.state, "a"), wanted_slots(site.state, "b")) == (1, 2)
    site.ask(Hold(job=job))
    assert (wanted_slots(site.state, "a"), wanted_slots(site.state, "b")) == (0, 2)
    site.submit(6)
    assert wanted_slots(site.state, "a") == 4


def test_part_that_is_not_claimed_yet_counts() -> None:
    site = Site({"a": 4})
    job = site.submit(3)
    assert wanted_slots(site.state, "a") == 3
    site.say(job, PartState.READY)
    assert wanted_slots(site.state, "a") == 0


def test_way_in_and_pauses_are_logged_when_they_change() -> None:
    site = Site({"a": 2})
    first = replace(reading("a", 2), way="before waiting jobs", share=ShareUse(nodes=1))
    paused = replace(first, share=ShareUse(nodes=1, paused="local job 9 has waited 40 s for us"))
    longer = replace(first, share=ShareUse(nodes=1, paused="local job 9 has waited 41 s for us"))
    for read in (first, first, paused, longer, first):
        site.do(StatementReceived(statement=Read(cluster="a", reading=read)))
    assert [note["starts"] for note in site.notes("way_in_chosen")] == ["before waiting jobs"]
    assert len(site.notes("claims_paused")) == 1
    assert len(site.notes("claims_resumed")) == 1
