"""Jobs of two services that hold what the other waits for: the later one gives way.

Services on the same clusters know nothing of each other but the marks of their claims in the
batch systems' queues. Both see the same claims with the same times, so both find the same job the
later: by the first of its claims that was submitted, then by the claims' names. The other keeps
what it holds. Should a service not see the other's claims, the bound on what may be held idle ends
it, for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.starts.negotiation import ungranted
from coalloc.model.sites.reading import MarkedClaim

Attempts = dict[tuple[str, int], dict[str, MarkedClaim]]
"""Claims of each attempt, by cluster."""


def yielding(state: State, now: float) -> Iterator[tuple[JobRecord, str]]:
    """Our jobs that are to give back what another service's job waits for, and where that holds."""
    ours, theirs = _attempts(state, now, ours=True), _attempts(state, now, ours=False)
    if not theirs:
        return
    for record in tuple(state.placed_records()):
        mine = ours.get((record.id, record.attempt), {})
        if not mine or not record.is_meeting:
            continue
        for other in theirs.values():
            where = _held_by(state, record, other)
            if where and _age(mine) > _age(other):
                yield record, where
                break


def _held_by(state: State, record: JobRecord, other: dict[str, MarkedClaim]) -> str:
    """A cluster that a job waits for and another's claims hold, where those wait for it in turn.

    What was read before our own part was granted says nothing of it; empty: there is none.
    """
    is_waited_for = any(
        part.granted is not None
        and part.cluster in other
        and not other[part.cluster].holds
        and state.clusters[part.cluster].read_at > part.granted
        for part in record.parts
    )
    held = (name for name in ungranted(record) if name in other and other[name].holds)
    return next(held, "") if is_waited_for else ""


def _age(claims: dict[str, MarkedClaim]) -> tuple[float, str]:
    """Order of attempts: the first submission, then the first name."""
    first = min(claim.submitted for claim in claims.values())
    return first, min(claim.claim for claim in claims.values())


def _attempts(state: State, now: float, *, ours: bool) -> Attempts:
    """The claims that are in the queues now, as far as the readings are new."""
    found: Attempts = {}
    for name, cluster in state.clusters.items():
        if cluster.reading is None or cluster.is_stale(now, state.settings.readings.max_age_s):
            continue
        for claim in cluster.reading.claims:
            if claim.ours == ours:
                found.setdefault((claim.job, claim.attempt), {})[name] = claim
    return found
