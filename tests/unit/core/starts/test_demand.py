"""What executors are told of the jobs that wait, and what the log says of the way in."""

from __future__ import annotations

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Prepare, Read
from coalloc.core.base.requests import Hold
from coalloc.core.starts.queued_claims import wanted_slots
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import ShareUse
from coalloc.model.snapshot import Reservation
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site, reading


def test_waiting_jobs_want_slots_up_to_those_there_are() -> None:
    site = Site({"a": 4, "b": 2}, solving=False)
    assert wanted_slots(site.state, "a", site.now) == 0
    job = site.submit(1)
    site.submit(2, job={"clusters": ["b"]})
    assert (wanted_slots(site.state, "a", site.now), wanted_slots(site.state, "b", site.now)) == (
        1,
        2,
    )
    site.ask(Hold(job=job))
    assert (wanted_slots(site.state, "a", site.now), wanted_slots(site.state, "b", site.now)) == (
        0,
        2,
    )
    site.submit(6)
    assert wanted_slots(site.state, "a", site.now) == 4


def test_part_that_is_not_claimed_yet_counts() -> None:
    site = Site({"a": 4})
    job = site.submit(3)
    assert wanted_slots(site.state, "a", site.now) == 3
    site.say(job, PartState.READY)
    assert wanted_slots(site.state, "a", site.now) == 0


class Planned(Site):
    """Planned by a policy of the product."""

    plan_of = staticmethod(lambda snapshot: POLICIES["plain"].solve(snapshot, {}, Budget()))


def shared(site: Site, name: str, nodes: int, share: int) -> None:
    use = ShareUse(nodes=share, slots=share, all_slots=nodes)
    beyond = tuple(f"{name}{i}" for i in range(share + 1, nodes + 1))
    kept = Reservation(id="beyond our share", nodes=beyond, start=site.now, end=site.now + 600.0)
    told = replace(reading(name, nodes), queues=True, share=use, reservations=(kept,))
    site.do(StatementReceived(statement=Read(cluster=name, reading=told)))


@pytest.mark.parametrize("share", [1, 2, 3])
def test_no_node_is_kept_for_a_job_that_has_no_room_in_the_share(share: int) -> None:
    """One that is wider, or asks for particular nodes, waits in the queue; the others do not."""
    site = Planned({"a": 4})
    shared(site, "a", 4, share)
    for procs in (1, 2, 3, 4):
        fits = procs <= share
        job = site.submit(procs)
        ((_, order),) = site.orders_for(job, Prepare)
        assert (order.queue is not None) is (not fits)
        assert wanted_slots(site.state, "a", site.now) == (procs if fits else 0)
        site.say(job, PartState.READY)
        site.say(job, PartState.RUNNING, started=site.now)
        site.say(job, PartState.FINISHED, exit_code=0, started=site.now)


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
