"""Offers of the clusters to the waiting jobs of one snapshot: where each may start, and from when.

Nodes that only some of the jobs may have get a feature that those jobs then ask for (`Marks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from msgspec import Struct

from coalloc.core.base.messages import SHAPES
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.avoided_nodes import asked_of, avoided
from coalloc.core.jobs.eligibility import (
    PARTLESS,
    JobOwner,
    bound_text,
    may_split,
    offered,
    owner_of,
    refusal_now,
    reservation_of,
    run_into,
    verdict_of,
    widest,
)
from coalloc.core.jobs.suitable_nodes import fit, procs_on, sizes_of, suitable
from coalloc.model.cost import shortest_time
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.platform import NodeState
from coalloc.model.ranges import EVENT
from coalloc.model.sites.reading import NodeReading

OF_NODES = ("--partition=", "--constraint=", "--exclude=", "--nodelist=")
"""Options that say on which nodes a job may run."""
TOLERANCE = 1e-9


@dataclass(slots=True)
class Marks:
    """Features by which a snapshot says which nodes a job may have."""

    of_nodes: dict[str, list[str]] = field(default_factory=dict)
    """By node name: features to be added to its own."""
    _names: dict[Hashable, str] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)

    def named(self, key: Hashable, label: str, nodes: Iterable[NodeReading]) -> str:
        """The feature that these nodes have and no others do; equal keys are equal nodes."""
        if key not in self._names:
            self._used[label] += 1
            number = self._used[label]
            name = self._names[key] = label if number == 1 else f"{label}#{number}"
            for node in nodes:
                self.of_nodes.setdefault(node.name, []).append(name)
        return self._names[key]


class Offer(Struct, frozen=True, kw_only=True):
    """Offer of the clusters to a job."""

    refusing: Mapping[str, str]
    """By cluster: why it does not take it now, or never."""
    mark: str = ""
    """Feature of the nodes that it may have; empty: all."""
    earliest: float = -inf
    """Before this it would be refused, seconds."""
    is_whole: bool = False
    """It may start on one cluster alone."""


NO_OFFER = Offer(refusing={})


@dataclass(slots=True, kw_only=True)
class Offers:
    """Offers to the jobs of one snapshot; jobs of one kind get the same."""

    state: State
    now: float
    busy: Mapping[str, int]
    """By node name: slots that are taken now."""
    marks: Marks = field(default_factory=Marks)
    _kept: dict[Hashable, Offer] = field(default_factory=dict)
    are_needed: bool = field(init=False)
    """For all jobs; else only for those with a deadline and no time limit, or with data."""
    are_of_time: bool = field(init=False)
    """Jobs that differ in nothing but their time limits are of several kinds."""

    def __post_init__(self) -> None:
        clusters, is_reserved = self.state.clusters.values(), bool(self.state.maintenance.reserved)
        rules = [each.reading.rules for each in clusters if each.reading is not None]
        self.are_needed = is_reserved or any(
            cluster.refused
            or cluster.settings.owner
            or not cluster.takes_parts
            or SHAPES not in (cluster.abilities or ())
            or (cluster.reading is not None and cluster.reading.rules)
            for cluster in clusters
        )
        self.are_of_time = is_reserved or any(each and each.are_of_time for each in rules)

    def of(self, record: JobRecord) -> Offer:
        """Offer of the clusters to a waiting job."""
        is_timed = record.finish_by is not None and record.job.time_limit is None
        if not (self.are_needed or is_timed or record.is_staged) or record.foreign:
            return NO_OFFER
        job = record.job
        own = record.id if is_timed or record.is_staged else record.stream
        who = (record.user, record.uid, record.gid, own)
        limit = job.time_limit if self.are_of_time else job.time_limit is None
        key = (who, asked_of(record), limit, widest(job), job.clusters, may_split(job))
        if key not in self._kept:
            self._kept[key] = self._made(record)
        return self._kept[key]

    def _made(self, record: JobRecord) -> Offer:
        owner, job = owner_of(record), record.job
        refusing: dict[str, str] = {}
        kinds: list[Hashable] = []
        chosen: list[NodeReading] = []
        ahead: dict[str, float] = {}
        refused: frozenset[str] = frozenset()
        earliest, is_bounded, is_whole = -inf, False, False
        least = _least_power(record, self.now)
        every = self.state.clusters
        for name, cluster in every.items():
            if cluster.reading is None or (job.clusters is not None and name not in job.clusters):
                continue
            verdict = verdict_of(cluster, job, owner)
            why = refusal_now(cluster, verdict)
            if may_split(job) and not (why or cluster.takes_parts):
                is_here = self._has_room(name, job, owner) or not self._has_others(job, owner)
                is_whole, why = is_whole or is_here, "" if is_here else PARTLESS.never
            if why or (verdict.full and any(self._has_room(n, job, owner) for n in every)):
                refusing[name] = why or verdict.full
                continue
            nodes = offered(cluster, job, owner, verdict, self.busy)
            own = reservation_of(cluster, owner.batch)
            if own is not None:
                nodes = tuple(node for node in nodes if node.name in own.nodes)
                earliest = max(earliest, own.start)
            if least:
                step = self.state.settings.power.step
                nodes = tuple(node for node in nodes if cluster.power_of(node, step) >= least)
            is_bounded |= len(nodes) < len(cluster.reading.nodes)
            chosen += nodes
            ahead |= run_into(self.state, name, record, verdict, self.now)
            refused |= avoided(cluster, record, self.now)
            most = verdict.limits.nodes, verdict.limits.procs
            cap = (job.features, most) if bound_text(verdict, job) else None
            kinds.append((name, verdict.partitions, cap))
        clear = [node for node in chosen if node.name not in ahead]
        if len(clear) < len(chosen):
            later = _later(job, clear, chosen, ahead)
            if later is None:
                chosen, is_bounded = clear, True
            else:
                earliest = max(earliest, later)
        untried = [node for node in chosen if node.name not in refused]
        room = (room_on(job, node) for node in untried)
        if len(untried) < len(chosen) and fit(job.shape, narrowest(job), room):
            chosen, is_bounded = untried, True
        if not is_bounded:
            return Offer(refusing=refusing, earliest=earliest, is_whole=is_whole)
        asked = owner.batch.constraint, owner.batch.reservation, owner.batch.passed
        size = (narrowest(job), job.memory_mb_per_proc, job.shape) if owner.batch.passed else None
        key = (tuple(kinds), asked, size, frozenset(ahead), refused, least, len(chosen))
        mark = self.marks.named(key, _label(owner, ahead, least), chosen)
        return Offer(refusing=refusing, mark=mark, earliest=earliest, is_whole=is_whole)

    def _has_room(self, name: str, job: Job, owner: JobOwner) -> bool:
        """Whether a cluster has room for a job now, with no limit of the moment in its way."""
        cluster = self.state.clusters[name]
        if cluster.reading is None or (job.clusters is not None and name not in job.clusters):
            return False
        verdict = verdict_of(cluster, job, owner)
        if verdict.full or refusal_now(cluster, verdict):
            return False
        nodes = offered(cluster, job, owner, verdict, self.busy)
        free = (room_on(job, node) - self.busy.get(node.name, 0) for node in nodes)
        return fit(job.shape, narrowest(job), (max(0, procs) for procs in free))

    def _has_others(self, job: Job, owner: JobOwner) -> bool:
        """Whether a job would fit on the clusters that it may be split over, were they idle."""
        takes = (suitable(self.state, job, owner) or {}).items()
        parts = (each for name, each in takes if self.state.clusters[name].takes_parts)
        return fit(job.shape, narrowest(job), (n for each in parts for n in sizes_of(each)))


def _later(
    job: Job,
    clear: Iterable[NodeReading],
    nodes: Iterable[NodeReading],
    ahead: Mapping[str, float],
) -> float | None:
    """Time from which reservations leave a job enough nodes; None: they do now, or never will."""
    needed = narrowest(job)
    room = [room_on(job, node) for node in clear]
    if fit(job.shape, needed, room):
        return None
    left = needed - sum(room)
    ending = (n for n in nodes if ahead.get(n.name, EVENT.high) < EVENT.high)
    for node in sorted(ending, key=lambda n: ahead[n.name]):
        room.append(room_on(job, node))
        left -= room[-1]
        if left <= 0 and fit(job.shape, needed, room):
            return ahead[node.name]
    return None


def room_on(job: Job, node: NodeReading) -> int:
    """Processes of a job that a node can take when it is idle."""
    return procs_on(job, node, job.shape) if node.state is NodeState.UP else 0


def _least_power(record: JobRecord, now: float) -> float:
    """Power below which a job without a time limit ends after its deadline; 0: none is too low."""
    job = record.job
    is_timed = record.finish_by is not None and job.time_limit is None
    if not is_timed or not isinstance(job, RigidJob | MoldableJob):
        return 0.0
    shortest = shortest_time(job)
    left_s = (record.finish_by or 0.0) - max(now, record.opens(now)) - (1.0 - job.sigma) * shortest
    return job.sigma * shortest / left_s * (1.0 - TOLERANCE) if left_s > 0.0 else inf


def _label(owner: JobOwner, ahead: Mapping[str, float], least: float) -> str:
    asked = [
        option.removeprefix("--")
        for _, option in owner.batch.written()
        if option.startswith(OF_NODES)
    ]
    if least:
        asked.append("fast enough for its deadline")
    if ahead:
        asked.append("no reservation ahead")
    return "&".join(asked) or "offered"
