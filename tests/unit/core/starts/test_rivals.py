"""Jobs of two services that hold what the other waits for: the later one gives way."""

from __future__ import annotations

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Abort, Read
from coalloc.core.base.records import JobState
from coalloc.model.sites.reading import MarkedClaim
from coalloc.model.values import replace
from tests.unit.core.starts.test_negotiation import Crowded, negotiating


def claim(job: str, submitted: float, *, holds: bool, ours: bool, name: str = "") -> MarkedClaim:
    name = name or f"{job}{ours}"
    return MarkedClaim(job=job, attempt=1, claim=name, submitted=submitted, holds=holds, ours=ours)


def see(site: Crowded, cluster: str, *claims: MarkedClaim) -> None:
    """The cluster is read with these claims in its queue."""
    site.now += 1.0
    seen = site.state.clusters[cluster].reading
    assert seen is not None
    read = Read(cluster=cluster, reading=replace(seen, claims=claims))
    site.do(StatementReceived(statement=read))


def meet(site: Crowded, job: str, ours: float, theirs: float, name: str = "") -> None:
    """We hold a and wait for b; another service's job of the same number holds b, waits for a."""
    see(
        site,
        "a",
        claim(job, ours, holds=True, ours=True),
        claim(job, theirs, holds=False, ours=False, name=name),
    )
    see(
        site,
        "b",
        claim(job, ours, holds=False, ours=True),
        claim(job, theirs + 5.0, holds=True, ours=False, name=name),
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "name", "gives"),
    [
        (20.0, 10.0, "", True),  # they were first
        (10.0, 20.0, "", False),
        (10.0, 10.0, "0", True),  # in the same second: by the names
        (10.0, 10.0, "z", False),
    ],
)
def test_the_later_of_two_services_jobs_gives_way(
    ours: float, theirs: float, name: str, gives: bool
) -> None:
    site, job = negotiating()
    site.grants(job, "a", "a1", "a2")
    meet(site, job, ours, theirs, name)
    record = site.job(job)
    assert (record.state is JobState.PENDING) == gives
    assert bool(site.orders_for(job, Abort)) == gives
    if gives:
        assert record.detail == (
            "b: gives way to a job of another service, which waits for its nodes"
        )


def test_what_was_read_before_the_grant_counts_for_nothing() -> None:
    site, job = negotiating()
    see(site, "a", claim(job, 10.0, holds=False, ours=False))
    site.grants(job, "a", "a1", "a2")
    see(
        site,
        "b",
        claim(job, 20.0, holds=False, ours=True),
        claim(job, 10.0, holds=True, ours=False),
    )
    assert site.job(job).state is JobState.PREPARING


def test_who_waits_for_nothing_of_ours_is_no_rival() -> None:
    site, job = negotiating()
    site.grants(job, "a", "a1", "a2")
    see(site, "a", claim(job, 20.0, holds=True, ours=True))
    see(site, "b", claim("7", 10.0, holds=True, ours=False))
    assert site.job(job).state is JobState.PREPARING
