"""Settings of a cluster made of this machine's CPUs.

::

    nodes = 4                     # alpha1 .. alpha4 for the cluster alpha; or node sets:
    nodes = ["n[1-3]", {name = "n4", slots = 2, power = 0.5, cpus = ["2-3"]}]
    slots = 1                     # these four stand in for what a node set leaves out
    power = 1.0
    features = ["x86"]
    memory_mb = 4000
    qualified = false             # publish alpha/n1 instead of n1
    address = "127.0.0.1"         # where ranks on other clusters reach this machine
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from coalloc.model.decoded import array, shown
from coalloc.model.errors import InputError
from coalloc.model.fields import Field, Table, read_fields
from coalloc.model.nodeset import expand
from coalloc.model.values import replace

MOST_NODES = 100_000

_NODE: Table = {
    "slots": Field(
        kind="integer",
        low=1,
        high=1_000_000,
        doc="Processes at the same time; default the node's CPUs, or its share of the machine's.",
    ),
    "power": Field(
        kind="number", low=0, above=True, high=1, default=1.0, doc="Speed relative to the fastest."
    ),
    "features": Field(kind="texts", default=[], doc="Features a job may ask for."),
    "memory_mb": Field(
        kind="integer",
        low=0,
        nullable=True,
        doc="Memory, MiB; default the machine's; null is unlimited.",
    ),
}
NODE_SET: Table = {
    "name": Field(kind="text", needed=True, doc="Name or node set."),
    **_NODE,
    "cpus": Field(
        kind="texts",
        doc='Per node of the set the CPUs its processes are pinned to, such as "0-3,8".',
    ),
}
SETTINGS: Table = {
    "nodes": Field(
        kind="any", default=1, doc="Number of nodes, or list of node sets and of their tables."
    ),
    **_NODE,
    "qualified": Field(
        kind="flag",
        default=False,
        doc="Publish cluster/node, where another cluster has nodes of the same names.",
    ),
    "address": Field(
        kind="text",
        default="127.0.0.1",
        doc="Where ranks on other clusters reach this machine; its own clusters need none.",
    ),
    "read_limit_s": Field(
        kind="number", low=0, above=True, default=5.0, doc="Time limit of one reading, s."
    ),
}


class LocalNode(Struct, frozen=True, kw_only=True):
    """A share of this machine.

    Attributes
    ----------
    name : str
        As published.
    power : float
        Relative speed, (0, 1].
    memory_mb : int or None
        MiB; None is unlimited.
    cpus : tuple of int or None
        What its processes are pinned to; None is anything.
    """

    name: str
    slots: int = 1
    power: float = 1.0
    features: tuple[str, ...] = ()
    memory_mb: int | None = None
    cpus: tuple[int, ...] | None = None


class LocalSettings(Struct, frozen=True, kw_only=True):
    """One cluster on this machine; `wants_memory`: its nodes have the machine's, as measured."""

    cluster: str
    nodes: tuple[LocalNode, ...]
    wants_memory: bool = False
    read_limit_s: float = 5.0
    address: str = "127.0.0.1"


def read_settings(
    value: Any, cluster: str, where: str = "", cpu_count: int | None = None
) -> LocalSettings:
    """Read the settings of the adapter ``local``.

    Parameters
    ----------
    value : mapping
        As it stands in the configuration.
    cluster : str
    where : str
        Path of `value` in the configuration, for errors.
    cpu_count : int, optional
        CPUs of the machine; default this one's.

    Raises
    ------
    InputError
    """
    fields = read_fields(value, SETTINGS, where)
    prefix = f"{where}." if where else ""
    sets = _node_sets(fields.pop("nodes", 1), cluster, f"{prefix}nodes")
    count = sum(len(names) for names, _, _ in sets)
    if count > MOST_NODES:
        raise InputError(f"{prefix}nodes", f"{count} nodes are more than {MOST_NODES}")
    is_qualified = fields.pop("qualified", False)
    read_limit_s = fields.pop("read_limit_s", 5.0)
    address = fields.pop("address", "127.0.0.1")
    if not address or not address.isascii() or not address.isprintable() or " " in address:
        raise InputError(f"{prefix}address", f"{shown(address)} is no host name and no address")
    fields.setdefault("slots", None)
    share = max(1, (cpu_count or os.cpu_count() or 1) // count)
    nodes = [
        _node(name, fields | own, cpus, share)
        for names, own, pinning in sets
        for name, cpus in zip(names, pinning or [None] * len(names), strict=True)
    ]
    if len({node.name for node in nodes}) < count:
        twice = next(node.name for i, node in enumerate(nodes) if node.name in _names(nodes[:i]))
        raise InputError(f"{prefix}nodes", f"{twice} is named twice")
    if is_qualified:
        nodes = [replace(node, name=f"{cluster}/{node.name}") for node in nodes]
    return LocalSettings(
        cluster=cluster,
        nodes=tuple(nodes),
        wants_memory=not any("memory_mb" in own for own in (fields, *(own for _, own, _ in sets))),
        read_limit_s=read_limit_s,
        address=address,
    )


def refuse_collisions(clusters: Mapping[str, LocalSettings]) -> None:
    """Refuse two clusters that publish nodes of the same name.

    Raises
    ------
    InputError
    """
    owner: dict[str, str] = {}
    for cluster, settings in clusters.items():
        for node in settings.nodes:
            if owner.setdefault(node.name, cluster) != cluster:
                raise InputError(
                    f"{cluster}.nodes",
                    f"{owner[node.name]} has a node {node.name} too; set qualified = true",
                )


def read_cpus(text: str, where: str) -> tuple[int, ...]:
    """The CPUs of a list such as ``0-3,8``."""
    found: set[int] = set()
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InputError(where, f"{shown(text)} is not a list of CPUs such as 0-3,8")
        first, last = int(low), int(high or low)
        if not first <= last < MOST_NODES:
            raise InputError(where, f"{piece.strip()} is not a range of CPUs")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


_NodeSet = tuple[tuple[str, ...], dict[str, Any], list[tuple[int, ...] | None]]
"""Names, what is said of them, and the CPUs of each, if they are pinned."""


def _node_sets(value: Any, cluster: str, where: str) -> list[_NodeSet]:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_NODES:
            raise InputError(where, f"{value} is outside 1..{MOST_NODES}")
        return [(tuple(f"{cluster}{i}" for i in range(1, value + 1)), {}, [])]
    if not isinstance(value, list | tuple):
        raise InputError(where, f"{shown(value)} is neither a number nor a list")
    if not value:
        raise InputError(where, "is empty")
    return [_node_set(item, f"{where}[{i}]") for i, item in enumerate(array(value, where))]


def _node_set(value: Any, where: str) -> _NodeSet:
    if isinstance(value, str):
        if not value:
            raise InputError(where, "is empty")
        return expand(value, where), {}, []
    fields = read_fields(value, NODE_SET, where)
    names = expand(fields.pop("name"), f"{where}.name")
    pinning: list[tuple[int, ...] | None] = [
        read_cpus(text, f"{where}.cpus[{i}]") for i, text in enumerate(fields.pop("cpus", ()))
    ]
    if pinning and len(pinning) != len(names):
        raise InputError(f"{where}.cpus", f"has {len(pinning)} entries for {len(names)} nodes")
    return names, fields, pinning


def _node(
    name: str, fields: Mapping[str, Any], cpus: tuple[int, ...] | None, share: int
) -> LocalNode:
    slots = fields["slots"] or (len(cpus) if cpus is not None else share)
    rest = {key: value for key, value in fields.items() if key != "slots"}
    return LocalNode(name=name, slots=slots, cpus=cpus, **rest)


def _names(nodes: list[LocalNode]) -> set[str]:
    return {node.name for node in nodes}
