"""The snapshot of a round, from what the daemon knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from coalloc.core import reserving
from coalloc.core.base.clusters import ClusterState, ViewedNodes
from coalloc.core.base.composites import ChunkPool, WorkflowState, is_stopping
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.batch_queues.negotiating import others
from coalloc.core.batch_queues.waits import is_crowded
from coalloc.core.dependencies import open_needs
from coalloc.core.offers import Offers
from coalloc.core.sharing import guarantees, limits, priority
from coalloc.model.jobs import DivisibleJob, Job, Started, WorkflowJob
from coalloc.model.parts import PART_ENDED
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.ranges import EVENT, POWER
from coalloc.model.reading import NodeReading
from coalloc.model.snapshot import Reservation, Running, Snapshot

SHARES, LIMITS, GUARANTEES = RULES = ("shares", "limits", "guarantees")
"""What a site lays down that may make a plan worse, see `core.rules`."""


def snapshot(
    state: State,
    now: float,
    *,
    held: bool = True,
    without: Collection[str] = (),
    also: JobRecord | None = None,
    lifted: Collection[str] = (),
) -> Snapshot:
    """Clusters, queue and running work at this instant.

    Parameters
    ----------
    held : bool
        A round leaves held jobs out: there is nothing to decide of them.
    without : collection of str
        Jobs to leave out, with all that wait for them.
    also : JobRecord, optional
        A job that was not submitted, behind the others.
    lifted : collection of str
        Rules of `RULES` that do not count, to see what they cost.

    Notes
    -----
    Work that was committed but has not started yet, undelivered decisions included, counts
    as running from now on. Left out is what waits for a job that is neither in the queue nor
    running.
    """
    clusters = tuple(
        cluster_view(name, cluster, state, now) for name, cluster in state.clusters.items()
    )
    offers = Offers(state=state, now=now, busy=_busy(state))
    known = {node.name for cluster in clusters for node in cluster.nodes}
    names = frozenset(cluster.name for cluster in clusters)
    running = [running_view(record, known, now) for record in state.placed_records()]
    seen = set(state.placed)
    extra = () if also is None else (also,)
    waiting = (*state.waiting_records(), *extra)
    users = _users_of_reservations(waiting, state)
    reservations: list[Reservation] = []
    reservations += (kept for r in state.placed_records() for kept in _expected(r, known, now))
    for cluster in state.clusters.values():
        if cluster.reading is not None:
            running += map(_told_running, cluster.reading.running)
            reservations += (
                _told_reservation(kept, users.get(kept.id, ()))
                for kept in cluster.reading.reservations
            )
    reservations += reserving.views(state, known)
    views: list[tuple[JobRecord, Job]] = []
    for record in waiting:  # What a job waits for has arrived before it.
        if record.id not in without and (held or record.state is not JobState.HELD):
            view = waiting_view(record, state, names, seen, now, offers)
            if view is not None:
                views.append((record, view))
                seen.add(view.id)
    if LIMITS not in lifted:
        views = _capped(state, views, now)
    queue = _weighted(state, views, now, shared=SHARES not in lifted)
    if GUARANTEES not in lifted:
        reservations += guarantees.reservations(state, views, clusters, running, now)
    return Snapshot(
        time=now,
        clusters=_marked(clusters, offers.marks.of_nodes),
        queue=tuple(queue),
        running=tuple(running),
        reservations=tuple(reservations),
        overrun_s=state.settings.overrun_s,
    )


def _capped(
    state: State, views: list[tuple[JobRecord, Job]], now: float
) -> list[tuple[JobRecord, Job]]:
    """The waiting jobs, no wider than their limits leave room for."""
    if not state.tree.has_limits:
        return views
    book = limits.LimitBook(state, now)
    return [(record, limits.capped(book, record, job)) for record, job in views]


def _weighted(
    state: State, views: Sequence[tuple[JobRecord, Job]], now: float, *, shared: bool
) -> list[Job]:
    """The waiting jobs with their effective weights, in which shares may not count."""
    jobs = [job for _, job in views]
    if not priority.is_on(state):
        return jobs
    made = priority.factors(state, (record for record, _ in views), now)
    return [
        replace(job, weight=found.weight, priority=found.precedence)
        if shared
        else replace(job, weight=found.unshared, priority=found.operator)
        for job, (_, found) in zip(jobs, made, strict=True)
    ]


def _busy(state: State) -> dict[str, int]:
    """Slots that are taken, by node, as far as offers of few nodes go by them."""
    taken: Counter[str] = Counter()
    for cluster in state.clusters.values():
        if cluster.reading is not None:
            for work in cluster.reading.running:
                taken.update(work.nodes)
    for record in state.placed_records():
        for part in record.parts:
            if part.state not in PART_ENDED and not part.is_waiting:
                taken.update(part.nodes)
    return taken


def _marked(
    clusters: tuple[Cluster, ...], marks: Mapping[str, Collection[str]]
) -> tuple[Cluster, ...]:
    """The clusters with further features of their nodes."""
    if not marks:
        return clusters
    return tuple(
        replace(
            cluster,
            nodes=tuple(
                replace(node, features=(*node.features, *marks[node.name]))
                if node.name in marks
                else node
                for node in cluster.nodes
            ),
        )
        for cluster in clusters
    )


def cluster_view(name: str, cluster: ClusterState, state: State, now: float) -> Cluster:
    """A cluster as planning sees it: powers in steps, drained nodes, staleness."""
    site = cluster.settings
    return Cluster(
        name=name,
        nodes=_nodes(cluster, state.settings.power_step),
        link_gbps=site.link_gbps,
        intra_gbps=site.intra_gbps,
        link_latency_s=site.link_latency_s,
        intra_latency_s=site.intra_latency_s,
        stale=cluster.is_stale(now, state.settings.reading_max_age_s),
    )


def _nodes(cluster: ClusterState, power_step: float) -> tuple[Node, ...]:
    """The nodes as planning sees them, made anew only where what they depend on has changed."""
    kept, drained = cluster.viewed, (cluster.drained, frozenset(cluster.drained_nodes))
    if (
        kept is None
        or kept.reading is not cluster.reading
        or kept.powers is not cluster.powers
        or (kept.drained, kept.power_step) != (drained, power_step)
    ):
        read = () if cluster.reading is None else cluster.reading.nodes
        kept = cluster.viewed = ViewedNodes(
            reading=cluster.reading,
            powers=cluster.powers,
            drained=drained,
            power_step=power_step,
            nodes=tuple(_node(cluster, node, power_step) for node in read),
        )
    return kept.nodes


def _node(cluster: ClusterState, read: NodeReading, power_step: float) -> Node:
    is_drained = (
        cluster.drained or read.name in cluster.drained_nodes or bool(weakness(cluster, read))
    )
    return Node(
        name=read.name,
        power=max(cluster.power_of(read, power_step), POWER.low),
        slots=read.slots,
        features=read.features,
        memory_mb=read.memory_mb,
        state=NodeState.DRAINING if is_drained and read.state is NodeState.UP else read.state,
    )


def _told_running(work: Running) -> Running:
    """Run of a native job as its batch system has it; a time far away is only known to be far."""
    if EVENT.holds(work.start) and EVENT.holds(work.end):
        return work
    return replace(work, start=_within(work.start), end=_within(work.end))


def _told_reservation(kept: Reservation, jobs: Collection[str]) -> Reservation:
    if EVENT.holds(kept.start) and EVENT.holds(kept.end) and not jobs:
        return kept
    start, end = _within(kept.start), _within(kept.end)
    return replace(kept, start=start, end=end, jobs=(*kept.jobs, *jobs))


def _users_of_reservations(records: Iterable[JobRecord], state: State) -> dict[str, list[str]]:
    """The jobs that name a reservation of a batch system, by its id."""
    users: dict[str, list[str]] = {}
    for record in records:
        if record.batch.reservation:
            for name in state.clusters:
                users.setdefault(f"{name}:{record.batch.reservation}", []).append(record.id)
    return users


def _within(time: float) -> float:
    return min(max(time, EVENT.low), EVENT.high)


def weakness(cluster: ClusterState, node: NodeReading) -> str:
    """Reason why so weak a node gets no new work: it would run for years; empty where it does."""
    steps = cluster.powers.get(node.name)
    power = node.power if steps is None else steps.smoothed
    return "" if power >= POWER.low else f"its power {power:.2g} is below {POWER.low:g}"


def running_view(record: JobRecord, known: set[str], now: float) -> Running:
    """A placed job as running work; nodes that are no longer read are left out."""
    start = now if record.started is None else record.started
    nodes = {
        node: count
        for part in record.parts
        if part.state not in PART_ENDED and not part.is_waiting
        for node, count in part.nodes.items()
        if node in known
    }
    return Running(
        id=record.id,
        nodes=nodes,
        start=min(start, now),
        end=min(max(start + record.planned, min(start, now)), EVENT.high),
        link_gbps=record.link_gbps,
    )


def _expected(record: JobRecord, known: set[str], now: float) -> list[Reservation]:
    """The nodes of a job's claims that wait, from when they are expected to be granted.

    Others may be granted in the end; these stand for as many.
    """
    found = []
    for part in record.parts:
        nodes = tuple(node for node in part.nodes if node in known)
        start = min(max(part.expected or now, now), EVENT.high)
        end = min(start + record.planned, EVENT.high)
        if part.is_waiting and nodes and end > start:
            found.append(
                Reservation(id=f"{record.id}:{part.index}", nodes=nodes, start=start, end=end)
            )
    return found


def waiting_view(
    record: JobRecord,
    state: State,
    clusters: frozenset[str],
    seen: Collection[str],
    now: float,
    offers: Offers,
) -> Job | None:
    """A waiting job as the planner sees it; None where nothing of it is to be planned.

    Parameters
    ----------
    seen : collection of str
        What is in the snapshot, as far as the job may wait for it.
    offers : Offers
        Clusters and nodes that would take it.
    """
    job: Job | None = record.job
    is_composite = record.id in state.composites
    if is_composite and isinstance(job, WorkflowJob):
        job = rest_of(record, state, clusters, now)
    elif is_composite and isinstance(job, DivisibleJob):
        job = chunks_left(record, state, now)
    unmet = _unmet(record, state, seen)
    if job is None or unmet is None:
        return None
    changes: dict[str, object] = {}
    if unmet:
        changes["after"] = tuple(unmet)
    if record.state is JobState.HELD:
        changes["held"] = True
    if job.submitted > now:  # The clock was set back since.
        changes["submitted"] = now
    offer = offers.of(record)
    earliest = max(record.not_before, record.opens(now), offer.earliest)
    if earliest != job.earliest:
        changes["earliest"] = earliest
    if passed := state.passed_over.get(record.id, 0):
        changes["passed_over"] = passed
    late = tuple(name for name in record.late if is_crowded(state, name))
    named = others(state, record, late) if late else None
    named = job.clusters if named is None else named
    if offer.mark:
        changes["features"] = (*job.features, offer.mark)
    taking = clusters.difference(record.barred, offer.refusing)
    if named is None and len(taking) < len(clusters):
        changes["clusters"] = tuple(sorted(taking))
    elif named is not None and (named != job.clusters or not taking.issuperset(named)):
        changes["clusters"] = tuple(name for name in named if name in taking)
    return replace(job, **changes) if changes else job  # type: ignore[arg-type]


def _unmet(record: JobRecord, state: State, seen: Collection[str]) -> list[str] | None:
    """Unmet dependencies of a job, by ids in the snapshot; None where one is not there.

    What of a workflow or a divisible job is placed runs under ids of its own.
    """
    unmet = []
    for kind, needed in open_needs(state, record):
        if kind == "after":
            return None  # It may start once that one has, which is not planned.
        flow = state.composites.get(needed)
        parts = () if flow is None else map(flow.job_of, flow.placed)
        there = [name for name in (needed, *parts) if name in seen]
        if not there:
            return None
        unmet += there
    return unmet


def chunks_left(record: JobRecord, state: State, now: float) -> DivisibleJob | None:
    """Chunks left of a divisible job: those of no piece, and of pieces to be tried again."""
    job, pool = record.job, state.composites[record.id]
    assert isinstance(job, DivisibleJob)
    assert isinstance(pool, ChunkPool)
    left = 0 if is_stopping(record, pool) else pool.left(now)
    if not left:
        return None
    return job if left == pool.total else replace(job, work=left * job.chunk_s)


def rest_of(
    record: JobRecord, state: State, clusters: frozenset[str], now: float
) -> WorkflowJob | None:
    """Rest of a workflow: the tasks to be placed, and the places of their data.

    Tasks that rest after a failure are left out with all that needs them.
    """
    job, flow = record.job, state.composites[record.id]
    assert isinstance(job, WorkflowJob)
    assert isinstance(flow, WorkflowState)
    if is_stopping(record, flow):
        return None
    if len(flow.open) == len(flow.tasks) and not flow.resting:
        return job
    left = dict.fromkeys(flow.plannable(now))
    if not left:
        return None
    started: dict[str, Started | None] = {}
    edges = []
    for task in left:
        for edge in flow.parents[task]:
            if edge.parent not in left and edge.parent not in started:
                begun = state.jobs.get(flow.job_of(edge.parent))
                started[edge.parent] = None if begun is None else _started(begun, clusters, now)
            if edge.parent in left or started[edge.parent] is not None:
                edges.append(edge)
    return replace(
        job,
        tasks=tuple(flow.tasks[task] for task in left),
        edges=tuple(edges),
        started=tuple(one for one in started.values() if one is not None),
    )


def _started(record: JobRecord, clusters: frozenset[str], now: float) -> Started | None:
    """A task that runs or has run; None where it did on clusters that are no longer there."""
    places = tuple(part.cluster for part in record.parts if part.cluster in clusters)
    if not places:
        return None
    start = now if record.started is None else min(record.started, now)
    # Its end is by its nodes' clock, which may be ahead of ours.
    end = max(start + record.planned, now) if record.ended is None else min(record.ended, now)
    end = min(end, EVENT.high)
    return Started(task=record.task, clusters=places, end=end)
