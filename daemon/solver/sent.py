"""Snapshots and plans as texts between the daemon and its solvers.

What one of our processes has written, the other need not read like a file from outside: jobs, which
are many and change from round to round, go as they are declared, and the text of a cluster's nodes
is kept until these change.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec
from msgspec import Raw, Struct

from coalloc.core.base.plan_order import start_of
from coalloc.core.starts.placements import NOW_S
from coalloc.model.formats.snapshot_json import read_clusters, write_cluster
from coalloc.model.jobs import Job
from coalloc.model.plan import Deferred, Placement, Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.shape import Amounts
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.values import fields_of, replace
from coalloc.policies.latest import keep_latest

_encode = msgspec.json.Encoder().encode


class _Sent(Struct, frozen=True, kw_only=True):
    """Fields of a snapshot."""

    time: float
    overrun_s: float
    clusters: Raw
    queue: tuple[Job, ...]
    running: tuple[Running, ...]
    reservations: tuple[Reservation, ...]
    resources: Amounts


_decode = msgspec.json.Decoder(_Sent).decode
decode_plan = msgspec.json.Decoder(Plan).decode
"""A plan of a solver, whose node names stand for single nodes: it has passed the check there."""
Part = tuple[tuple[Placement, ...], tuple[Deferred, ...]]
decode_part = msgspec.json.Decoder(Part).decode
SLICE = 2000
"""Jobs of a longer plan or queue that are read, or written, at once."""


def parted(plan: Plan, time: float) -> tuple[Plan, list[Part]]:
    """A plan with what starts first, and all that starts by a time; and its rest, in that order."""
    placements, deferred = sorted(plan.placements, key=start_of), plan.deferred
    if len(placements) + len(deferred) <= SLICE:
        return plan, []
    first = max(SLICE, bisect_right(placements, time + NOW_S, key=start_of))
    steps = range(first, len(placements), SLICE)
    parts: list[Part] = [(tuple(placements[at : at + SLICE]), ()) for at in steps]
    parts += (((), deferred[at : at + SLICE]) for at in range(0, len(deferred), SLICE))
    return replace(plan, placements=tuple(placements[:first]), deferred=()), parts


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The text that `decode_snapshot` reads."""
    texts = _node_texts(*(cluster.nodes for cluster in snapshot.clusters))
    clusters = [
        {**write_cluster(replace(cluster, nodes=())), "nodes": text}
        for cluster, text in zip(snapshot.clusters, texts, strict=True)
    ]
    fields: dict[str, Any] = fields_of(snapshot, _Sent)
    queue = snapshot.queue  # In steps, since each keeps all other threads waiting.
    jobs = [_encode(queue[at : at + SLICE])[1:-1] for at in range(0, len(queue), SLICE)]
    return _encode({**fields, "clusters": clusters, "queue": Raw(b"[%b]" % b",".join(jobs))})


def decode_snapshot(text: bytes) -> Snapshot:
    """The snapshot of a text of `encode_snapshot`."""
    sent = _decode(text)
    clusters = read_clusters(msgspec.json.decode(sent.clusters), "clusters")
    return Snapshot(**{**fields_of(sent, _Sent), "clusters": clusters})


@keep_latest
def _node_texts(*nodes: tuple[Node, ...]) -> list[Raw]:
    return [Raw(_encode(write_cluster(Cluster(name="-", nodes=each))["nodes"])) for each in nodes]
