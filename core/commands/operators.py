"""Commands of operators: priorities, draining, reservations, and when rounds begin."""

from __future__ import annotations

from coalloc.core.base import requests
from coalloc.core.base.effects import SaveMeta
from coalloc.core.base.events import Requested
from coalloc.core.base.round_control import OPERATOR
from coalloc.core.base.state import State
from coalloc.core.commands import queue
from coalloc.core.commands import reservations as reserving
from coalloc.model.event_kinds import EventKind


def operated(state: State, event: Requested, now: float) -> requests.CommandAnswer:
    """Do what an operator asks for; each is recorded, and answered."""
    if not event.operator:
        raise requests.RequestError("not_allowed", "only an operator may do this")
    match event.command:
        case requests.SetPriority() as command:
            return queue.set_priority(state, event, command, now)
        case requests.Drain(target=target) | requests.Resume(target=target) as command:
            drain = isinstance(command, requests.Drain)
            # one line, as it is kept
            reason = " ".join(command.reason.split()) if isinstance(command, requests.Drain) else ""
            if not _switch(state, target, reason, drain=drain):
                raise requests.RequestError(
                    "not_found", f"there is no cluster and no node {target}"
                )
            kind = EventKind.DRAINED if drain else EventKind.RESUMED
            state.tell(now, kind, target=target, user=event.user, reason=reason)
            state.save_drained()
            if not drain:
                state.rounds.happened("cluster_returned")
        case requests.Reserve() as command:
            return reserving.reserve(state, event, command, now)
        case requests.Unreserve() as command:
            return reserving.unreserve(state, event, command, now)
        case requests.PauseRounds() | requests.ResumeRounds() as command:
            paused = state.rounds.paused = isinstance(command, requests.PauseRounds)
            state.out.append(SaveMeta(key="paused", value="1" if paused else ""))
            kind = EventKind.ROUNDS_PAUSED if paused else EventKind.ROUNDS_RESUMED
            state.tell(now, kind, user=event.user)
            if not paused:
                state.rounds.want("resumed")
        case _:
            state.emit(now, EventKind.ROUND_REQUESTED, user=event.user)
            if not state.rounds.is_solving:
                state.rounds.wanted = ""
            state.rounds.want(OPERATOR)
    return requests.Done()


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
