"""Jobs that take their turn in the clusters' own queues, along the plan.

A job whose nodes are free now is claimed now, as always. Where jobs of others wait, free nodes
are rarely left for it: what the plan has later on such a cluster is sent into its queue at once,
in the plan's order, up to `max_waiting` claims of each user, and the batch system decides when it
runs. Where no job of others waits, our own order is kept, and nothing is sent ahead of its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from coalloc.core.negotiating import Claims, is_crowded, may_queue, waiting_claims
from coalloc.core.occupation import Occupation, loads_of, misfit_of_links
from coalloc.core.placing import NOW_S, place, startable
from coalloc.core.records import JobRecord
from coalloc.core.state import RoundState, State
from coalloc.core.turns import left_out, turn_of
from coalloc.model.plan import Placement, Plan

SOON_S = 1.0
"""A turn of which the plan says nothing is expected after this, seconds, until more is heard."""


def clusters_of(placement: Placement, view: Occupation) -> tuple[str, ...]:
    """The clusters of a placement, in its order; empty where one of its nodes is not known."""
    known = view.cluster_of
    if any(node not in known for node in placement.nodes):
        return ()
    return tuple(dict.fromkeys(known[node] for node in placement.nodes))


def may_wait(
    state: State, record: JobRecord, placement: Placement, view: Occupation, claims: Claims
) -> bool:
    """Whether the claims of a job may wait in the queues of all its clusters."""
    names = clusters_of(placement, view)
    if record.foreign or placement.chunks is not None or not names:
        return False
    has_room = all(claims[name, record.user] < state.settings.max_waiting for name in names)
    return has_room and may_queue(state, names)


def must_wait(state: State, placement: Placement, view: Occupation) -> bool:
    """Whether jobs of others go first on one of its clusters, in whose queue claims may wait."""
    names = clusters_of(placement, view)
    return may_queue(state, names) and any(is_crowded(state, name) for name in names)


def count(claims: Claims, record: JobRecord) -> None:
    """Count the claims of a job that was placed."""
    if record.queued:
        claims.update((part.cluster, record.user) for part in record.parts)


def queue_up(
    state: State, current: RoundState, plan: Plan, view: Occupation, now: float
) -> list[JobRecord]:
    """Send what the plan has later on crowded clusters into their queues; returns those jobs."""
    if not any(is_crowded(state, name) for name in state.clusters):
        return []
    claims, queued = waiting_claims(state), []
    for placement in _later(state, current, plan, view, now):
        record = startable(state, placement, now)
        if record is None or record.job.earliest > now:
            continue
        if not may_wait(state, record, placement, view, claims) or not _is_due(
            state, clusters_of(placement, view), now
        ):
            continue
        if not must_wait(state, placement, view):
            continue
        if misfit_of_links(loads_of(placement, record, view), view):
            continue
        chosen = place(
            state,
            record,
            placement,
            view,
            now,
            policy=plan.policy,
            round=current.number,
            queued=True,
        )
        count(claims, chosen)
        queued.append(chosen)
    return queued


def _later(
    state: State, current: RoundState, plan: Plan, view: Occupation, now: float
) -> Iterator[Placement]:
    """What the plan has later, and then what it leaves out."""
    begun = current.snapshot.time + NOW_S
    for placement in sorted(plan.placements, key=lambda p: p.start):
        if placement.start > begun and placement.task is None:
            yield placement
    for job in left_out(plan):
        if job in state.waiting:
            turn = turn_of(state, state.jobs[job], view, now + SOON_S)
            if turn is not None:
                yield turn


def _is_due(state: State, names: Collection[str], now: float) -> bool:
    """Every cluster is there and takes work."""
    age = state.settings.reading_max_age_s
    there = (state.clusters[name] for name in names)
    return all(not cluster.drained and not cluster.is_stale(now, age) for cluster in there)
