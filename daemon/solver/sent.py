"""Snapshots and plans as texts between the daemon and its solvers.

What one of our processes has written, the other need not read like a file from outside: jobs, which
are many and change from round to round, go as they are declared, and the text of a cluster's nodes
is kept until these change.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from coalloc.model.formats.snapshot_json import read_clusters, write_cluster
from coalloc.model.jobs import Job
from coalloc.model.plan import Plan
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


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The text that `decode_snapshot` reads."""
    texts = _node_texts(*(cluster.nodes for cluster in snapshot.clusters))
    clusters = [
        {**write_cluster(replace(cluster, nodes=())), "nodes": text}
        for cluster, text in zip(snapshot.clusters, texts, strict=True)
    ]
    fields: dict[str, Any] = fields_of(snapshot, _Sent)
    return _encode({**fields, "clusters": clusters})


def decode_snapshot(text: bytes) -> Snapshot:
    """The snapshot of a text of `encode_snapshot`."""
    sent = _decode(text)
    clusters = read_clusters(msgspec.json.decode(sent.clusters), "clusters")
    return Snapshot(**{**fields_of(sent, _Sent), "clusters": clusters})


@keep_latest
def _node_texts(*nodes: tuple[Node, ...]) -> list[Raw]:
    return [Raw(_encode(write_cluster(Cluster(name="-", nodes=each))["nodes"])) for each in nodes]
