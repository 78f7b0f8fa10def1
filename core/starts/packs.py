"""Packs: members of an array that one runner runs one after the other, on the same slot.

A start costs about as much as a task of some milliseconds. So where the members of an array are
known to be short, the first one takes as many of the next along as make `start.members_s` of work.
They are jobs like any other, each with its attempt and its part. What is theirs alone:

- They are prepared with the first, by its order, and started with it: in the step that decides its
  start all of them become `starting`. What takes one out before that takes out all.
- After it, only a report that one has not begun, and never will, lets it wait again
  (`requeue.give_back`); nothing in here ever concludes that.
- One of those that live has the pack's slot, and the others have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from statistics import fmean

from coalloc.core.base.messages import MEMBERS, Member
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.commands.reservations import is_kept_from
from coalloc.core.jobs.dependencies import delayed, open_needs
from coalloc.core.learning.estimates import UserProgram, best_known
from coalloc.core.sharing.limit_book import LimitBook
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import PartState
from coalloc.model.values import replace

MOST_MEMBERS = 200
"""Of a pack."""
LEAST_S = 0.005
"""No member is expected to take less, seconds."""
SHORT = 0.25
"""Members are short that are expected to take no more than this share of what is taken ahead."""
OFTEN = 0.9
"""Such a share of the last runs took no longer than what is expected at the most."""


def followers(
    state: State, book: LimitBook, record: JobRecord, placement: Placement, now: float
) -> list[JobRecord]:
    """The members of an array that start behind this one, which starts now; often none."""
    order = state.schedule.order
    if order is None or record.array_index is None or not _may_lead(state, record, placement):
        return []
    ahead_s = state.settings.start.members_s
    usual_s, most_s = expected_s(record, state)
    job = record.job
    assert isinstance(job, RigidJob)
    slowdown = max(1.0, (placement.end - placement.start) / max(job.base_time, 1e-9))
    each_s = max(usual_s * slowdown, LEAST_S)
    if most_s * slowdown > SHORT * ahead_s or next(book.scopes(record), None) is not None:
        return []
    waiting = state.packs.pending.get(record.array, {})
    (node,) = placement.nodes
    cluster = state.cluster_of(node)
    slots = sum(each.slots for each in cluster.nodes) if cluster is not None else 1
    until = min(_starts_of_others(state, record, node, now), now + ahead_s)
    count = min(int((until - now) / each_s), -(-len(waiting) // max(slots, 1)), MOST_MEMBERS) - 1
    if count <= 0 or is_kept_from(state, record.user, (node,), now, now + ahead_s):
        return []
    found = (state.jobs[name] for name in islice(waiting, 2 * MOST_MEMBERS) if name != record.id)
    return list(islice((each for each in found if _may_follow(state, each, record, now)), count))


def expected_s(record: JobRecord, state: State) -> tuple[float, float]:
    """Run time of a job on full-speed nodes, as far as the last ones like it tell, seconds.

    The mean, and what nearly all took; as its user says, where none has run.
    """
    known = best_known(state.learning.history, UserProgram.of(record).history_keys)
    if known:
        return fmean(known), sorted(known)[int(OFTEN * (len(known) - 1))]
    is_said = isinstance(record.job, RigidJob) and record.sources.get("base_time") == "user"
    said = record.job.base_time if is_said else inf  # type: ignore[union-attr]
    return said, said


def _may_lead(state: State, record: JobRecord, placement: Placement) -> bool:
    """Whether members may be taken behind a job on its nodes."""
    job = record.job
    if not isinstance(job, RigidJob) or sum(placement.nodes.values()) != 1:
        return False
    is_plain = job.shape == ONE_SLOT and not job.proc_gbps and record.finish_by is None
    is_special = record.once or record.stream or record.foreign or record.flow
    (node,) = placement.nodes
    cluster = state.cluster_of(node)
    is_able = cluster is not None and MEMBERS in (cluster.abilities or ())
    return is_plain and is_able and not is_special and state.settings.start.members_s > 0.0


def _starts_of_others(state: State, record: JobRecord, node: str, now: float) -> float:
    """Time at which the plan has something else on a node, or keeps it for others, seconds."""
    order, array = state.schedule.order, f"{record.array}_"
    assert order is not None
    planned = (
        max(order.placements[entry].start, now)
        for entry in order.fronts(node)
        if entry[1] or not entry[0].startswith(array)
        if entry in order.placements
    )
    kept = (each.start for each in order.kept.get(node, ()) if record.id not in each.jobs)
    return min((*planned, *kept), default=inf)


def _may_follow(state: State, record: JobRecord, first: JobRecord, now: float) -> bool:
    """Whether a waiting member of the first one's array may start where that does."""
    if record.not_before > now or record.id in state.findings.aside:
        return False
    if record.reserved > record.attempt and state.presence.unreconciled:
        return False
    if state.round is not None and record.id in state.round.changed:
        return False
    alike = (record.batch, record.priority, record.barred) == (
        first.batch,
        first.priority,
        first.barred,
    )
    if not alike or replace(record.job, id=first.id) != first.job or record.finish_by is not None:
        return False
    return not open_needs(state, record) and max(record.opens(now), delayed(state, record)) <= now


def put_behind(state: State, first: JobRecord, behind: Sequence[JobRecord]) -> JobRecord:
    """Place members behind the first one, which is about to be prepared; returns that."""
    pack = f"{first.id}:{first.attempt}"
    (part,) = first.parts
    waits = replace(part, slots=dict.fromkeys(part.nodes, 0))
    for record in behind:
        attempt = max(record.attempt, record.reserved) + 1
        placed = {name: getattr(first, name) for name in ("planned", "round", "policy")}
        placed |= {"rendezvous": first.rendezvous, "reason": "", "detail": "", "pack": pack}
        placed |= {"state": JobState.PREPARING, "attempt": attempt, "parts": (waits,)}
        state.put(replace(record.unplaced(), **placed))
        if state.schedule.order is not None:
            state.schedule.order.drop((record.id, ""))
    return replace(first, pack=pack)


def behind(state: State, first: JobRecord) -> tuple[Member, ...]:
    """The members behind the first of a pack, as its executor is told."""
    return tuple(
        Member(job=record.id, attempt=record.attempt, array_index=record.array_index or 0)
        for record in living(state, first.pack)
        if record.id != first.id
    )


def living(state: State, pack: str) -> Iterator[JobRecord]:
    """The members of a pack that are placed."""
    return (state.jobs[job] for job in tuple(state.packs.living.get(pack, ())))


def decide(state: State, first: JobRecord) -> None:
    """Have the members behind the first start with it: that is decided once for all."""
    count = 0
    for record in living(state, first.pack):
        if record.id != first.id:
            parts = tuple(replace(part, state=PartState.READY) for part in record.parts)
            state.put(replace(record, state=JobState.STARTING, parts=parts))
            count += 1
    if count:
        state.log("members_started", job=first.id, user=first.user, behind=count)


def hand_on(state: State, pack: str) -> None:
    """Have one member that lives hold the slot of the pack: one that has begun, or any."""
    members = list(living(state, pack))
    begun = [record for record in members if record.started is not None]
    holder = next((r for r in begun or members if any(r.parts[0].held.values())), None)
    holder = holder or next(iter(begun or members))
    for record in members:
        (part,) = record.parts
        slots = {} if record is holder else dict.fromkeys(part.nodes, 0)
        if dict(part.slots) != slots and (record is holder or record.started is None):
            state.put(replace(record, parts=(replace(part, slots=slots),)))
