"""Jobs that take their turn in the clusters' own queues, along the plan.

A job whose nodes are free now is claimed now, as always. Where jobs of others wait, free nodes
are rarely left for it: what the plan has later on such a cluster is sent into its queue at once,
in the plan's order, up to `max_waiting` claims of each user, and the batch system decides when it
runs. Where no job of others waits, our own order is kept, and nothing is sent ahead of its time.
A task of a workflow is sent as soon as its parents have ended. Behind all these come pieces of
divisible jobs, each of one node, while fewer than half of those claims wait.

Policies that plan starts of now only leave a job that does not fit now without a placement. On
crowded clusters it would never fit: it is sent to one that can hold it, the quickest of late, or
over as few as can, within what their links have left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from coalloc.core.base.clusters import ClusterState
from coalloc.core.base.composites import ChunkPool
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import RoundState, State
from coalloc.core.jobs.avoided_nodes import avoided
from coalloc.core.jobs.deadlines import misses
from coalloc.core.jobs.dependencies import open_needs
from coalloc.core.jobs.eligibility import (
    bound_text,
    is_open,
    is_open_to,
    offered,
    owner_of,
    run_into,
    verdict_of,
    widest,
)
from coalloc.core.jobs.occupation import LINK_TOLERANCE, loads_of, misfit_of_links
from coalloc.core.jobs.offers import room_on
from coalloc.core.jobs.suitable_nodes import fit, laid_out, least_slots
from coalloc.core.sharing.limits import holds, start_of, trimmed
from coalloc.core.starts.negotiation import may_queue, others, suits, ungranted
from coalloc.core.starts.packs import is_on_trial
from coalloc.core.starts.placements import (
    NOW_S,
    Commitment,
    divisible,
    place,
    place_pieces,
    startable,
)
from coalloc.core.starts.siblings import may_be_one
from coalloc.core.starts.waits import (
    expected_wait,
    fits_share,
    has_room,
    has_share,
    is_crowded,
    is_shared,
    jobs_ahead,
)
from coalloc.model.cost import piece_time, run_time, within_limit
from coalloc.model.formats.nodeset import named_nodes
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob
from coalloc.model.plan import Placement, Plan, Reason
from coalloc.model.platform import NodeState
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import NodeReading
from coalloc.model.split import low_side, split

LEFT_OUT = frozenset({Reason.NOT_SELECTED, Reason.OUT_OF_TIME})
"""Reasons of jobs that the plan leaves for later without saying when."""
LEAST_POWER = 1e-6
MOST_PIECES = 5
"""Of one user's divisible jobs, in one cluster's queue."""
SOON_S = 1.0
"""A turn of which the plan says nothing is expected after this, seconds, until more is heard."""


def clusters_of(by: Commitment, placement: Placement) -> tuple[str, ...]:
    """The clusters of a placement, in its order; empty where one of its nodes is not known."""
    found = dict.fromkeys(map(by.view.cluster_of.get, placement.nodes))
    return () if None in found else tuple(found)  # type: ignore[arg-type]


def may_wait(by: Commitment, record: JobRecord, placement: Placement) -> bool:
    """Whether the claims of a job may wait in the queues of all its clusters."""
    names = clusters_of(by, placement)
    if record.foreign or not names:
        return False
    are_open = all(has_room(by.state, by.claims, name, record.user, by.now) for name in names)
    return are_open and may_queue(by.state, names, record)


def gathered(by: Commitment, record: JobRecord, placement: Placement) -> Placement:
    """A placement over clusters where others go first; on one of them, if one can hold the job.

    Its parts would not be granted together, and would hold nodes for each other. Where none can
    hold it, they are as even as can be: a part that needs a whole cluster is granted last.
    """
    if record.flow or record.foreign or len(clusters_of(by, placement)) < 2:
        return placement
    if not must_wait(by, placement):
        return placement
    turn = turn_of(by, record, max(placement.start, by.now + SOON_S))
    return placement if turn is None else turn


def must_wait(by: Commitment, placement: Placement) -> bool:
    """Whether jobs of others go first on one of its clusters, in whose queue claims may wait.

    Those who have the nodes beyond a share of ours are such others.
    """
    state, names = by.state, clusters_of(by, placement)
    record = state.jobs.get(placement.job)
    are_first = any(is_crowded(state, name) or has_share(state, name) for name in names)
    return are_first and record is not None and may_queue(state, names, record)


def _instead(by: Commitment, record: JobRecord, placement: Placement) -> Placement:
    """A placement of a job on another cluster, where its claims may wait; else the same."""
    state, claims, now = by.state, by.claims, by.now
    open_ = [name for name in state.clusters if has_room(state, claims, name, record.user, now)]
    if not open_ or not may_be_one(record):
        return placement
    turn = turn_of(by, record, placement.start, among=open_)
    return placement if turn is None or len(clusters_of(by, turn)) > 1 else turn


def queue_up(by: Commitment, current: RoundState, plan: Plan) -> None:
    """Send what the plan has later on crowded clusters into their queues."""
    state, now = by.state, by.now
    if not any(is_shared(state, name, now) or has_share(state, name) for name in state.clusters):
        return
    for placement in _later(by, current, plan):
        record = startable(state, placement, now)
        if record is None or record.opens(now) > now:
            continue
        placement = gathered(by, record, placement)
        if not may_wait(by, record, placement):
            placement = _instead(by, record, placement)
        if misses(record, placement.start, placement.end - placement.start):
            continue
        names = clusters_of(by, placement)
        are_there = all(state.is_usable(state.clusters[name], now) for name in names)
        if not (are_there and may_wait(by, record, placement)):
            continue
        if is_on_trial(state, record, names[0], now):
            continue  # One claim may run many of them, which is not known yet.
        is_ahead = may_be_one(record) and len(names) == 1 and is_shared(state, names[0], now)
        if not (is_ahead or must_wait(by, placement)):
            continue
        if misfit_of_links(loads_of(placement, record, by.view), by.view):
            continue
        if holds(state, by.book, record, placement, now):
            continue
        current.count(place(by, record, placement, queued=True))
        by.book.take(record, *start_of(state, record, placement))
    for pool in [flow for flow in state.composites.values() if isinstance(flow, ChunkPool)]:
        _send_pieces(by, current, pool)


def _send_pieces(by: Commitment, current: RoundState, pool: ChunkPool) -> None:
    """Send pieces of a divisible job into the queues, each for as many chunks as a piece may run.

    No more than half of the claims that may wait: other jobs of its user come before.
    """
    state, now = by.state, by.now
    record = state.jobs[pool.id]
    most = max(1, min(MOST_PIECES, state.settings.start.max_waiting // 2))
    rooms = _rooms(state, record, now)
    for name in [name for name in rooms if is_crowded(state, name)]:
        for node in rooms[name]:
            planned = _piece_on(state, record, pool, node, now)
            if by.claims[name, record.user] >= most or divisible(state, planned, now) is None:
                break
            placement = trimmed(state, record, planned, now)
            if placement is None:
                return
            current.committed.update(place_pieces(by, pool, placement, queued=True))


def _piece_on(
    state: State, record: JobRecord, pool: ChunkPool, node: NodeReading, now: float
) -> Placement:
    """A placement of as many chunks as one piece may run on a node, as if that were idle."""
    job = record.job
    assert isinstance(job, DivisibleJob)
    power, start = max(node.power, LEAST_POWER), now + SOON_S
    each = max(1, int(within_limit(job, state.settings.rounds.piece_s) * power / job.chunk_s))
    procs = room_on(job, node)
    chunks = max(1, min(pool.left(now), procs * each))
    end = start + within_limit(job, piece_time(job.chunk_s, chunks, procs, power))
    return Placement(job=job.id, start=start, end=end, nodes={node.name: procs}, chunks=chunks)


def _later(by: Commitment, current: RoundState, plan: Plan) -> Iterator[Placement]:
    """Later placements of the plan, then jobs that it leaves out."""
    begun = current.snapshot.time + NOW_S
    for placement in sorted(plan.placements, key=lambda p: p.start):
        if placement.start > begun and placement.chunks is None:
            yield placement
    placed = {placement.job for placement in plan.placements}
    for deferred in plan.deferred:
        is_left_out = deferred.reason in LEFT_OUT and deferred.task is None
        if is_left_out and deferred.job not in placed and deferred.job in by.state.waiting:
            turn = turn_of(by, by.state.jobs[deferred.job], by.now + SOON_S)
            if turn is not None:
                yield turn


def turn_of(
    by: Commitment, record: JobRecord, start: float, among: Collection[str] | None = None
) -> Placement | None:
    """A placement of a rigid job as if its clusters were idle; None where there is none."""
    job = record.job
    if not isinstance(job, RigidJob):
        return None
    rooms, links = _rooms(by.state, record, by.now), by.view.link_free
    if among is not None:
        rooms = {name: nodes for name, nodes in rooms.items() if name in among}
    idle = [{node.name: room_on(job, node) for node in nodes} for nodes in rooms.values()]
    slots = [sum(each.values()) for each in idle]
    low = [low_side(job.procs, job.proc_gbps, links[name], LINK_TOLERANCE) for name in rooms]
    if job.one_cluster or job.shape != ONE_SLOT:
        low = [0] * len(slots)
        slots = [job.procs if fit(job.shape, job.procs, each.values()) else 0 for each in idle]
    shares = _even(job.procs, slots, low) or split(job.procs, slots, low)
    if shares is None:
        return None
    nodes: dict[str, int] = {}
    for share, each in zip(shares, idle, strict=True):
        nodes |= laid_out(job.shape, share, each) if share else {}
    used = (node.power for room in rooms.values() for node in room if node.name in nodes)
    power = min(1.0, *used)
    seconds = run_time(job.base_time, job.sigma, max(power, LEAST_POWER))
    end = start + within_limit(job, seconds)
    return Placement(job=record.id, start=start, end=end, nodes=nodes)


def _even(procs: int, slots: Sequence[int], low: Sequence[int]) -> list[int] | None:
    """Spread a job that no cluster can hold evenly: the fuller a cluster, the longer the wait.

    Over as few clusters as can hold it, the first of these; None where one can, or a link would not
    carry its share.
    """
    if max(slots, default=0) >= procs:
        return None
    every = range(len(slots))
    for count in range(2, len(slots) + 1):
        for chosen in combinations(every, count):
            total = sum(slots[k] for k in chosen)
            if total < procs:
                continue
            shares = [procs * slots[k] // total if k in chosen else 0 for k in every]
            for k in sorted(chosen, key=lambda k: shares[k] - slots[k]):
                shares[k] += min(slots[k] - shares[k], procs - sum(shares), 1)
            if all(t <= w or t >= procs - w for t, w in zip(shares, low, strict=True)):
                return shares
    return None


def _crowd(state: State, name: str) -> tuple[float, float]:
    """The queue before a job in a cluster, for each of its nodes, and as time."""
    reading = state.clusters[name].reading if name in state.clusters else None
    if reading is None:
        return 0.0, 0.0
    ahead = jobs_ahead(state, name)
    return ahead / max(1, len(reading.nodes)), expected_wait(state, name, ahead)


def _rooms(state: State, record: JobRecord, now: float) -> dict[str, list[NodeReading]]:
    """The nodes that suit the job, of clusters where it may wait: the quickest cluster first."""
    named = others(state, record, record.late) or record.job.clusters or tuple(state.clusters)
    allowed = [name for name in named if name not in record.barred]
    rooms: dict[str, list[NodeReading]] = {}
    for name in sorted(allowed, key=lambda name: _crowd(state, name)):
        if name in state.clusters and may_queue(state, (name,), record):
            nodes = nodes_for(state, record, name, now)
            if nodes is not None:
                rooms[name] = nodes
    return rooms


def nodes_for(state: State, record: JobRecord, name: str, now: float) -> list[NodeReading] | None:
    """The nodes of a cluster that suit a job; None where the cluster takes no such job now."""
    cluster = state.clusters[name]
    if not state.is_usable(cluster, now):
        return None
    owner = owner_of(record)
    verdict = verdict_of(cluster, record.job, owner)
    if verdict.never or verdict.closed:
        return None
    return [
        node
        for node in offered(cluster, record.job, owner, verdict, {})
        if node.state is NodeState.UP
        and node.name not in cluster.drained_nodes
        and suits(record, node)
    ]


def takers(
    state: State, record: JobRecord, name: str, nodes: Sequence[NodeReading], now: float
) -> list[NodeReading]:
    """Of free nodes of a cluster, those on which a job may start at once, by all that is known.

    What depends on more than the node, such as a bound on the job's nodes, is left to rounds.
    """
    cluster, job, owner = state.clusters[name], record.job, owner_of(record)
    is_closed = name in record.barred or name in record.late or is_crowded(state, name)
    if is_closed or has_share(state, name) or (job.clusters and name not in job.clusters):
        return []
    verdict = verdict_of(cluster, job, owner)
    if verdict.never or verdict.closed or verdict.full or bound_text(verdict, job):
        return []
    if record.batch.reservation or named_nodes(record.batch.passed, "nodelist"):
        return []
    ahead = run_into(state, name, record, verdict, now)
    closed = avoided(cluster, record, now).union(ahead)
    return [
        node
        for node in nodes
        if is_open(verdict, owner.batch, node) and node.name not in closed and suits(record, node)
    ]


def wanted_slots(state: State, name: str, now: float) -> int:
    """Slots of a share that waiting jobs could fill now, or that unclaimed parts will.

    No more than the cluster has: a workflow or a divisible job could fill it. None for jobs that
    only wait while another of ours holds nodes elsewhere until its part here is granted.
    """
    cluster = state.clusters[name]
    if cluster.reading is None or cluster.drained or state.rounds.paused:
        return 0
    most = cluster.slots
    wanted = sum(
        sum(part.held.values())
        for record in state.placed_records()
        for part in record.parts
        if part.cluster == name and part.state is PartState.PREPARING and not record.queued
    )
    if any(
        record.is_meeting
        and name in ungranted(record)
        and len(ungranted(record)) < len(record.parts)
        for record in state.placed_records()
    ):
        return min(wanted, most)
    elsewhere = (
        record.id
        for record in state.placed_records()
        if record.is_in_queues and name not in record.clusters
    )
    for job in (*state.waiting, *elsewhere):
        if wanted >= most:
            return most
        record = state.jobs[job]
        is_allowed = is_open_to(name, cluster, record.job, record.user)
        if is_allowed and record.state is not JobState.HELD and record.opens(now) <= now:
            wanted += _slots(state, record.job, most) if _may_use(state, cluster, record) else 0
    return min(wanted, most)


def _may_use(state: State, cluster: ClusterState, record: JobRecord) -> bool:
    """Whether a waiting job could use nodes of the cluster that are kept for it."""
    if cluster.reading is None or cluster.reading.share is None:
        return True
    verdict = verdict_of(cluster, record.job, owner_of(record))
    if verdict.full or verdict.closed or verdict.never or cluster.reading.cluster in record.barred:
        return False
    return not open_needs(state, record) and fits_share(state, record)


def _slots(state: State, job: Job, most: int) -> int:
    is_one = isinstance(job, RigidJob | MoldableJob)
    return least_slots(state, job, widest(job)) if is_one else most
