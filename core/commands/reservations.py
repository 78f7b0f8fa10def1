"""Reservations that operators make: nodes kept for some users, or for nobody, for a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from itertools import count
from math import inf
from typing import Any

import msgspec

from coalloc.core.base.effects import SaveMeta, Wake
from coalloc.core.base.events import Requested
from coalloc.core.base.requests import CommandAnswer, Done, RequestError, Reserve, Unreserve
from coalloc.core.base.state import State
from coalloc.core.base.state_tables import Reserved
from coalloc.model.event_kinds import EventKind
from coalloc.model.platform import NodeState
from coalloc.model.ranges import EVENT
from coalloc.model.snapshot import Reservation

META = "reservations"
MOST = 1000
"""Reservations at once."""


def reserve(state: State, event: Requested, command: Reserve, now: float) -> CommandAnswer:
    """Keep nodes."""
    made = _made(state, event, command, now)
    state.maintenance.reserved[made.name] = made
    _save(state)
    _wake(state)
    if state.round is not None:  # its plan does not know of this
        state.round.changed.update(state.waiting)
    fields: dict[str, Any] = {"name": made.name, "nodes": ",".join(made.nodes), "start": made.start}
    fields |= {"end": None if made.end >= EVENT.high else made.end, "users": ",".join(made.users)}
    fields |= {"user": event.user, "reason": made.reason}
    state.tell(now, EventKind.RESERVED, **fields)
    state.rounds.want("reserved")
    running = [  # They may run into it, by their time limits, and are not ended.
        record.id
        for record in state.placed_records()
        if record.user not in made.users
        and (record.started or made.start) + (record.job.time_limit or record.planned) > made.start
        and any(node in made.nodes for part in record.parts for node in part.nodes)
    ]
    return Done(body={"reservation": made.name, "nodes": list(made.nodes), "running": running})


def unreserve(state: State, event: Requested, command: Unreserve, now: float) -> CommandAnswer:
    """Take a reservation back."""
    if command.name not in state.maintenance.reserved:
        raise RequestError("not_found", f"there is no reservation {command.name}")
    _end(state, command.name, now, event.user)
    return Done()


def end_due(state: State, now: float) -> None:
    """Forget the reservations whose time is over."""
    for name in [name for name, kept in state.maintenance.reserved.items() if kept.end <= now]:
        _end(state, name, now, "")
    _wake(state)


def views(state: State, known: Collection[str]) -> list[Reservation]:
    """The reservations as planning sees them, those of known nodes."""
    if not state.maintenance.reserved:
        return []
    of: dict[str, list[str]] = defaultdict(list)
    if any(kept.users for kept in state.maintenance.reserved.values()):
        for record in (*state.waiting_records(), *state.placed_records()):
            of[record.user].append(record.id)
    found = []
    for kept in state.maintenance.reserved.values():
        nodes = tuple(node for node in kept.nodes if node in known)
        jobs = tuple(job for user in kept.users for job in of[user])
        if nodes:
            found.append(
                Reservation(id=kept.name, nodes=nodes, start=kept.start, end=kept.end, jobs=jobs)
            )
    return found


def is_kept_from(state: State, user: str, nodes: Collection[str], start: float, end: float) -> bool:
    """Test if one of the nodes is kept for others at some time in [start, end)."""
    return any(
        kept.start < end
        and kept.end > start
        and user not in kept.users
        and any(node in nodes for node in kept.nodes)
        for kept in state.maintenance.reserved.values()
    )


def read_reserved(text: str) -> dict[str, Reserved]:
    """Reservations from the store."""
    kept = msgspec.json.decode(text or "[]", type=list[Reserved])
    return {each.name: each for each in kept}


def _wake(state: State) -> None:
    """Be called when the next of them ends."""
    due = min((kept.end for kept in state.maintenance.reserved.values()), default=EVENT.high)
    if due != state.maintenance.reserved_due and due < EVENT.high:
        state.out.append(Wake(at=due))
    state.maintenance.reserved_due = due


def _save(state: State) -> None:
    kept = msgspec.json.encode([*state.maintenance.reserved.values()])
    state.out.append(SaveMeta(key=META, value=kept.decode()))


def _end(state: State, name: str, now: float, user: str) -> None:
    del state.maintenance.reserved[name]
    _save(state)
    state.tell(now, EventKind.UNRESERVED, name=name, user=user)
    state.rounds.want("unreserved")


def _made(state: State, event: Requested, command: Reserve, now: float) -> Reserved:
    """The reservation that is asked for; nothing is kept yet."""
    free = (f"r{number}" for number in count(1) if f"r{number}" not in state.maintenance.reserved)
    name = command.name or next(free)
    if name in state.maintenance.reserved:
        raise RequestError("wrong_state", f"there is a reservation {name} already")
    if len(state.maintenance.reserved) >= MOST:
        raise RequestError("too_many", f"there are {MOST} reservations already")
    start = now if command.start is None else command.start
    end = EVENT.high if command.duration_s is None else start + command.duration_s
    if not (EVENT.holds(start) and now <= end <= EVENT.high and start < end < inf):
        raise RequestError("bad_request", "its time is over, or has no length")
    nodes = _nodes(state, command, start, end)
    for kept in state.maintenance.reserved.values():
        both = sorted(set(kept.nodes) & set(nodes))
        if both and kept.start < end and kept.end > start:
            raise RequestError("wrong_state", f"{both[0]} is in reservation {kept.name} then")
    return Reserved(
        name=name,
        nodes=nodes,
        start=max(start, now),
        end=end,
        users=tuple(dict.fromkeys(command.users)),
        by=event.user,
        reason=" ".join(command.reason.split()),
    )


def _nodes(state: State, command: Reserve, start: float, end: float) -> tuple[str, ...]:
    cluster_of = state.node_cluster()
    named: dict[str, None] = {}
    for target in command.targets:
        if target in state.clusters:
            members = [node for node, cluster in cluster_of.items() if cluster == target]
            if not members:
                message = f"cluster {target} has not been read; name its nodes when it has"
                raise RequestError("wrong_state", message)
            named |= dict.fromkeys(members)
        elif target in cluster_of:
            named[target] = None
        else:
            raise RequestError("not_found", f"there is no cluster and no node {target}")
    if not named:
        raise RequestError("bad_request", "targets: no node is named")
    if command.count is None:
        return tuple(named)
    if not 1 <= command.count <= len(named):
        message = f"count: {command.count} is outside 1..{len(named)}, the nodes that are named"
        raise RequestError("bad_request", message)
    return _freest(state, named, command.count, start, end)


def _freest(
    state: State, nodes: Collection[str], count: int, start: float, end: float
) -> tuple[str, ...]:
    """So many of the nodes: up, not reserved then, and free the soonest."""
    busy: dict[str, float] = {}
    for record in state.placed_records():
        begun = record.started if record.started is not None else record.submitted
        for part in record.parts:
            for node in part.nodes:
                busy[node] = max(busy.get(node, 0.0), begun + record.planned)
    for cluster in state.clusters.values():
        for work in cluster.running:
            for node in work.nodes:
                busy[node] = max(busy.get(node, 0.0), work.end)
    up = {
        node.name
        for cluster in state.clusters.values()
        for node in cluster.nodes
        if node.state is NodeState.UP
    }
    taken = {
        node
        for kept in state.maintenance.reserved.values()
        if kept.start < end and kept.end > start
        for node in kept.nodes
    }
    ranked = sorted(
        nodes, key=lambda node: (node in taken, node not in up, max(busy.get(node, start), start))
    )
    return tuple(sorted(ranked[:count], key=list(nodes).index))
