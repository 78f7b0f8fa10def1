"""Reads an OAR cluster by ``oarnodes`` and ``oarstat``.

Notes
-----
A node is a network address, its slots are its resources of type default: those in the best state
that any of them is in. A local job takes its resources until its walltime; each counts once, for
the job that keeps it longest. Best-effort jobs are not counted: OAR ends them for any other job.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.token import claim_in_name
from coalloc.adapters.oar.commands import ALIVE, ENDING, WAITS, Oar, Row
from coalloc.adapters.oar.settings import OarSettings
from coalloc.adapters.runner.command import BatchError
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Reservation, Running

ENDLESS_S = 365 * 86400.0
LATEST = 4e9
"""Of any time, seconds since 1970."""
DRAINED = "drain"
STATES = {
    "Alive": NodeState.UP,
    DRAINED: NodeState.DRAINING,
    "Suspected": NodeState.DOWN,
    "Absent": NodeState.DOWN,
    "Dead": NodeState.DOWN,
}
"""States of a resource, the best first, and what they mean for new work."""
_NAME = re.compile(r"[\w.-]{1,200}", re.A)


class OarReader:
    """Reads one OAR cluster; `claims` are the tokens of our own parts."""

    def __init__(
        self,
        settings: OarSettings,
        oar: Oar,
        *,
        claims: Callable[[], Collection[str]] = frozenset,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._oar, self._claims, self._clock = settings, oar, claims, clock

    def read(self) -> ClusterReading:
        rows = read_rows(self._oar, "oarnodes")
        jobs = read_rows(self._oar, "oarstat", "-f")
        # After it: a job that is in the queue has its claim on disk.
        return reading(self._settings, rows, jobs, self._claims(), self._clock())


def read_rows(oar: Oar, name: str, *words: str) -> dict[str, Row]:
    """Rows of a command. Raises `AdapterError`."""
    try:
        return oar.rows(name, *words)
    except BatchError as error:
        raise AdapterError(str(error)) from error


def state_word(row: Row) -> str:
    """State of a resource, as a word of `STATES` where it is known."""
    word = str(row.get("state"))
    return DRAINED if word == "Alive" and row.get("drain") == "YES" else word


def hosts_of(settings: OarSettings, rows: Mapping[str, Row]) -> dict[str, tuple[str, list[str]]]:
    """Nodes that are ours to use: the best state of their resources, and which are in it."""
    found: dict[str, dict[str, list[str]]] = {}
    for number, row in rows.items():
        host = str(row.get("network_address"))
        is_ours = settings.only is None or host in settings.only
        if row.get("type") == "default" and is_ours and _NAME.fullmatch(host):
            found.setdefault(host, {}).setdefault(state_word(row), []).append(number)
    order = list(STATES)
    rank = {word: n for n, word in enumerate(order)}
    best = {host: min(words, key=lambda w: rank.get(w, 1.5)) for host, words in found.items()}
    return {host: (best[host], words[best[host]]) for host, words in found.items()}


def nodes_of(settings: OarSettings, rows: Mapping[str, Row]) -> dict[str, NodeReading]:
    """Readings of the nodes, by OAR's names."""
    nodes = {}
    for host, (word, numbers) in hosts_of(settings, rows).items():
        state, name = STATES.get(word, NodeState.DRAINING), settings.published(host)
        nodes[host] = NodeReading(
            name=name,
            power=settings.power_by_node.get(host, settings.power),
            slots=len(numbers),
            state=state,
            reason="" if state is NodeState.UP else word,
            address=host if name != host else "",
        )
    return nodes


def reading(
    settings: OarSettings,
    rows: Mapping[str, Row],
    jobs: Mapping[str, Row],
    claims: Collection[str],
    now: float,
) -> ClusterReading:
    """The cluster by its resources and jobs; `now` is in seconds since 1970."""
    nodes = nodes_of(settings, rows)
    if not nodes:
        raise AdapterError("oarnodes: no resource of type default on any node of ours")
    names = {
        number: node.name
        for host, (_, numbers) in hosts_of(settings, rows).items()
        for number, node in ((each, nodes[host]) for each in numbers)
    }
    local = {n: j for n, j in jobs.items() if claim_in_name(str(j.get("name"))) not in claims}
    words = [*map(state_word, rows.values()), *(str(job.get("state")) for job in local.values())]
    return ClusterReading(
        cluster=settings.cluster,
        nodes=tuple(nodes.values()),
        running=running_jobs(settings.cluster, local, dict(names), now),
        waiting=sum(job.get("state") in WAITS and not _ids(job) for job in local.values()),
        reservations=reservations(settings.cluster, local, names),
        unknown=Counter(f"state {w}" for w in words if w not in STATES.keys() | ALIVE | ENDING),
    )


def running_jobs(
    cluster: str, jobs: Mapping[str, Row], free: dict[str, str], now: float
) -> tuple[Running, ...]:
    """Local jobs, with the resources that they take of these, which are left without them."""
    spans = {}
    for number, job in jobs.items():
        start = min(_seconds(job.get("startTime")) or now, now)
        spans[number] = start, start + (_seconds(job.get("walltime")) or ENDLESS_S)
    found = []
    for number in sorted(spans, key=lambda n: -spans[n][1]):
        job, (start, end) = jobs[number], spans[number]
        if "besteffort" in (job.get("types") or ()):
            continue
        taken = Counter(free.pop(each) for each in _ids(job) if each in free)
        if taken:
            name = f"{cluster}:{number}"
            found.append(Running(id=name, nodes=dict(taken), start=start, end=end, ours=False))
    return tuple(found)


def reservations(
    cluster: str, jobs: Mapping[str, Row], names: Mapping[str, str]
) -> tuple[Reservation, ...]:
    """Nodes of advance reservations that have not begun."""
    found = []
    for number, job in jobs.items():
        kept = job.get("reserved_resources")
        start = _seconds(job.get("scheduledStart"))
        held = {names[each] for each in kept if each in names} if isinstance(kept, dict) else set()
        if held and start:
            end = start + (_seconds(job.get("walltime")) or ENDLESS_S)
            name = f"{cluster}:{number}"
            found.append(Reservation(id=name, nodes=tuple(sorted(held)), start=start, end=end))
    return tuple(found)


def _ids(job: Row) -> list[str]:
    """Numbers of the resources that a job has."""
    said = job.get("assigned_resources")
    return list(dict.fromkeys(map(str, said))) if isinstance(said, list) else []


def _seconds(said: Any) -> float:
    """A time, or a span; 0: none that is understood."""
    return float(said) if isinstance(said, int | float) and 0 < said < LATEST else 0.0
