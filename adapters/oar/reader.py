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
from typing import TypeVar

from msgspec import Struct, ValidationError, convert

from coalloc.adapters.base import AdapterError
from coalloc.adapters.batch.token import claim_in_name
from coalloc.adapters.oar.commands import ALIVE, ENDING, WAITS, Oar
from coalloc.adapters.oar.settings import OarSettings
from coalloc.adapters.runner.command import BatchError
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Running

ENDLESS_S = 365 * 86400.0
STATES = {
    "Alive": NodeState.UP,
    "drain": NodeState.DRAINING,
    "Suspected": NodeState.DOWN,
    "Absent": NodeState.DOWN,
    "Dead": NodeState.DOWN,
}
"""States of a resource, the best first, and what they mean for new work."""
_NAME = re.compile(r"[\w.-]+", re.A)


class Resource(Struct):
    """One of ``oarnodes``."""

    state: str
    type: str
    network_address: str | None = None
    drain: str = "NO"

    def word(self) -> str:
        """Its state, as a key of `STATES` where it is known."""
        return "drain" if self.state == "Alive" and self.drain == "YES" else self.state


class Job(Struct, rename={"start": "startTime"}):
    """One of ``oarstat``, with times in seconds, since 1970."""

    state: str
    start: float
    name: str | None = None
    walltime: float | None = None
    assigned_resources: tuple[int, ...] = ()
    types: tuple[str, ...] = ()


Row = TypeVar("Row", bound=Struct)
Nodes = dict[str, tuple[NodeReading, list[str]]]
"""Nodes that are ours to use, and the numbers of their resources, by OAR's names."""


class OarReader:
    """Reads one OAR cluster; `claims` are the tokens of our own parts."""

    def __init__(
        self, settings: OarSettings, oar: Oar, claims: Callable[[], Collection[str]]
    ) -> None:
        self._settings, self._oar, self._claims = settings, oar, claims

    def read(self) -> ClusterReading:
        resources = read_rows(self._oar, Resource, "oarnodes")
        jobs = read_rows(self._oar, Job, "oarstat", "-f")
        # After it: a job that is in the queue has its claim on disk.
        return reading(self._settings, resources, jobs, self._claims(), time.time())


def read_rows(oar: Oar, form: type[Row], name: str, *words: str) -> dict[str, Row]:
    """Rows of a command, by their numbers. Raises `AdapterError`."""
    try:
        return {n: convert(row, form) for n, row in oar.rows(name, *words).items()}
    except (BatchError, ValidationError) as error:
        raise AdapterError(f"{name}: {error}") from error


def nodes_of(settings: OarSettings, resources: Mapping[str, Resource]) -> Nodes:
    """Read the nodes that are ours to use."""
    found: dict[str, dict[str, list[str]]] = {}
    for number, row in sorted(resources.items(), key=lambda item: (len(item[0]), item[0])):
        host = row.network_address or ""
        is_ours = settings.only is None or host in settings.only
        if row.type == "default" and is_ours and _NAME.fullmatch(host):
            found.setdefault(host, {}).setdefault(row.word(), []).append(number)
    nodes: Nodes = {}
    for host, numbers in found.items():
        word = min(numbers, key=[*STATES, *numbers].index)
        state, name = STATES.get(word, NodeState.DRAINING), settings.published(host)
        node = NodeReading(
            name=name,
            power=settings.power_by_node.get(host, settings.power),
            slots=len(numbers[word]),
            state=state,
            reason="" if state is NodeState.UP else word,
            address=host if name != host else "",
        )
        nodes[host] = node, numbers[word]
    return nodes


def reading(
    settings: OarSettings,
    resources: Mapping[str, Resource],
    jobs: Mapping[str, Job],
    claims: Collection[str],
    now: float,
) -> ClusterReading:
    """The cluster by its resources and jobs; `now` is in seconds since 1970."""
    nodes = nodes_of(settings, resources)
    if not nodes:
        raise AdapterError("oarnodes: no resource of type default on any node of ours")
    local = {n: job for n, job in jobs.items() if claim_in_name(job.name or "") not in claims}
    words = [*(row.word() for row in resources.values()), *(job.state for job in local.values())]
    return ClusterReading(
        cluster=settings.cluster,
        nodes=tuple(node for node, _ in nodes.values()),
        running=running_jobs(settings.cluster, nodes, local, now),
        waiting=sum(not job.assigned_resources and job.state in WAITS for job in local.values()),
        unknown=Counter(f"state {w}" for w in words if w not in STATES.keys() | ALIVE | ENDING),
    )


def running_jobs(
    cluster: str, nodes: Nodes, jobs: Mapping[str, Job], now: float
) -> tuple[Running, ...]:
    """Local jobs, with the resources that they take of these nodes."""
    free = {number: node.name for node, numbers in nodes.values() for number in numbers}
    rows = []
    for number, job in jobs.items():
        start = min(job.start or now, now)
        rows.append((start + (job.walltime or ENDLESS_S), start, number, job))
    found = []
    for end, start, number, job in sorted(rows, key=lambda row: -row[0]):
        held = () if "besteffort" in job.types else map(str, job.assigned_resources)
        taken = Counter(free.pop(each) for each in held if each in free)
        if taken:
            name = f"{cluster}:{number}"
            found.append(Running(id=name, nodes=dict(taken), start=start, end=end, ours=False))
    return tuple(found)
