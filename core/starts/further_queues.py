"""The clusters that get a sibling of a job that waits in another one's queue.

At the end of each round, every whole job that only waits in queues is sent to the other clusters
that may run it: into the queue of each that others use too, and, where its slots are free for the
whole run beside what runs, what the plan has later and all reservations, to start there at once.
What the plan has on clusters that are ours alone is not overtaken otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from coalloc.core.base.effects import Wake
from coalloc.core.base.records import JobRecord, PartRecord
from coalloc.core.base.state import State
from coalloc.core.jobs.avoided_nodes import avoided, shape_of
from coalloc.core.jobs.deadlines import misses
from coalloc.core.jobs.eligibility import widest
from coalloc.core.jobs.free_times import FreeTimes
from coalloc.core.jobs.occupation import meeting_place
from coalloc.core.jobs.offers import room_on
from coalloc.core.starts.negotiation import may_queue
from coalloc.core.starts.queued_claims import LEAST_POWER, SOON_S, nodes_for
from coalloc.core.starts.siblings import may_follow
from coalloc.core.starts.two_phase import send_part
from coalloc.core.starts.waits import (
    Claims,
    due,
    expected_wait,
    has_room,
    is_crowded,
    is_shared,
    nodes_held,
    waiting_claims,
)
from coalloc.model.cost import run_time, within_limit
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Snapshot
from coalloc.model.split import filled
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
    by = _Sender(state, FreeTimes(state, snapshot, plan, now), waiting_claims(state), now)
    for number, (record, names) in enumerate(lacking):
        by.serve(record, names, at_once=number < MOST_AT_ONCE)


def _lacking(state: State, record: JobRecord, now: float) -> list[str]:
    """The clusters that a job names, or all, without those that have it or just gave it up."""
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
    times: FreeTimes
    claims: Claims
    now: float
    _rooms: dict[Hashable, Sequence[NodeReading]] = field(default_factory=dict)

    def serve(self, record: JobRecord, names: Sequence[str], *, at_once: bool) -> None:
        """Send a job to those of these clusters that may run it."""
        for name in names:
            rooms = self._room(record, name)
            if not rooms or misses(record, self.now, _seconds(self.state, record, name, rooms)):
                continue
            free = self._free(record, name, rooms) if at_once else {}
            if free:
                record = self._send(record, name, free, rooms, expected=None)
                self.times.take(free, self.now, self.now + record.parts[-1].planned)
            elif self._may_wait(record, name):
                room = {node.name: room_on(record.job, node) for node in rooms}
                nodes = filled(room, record.placed_procs)
                if sum(nodes.values()) == record.placed_procs:
                    record = self._send(
                        record, name, nodes, rooms, expected=self._expected(record, name, nodes)
                    )

    def _may_wait(self, record: JobRecord, name: str) -> bool:
        state, now = self.state, self.now
        is_queue = may_queue(state, (name,)) and is_shared(state, name, now)
        return is_queue and has_room(state, self.claims, name, record.user, now)

    def _room(self, record: JobRecord, name: str) -> Sequence[NodeReading]:
        """The nodes of a cluster that suit a job, looked up once for all jobs of its kind."""
        job = record.job
        who = (record.user, record.uid, record.gid)
        key = (name, who, shape_of(record), job.time_limit, widest(job))
        if key not in self._rooms:
            cluster = self.state.clusters[name]
            avoid = avoided(cluster, record, self.now)
            found = nodes_for(self.state, record, name, self.now) or ()
            self._rooms[key] = [node for node in found if node.name not in avoid]
        return self._rooms[key]

    def _free(
        self, record: JobRecord, name: str, rooms: Sequence[NodeReading]
    ) -> Mapping[str, int]:
        """Nodes that are free for the whole run, unless others go first; empty: too few are."""
        if is_crowded(self.state, name):
            return {}
        until = self.now + _seconds(self.state, record, name, rooms)
        counts = {
            node.name: min(self.times.slots(node, self.now, until), room_on(record.job, node))
            for node in rooms
        }
        nodes = filled(
            {node: count for node, count in counts.items() if count}, record.placed_procs
        )
        return nodes if sum(nodes.values()) == record.placed_procs else {}

    def _expected(self, record: JobRecord, name: str, nodes: Mapping[str, int]) -> float:
        """Time at which a sibling is expected to be granted, until its batch system says more."""
        state = self.state
        width = nodes_held(state.clusters[name], nodes)
        wait = expected_wait(state, name, self._ahead(name), width=width)
        others = [part.expected for part in record.parts if part.expected is not None]
        return max(self.now + max(wait, SOON_S), min(others, default=self.now))

    def _ahead(self, name: str) -> int:
        reading = self.state.clusters[name].reading
        ours = sum(count for (cluster, _), count in self.claims.items() if cluster == name)
        return ours + (0 if reading is None else reading.waiting)

    def _send(
        self,
        record: JobRecord,
        name: str,
        nodes: Mapping[str, int],
        rooms: Sequence[NodeReading],
        *,
        expected: float | None,
    ) -> JobRecord:
        """Send one sibling; returns the job with it."""
        state, now = self.state, self.now
        used = [node for node in rooms if node.name in nodes]
        planned = _seconds(state, record, name, used)
        part = PartRecord(
            cluster=name,
            index=record.siblings,
            nodes=nodes,
            first_rank=0,
            asked=now,
            ahead=self._ahead(name),
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
        if expected is not None:
            self.claims[name, record.user] += 1
        else:
            state.out.append(Wake(at=record.deadline or now))
        send_part(state, record, part, now)
        return record


def _seconds(state: State, record: JobRecord, name: str, used: Sequence[NodeReading]) -> float:
    """Run time of a job on these nodes; one whose size may change keeps its planned one."""
    job, step = record.job, state.settings.power.step
    if not isinstance(job, RigidJob):
        return record.planned
    power = min(state.clusters[name].power_of(node, step) for node in used)
    return within_limit(job, run_time(job.base_time, job.sigma, max(power, LEAST_POWER)))
