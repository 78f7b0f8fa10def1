"""Answers to questions: queue, jobs, nodes, plan; read-only, from the core's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.composites import ChunkPool
from coalloc.core.base.projects import ITS_ARRAY
from coalloc.core.base.records import JobRecord, JobState, JobSummary
from coalloc.core.base.state import State, arrival
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.deadlines import DEADLINE, TOLERANCE_S
from coalloc.core.jobs.dependencies import is_open
from coalloc.core.jobs.eligibility import may_split
from coalloc.core.jobs.occupation import SlotsInUse, occupation
from coalloc.core.jobs.twins import reader_of
from coalloc.core.learning import promises
from coalloc.core.rounds import snapshots
from coalloc.core.sharing import limits
from coalloc.core.sharing.priority import project_of
from coalloc.core.starts import negotiation as negotiating
from coalloc.core.starts import staging
from coalloc.daemon.queries import workflow_views
from coalloc.model.cost import shortest_time
from coalloc.model.formats.nodeset import fold_in_order
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import OVERDUE, Reason
from coalloc.model.platform import Node
from coalloc.model.ranges import EVENT
from coalloc.model.shape import Room
from coalloc.model.sites.parts import OVER_LIMIT
from coalloc.model.sites.reading import NodeReading
from coalloc.model.values import fields_of
from coalloc.runtime.texts import instant
from coalloc.wire.answers import RunningRow, Why
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow, NodeRow, ReservationRow

NODES_NAMED = 32
ARRAY_ORDER = "array_order"


def queue_page(
    state: State, *, everything: bool, user: str, now: float, after: str, limit: int
) -> tuple[tuple[QueueRow, ...], bool]:
    """Active jobs in arrival order, ended ones too where `everything` is asked for.

    At most so many, behind the job `after`, and whether there are others behind them.
    """
    rows: list[QueueRow] = []
    for record in _behind(state, after):
        if (record.is_ended and not everything) or (user and record.user != user):
            continue
        if record.flow or (record.rest is not None and not record.rest.left):
            continue  # The whole stands for it, or its members do.
        if len(rows) >= limit:
            return tuple(rows), True
        rows.append(job_row(record, state, now))
    return tuple(rows), False


def _behind(state: State, after: str) -> Iterator[JobRecord]:
    """Jobs as they arrived, which is how the table of jobs grows, behind one of them."""
    records = iter(state.jobs.values())
    if after in state.jobs:
        for record in records:
            if record.id == after:
                break
        return records
    if not after:
        return records
    # it has been forgotten meanwhile
    key = arrival(after)
    return (record for record in records if arrival(record.id) > key)


def job_row(record: JobRecord, state: State, now: float) -> QueueRow:
    """One line of the queue; a waiting job always has a reason, and a start where one is known."""
    start, reason, detail = expectation(record, state, now)
    early, late = promises.interval(state, record, start, now) or (None, None)
    if record.id in state.composites:
        nodes, clusters = workflow_views.occupied(state.composites[record.id], state)
    else:
        nodes, clusters = record.nodes, record.clusters
    job, procs = record.job, record.placed_procs if record.siblings else sum(nodes.values())
    return QueueRow(
        **fields_of(record, JobSummary)
        | {"id": record.shown_id, "reason": reason, "detail": detail},
        procs=procs or narrowest(job),
        max_procs=job.max_procs if isinstance(job, MoldableJob) else None,
        shape=job.shape,
        time_limit=job.time_limit,
        start_estimate=start,
        start_early=early,
        start_late=late,
        nodes=nodes,
        clusters=clusters,
        skew_ms=None if record.skew_s is None else round(record.skew_s * 1e3, 3),
        weight=job.weight,
        progress=workflow_views.progress(record, state),
        project=project_of(state, record),
    )


def expectation(record: JobRecord, state: State, now: float) -> tuple[float | None, str, str]:
    """Expected start of a waiting job, the reason why it waits, and the same in words."""
    if record.is_placed and record.cancelled_by:
        return None, "cancelling", f"being ended: {record.cancellation.words}"
    if record.id in state.composites and not record.is_waiting:
        return workflow_views.expectation(record, state)
    if (queued := negotiating.in_words(state, record, now)) is not None:
        return queued
    if not record.is_waiting:
        copies = staging.in_words(state, record) if record.is_ended else ""
        return None, record.reason, "; ".join(filter(None, (record.detail, copies)))
    if record.task and record.flow in state.jobs:
        return workflow_views.task_expectation(record, state.jobs[record.flow], state)
    if record.state is JobState.HELD:
        return None, record.reason or "held", record.detail or "held until released"
    unmet = needs_text(record, state)
    outlook = state.findings.outlook.get(record.id)
    start = None if outlook is None else outlook.start
    if record.id in state.findings.aside:
        aside = state.findings.aside[record.id]
        return None, aside.reason, aside.detail
    if unmet:
        return start, "dependency", f"waits for {unmet}"
    if start is None and (copies := staging.in_words(state, record)):
        return None, "staging", copies
    if record.array and record.id not in state.waiting:
        return None, ARRAY_ORDER, "follows the members of its array that are in the queue"
    if record.not_before > now and record.behind:
        is_limit = record.reason == OVER_LIMIT
        return start, OVER_LIMIT if is_limit else negotiating.OTHERS_FIRST, record.detail
    if record.not_before > now:
        return max(record.not_before, start or 0.0), "backing_off", record.detail
    if record.job.earliest > now:
        what = f"may not start before {instant(record.job.earliest)}"
        return max(record.job.earliest, start or 0.0), str(Reason.BEGIN_TIME), what
    if record.id in state.findings.limited:
        why = state.findings.limited[record.id]
        is_of_array = why.startswith(ITS_ARRAY)
        return None, limits.ARRAY_LIMIT if is_of_array else limits.LIMIT, why
    if state.rounds.paused:
        return None, "rounds_paused", "an operator has paused the rounds"
    if outlook is None:
        if not any(c.connected for c in state.clusters.values()):
            return None, "unreachable", "no executor is connected"
        return None, "next_round", "not planned yet; the next round decides"
    if start is not None and start > record.latest_start + TOLERANCE_S:
        late = f"planned to start at {instant(start)}, too late for its deadline"
        return start, DEADLINE, f"{late}; ended unless it can by {instant(record.latest_start)}"
    if start is not None:
        return start, "planned", f"planned to start on {_folded(outlook.nodes)}"
    return None, outlook.reason, outlook.detail


def _folded(names: Collection[str]) -> str:
    """The nodes as a set; of many the first ones, since a page of the queue has 2,000 of these."""
    if len(names) <= NODES_NAMED:
        return fold_in_order(names)
    first = fold_in_order(islice(names, NODES_NAMED - 1))
    return f"{first} and {len(names) - NODES_NAMED + 1} more"


def needs_text(record: JobRecord, state: State) -> str:
    """Dependencies of a waiting job, each array with how many of its members are left."""
    left: dict[tuple[str, str], list[str]] = {}
    members: Counter[tuple[str, str]] = Counter()
    for kind, job in record.needs:
        key = kind, job.partition("_")[0]
        members[key] += 1
        if job in state.jobs and is_open(kind, state.jobs[job]):
            left.setdefault(key, []).append(job)
    return ", ".join(
        f"{kind}:{names[0].rstrip('_')}"
        if members[kind, number] == 1
        else f"{kind}:{number} ({len(names)} of {members[kind, number]} left)"
        for (kind, number), names in left.items()
    )


def job_details(record: JobRecord, state: State, now: float) -> JobDetails:
    """Everything known of a job but what it executes, and its history."""
    return JobDetails(**fields_of(job_row(record, state, now), QueueRow), record=record)


def cluster_rows(state: State, now: float) -> tuple[ClusterRow, ...]:
    """Clusters with their nodes, what is free of them, power, load and link use."""
    view = occupation(state, now)
    return tuple(
        _cluster_row(name, cluster, view, state, now) for name, cluster in state.clusters.items()
    )


def _cluster_row(
    name: str, cluster: ClusterState, view: SlotsInUse, state: State, now: float
) -> ClusterRow:
    reading, capacity = cluster.reading, cluster.settings.link_gbps
    raw = {} if reading is None else {node.name: node for node in reading.nodes}
    shown = snapshots.cluster_view(name, cluster, state, now)
    used = sum((record.link_gbps.get(name, 0.0) for record in state.placed_records()), 0.0)
    return ClusterRow(
        cluster=name,
        stale=cluster.is_stale(now, state.settings.readings.max_age_s),
        connected=cluster.connected,
        drained=cluster.drained,
        drain_reason=state.maintenance.drained.get(name, "") if cluster.drained else "",
        error=cluster.error or ("" if cluster.configured else "no longer configured"),
        age_s=None if reading is None else now - cluster.read_at,
        link_gbps=capacity,
        link_used_gbps=used,
        waiting_there=0 if reading is None else reading.waiting,
        notices=() if reading is None else reading.notices,
        way="" if reading is None else reading.way,
        share=None if reading is None else reading.share,
        owner=cluster.settings.owner,
        site="" if reading is None else reading.site,
        read_by=reader_of(state, name, now),
        version=cluster.version,
        clock_ahead_s=cluster.clock_ahead_s,
        rpcs_per_min=None if reading is None else reading.rpcs_per_min,
        nodes=tuple(
            _node_row(node, raw[node.name], cluster, view, state, now) for node in shown.nodes
        ),
    )


def _node_row(
    node: Node, raw: NodeReading, cluster: ClusterState, view: SlotsInUse, state: State, now: float
) -> NodeRow:
    free = view.room(node.name) if node.name in view.free else Room(0, 0.0, {})
    drained = state.maintenance.drained.get(node.name)
    return NodeRow(
        name=node.name,
        state=str(node.state),
        slots=node.slots,
        free=max(0, free.slots),
        power=node.power,
        raw_power=raw.power,
        load=raw.load,
        load_age_s=raw.load_age_s + max(0.0, now - cluster.read_at),
        reason=drained or raw.reason or snapshots.weakness(cluster, raw),
        features=tuple(node.features),
        memory_mb=node.memory_mb,
        free_memory_mb=None if node.memory_mb is None else max(0, int(free.memory_mb)),
        cpus=node.cpus,
        resources=dict(node.resources),
        free_resources={name: max(0, free.resources.get(name, 0)) for name in node.resources},
    )


def why(record: JobRecord, state: State, now: float) -> Why:
    """The reason why a job does not start, with the figures behind it."""
    start, reason, detail = expectation(record, state, now)
    early, late = promises.interval(state, record, start, now) or (None, None)
    facts: list[str] = []
    pool, view = state.composites.get(record.id), occupation(state, now)
    if isinstance(pool, ChunkPool):
        facts.append(
            f"{pool.left(now)} of {pool.total} chunks are to be placed, on slots that the other "
            f"jobs leave idle; free now: {_free(view, record.user)}"
        )
    elif record.is_waiting:
        job, free = record.job, _free(view, record.user)
        facts.append(f"asks for {narrowest(job)} processes; free now: {free}")
        if isinstance(job, RigidJob | MoldableJob) and job.proc_gbps:
            facts.append(
                f"{job.proc_gbps:g} Gbit/s per process; links left: "
                + ", ".join(f"{name} {left:g}" for name, left in view.link_free.items())
            )
        ahead = sum(arrival(other) < arrival(record.id) for other in state.waiting)
        passed = state.findings.passed_over.get(record.id, 0)
        facts.append(f"{ahead} waiting jobs arrived before it; passed over {passed} times")
    stale = [
        n for n, c in state.clusters.items() if c.is_stale(now, state.settings.readings.max_age_s)
    ]
    if stale and record.is_waiting:
        facts.append(f"not counted, because unreachable: {', '.join(stale)}")
    if (drained := _drained(state)) and record.is_waiting:
        facts.append(f"not counted, because drained: {drained}")
    whole = [name for name, each in state.clusters.items() if not each.takes_parts]
    if whole and record.is_waiting and may_split(record.job):
        facts.append(f"not split over {', '.join(whole)}, where the clocks of the nodes differ")
    if record.is_waiting or record.is_in_queues:
        facts += _in_the_way(record, state, now)
    # The policy's notes of its last plan say from when on it goes first.
    notes = state.learning.notes.get(state.settings.rounds.policy, {}).get(OVERDUE, {})
    is_noted = record.is_waiting and isinstance(notes, Mapping)
    return Why(
        job=record.shown_id,
        state=str(record.state),
        reason=reason,
        detail=detail,
        start_estimate=start,
        start_early=early,
        start_late=late,
        overdue_at=notes.get(record.id) if is_noted else None,
        facts=tuple(facts),
    )


def _in_the_way(record: JobRecord, state: State, now: float) -> Iterator[str]:
    """Reservations of the clusters into which a job would run that began now, in words."""
    job = record.job
    length = record.run_limit or (shortest_time(job) if isinstance(job, RigidJob) else 0.0)
    for name, cluster in state.clusters.items():
        is_open = (job.clusters is None or name in job.clusters) and name not in record.barred
        for kept in cluster.reading.reservations if is_open and cluster.reading is not None else ():
            if kept.start < now + length and kept.end > now:
                what = kept.id.partition(":")[2]
                what = f"job {what}" if what.isdecimal() else f"reservation {what}"
                where = f"{what} of {name} from {instant(kept.start)} to {instant(kept.end)}"
                yield f"{where} keeps {_folded(kept.nodes)}"


def _drained(state: State) -> str:
    """Clusters and nodes that are drained, those with the same reason as one set."""
    names = [name for name, cluster in state.clusters.items() if cluster.drained]
    for cluster in state.clusters.values():
        names += [] if cluster.drained else sorted(cluster.drained_nodes)
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(state.maintenance.drained.get(name, ""), []).append(name)
    return ", ".join(
        _folded(same) + (f" ({reason})" if reason else "") for reason, same in alike.items()
    )


def _free(view: SlotsInUse, user: str) -> str:
    clusters = view.state.clusters.items()
    free = {name: 0 for name, each in clusters if not each.closed_to(user)}
    for node, count in view.free.items():
        if view.cluster_of[node] in free:
            free[view.cluster_of[node]] += max(0, count)
    return ", ".join(f"{name} {count}" for name, count in free.items())


def running_rows(state: State, now: float) -> tuple[RunningRow, ...]:
    """Occupants of nodes now: our jobs, tasks and pieces, and the batch systems' own jobs."""
    snapshot = snapshots.snapshot(state, now)
    found = ((running, state.jobs.get(running.id)) for running in snapshot.running)
    return tuple(
        RunningRow(
            job=record.flow if record is not None and record.flow else running.id,
            task=(record.task or None) if record is not None else None,
            start=running.start,
            end=running.busy_until(now, snapshot.overrun_s),
            nodes=dict(running.nodes),
        )
        for running, record in found
    )


def proc_gbps(state: State) -> dict[str, float]:
    """Bandwidth that one process needs, of jobs in the plan or running that need any."""
    plan = state.schedule.plan
    planned = () if plan is None else (place.job for place in plan.placements)
    found = ((name, state.jobs.get(name)) for name in dict.fromkeys([*planned, *state.placed]))
    return {
        name: record.job.proc_gbps
        for name, record in found
        if record is not None
        and isinstance(record.job, RigidJob | MoldableJob)
        and record.job.proc_gbps
    }


def reservation_rows(state: State) -> tuple[ReservationRow, ...]:
    """Reservations in the order of their starts."""
    rows = [
        ReservationRow(**{**fields_of(kept, ReservationRow), "end": _end(kept.end)})
        for kept in state.maintenance.reserved.values()
    ]
    rows += [
        ReservationRow(
            name=kept.id, nodes=kept.nodes, start=kept.start, end=_end(kept.end), by=name
        )
        for name, cluster in state.clusters.items()
        if cluster.reading is not None
        for kept in cluster.reading.reservations
    ]
    return tuple(sorted(rows, key=lambda row: (row.start, row.name)))


def _end(end: float) -> float | None:
    return None if end >= EVENT.high else end
