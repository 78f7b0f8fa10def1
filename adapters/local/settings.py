"""Settings of a cluster made of this machine's CPUs.

::

    nodes = 4                     # alpha1 .. alpha4 for the cluster alpha; or node sets:
    nodes = ["n[1-3]", {name = "n4", slots = 2, power = 0.5, cpus = ["2-3"]}]
    slots = 1                     # these stand in for what a node set leaves out
    power = 1.0
    features = ["x86"]
    memory_mb = 4000
    gres = "gpu:a100:4"
    partitions = ["short"]
    qualified = false             # publish alpha/n1 instead of n1
    address = "127.0.0.1"         # where ranks on other clusters reach this machine
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.nodeset import expand
from coalloc.model.formats.structs import read_struct
from coalloc.model.ranges import MemoryMb, Name, Slots
from coalloc.model.shape import is_gpu
from coalloc.model.values import fields_of, replace

MOST_NODES = 100_000
GRES = r"([\w.-]+(?::[\w.-]+)??)(?::([0-9]{1,6}))?(?:,|\Z)"
Address = Annotated[str, Meta(pattern=r"^[!-~]+\Z", extra={"kind": "a host name or an address"})]


class NodeKeys(Struct, frozen=True, kw_only=True):
    """Keys that a node set has of its own or from its cluster."""

    slots: Slots | None = None
    """Processes at the same time; default the node's CPUs, or its share of the machine's."""
    power: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Speed relative to the fastest."""
    features: tuple[str, ...] = ()
    """Features a job may ask for."""
    memory_mb: MemoryMb | None = None
    """Memory, MiB, by which jobs are placed, and which does not bound what their processes take;
    default an equal share of the machine's for each node of the cluster; null is unlimited."""
    gres: Annotated[
        str, Meta(pattern=f"^({GRES})*\\Z", extra={"kind": "a list such as gpu:a100:4,nvme:900"})
    ] = ""
    """Counted resources; GPUs are numbered from 0, in the order of the nodes."""
    partitions: tuple[Name, ...] = ()
    """Partitions a job may name."""


class NodeSet(NodeKeys, frozen=True, kw_only=True):
    """Equal nodes."""

    name: Name
    """Name or node set."""
    cpus: tuple[str, ...] = ()
    """Per node of the set the CPUs its processes are pinned to, such as "0-3,8"; default: as many
    as slots, and any."""


class LocalTable(NodeKeys, frozen=True, kw_only=True):
    """Settings of a cluster, as they stand in the configuration."""

    nodes: Any = 1
    """Number of nodes, or list of node sets and of their tables."""
    qualified: bool = False
    """Publish cluster/node, where another cluster has nodes of the same names."""
    address: Address = "127.0.0.1"
    """Where ranks on other clusters reach this machine; its own clusters need none."""
    read_limit_s: Annotated[float, Meta(gt=0, le=1e9)] = 5.0
    """Time limit of one reading, s."""


class LocalNode(NodeKeys, frozen=True, kw_only=True):
    """A share of this machine."""

    name: str
    """As published."""
    slots: int = 1
    pinned: tuple[int, ...] | None = None
    """CPUs to which its processes are pinned; None is anything."""
    cpus: int | None = None
    cpus_per_core: int = 1
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def gpus(self) -> list[str]:
        """For each of its GPUs the resource that it is."""
        named = [(name, size) for name, size in self.resources.items() if is_gpu(name)]
        return [name for name, size in named for _ in range(size)]


class LocalSettings(Struct, frozen=True, kw_only=True):
    """One cluster on this machine."""

    cluster: str
    nodes: tuple[LocalNode, ...]
    read_limit_s: float = 5.0
    address: str = "127.0.0.1"


def read_settings(
    value: Any, cluster: str, where: str = "", cpu_count: int | None = None
) -> LocalSettings:
    """Read the settings of the adapter ``local``, as `read_struct` does, for so many CPUs."""
    table = read_struct(value, LocalTable, where)
    place = f"{where}.nodes" if where else "nodes"
    shared = {key: value[key] for key in NodeKeys.__struct_fields__ if key in value}
    sets = _node_sets(table.nodes, shared, cluster, place)
    total = sum(len(names) for _, names, _ in sets)
    if total > MOST_NODES:
        raise InputError(place, f"{total} nodes are more than {MOST_NODES}")
    own = [] if isinstance(table.nodes, int) else table.nodes
    given = [shared, *(item for item in own if isinstance(item, dict))]
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    share = {"slots": max(1, (cpu_count or os.cpu_count() or 1) // total)}
    if not any("memory_mb" in one for one in given):
        share["memory_mb"] = memory_mb // total
    nodes = [
        _node(name, one, cpus, share)
        for one, names, pinning in sets
        for name, cpus in zip(names, pinning, strict=True)
    ]
    name, times = Counter(node.name for node in nodes).most_common(1)[0]
    if times > 1:
        raise InputError(place, f"{name} is named twice")
    if table.qualified:
        nodes = [replace(node, name=f"{cluster}/{node.name}") for node in nodes]
    return LocalSettings(
        cluster=cluster,
        nodes=tuple(nodes),
        read_limit_s=table.read_limit_s,
        address=table.address,
    )


def refuse_collisions(clusters: Mapping[str, LocalSettings]) -> None:
    """Refuse two clusters that publish nodes of the same name. Raises `InputError`."""
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


_Pinning = Sequence[tuple[int, ...] | None]
"""CPUs of each node of a set, if they are pinned."""
_NamedSet = tuple[NodeSet, tuple[str, ...], _Pinning]


def _node_sets(value: Any, shared: Mapping[str, Any], cluster: str, where: str) -> list[_NamedSet]:
    """The node sets with what their cluster says of them, their names and pinning."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_NODES:
            raise InputError(where, f"{value} is outside 1..{MOST_NODES}")
        names = tuple(f"{cluster}{i}" for i in range(1, value + 1))
        return [(_read_set({"name": cluster}, shared, where), names, [None] * value)]
    if not isinstance(value, list | tuple):
        raise InputError(where, f"{shown(value)} is neither a number nor a list")
    if not value:
        raise InputError(where, "is empty")
    return [_node_set(item, shared, f"{where}[{i}]") for i, item in enumerate(value)]


def _node_set(value: Any, shared: Mapping[str, Any], where: str) -> _NamedSet:
    if isinstance(value, str):
        if not value:
            raise InputError(where, "is empty")
        names = expand(value, where)
        return _read_set({"name": value}, shared, where), names, [None] * len(names)
    one = _read_set(value, shared, where)
    names = expand(one.name, f"{where}.name")
    pinning = [read_cpus(text, f"{where}.cpus[{i}]") for i, text in enumerate(one.cpus)]
    if pinning and len(pinning) != len(names):
        raise InputError(f"{where}.cpus", f"has {len(pinning)} entries for {len(names)} nodes")
    return one, names, pinning or [None] * len(names)


def _read_set(value: Any, shared: Mapping[str, Any], where: str) -> NodeSet:
    return read_struct({**shared, **value} if isinstance(value, dict) else value, NodeSet, where)


def _node(
    name: str, one: NodeSet, pinned: tuple[int, ...] | None, share: Mapping[str, int]
) -> LocalNode:
    cpus = None if pinned is None else len(pinned)
    return LocalNode(
        **{**fields_of(one, NodeKeys), **share, "slots": one.slots or cpus or share["slots"]},
        name=name,
        pinned=pinned,
        cpus=cpus,
        resources={kind: int(number or 1) for kind, number in re.findall(GRES, one.gres)},
    )
