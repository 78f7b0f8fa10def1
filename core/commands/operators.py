"""Commands of operators: priorities, draining, reservations, and when rounds begin."""

from __future__ import annotations

from coalloc.core.base.events import Requested
from coalloc.core.base.requests import (
    Done,
    Drain,
    PauseRounds,
    Refused,
    Reserve,
    Resume,
    ResumeRounds,
    SetPriority,
    Unreserve,
)
from coalloc.core.base.round_control import OPERATOR
from coalloc.core.base.state import State
from coalloc.core.commands import queue
from coalloc.core.commands import reservations as reserving
from coalloc.model.event_kinds import EventKind


def operated(state: State, event: Requested, now: float) -> None:
    """Do what an operator asks for; each is recorded."""
    if not event.operator:
        refusal = Refused(code="not_allowed", message="only an operator may do this")
        queue.answered(state, event, refusal)
        return
    match event.command:
        case SetPriority() as command:
            queue.set_priority(state, event, command, now)
            return
        case Drain(target=target) | Resume(target=target) as command:
            drain = isinstance(command, Drain)
            # one line, as it is kept
            reason = " ".join(command.reason.split()) if isinstance(command, Drain) else ""
            if not _switch(state, target, reason, drain=drain):
                message = f"there is no cluster and no node {target}"
                queue.answered(state, event, Refused(code="not_found", message=message))
                return
            kind = EventKind.DRAINED if drain else EventKind.RESUMED
            state.emit(now, kind, target=target, user=event.user, reason=reason)
            state.log(kind, target=target, user=event.user, reason=reason)
            state.save_drained()
            if not drain:
                state.rounds.happened("cluster_returned")
        case Reserve() as command:
            reserving.reserve(state, event, command, now)
            return
        case Unreserve() as command:
            reserving.unreserve(state, event, command, now)
            return
        case PauseRounds():
            state.rounds.paused = True
            state.save_paused()
            state.emit(now, EventKind.ROUNDS_PAUSED, user=event.user)
            state.log("rounds_paused", user=event.user)
        case ResumeRounds():
            state.rounds.paused = False
            state.save_paused()
            state.emit(now, EventKind.ROUNDS_RESUMED, user=event.user)
            state.log("rounds_resumed", user=event.user)
            state.rounds.want("resumed")
        case _:
            state.emit(now, EventKind.ROUND_REQUESTED, user=event.user)
            if not state.rounds.is_solving:
                state.rounds.wanted = ""
            state.rounds.want(OPERATOR)
    queue.answered(state, event, Done(body={}))


def _switch(state: State, target: str, reason: str, *, drain: bool) -> bool:
    if target in state.clusters:
        cluster = state.clusters[target]
        cluster.drained = drain or not cluster.configured
    elif target in state.node_cluster():
        pass
    elif drain or target not in state.maintenance.drained:
        return False
    if drain:
        state.maintenance.drained[target] = reason
    else:
        state.maintenance.drained.pop(target, None)
    return True
