"""The clusters that get a sibling of a job that waits in another one's queue.

At the end of each round, every whole job that only waits in queues is sent to the other clusters
that may run it: to start at once where its slots are free for the whole run, and else into the
queue of each that others use too. What the plan has on clusters that are ours alone is not
overtaken otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State
from coalloc.core.jobs.deadlines import misses
from coalloc.core.jobs.eligibility import owner_of, verdict_of
from coalloc.core.jobs.occupation import meeting_place, slots_on
from coalloc.core.jobs.offers import room_on
from coalloc.core.jobs.suitable_nodes import laid_out
from coalloc.core.starts.free_places import FreePlaces, seconds_on
from coalloc.core.starts.negotiation import may_queue
from coalloc.core.starts.queued_claims import SOON_S
from coalloc.core.starts.siblings import may_follow
from coalloc.core.starts.two_phase import send_part
from coalloc.core.starts.waits import (
    Claims,
    due,
    expected_wait,
    has_room,
    is_shared,
    jobs_ahead,
    nodes_held,
    waiting_claims,
)
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import HELD_BY_OWNER
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace

MOST_AT_ONCE = 100
"""Jobs whose slots are looked for in one round."""


def send(state: State, snapshot: Snapshot, plan: Plan, now: float) -> None:
    """Send the jobs that wait in queues to the other clusters that may run them."""
    lacking = [
        (record, names)
        for record in state.placed_records()
        if record.siblings and record.is_in_queues and (names := _lacking(state, record, now))
    ]
    if not lacking:
        return
    by = _Sender(state, FreePlaces(state, snapshot, plan, now), waiting_claims(state), now)
    for number, (record, names) in enumerate(lacking):
        by.serve(record, names, at_once=number < MOST_AT_ONCE)


def _lacking(state: State, record: JobRecord, now: float) -> list[str]:
    """The clusters that a job names, or all, without those that have it or just gave it up."""
    if any(part.reason == HELD_BY_OWNER for part in record.parts):
        return []
    named = state.clusters if record.job.clusters is None else record.job.clusters
    without = {*record.clusters, *record.barred}
    return [
        name
        for name in named
        if name in state.clusters and name not in without and may_follow(state, record, name, now)
    ]


@dataclass(slots=True)
class _Sender:
    """Siblings that are sent in one round, and what they take."""

    state: State
    places: FreePlaces
    claims: Claims
    now: float

    def serve(self, record: JobRecord, names: Sequence[str], *, at_once: bool) -> None:
        """Send a job to those of these clusters that may run it."""
        state, now, procs = self.state, self.now, record.placed_procs
        for name in names:
            room = self.places.room(record, name)
            if not room:
                continue
            nodes = self.places.at_once(record, name, procs) if at_once else {}
            expected = None
            if not nodes and self._may_wait(record, name):
                idle = {node.name: room_on(record.job, node) for node in room}
                nodes = laid_out(record.job.shape, procs, idle)
                expected = self._expected(record, name, nodes)
            used = [node for node in room if node.name in nodes]
            if sum(nodes.values()) < procs:
                continue
            planned = seconds_on(state, record, name, used)
            if misses(record, now, planned):
                continue
            part = PartRecord(
                cluster=name,
                index=record.siblings,
                nodes=nodes,
                slots=slots_on([state.clusters[name]], record.job, nodes),
                first_rank=0,
                asked=now,
                ahead=jobs_ahead(state, name),
                expected=expected,
                planned=planned,
            )
            part = replace(part, rendezvous=meeting_place(state, record, (part,)))
            record = replace(
                record,
                parts=(*record.parts, part),
                siblings=record.siblings + 1,
                dropped={key: at for key, at in record.dropped.items() if key != name},
            )
            record = replace(record, deadline=due(state, record))
            state.put(record)
            if expected is None:
                self.places.take(record, nodes)
                state.out.append(Wake(at=record.deadline or now))
            else:
                self.claims[name, record.user] += 1
            send_part(state, record, part, now)

    def _may_wait(self, record: JobRecord, name: str) -> bool:
        state, now = self.state, self.now
        is_full = bool(verdict_of(state.clusters[name], record.job, owner_of(record)).full)
        is_queue = may_queue(state, (name,), record) and (is_full or is_shared(state, name, now))
        return is_queue and has_room(state, self.claims, name, record.user, now)

    def _expected(self, record: JobRecord, name: str, nodes: Mapping[str, int]) -> float:
        """Time at which a sibling is expected to be granted, until its batch system says more."""
        cluster = self.state.clusters[name]
        width = nodes_held(cluster, slots_on([cluster], record.job, nodes) or nodes)
        wait = expected_wait(self.state, name, jobs_ahead(self.state, name), width=width)
        others = [part.expected for part in record.parts if part.expected is not None]
        return max(self.now + max(wait, SOON_S), min(others, default=self.now))
