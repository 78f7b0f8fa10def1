"""Packs: members of an array that one runner runs one after the other, on the same slot.

A start costs about as much as a task of some milliseconds, and in a batch system of some seconds.
So where the members of an array are known to be short, the first one takes as many of the next
along as make `start.members_s` of work, or `SLOW` times that. A claim with members that waits in a
queue has no siblings in others: they could not be withdrawn one by one. While it is not known
whether they are short, no more of them than a batch system has slots are put into its queue, for
`TRIAL_S` at most. Members are jobs like any other, each with its attempt and its part. What is
theirs alone:

- They are prepared with the first, by its order, and started with it: in the step that decides its
  start all of them become `starting`. What takes one out before that takes out all.
- After it, only a report that one has not begun, and never will, lets it wait again
  (`requeue.give_back`); nothing in here ever concludes that.
- One of those that live has the pack's slot, and the others have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from statistics import fmean

from coalloc.core.base.messages import MEMBERS, SLOW_CLAIMS
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.state import State
from coalloc.core.commands.reservations import is_kept_from
from coalloc.core.jobs.dependencies import delayed, open_needs
from coalloc.core.learning.estimates import UserProgram, best_known
from coalloc.core.sharing.priority import project_of
from coalloc.model.jobs import RigidJob
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import Member, PartState
from coalloc.model.values import replace

MOST_MEMBERS = 200
"""Of a pack: no member is expected to take less than that share of what is taken ahead."""
SLOW = 30.0
"""A claim in a batch system costs about so many times what another one does."""
SHORT = 1.0 / 3.0
"""Members are short of which most took no more than this share of what is taken ahead."""
WORTH = 1.0 / 8.0
"""So much of it at least, though free slots be left: about what a claim costs."""
MOST = 0.9
"""So many of the last runs."""
AMONG_OTHERS = 0.5
"""Of it, so much where shares count and jobs of others have ended in the last `LATELY_S`."""
LATELY_S = 60.0
TRIAL_S = 30.0
"""So long, from the claim of the first, members wait to be known as short, seconds."""


def with_followers(
    state: State, first: JobRecord, now: float, *, is_later: bool = False
) -> JobRecord:
    """A member that is about to be prepared, with those placed behind it that run after it.

    `is_later`: its claim takes its turn in a queue, where nothing else is planned before it.
    """
    room, order = _room(state, first, now, is_later=is_later), state.schedule.order
    if room <= 0:
        return first
    pending = (state.jobs[job] for job in islice(state.packs.pending[first.array], 2 * room + 1))
    behind = islice((each for each in pending if _may_follow(state, each, first, now)), room)
    first = replace(first, pack=f"{first.id}:{first.attempt}")
    parts = tuple(replace(part, slots=dict.fromkeys(part.nodes, 0)) for part in first.parts)
    for record in tuple(behind):
        placed = replace(
            record.unplaced(),
            state=JobState.PREPARING,
            attempt=max(record.attempt, record.reserved) + 1,
            parts=parts,
            pack=first.pack,
            planned=first.planned,
            round=first.round,
            policy=first.policy,
            rendezvous=first.rendezvous,
            reason="",
            detail="",
        )
        state.put(placed)
        if order is not None:
            order.drop((record.id, ""))
    return first if state.packs.lives(first.pack) else replace(first, pack="")


def is_on_trial(state: State, record: JobRecord, name: str, now: float) -> bool:
    """Whether a member waits for the end of another one, to be known as short.

    As many as the cluster has slots have a place, the first of them for less than `TRIAL_S`.
    """
    cluster, placed = state.clusters[name], state.packs.placed.get(record.array, {})
    is_enough = len(placed) >= max(cluster.slots, 1) and SLOW_CLAIMS in (cluster.abilities or ())
    if not is_enough or not _ahead_s(state, record, name) or _run_times(state, record):
        return False
    first = state.jobs[next(iter(placed))]
    return now < TRIAL_S + min((part.asked for part in first.parts), default=0.0)


def _ahead_s(state: State, record: JobRecord, name: str) -> float:
    """Seconds of work that a member may take ahead on a cluster, were it short; 0: none."""
    job, tree = record.job, state.sharing.tree
    abilities = state.clusters[name].abilities or ()
    if record.array_index is None or not isinstance(job, RigidJob) or MEMBERS not in abilities:
        return 0.0
    is_plain = job.procs == 1 and job.shape == ONE_SLOT and not job.proc_gbps
    is_special = record.once or record.stream or record.finish_by or record.throttle
    scopes = tree.scopes(project_of(state, record), record.user) if tree.has_limits else ()
    if not is_plain or is_special or any(scope.limits.holds_starts for scope in scopes):
        return 0.0
    return state.settings.start.members_s * (SLOW if SLOW_CLAIMS in abilities else 1.0)


def _run_times(state: State, record: JobRecord) -> tuple[float, ...]:
    """Run times of a job's program, or the one that its user has told, seconds."""
    runs = best_known(state.learning.history, UserProgram.of(record).history_keys)
    is_told = not runs and record.sources.get("base_time") == "user"
    return (record.job.base_time,) if is_told and isinstance(record.job, RigidJob) else runs


def _room(state: State, record: JobRecord, now: float, *, is_later: bool) -> int:
    """Members that may run behind one before anything else is to start on its slot."""
    job, order, (part, *others) = record.job, state.schedule.order, record.parts
    cluster, nodes = state.clusters[part.cluster], part.nodes
    alike = len(state.packs.pending.get(record.array, ()))
    is_along_order = order is not None and record.round == order.round
    if not (is_later or is_along_order or len(state.waiting) <= alike):
        return 0  # A round may know better what comes next there.
    ahead_s, runs = _ahead_s(state, record, part.cluster), _run_times(state, record)
    if not (ahead_s and runs and isinstance(job, RigidJob)) or others:
        return 0
    slowdown = max(1.0, record.planned / job.base_time)
    if sorted(runs)[int(MOST * (len(runs) - 1))] * slowdown > SHORT * ahead_s:
        return 0
    if is_kept_from(state, record.user, nodes, now, now + ahead_s):
        return 0
    each_s = max(fmean(runs) * slowdown, ahead_s / MOST_MEMBERS)
    left_s = ahead_s
    ends = (used.at for (_, user), used in state.sharing.usage.items() if user != record.user)
    if state.settings.priority.shares and max(ends, default=-inf) > now - LATELY_S:
        left_s *= AMONG_OTHERS
    if is_along_order and not is_later:
        left_s = min(left_s, *(_until_others(state, record, node, now + each_s) for node in nodes))
    unended = alike + len(state.packs.placed.get(record.array, ()))
    share = max(-(-unended // max(cluster.slots, 1)), int(WORTH * ahead_s / each_s))
    return min(int(left_s / each_s), share) - 1


def _until_others(state: State, record: JobRecord, node: str, soon: float) -> float:
    """Seconds until the plan has another job on a node, or keeps it for others.

    Those that are due soon take their turn after a pack, which is as long as anybody may wait.
    """
    order = state.schedule.order
    assert order is not None
    others = (e for e in order.fronts(node) if e[1] or not e[0].startswith(f"{record.array}_"))
    starts = [order.placements[entry].start for entry in others if entry in order.placements]
    kept = [each.start for each in order.kept.get(node, ()) if record.id not in each.jobs]
    return max(0.0, min([*kept, *(start for start in starts if start > soon)], default=inf) - soon)


def _may_follow(state: State, record: JobRecord, first: JobRecord, now: float) -> bool:
    """Whether a waiting member of the first one's array may start where that does."""
    is_changed = state.round is not None and record.id in state.round.changed
    is_unknown = record.reserved > record.attempt and bool(state.presence.unreconciled)
    if record.id == first.id or record.id in state.findings.aside or is_changed or is_unknown:
        return False
    names = ("batch", "priority", "barred", "finish_by", "throttle", "cancelled_by")
    is_alike = all(getattr(record, name) == getattr(first, name) for name in names)
    if not is_alike or replace(record.job, id=first.id) != first.job or open_needs(state, record):
        return False
    return max(record.not_before, record.opens(now), delayed(state, record)) <= now


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
    for record in living(state, first.pack):
        if record.id != first.id:
            parts = tuple(replace(part, state=PartState.READY) for part in record.parts)
            state.put(replace(record, state=JobState.STARTING, parts=parts))
    if count := len(state.packs.living.get(first.pack, ())):
        state.log("members_started", job=first.id, user=first.user, behind=count - 1)


def hand_on(state: State, pack: str) -> None:
    """Have one member that lives hold the slot of the pack: one that has begun, or any."""
    members = list(living(state, pack))
    holder = max(members, key=lambda record: (record.started is not None, record.placed_slots))
    for record in members:
        (part,) = record.parts
        slots = {} if record is holder else dict.fromkeys(part.nodes, 0)
        if record.started is None and part.slots != slots:
            state.put(replace(record, parts=(replace(part, slots=slots),)))
