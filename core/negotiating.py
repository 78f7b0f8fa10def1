"""Claims that may wait in a batch system's queue, and how the parts of a job meet.

Where other jobs go first, a part is asked for by its shape and takes its turn in its cluster's
queue. One part is a plain batch job then. Several are a negotiation: all are asked for, those on
the quicker clusters for a later begin, as far as the last waits there tell; a part that is granted
its nodes holds them for the others. When the last has come, every part is told of all nodes, and
the two-phase start goes on as ever (`core.starting`). Before that, the attempt is given up as soon
as its parts have held `max_idle_node_s` idle, or when it has waited for so long that another
combination of clusters is worth trying: all or nothing, and the next attempt leaves out those that
were late, if it can.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import median

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.effects import SaveMeta, Wake
from coalloc.core.base.messages import Arrange
from coalloc.core.base.records import JobRecord, JobState, PartRecord, Wait
from coalloc.core.base.state import State, arrival, procs_of
from coalloc.core.occupation import meeting_place
from coalloc.model.jobs import WorkflowJob
from coalloc.model.parts import PART_ENDED, PartReport, PartState, QueueTerms
from coalloc.model.platform import NodeState
from coalloc.model.reading import NodeReading

Claims = Counter[tuple[str, str]]
"""How many wait, by cluster and user."""
REMEMBERED_WAITS = 24
"""Of each cluster: the newest."""
ENOUGH_WAITS = 2
"""Waits of claims of about the same width count alone where there are so many."""
WAITS_KEY = "waits."
"""Begins the store's keys of them, before the cluster's name."""
WORTH_WAITING_S = 2.0
"""A part that would come earlier than the last by less than this, or than half of what that waits,
is not put off, seconds: what is known of waits is rough."""
MOST_DOUBLINGS = 6
OTHERS_FIRST = "others_first"
"""Reason of a claim that was refused, or waits, because other jobs go first."""


def may_queue(state: State, clusters: Collection[str]) -> bool:
    """Whether claims of ours may wait in all of these clusters' queues."""
    readings = [state.clusters[name].reading for name in clusters]
    return all(reading is not None and reading.queues for reading in readings)


def is_crowded(state: State, cluster: str) -> bool:
    """Whether jobs that are not ours wait in this cluster's queue."""
    reading = state.clusters[cluster].reading
    return reading is not None and reading.waiting > 0


def waiting_claims(state: State) -> Claims:
    """Claims that wait, by cluster and user."""
    return Counter(
        (part.cluster, record.user)
        for record in state.placed_records()
        for part in record.parts
        if part.is_waiting
    )


def parts_to_queue(
    state: State, record: JobRecord, now: float, *, expected: float | None
) -> tuple[PartRecord, ...]:
    """The parts with the time from which each may be granted.

    Parameters
    ----------
    expected : float or None
        When the plan has them start; None: at once.
    """
    ahead = {part.cluster: jobs_ahead(state, part.cluster) for part in record.parts}
    widths = {part.cluster: width_of(state, part) for part in record.parts}
    expect = {
        name: expected_wait(state, name, count, width=widths[name]) for name, count in ahead.items()
    }
    longest = max(expect.values())
    parts = []
    for part in record.parts:
        name = part.cluster
        then = expected_wait(state, name, ahead[name], width=widths[name], put_off=True)
        early = longest - then
        is_early = early > max(WORTH_WAITING_S, longest / 2.0) and expect[name] < longest
        parts.append(
            replace(
                part,
                asked=now + (early if is_early else 0.0),
                ahead=ahead[part.cluster],
                was_put_off=is_early,
                expected=expected,
            )
        )
    return tuple(parts)


def jobs_ahead(state: State, cluster: str) -> int:
    """Jobs in a cluster's queue, of others and ours."""
    reading = state.clusters[cluster].reading
    ours = sum(count for (name, _), count in waiting_claims(state).items() if name == cluster)
    return ours + (0 if reading is None else reading.waiting)


def expected_wait(
    state: State, cluster: str, ahead: int, *, width: float | None = None, put_off: bool = False
) -> float:
    """Expected wait of a claim behind so many jobs, as far as the last ones tell, seconds.

    Where none of ours has waited yet, as long as the local jobs did that run now.

    Parameters
    ----------
    width : float or None
        Nodes that it asks for; None: any.
    put_off : bool
        From its later begin on: where the queue keeps places, it has come to its head by then.
    """
    waits = state.waits.get(cluster, ())
    alike = _of_width([wait for wait in waits if wait.was_put_off], width)
    if put_off and alike:
        return median(wait.seconds for wait in alike)
    own = _of_width([wait for wait in waits if not wait.was_put_off], width)
    if own:
        return median(wait.seconds / (1 + wait.ahead) for wait in own) * (1 + ahead)
    reading = state.clusters[cluster].reading
    if reading is None or not reading.waiting:
        return 0.0
    local = [Wait(seconds=seconds, width=nodes) for seconds, nodes in reading.waited]
    return median(w.seconds for w in _of_width(local, width)) if local else 0.0


def _of_width(waits: list[Wait], width: float | None) -> list[Wait]:
    """Those of claims about as wide, where there are enough of them; else all."""
    if width is None:
        return waits
    alike = [wait for wait in waits if width <= 2.0 * wait.width <= 4.0 * width]
    return alike if len(alike) >= ENOUGH_WAITS else waits


def width_of(state: State, part: PartRecord) -> float:
    """Nodes that a part asks for."""
    return _nodes_held(state.clusters[part.cluster], part.nodes)


def kept_waits(text: str) -> tuple[Wait, ...]:
    """The waits of one cluster, as the store has them."""
    return tuple(Wait(*fields) for fields in json.loads(text))


def terms(state: State, record: JobRecord, part: PartRecord, now: float) -> QueueTerms:
    """Terms on which a part's claim may wait."""
    cluster = state.clusters[part.cluster]
    held = _nodes_held(cluster, part.nodes)
    alone = len(record.parts) == 1
    is_free = part.expected is None and part.asked <= now
    return QueueTerms(
        at_once=is_free and not is_crowded(state, part.cluster),
        begin_s=max(0.0, part.asked - now),
        hold_s=0.0 if alone else state.settings.max_idle_node_s / max(held, 1e-3),
        avoid=tuple(
            node.name
            for node in (cluster.reading.nodes if cluster.reading is not None else ())
            if node.name in cluster.drained_nodes or not suits(record, node)
        ),
    )


def suits(record: JobRecord, node: NodeReading) -> bool:
    """Whether a node has what a process of the job needs; tasks ask for nothing."""
    job = record.job
    if isinstance(job, WorkflowJob):
        return True
    enough = node.memory_mb is None or node.memory_mb >= job.memory_mb_per_proc
    return enough and set(job.features).issubset(node.features)


def went_on(state: State, record: JobRecord, before: PartRecord, now: float) -> JobRecord:
    """Follow a part that has begun to wait, or has its nodes; returns the job as it is now."""
    part = record.parts[before.index]
    is_granted = before.granted is None and part.granted is not None
    has_joined = part.state is PartState.WAITING and before.state is not PartState.WAITING
    if not record.queued or not (is_granted or has_joined):
        return record
    if is_granted:
        waited = max(0.0, now - part.asked)
        _remember(state, before, waited)
        if before.is_waiting:
            if state.pending_jobs:
                state.rounds.want("claim_granted")
            state.emit(
                now,
                "claim_granted",
                record.id,
                cluster=part.cluster,
                nodes=dict(part.nodes),
                waited_s=round(waited, 3),
            )
    else:
        state.emit(now, "claim_queued", record.id, cluster=part.cluster)
    if record.state is not JobState.PREPARING or any(p.state in PART_ENDED for p in record.parts):
        return record
    if all(p.granted is not None for p in record.parts):
        record = _arranged(state, record, before, now)
    else:
        record = replace(record, deadline=_deadline(state, record, now))
    state.put(record)
    state.out.append(Wake(at=record.deadline or now))
    return record


def _remember(state: State, part: PartRecord, waited_s: float) -> None:
    """Keep how long a claim has waited, for the next negotiations, also of a later daemon."""
    wait = Wait(
        seconds=waited_s,
        ahead=part.ahead,
        was_put_off=part.was_put_off,
        width=width_of(state, part),
    )
    waits = (*state.waits.get(part.cluster, ()), wait)[-REMEMBERED_WAITS:]
    state.waits[part.cluster] = waits
    state.out.append(SaveMeta(key=f"{WAITS_KEY}{part.cluster}", value=json.dumps(waits)))


def _arranged(state: State, record: JobRecord, last: PartRecord, now: float) -> JobRecord:
    """Every part has its nodes: tell all of them, unless a single one has what it asked for."""
    record = replace(record, deadline=now + state.settings.prepare_timeout_s)
    only = len(record.parts) == 1 and dict(record.parts[0].nodes) == dict(last.nodes)
    if record.arranged or only:
        return record
    place = meeting_place(state, record, record.parts)
    record = replace(record, arranged=True, rendezvous=place)
    all_nodes = {node: count for part in record.parts for node, count in part.nodes.items()}
    for part in record.parts:
        order = Arrange(
            job=record.id, attempt=record.attempt, all_nodes=all_nodes, rendezvous=place
        )
        state.send(part.cluster, order)
    return record


def _deadline(state: State, record: JobRecord, now: float) -> float:
    """Time at which the attempt is given up, or looked at again, unless a part is granted."""
    limits = state.settings
    patience = limits.max_wait_s * 2.0 ** min(record.refusals, MOST_DOUBLINGS)
    until = max(part.asked for part in record.parts) + patience
    held = _held(state, record)
    if held <= 0.0:
        return until
    left = limits.max_idle_node_s - idle_node_s(state, record, now)
    return min(until, now + max(0.0, left) / held)


def gives_way(state: State, record: JobRecord) -> tuple[JobRecord, JobRecord] | None:
    """Two jobs of which each holds what the other waits for: the one that came later, the other.

    Neither would ever go on: before either has held its nodes for long, one gives them back.
    """
    if not record.queued or record.state is not JobState.PREPARING or len(record.parts) < 2:
        return None
    for other in state.placed_records():
        if other.id == record.id or not other.queued or other.state is not JobState.PREPARING:
            continue
        if _awaits(record, other) and _awaits(other, record):
            older, younger = sorted((record, other), key=lambda each: arrival(each.id))
            return younger, older
    return None


def _awaits(one: JobRecord, other: JobRecord) -> bool:
    """Whether one job waits on a cluster where the other holds nodes."""
    holding = {part.cluster for part in other.parts if part.granted is not None}
    return len(other.parts) > 1 and not holding.isdisjoint(ungranted(one))


def still_waits(state: State, part: PartRecord, report: PartReport, record: JobRecord) -> None:
    """Take in what is new of a claim that waits; the next report says it again after a restart."""
    changed = replace(
        part, expected=report.expected or part.expected, reason=report.reason, detail=report.detail
    )
    if changed != part:
        parts = tuple(changed if p is part else p for p in record.parts)
        state.index(replace(record, parts=parts))


def ungranted(record: JobRecord) -> tuple[str, ...]:
    """The clusters that a queued attempt still waits for."""
    if not record.queued:
        return ()
    return tuple(part.cluster for part in record.parts if part.granted is None)


def why_given_up(state: State, record: JobRecord, now: float) -> str:
    """Reason to give up an attempt that is over its deadline; empty: it goes on waiting."""
    if all(part.state is PartState.PREPARING for part in record.parts):
        return f"not ready within {state.settings.prepare_timeout_s:g} s"
    idle = idle_node_s(state, record, now)
    if idle > 0.0:
        return f"not granted while the others held {idle:.0f} node-seconds"
    if others(state, record, ungranted(record)) is not None:
        waited = now - min(part.asked for part in record.parts)
        return f"not granted within {waited:.0f} s"
    return ""


def in_words(record: JobRecord, now: float) -> tuple[float | None, str, str] | None:
    """Expected start of a job whose claims wait, the reason, and the same in words."""
    if record.state is not JobState.PREPARING:
        return None
    waiting = [part for part in record.parts if part.is_waiting]
    if not waiting:
        return None
    starts = [part.expected for part in waiting if part.expected is not None]
    texts = [
        f"other jobs of {part.cluster} go first" + (f" ({part.detail})" if part.detail else "")
        for part in waiting
    ]
    holding = [part.cluster for part in record.parts if part.granted is not None]
    if holding:
        texts.append(f"{', '.join(holding)} holds its nodes for them")
    start = max(now, *starts) if len(starts) == len(waiting) else None
    return start, OTHERS_FIRST, "; ".join(texts)


def others(state: State, record: JobRecord, late: Collection[str]) -> tuple[str, ...] | None:
    """The clusters that could take the job without those that were late; None: they could not."""
    job = record.job
    if not late or isinstance(job, WorkflowJob):
        return None
    found, slots = [], 0
    for name, cluster in state.clusters.items():
        is_allowed = job.clusters is None or name in job.clusters
        if name in late or not is_allowed or cluster.drained or not cluster.connected:
            continue
        nodes = cluster.reading.nodes if cluster.reading is not None else ()
        fitting = [n for n in nodes if n.state is NodeState.UP and suits(record, n)]
        slots += sum(node.slots for node in fitting)
        found.append(name)
    return tuple(found) if slots >= procs_of(record) else None


def idle_node_s(state: State, record: JobRecord, now: float) -> float:
    """Node-seconds that the parts of this attempt have held without having started."""
    total = 0.0
    for part in record.parts:
        if part.granted is not None:
            until = now if part.started is None else part.started
            held = _nodes_held(state.clusters[part.cluster], part.nodes)
            total += held * max(0.0, min(until, now) - part.granted)
    return total


def _held(state: State, record: JobRecord) -> float:
    """Nodes that the parts of this attempt hold now."""
    return sum(
        _nodes_held(state.clusters[part.cluster], part.nodes)
        for part in record.parts
        if part.granted is not None and part.state not in PART_ENDED
    )


def _nodes_held(cluster: ClusterState, nodes: Mapping[str, int]) -> float:
    """Nodes, those of which only some slots are held in parts."""
    reading = cluster.reading
    slots = {} if reading is None else {node.name: node.slots for node in reading.nodes}
    return sum(min(1.0, count / max(1, slots.get(name, 1))) for name, count in nodes.items())
