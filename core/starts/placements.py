"""From a placement that starts now to a job under way: the record, its parts, its orders."""

from __future__ import annotations

from collections.abc import Iterable

from coalloc.core.base.composites import (
    REST,
    ChunkPool,
    PieceShare,
    WorkflowState,
    is_stopping,
    shares,
)
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.jobs.dependencies import open_needs
from coalloc.core.jobs.occupation import loads_of, meeting_place, occupation, parts_of
from coalloc.core.jobs.workflows import begin, part_record, task_record
from coalloc.core.sharing.limits import LimitBook
from coalloc.core.starts.negotiation import parts_to_queue
from coalloc.core.starts.packs import with_followers
from coalloc.core.starts.siblings import may_be_one
from coalloc.core.starts.two_phase import prepare
from coalloc.core.starts.waits import is_crowded, waiting_claims
from coalloc.model.cost import within_limit
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement
from coalloc.model.ranges import SPAN
from coalloc.model.values import replace

NOW_S = 1e-6
"""A placement that starts within this of the snapshot's time starts now."""


class Commitment:
    """Placements of one plan that are committed now, each beside those before it.

    `policy` and `round` are the plan's. `nodes`: those that are looked at, in turns whose cost must
    not depend on the others; None: all.
    """

    def __init__(
        self, state: State, now: float, policy: str, round: int, nodes: Iterable[str] | None = None
    ) -> None:
        self.state, self.now, self.policy, self.round = state, now, policy, round
        self.view = occupation(state, now, nodes)
        """What is free; every placement takes its share of it."""
        self.claims = waiting_claims(state)
        self._book: LimitBook | None = None

    @property
    def book(self) -> LimitBook:
        """Use of all limits, with the starts before."""
        if self._book is None:
            self._book = LimitBook(self.state, self.now)
        return self._book


def startable(state: State, placement: Placement, now: float) -> JobRecord | None:
    """The record of a placement that may start now as far as its job is concerned."""
    record = state.jobs.get(placement.job)
    if record is None or open_needs(state, record) or _is_outdated(state, record):
        return None
    if record.reserved > record.attempt and state.presence.unreconciled:
        return None  # A sibling of that attempt may run there.
    if placement.task is None:
        waits = record.state is JobState.PENDING and record.not_before <= now
        return record if waits and record.id not in state.composites else None
    flow = state.composites.get(placement.job)
    if not isinstance(flow, WorkflowState) or not flow.is_ready(placement.task):
        return None
    if record.state not in {JobState.PENDING, JobState.RUNNING} or record.not_before > now:
        return None
    if flow.resting.get(placement.task, 0.0) > now:
        return None
    return task_record(state, flow, placement.task)


def place(
    by: Commitment, record: JobRecord, placement: Placement, *, queued: bool = False
) -> JobRecord:
    """Commit a placement that fits what is free; returns the record without its new state.

    `queued`: its claims may wait in their clusters' queues; where it starts later, they are to.
    """
    state, view, now = by.state, by.view, by.now
    parts = parts_of(placement.nodes, record.job, view)
    loads = loads_of(placement, record, view)
    if isinstance(record.job, RigidJob) and record.flow:
        procs = sum(placement.nodes.values())
        # a run as the kernel plans it may be shorter than one that a job may ask for
        planned = min(max(placement.end - placement.start, SPAN.low), SPAN.high)
        record = replace(record, job=replace(record.job, procs=procs, base_time=planned))
    chosen = replace(
        record,
        attempt=max(record.attempt, record.reserved) + 1,
        parts=parts,
        rendezvous=meeting_place(state, record, parts),
        planned=placement.end - placement.start,
        link_gbps=loads,
        round=by.round,
        policy=by.policy,
        queued=queued,
        arranged=False,
        late=(),
        behind="",
        siblings=0,
        dropped={},
    )
    is_later = placement.start > now + NOW_S
    chosen = with_followers(state, chosen, now, is_later=is_later)
    is_alone = queued and len(parts) == 1 and may_be_one(record)
    if queued:
        # Where others wait, it takes its turn behind them, though its nodes are free.
        takes_turn = is_later or (is_alone and is_crowded(state, parts[0].cluster))
        expected = placement.start if takes_turn else None
        chosen = replace(chosen, parts=parts_to_queue(state, chosen, now, expected=expected))
    if is_alone and not chosen.pack:  # Members that run behind it have one place with it.
        (only,) = chosen.parts
        only = replace(only, planned=chosen.planned, rendezvous=chosen.rendezvous)
        chosen = replace(chosen, parts=(only,), siblings=1, rendezvous="")
    if chosen.flow:
        begin(state, state.jobs[chosen.flow], chosen, now)
    prepare(state, chosen, now)
    view.place(chosen)
    if queued:
        by.claims.update((part.cluster, chosen.user) for part in chosen.parts)
    if state.schedule.order is not None:
        state.schedule.order.drop((placement.job, placement.task or ""))
    return chosen


def _is_outdated(state: State, record: JobRecord) -> bool:
    """The plan of the round is for the job as it was."""
    return state.round is not None and record.id in state.round.changed


def divisible(state: State, placement: Placement, now: float) -> ChunkPool | None:
    """The chunks that a placement may start with now; None where it may not, or is no piece."""
    pool, record = state.composites.get(placement.job), state.jobs.get(placement.job)
    if placement.chunks is None or not isinstance(pool, ChunkPool) or record is None:
        return None
    if record.state not in {JobState.PENDING, JobState.RUNNING} or record.not_before > now:
        return None
    is_over = _is_outdated(state, record) or is_stopping(record, pool) or not pool.left(now)
    return None if is_over or open_needs(state, record) else pool


def place_pieces(
    by: Commitment,
    pool: ChunkPool,
    placement: Placement,
    followers: Iterable[float] = (),
    *,
    queued: bool = False,
) -> list[str]:
    """Commit a placement of a divisible job that fits what is free; the ids of its pieces.

    One piece takes all its chunks where as many are free in a row. None runs for longer than
    `Config.piece_s`, or the job's time limit, unless one chunk does.
    """
    state = by.state
    longest = within_limit(state.jobs[pool.id].job, state.settings.rounds.piece_s)
    placed = []
    for share in shares(pool, placement, longest, followers, by.now):
        record = _piece(state, pool, share)
        mine = replace(placement, nodes=share.nodes, end=placement.start + share.seconds)
        place(by, record, mine, queued=queued)
        placed.append(record.id)
    return placed


def _piece(state: State, pool: ChunkPool, share: PieceShare) -> JobRecord:
    """The record of a piece; what one that is tried again gets no room for goes to a new one."""
    if share.piece == REST:
        record = part_record(state.jobs[pool.id], pool.last + 1)
        return replace(record, chunk_first=share.first, chunks=share.chunks)
    record = state.jobs[pool.job_of(share.piece)]
    rest = record.chunks - share.chunks
    if rest:
        fresh = part_record(state.jobs[pool.id], pool.last + 1)
        fresh = replace(fresh, chunk_first=share.first + share.chunks, chunks=rest)
        fresh = replace(fresh, reason=record.reason, detail=record.detail)
        state.put(replace(fresh, not_before=record.not_before, failures=record.failures))
    return replace(record, chunks=share.chunks)
