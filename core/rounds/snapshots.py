"""The snapshot of a round, from what the daemon knows, and those without a rule of the site."""

from __future__ import annotations

from bisect import bisect_left
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from coalloc.core.base.clusters import ClusterState, ViewedNodes
from coalloc.core.base.composites import ChunkPool, WorkflowState, is_stopping
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State, arrival
from coalloc.core.commands import reservations as reserving
from coalloc.core.jobs.dependencies import delayed, open_needs, plain
from coalloc.core.jobs.occupation import busy_slots, held_by
from coalloc.core.jobs.offers import NO_OFFER, Offers
from coalloc.core.jobs.twins import runs_on_twins
from coalloc.core.sharing import guarantees, limits, priority
from coalloc.core.sharing.limits import LimitBook
from coalloc.core.starts.negotiation import others
from coalloc.core.starts.waits import is_crowded
from coalloc.model.cost import within_limit
from coalloc.model.jobs import DivisibleJob, Job, Started, WorkflowJob
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.ranges import EVENT, POWER
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.values import replace

SHARES, LIMITS, GUARANTEES = RULES = ("shares", "limits", "guarantees")
"""What a site lays down that may make a plan worse."""


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

    A round leaves `held` jobs out: there is nothing to decide of them. Left out too are those
    `without`, and what waits for a job that is neither in the queue nor running; behind the others
    is `also`, which was not submitted. Of `RULES`, those `lifted` do not count, to see what they
    cost. Work that was committed but has not started yet, undelivered decisions included, counts as
    running from now on.
    """
    clusters = tuple(
        cluster_view(name, cluster, state, now) for name, cluster in state.clusters.items()
    )
    known = {node.name for cluster in clusters for node in cluster.nodes}
    running = _running(state, now)
    offers = Offers(state=state, now=now, busy=busy_slots(state))
    plain = _plain(state, offers, now)
    special = [*state.waiting_records(without=plain), *(() if also is None else (also,))]
    reservations = _reservations(state, special, known, now)
    planned = [
        record
        for record in special
        if record.id not in without and (held or record.state is not JobState.HELD)
    ]
    for job in without:
        plain.pop(job, None)
    jobs = _waiting(state, plain, planned, offers, now)
    rules = {rule for rule in rules_of(state) if rule not in lifted}
    if rules or priority.is_on(state):
        ids = state.jobs if also is None else {**state.jobs, also.id: also}
        records = [ids[job.id] for job in jobs]
        if LIMITS in rules:
            book = LimitBook(state, now)
            jobs = [limits.capped(book, *each) for each in zip(records, jobs, strict=True)]
        views = list(zip(records, jobs, strict=True))
        jobs = _weighted(state, records, jobs, now, shared=SHARES not in lifted)
        if GUARANTEES in rules:
            reservations += guarantees.reservations(state, views, clusters, running, now)
    return Snapshot(
        time=now,
        clusters=_marked(clusters, offers.marks.of_nodes),
        queue=tuple(jobs),
        running=tuple(running),
        reservations=tuple(reservations),
        overrun_s=state.settings.start.overrun_s,
    )


def rules_of(state: State) -> list[str]:
    """The rules that are in force."""
    tree = state.sharing.tree
    is_on = {
        SHARES: bool(state.settings.priority.shares),
        LIMITS: tree.has_limits,
        GUARANTEES: bool(tree.guaranteed),
    }
    return [rule for rule in RULES if is_on[rule]]


def without_rules(state: State, now: float, *lifted: str) -> Snapshot:
    """The snapshot of a round that began now, were these rules not in force.

    Jobs that rounds set aside (`core.rounds.isolation`) are left out, and those that limits hold,
    see `core.sharing.limits.held_back`.
    """
    held = state.findings.limited
    if LIMITS in lifted:  # The throttle of an array is its user's, not the site's.
        held = limits.held_back(state, now, of_site=False)
    out = {*state.findings.aside, *held}
    return snapshot(state, now, held=False, without=out, lifted=lifted)


def without_each_rule(state: State, now: float) -> dict[str, Snapshot]:
    """For each rule in force, the snapshot without it."""
    return {rule: without_rules(state, now, rule) for rule in rules_of(state)}


def _running(state: State, now: float) -> list[Running]:
    """The placed jobs and the clusters' native ones."""
    running = []
    for record in state.placed_records():
        if not record.pack or record.placed_slots:
            running.append(run := running_view(state, record, now))
            running += runs_on_twins(state, record, run)
    for cluster in state.clusters.values():
        running += map(_told, cluster.running)
    return running


def _reservations(
    state: State, waiting: Iterable[JobRecord], known: set[str], now: float
) -> list[Reservation]:
    """Claims that wait, then the clusters' reservations, then the daemon's own."""
    users: dict[str, list[str]] = {}
    for record in waiting:
        if record.batch.reservation:
            for name in state.clusters:
                users.setdefault(f"{name}:{record.batch.reservation}", []).append(record.id)
    readings = (cluster.reading for cluster in state.clusters.values())
    # Where a share is ours, what waits in the queue gets nodes beyond it.
    ours = {node.name for each in readings if each and each.share for node in each.nodes}
    queued = known - ours
    found = [kept for record in state.placed_records() for kept in _expected(record, queued, now)]
    for cluster in state.clusters.values():
        for kept in map(_told, () if cluster.reading is None else cluster.reading.reservations):
            jobs = users.get(kept.id)
            found.append(replace(kept, jobs=(*kept.jobs, *jobs)) if jobs else kept)
    return [*found, *reserving.views(state, known)]


def _plain(state: State, offers: Offers, now: float) -> dict[str, Job]:
    """The waiting jobs that are planned as they were submitted, by all that clusters offer."""
    if now < state.newest_submit:  # The clock was set back since.
        return {}
    plain = state.plain_jobs()
    for jobs in state.of_kind.values() if offers.are_needed else ():
        found = (job for job in jobs if job in plain)
        first = next(found, None)
        if first is not None and (offers.are_of_time or offers.of(state.jobs[first]) != NO_OFFER):
            for job in (first, *found):
                del plain[job]
    return plain


def _waiting(
    state: State, plain: dict[str, Job], special: Iterable[JobRecord], offers: Offers, now: float
) -> list[Job]:
    """The waiting jobs to be planned as the planner sees them, in the order of their arrival.

    Those in `plain`, which is used up, are taken as they are: of a long queue each look counts.
    """
    for job, count in state.findings.passed_over.items():
        if job in plain:
            plain[job] = replace(plain[job], passed_over=count)
    names, jobs = list(plain), list(plain.values())
    views: dict[str, Job] = {}
    seen = ChainMap[str, object](views, plain, state.placed)  # type: ignore[arg-type]
    merged: list[Job] = []
    at = 0
    for record in special:
        view = waiting_view(record, state, seen, now, offers)
        if view is not None:
            views[record.id] = view
            upto = len(names)
            if record.id in state.jobs:  # Else it was not submitted, and goes behind all.
                upto = bisect_left(names, arrival(record.id), at, key=arrival)
            merged += (*jobs[at:upto], view)
            at = upto
    return [*merged, *jobs[at:]]


def _weighted(
    state: State, records: Sequence[JobRecord], jobs: list[Job], now: float, *, shared: bool
) -> list[Job]:
    """The waiting jobs with their effective weights, in which shares may not count."""
    if not priority.is_on(state):
        return jobs
    turns = priority.Turns(state, now)
    state.schedule.turn_of = turns.precedence
    made = priority.factors(state, records, now, turns)
    return [
        replace(job, weight=found.weight, priority=found.precedence)
        if shared
        else replace(job, weight=found.unshared, priority=found.operator)
        for job, (_, found) in zip(jobs, made, strict=True)
    ]


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
        nodes=_nodes(cluster, state.settings.power.step),
        link_gbps=site.link_capacity_gbps,
        intra_gbps=site.inner_capacity_gbps,
        link_latency_s=site.link_latency_s,
        intra_latency_s=site.intra_latency_s,
        stale=cluster.is_stale(now, state.settings.readings.max_age_s),
        resources={} if cluster.reading is None else cluster.reading.resources,
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
        kept = cluster.viewed = ViewedNodes(
            reading=cluster.reading,
            powers=cluster.powers,
            drained=drained,
            power_step=power_step,
            nodes=tuple(_node(cluster, node, power_step) for node in cluster.nodes),
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
        cpus=read.cpus,
        cpus_per_core=read.cpus_per_core,
        resources=read.resources,
        features=read.features,
        memory_mb=read.memory_mb,
        state=NodeState.DRAINING if is_drained and read.state is NodeState.UP else read.state,
    )


Told = TypeVar("Told", Running, Reservation)


def _told(each: Told) -> Told:
    """Work or a reservation as told by a batch system; a time far away is only known to be far."""
    if EVENT.holds(each.start) and EVENT.holds(each.end):
        return each
    start, end = (min(max(time, EVENT.low), EVENT.high) for time in (each.start, each.end))
    return replace(each, start=start, end=end)


def weakness(cluster: ClusterState, node: NodeReading) -> str:
    """Reason why so weak a node gets no new work: it would run for years; empty where it does."""
    steps = cluster.powers.get(node.name)
    power = node.power if steps is None else steps.smoothed
    return "" if power >= POWER.low else f"its power {power:.2g} is below {POWER.low:g}"


def running_view(state: State, record: JobRecord, now: float) -> Running:
    """A placed job as running work; nodes that are no longer read are left out."""
    start = now if record.started is None else record.started
    begun = min(start, now)
    end = min(max(start + within_limit(record.job, record.planned), begun), EVENT.high)
    return held_by(state, record, begun, end)


def _expected(record: JobRecord, known: set[str], now: float) -> list[Reservation]:
    """The nodes of a job's claims that wait, from when they are expected to be granted.

    Others may be granted in the end; these stand for as many.
    """
    found = []
    parts = list(record.parts)
    if record.siblings:  # Only one of them will run: the one that is expected first.
        parts.sort(key=lambda part: part.expected or now)
    for part in parts[: 1 if record.siblings else None]:
        nodes = tuple(node for node in part.nodes if node in known)
        start = min(max(part.expected or now, now), EVENT.high)
        end = min(start + within_limit(record.job, record.planned), EVENT.high)
        if part.is_waiting and nodes and end > start:
            found.append(
                Reservation(id=f"{record.id}:{part.index}", nodes=nodes, start=start, end=end)
            )
    return found


def waiting_view(
    record: JobRecord, state: State, seen: Collection[str], now: float, offers: Offers
) -> Job | None:
    """A waiting job as the planner sees it; None where nothing of it is to be planned.

    `seen` is what is in the snapshot. A job waits for what runs or has arrived before it.
    """
    job: Job | None = record.job
    is_composite = record.id in state.composites
    if is_composite and isinstance(job, WorkflowJob):
        job = rest_of(record, state, now)
    elif is_composite and isinstance(job, DivisibleJob):
        job = chunks_left(record, state, now)
    unmet = _unmet(record, state, seen) if record.needs else []
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
    if record.needs:
        earliest = max(earliest, delayed(state, record))
    if earliest != job.earliest:
        changes["earliest"] = earliest
    if passed := state.findings.passed_over.get(record.id, 0):
        changes["passed_over"] = passed
    late = record.late and tuple(name for name in record.late if is_crowded(state, name))
    named = others(state, record, late) if late else None
    named = job.clusters if named is None else named
    if offer.is_whole:
        changes["one_cluster"] = True
    if offer.mark:
        changes["features"] = (*job.features, offer.mark)
    refusing = record.barred.keys() | offer.refusing.keys() if record.barred else offer.refusing
    if named is not None:
        named = tuple(name for name in named if name in state.clusters and name not in refusing)
    elif refusing and any(name in refusing for name in state.clusters):
        named = tuple(sorted(state.clusters.keys() - refusing))
    if named != job.clusters:
        changes["clusters"] = named
    return replace(job, **changes) if changes else job  # type: ignore[arg-type]


def _unmet(record: JobRecord, state: State, seen: Collection[str]) -> list[str] | None:
    """Unmet dependencies of a job, by ids in the snapshot; None where one is not there.

    What of a workflow or a divisible job is placed runs under ids of its own.
    """
    unmet = []
    for kind, needed in open_needs(state, record):
        if plain(kind) == "after" or kind.endswith("?"):
            return None  # It may start once that one has, or one of several, which is not planned.
        flow = state.composites.get(needed)
        parts = () if flow is None else map(flow.job_of, flow.placed)
        found = (name for name in (needed, *parts) if name in seen)
        own = arrival(record.id)
        there = [name for name in found if name in state.placed or arrival(name) < own]
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


def rest_of(record: JobRecord, state: State, now: float) -> WorkflowJob | None:
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
                started[edge.parent] = None if begun is None else _started(begun, state, now)
            if edge.parent in left or started[edge.parent] is not None:
                edges.append(edge)
    return replace(
        job,
        tasks=tuple(flow.tasks[task] for task in left),
        edges=tuple(edges),
        started=tuple(one for one in started.values() if one is not None),
    )


def _started(record: JobRecord, state: State, now: float) -> Started | None:
    """A task that runs or has run; None where it did on clusters that are no longer there."""
    places = tuple(part.cluster for part in record.parts if part.cluster in state.clusters)
    if not places:
        return None
    start = now if record.started is None else min(record.started, now)
    # Its end is by its nodes' clock, which may be ahead of ours.
    end = max(start + record.planned, now) if record.ended is None else min(record.ended, now)
    end = min(end, EVENT.high)
    return Started(task=record.task, clusters=places, end=end)
