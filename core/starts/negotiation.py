"""Claims that may wait in a batch system's queue, and how the parts of a job meet.

Where other jobs go first, a part is asked for by its shape and takes its turn in its cluster's
queue. One part is a plain batch job then. Several are a negotiation: each has its place from the
beginning, and is opened in time (`core.starts.meetings`). A part that is granted its nodes holds
them for the others. When the last has come, every part is told of all nodes, and the two-phase
start goes on as ever (`core.starts.two_phase`). Before that, the attempt is given up as soon as its
parts have held `max_idle_node_s` idle, or when it has waited for so long that another combination
of clusters is worth trying: the next attempt leaves out those that were late, if it can.
"""

from __future__ import annotations

from collections.abc import Collection
from math import log2

from coalloc.core.base.effects import Wake
from coalloc.core.base.messages import Arrange, Hasten
from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.core.base.state import RoundState, State, arrival
from coalloc.core.base.state_tables import narrowest
from coalloc.core.jobs.eligibility import is_older, owner_of, verdict_of
from coalloc.core.jobs.occupation import meeting_place
from coalloc.core.jobs.suitable_nodes import fit, procs_on
from coalloc.core.sharing import priority
from coalloc.core.starts import meetings
from coalloc.core.starts.waits import (
    due,
    fits_share,
    is_crowded,
    jobs_ahead,
    remember,
    width_of,
)
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import WorkflowJob
from coalloc.model.platform import NodeState
from coalloc.model.sites.parts import (
    ENDED_BY_ADMIN,
    HELD_BY_ADMIN,
    HELD_BY_OWNER,
    PART_ENDED,
    PartReport,
    PartState,
    QueueTerms,
)
from coalloc.model.sites.reading import NodeReading
from coalloc.model.values import replace

MOST_DOUBLINGS = 6
NICE = 100
"""Points of Slurm's priority for a job of half the weight."""
MOST_NICE = 10_000
OTHERS_FIRST = "others_first"
"""Reason of a claim that was refused, or waits, because other jobs go first."""
WILL = {
    ENDED_BY_ADMIN: "cancelled by an administrator of {}",
    HELD_BY_ADMIN: "held by an administrator of {}",
    HELD_BY_OWNER: "held in {} by its user",
}
"""What people do to a claim in its batch system, in words."""


def may_queue(state: State, clusters: Collection[str], record: JobRecord) -> bool:
    """Whether claims of a job may wait in all of these clusters' queues."""
    if any(is_older(state.clusters[name], record.job) for name in clusters):
        return False
    readings = [state.clusters[name].reading for name in clusters]
    return all(reading is not None and reading.queues for reading in readings) and not (
        any(reading is not None and reading.share for reading in readings)
        and fits_share(state, record)
    )


def parts_to_queue(
    state: State, record: JobRecord, now: float, *, expected: float | None
) -> tuple[PartRecord, ...]:
    """The parts with when each may be granted; `expected` is their planned start, None: now."""
    names = [part.cluster for part in record.parts]
    meets = len(names) > 1 and (
        expected is not None or any(is_crowded(state, name) for name in names)
    )
    parts = []
    for part in record.parts:
        is_put_off = meets and meetings.is_put_off(state, part.cluster)
        parts.append(
            replace(
                part,
                sent=now,
                asked=now + (meetings.PUT_OFF_S if is_put_off else 0.0),
                ahead=jobs_ahead(state, part.cluster),
                was_put_off=is_put_off,
                expected=expected,
            )
        )
    return tuple(parts)


def terms(state: State, record: JobRecord, part: PartRecord, now: float) -> QueueTerms:
    """Terms on which a part's claim may wait."""
    cluster, held = state.clusters[part.cluster], width_of(state, part)
    alone = len(record.parts) == 1
    is_free = part.expected is None and part.asked <= now
    return QueueTerms(
        at_once=is_free
        and not is_crowded(state, part.cluster)
        and not verdict_of(cluster, record.job, owner_of(record)).full,
        begin_s=max(0.0, part.asked - now),
        hold_s=0.0 if alone else state.settings.start.max_idle_node_s / max(held, 1e-3),
        avoid=tuple(
            node.name
            for node in cluster.nodes
            if node.name in cluster.drained_nodes or not suits(record, node)
        ),
        nice=nice(state, record, part.cluster, now),
    )


def nice(state: State, record: JobRecord, cluster: str, now: float) -> int:
    """Points by which a job is behind our heaviest in a cluster's queue.

    Claims are sent in the plan's order, and a batch system gives those of equal priority their turn
    in that: so many points less for each halving of the weight, by its user, shares or an operator.
    """
    current = state.round
    if current is None:
        return 0
    if not current.weights:
        _weigh(state, current, record, now)
    own = current.weights.get(record.flow or record.id, 0.0)
    best = current.heaviest[cluster] = max(own, current.heaviest.get(cluster, 0.0))
    return min(round(NICE * log2(best / own)), MOST_NICE) if own > 0.0 else MOST_NICE


def _weigh(state: State, current: RoundState, first: JobRecord, now: float) -> None:
    """Note the weights of all that waits, and the greatest in each queue."""
    queued = [record for record in state.placed_records() if record.is_in_queues]
    records = {record.id: record for record in (first, *queued, *state.waiting_records())}
    in_order = sorted(records.values(), key=lambda record: arrival(record.id))
    if priority.is_on(state):
        made = priority.factors(state, in_order, now)
        current.weights = {record.id: found.weight for record, found in made}
    else:
        current.weights = {record.id: record.job.weight for record in in_order}
    for record in queued:
        for name in record.clusters:
            best = current.heaviest.get(name, 0.0)
            current.heaviest[name] = max(best, current.weights[record.id])


def suits(record: JobRecord, node: NodeReading) -> bool:
    """Whether a node has what a process of the job needs; tasks ask for nothing."""
    job = record.job
    return isinstance(job, WorkflowJob) or procs_on(job, node, job.shape) > 0


def went_on(state: State, record: JobRecord, before: PartRecord, now: float) -> JobRecord:
    """Follow a part that has begun to wait, or has its nodes; returns the job as it is now."""
    part = next(p for p in record.parts if (p.cluster, p.index) == (before.cluster, before.index))
    is_granted = before.granted is None and part.granted is not None
    has_joined = part.state is PartState.WAITING and before.state is not PartState.WAITING
    if not record.queued or not (is_granted or has_joined):
        return record
    if is_granted:
        waited = max(0.0, now - part.asked)
        remember(state, before, waited)
        if before.is_waiting:
            if state.pending.jobs:
                state.rounds.want("claim_granted")
            fields = {"nodes": dict(part.nodes), "waited_s": round(waited, 3)}
            state.emit(now, EventKind.CLAIM_GRANTED, record.id, cluster=part.cluster, **fields)
    else:
        state.emit(now, EventKind.CLAIM_QUEUED, record.id, cluster=part.cluster)
        if before.expected is None:  # It was to start at once: others may have it sooner.
            state.rounds.want("claim_queued")
    if record.state is not JobState.PREPARING or any(p.state in PART_ENDED for p in record.parts):
        return record
    if record.siblings:
        if is_granted:
            place = _arranged(state, record.alone(part), before, now).rendezvous
            told = (replace(p, rendezvous=place) if p is part else p for p in record.parts)
            record = replace(record, parts=tuple(told))
        record = replace(record, deadline=due(state, record))
    elif all(p.granted is not None for p in record.parts):
        record = _arranged(state, record, before, now)
    else:
        record = replace(record, deadline=_deadline(state, record, now))
    state.put(record)
    state.out.append(Wake(at=record.deadline or now))
    return hasten(state, record, record.parts, now) if is_granted else record


def _arranged(state: State, record: JobRecord, last: PartRecord, now: float) -> JobRecord:
    """Every part has its nodes: tell all of them, unless a single one has what it asked for."""
    record = replace(record, deadline=now + state.settings.start.prepare_timeout_s)
    only = len(record.parts) == 1 and dict(record.parts[0].nodes) == dict(last.nodes)
    if record.arranged or only:
        return record
    place = meeting_place(state, record, record.parts)
    record = replace(record, arranged=True, rendezvous=place)
    all_nodes = record.nodes
    for part in record.parts:
        order = Arrange(
            job=record.id, attempt=record.attempt, all_nodes=all_nodes, rendezvous=place
        )
        state.send(part.cluster, order)
    return record


def _deadline(state: State, record: JobRecord, now: float) -> float:
    """Time at which the attempt is given up, or looked at again, unless a part is granted.

    One that holds nodes has come so far that only what it holds idle counts.
    """
    start = state.settings.start
    held = _held(state, record)
    if held <= 0.0:
        patience = start.max_wait_s * 2.0 ** min(record.refusals, MOST_DOUBLINGS)
        return max((p.asked for p in record.parts if p.asked <= now), default=now) + patience
    left = start.max_idle_node_s - idle_node_s(state, record, now)
    return now + max(0.0, left) / held


def gives_way(state: State, record: JobRecord) -> tuple[JobRecord, JobRecord] | None:
    """Two jobs of which each holds what the other waits for: the one that came later, the other.

    Neither would ever go on: before either has held its nodes for long, one gives them back.
    """
    for other in state.placed_records() if record.is_meeting else ():
        if other.id == record.id or not other.is_meeting:
            continue
        if _awaits(record, other) and _awaits(other, record):
            older, younger = sorted((record, other), key=lambda each: arrival(each.id))
            return younger, older
    return None


def _awaits(one: JobRecord, other: JobRecord) -> bool:
    """Whether one job waits on a cluster where the other holds nodes."""
    holding = {part.cluster for part in other.parts if part.granted is not None}
    return not holding.isdisjoint(ungranted(one))


def still_waits(
    state: State, part: PartRecord, report: PartReport, record: JobRecord, now: float
) -> None:
    """Take in what is new of a claim that waits; the next report says it again after a restart."""
    # One that is put off is expected at its begin there, and will be hastened before.
    told = None if part.asked > now else report.expected
    changed = replace(
        part,
        expected=told or part.expected,
        reason=report.reason,
        detail=report.detail,
        is_next=report.is_next,
    )
    if changed != part:
        parts = tuple(changed if p is part else p for p in record.parts)
        state.index(replace(record, parts=parts))


def hasten(state: State, record: JobRecord, those: Collection[PartRecord], now: float) -> JobRecord:
    """Let those parts that were put off take their turn; returns the job as it is now."""
    put_off = [part for part in those if part.is_put_off]
    for part in put_off:
        state.send(part.cluster, Hasten(job=record.id, attempt=record.attempt))
    if put_off:
        parts = tuple(
            replace(p, asked=min(p.asked, now), was_hastened=True) if p in put_off else p
            for p in record.parts
        )
        record = replace(record, parts=parts)
        record = replace(record, deadline=_deadline(state, record, now))
        state.put(record)
        state.out.append(Wake(at=record.deadline or now))
        names = ",".join(part.cluster for part in put_off)
        state.emit(now, EventKind.CLAIMS_HASTENED, record.id, clusters=names)
    return record


def late_clusters(record: JobRecord, now: float) -> tuple[str, ...]:
    """Those of the clusters that an attempt waits for that could have granted their part."""
    parts = [part for part in record.parts if record.queued and part.granted is None]
    late = tuple(part.cluster for part in parts if part.asked <= now)
    return late or tuple(part.cluster for part in parts)


def ungranted(record: JobRecord) -> tuple[str, ...]:
    """The clusters that a queued attempt still waits for."""
    if not record.queued:
        return ()
    return tuple(part.cluster for part in record.parts if part.granted is None)


def why_given_up(state: State, record: JobRecord, now: float) -> str:
    """Reason to give up an attempt that is over its deadline; empty: it goes on waiting."""
    if all(part.state is PartState.PREPARING for part in record.parts):
        return f"not ready within {state.settings.start.prepare_timeout_s:g} s"
    if any(part.is_waiting and part.reason in WILL for part in record.parts):
        return ""
    idle = idle_node_s(state, record, now)
    if idle > 0.0:
        return f"not granted while the others held {idle:.0f} node-seconds"
    if others(state, record, late_clusters(record, now)) is not None:
        waited = now - min(part.sent or part.asked for part in record.parts)
        return f"not granted within {waited:.0f} s"
    return ""


def words_of_hold(reason: str, cluster: str) -> str:
    """Will of a job's user, or of an administrator, that its claim has met in the batch system."""
    return WILL[reason].format(cluster)


def _words_of(state: State, part: PartRecord) -> str:
    """Reason of a claim that waits, in words."""
    said = f" ({part.detail})" if part.detail else ""
    if part.reason in WILL:
        where = "" if part.reason == HELD_BY_ADMIN else "; released there, it goes on"
        return words_of_hold(part.reason, part.cluster) + where
    if part.reason not in {"", OTHERS_FIRST}:
        return f"waits in {part.cluster}: {part.detail}"
    reading = state.clusters[part.cluster].reading
    is_ours = reading is not None and not reading.waiting and not reading.running
    whose = "our own" if is_ours else "other"
    return f"{whose} jobs of {part.cluster} go first{said}"


def in_words(state: State, record: JobRecord, now: float) -> tuple[float | None, str, str] | None:
    """Expected start of a job whose claims wait, the reason, and the same in words."""
    if record.state is not JobState.PREPARING:
        return None
    waiting = [part for part in record.parts if part.is_waiting]
    if not waiting:
        return None
    last = [part for part in waiting if part.asked <= now] or waiting
    starts = [part.expected for part in last if part.expected is not None]
    texts = [_words_of(state, part) for part in last]
    holding = [part.cluster for part in record.parts if part.granted is not None]
    if holding and not record.siblings:
        texts.append(f"{', '.join(holding)} holds its nodes for them")
    if len(last) < len(waiting):
        names = ", ".join(part.cluster for part in waiting if part not in last)
        texts.append(f"{names} is asked for when it is the turn there")
    held = [part.reason for part in last if part.reason in WILL]
    if held and (len(held) == len(last) or not record.siblings):
        return None, held[0], "; ".join(texts)
    if record.siblings:
        return max(now, min(starts)) if starts else None, OTHERS_FIRST, "; ".join(texts)
    start = max(now, *starts) if len(starts) == len(last) else None
    return start, OTHERS_FIRST, "; ".join(texts)


def others(state: State, record: JobRecord, late: Collection[str]) -> tuple[str, ...] | None:
    """The clusters that could take the job without those that were late; None: they could not."""
    job = record.job
    if not late or isinstance(job, WorkflowJob):
        return None
    found, room = [], []
    for name, cluster in state.clusters.items():
        is_allowed = job.clusters is None or name in job.clusters
        is_closed = name in late or name in record.barred or cluster.closed_to(record.user)
        if is_closed or not is_allowed or cluster.drained or not cluster.connected:
            continue
        up = (node for node in cluster.nodes if node.state is NodeState.UP)
        room += [procs_on(job, node, job.shape) for node in up]
        found.append(name)
    return tuple(found) if fit(job.shape, narrowest(record.job), room) else None


def idle_node_s(state: State, record: JobRecord, now: float) -> float:
    """Node-seconds that the parts of this attempt have held without having started."""
    total = 0.0
    for part in record.parts:
        if part.granted is not None:
            until = now if part.started is None else part.started
            total += width_of(state, part) * max(0.0, min(until, now) - part.granted)
    return total


def idle_for_others(state: State, record: JobRecord) -> float:
    """Node-seconds of those that parts held before the last one was granted its nodes."""
    grants = [part.granted for part in record.parts if part.granted is not None]
    return sum(
        width_of(state, part) * (max(grants) - part.granted)
        for part in record.parts
        if part.granted is not None
    )


def _held(state: State, record: JobRecord) -> float:
    """Nodes that the parts of this attempt hold now."""
    return sum(
        width_of(state, part)
        for part in record.parts
        if part.granted is not None and part.state not in PART_ENDED
    )
