"""Shapes: what a job asks of each of its nodes beside room for processes, and what it takes there.

A process without a shape takes one slot of its node. With one, CPUs, memory and named resources
are counted, each by itself, and whole slots are taken: on a node with a slot for each CPU as many
as it needs CPUs, on a node of one slot the node.

A resource with a type, ``gpu:a100``, is one of its family, ``gpu``, too. Resources of a job as a
whole are licences of its clusters, or of the site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta, Struct, field

from coalloc.model.ranges import MemoryMb, Name, Procs

Cpus = Annotated[int, Meta(ge=0, le=1_000_000)]
Amounts = Mapping[Name, Procs]
"""Counts by a resource's name."""


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Amounts that a job asks of its nodes."""

    cpus_per_proc: Cpus = 0
    """CPUs of one node for each process; 0: one slot, whatever CPUs that has."""
    memory_mb_per_node: MemoryMb = 0
    """MiB on each node, beside those of its processes."""
    all_memory: bool = False
    """All memory of each node."""
    min_nodes: Procs = 1
    """Nodes at least."""
    max_nodes: Procs | None = None
    """Nodes at most."""
    procs_per_node: Procs | None = None
    """Processes on each node at most."""
    exclusive: bool = False
    """Its nodes have nothing else: all slots and resources are taken, and the memory asked for."""
    per_proc: Amounts = field(default_factory=dict)
    """Resources for each process."""
    per_node: Amounts = field(default_factory=dict)
    """Resources on each node."""
    per_job: Amounts = field(default_factory=dict)
    """Resources of each cluster that it uses, or of the site."""

    def __hash__(self) -> int:
        """Equal shapes are equal keys, in whatever order resources are named."""
        return hash((self.cpus_per_proc, self.memory_mb_per_node, self.min_nodes, self.max_nodes))


ONE_SLOT = Shape()
"""The papers' model: a process is a slot."""


class Sized(Protocol):
    """A node as shapes see it, of a snapshot or of a reading."""

    @property
    def slots(self) -> int: ...
    @property
    def cpus(self) -> int | None: ...
    @property
    def cpus_per_core(self) -> int: ...
    @property
    def memory_mb(self) -> int | None: ...
    @property
    def resources(self) -> Mapping[str, int]: ...


class Room(NamedTuple):
    """Amounts free on a node, or taken there."""

    slots: int
    memory_mb: float
    """Infinite where memory is not counted."""
    resources: Mapping[str, int]


def is_gpu(resource: str) -> bool:
    """True for GPUs of any type, which processes find by number."""
    return resource.partition(":")[0] == "gpu"


def _families(amounts: Mapping[str, int]) -> Counter[str]:
    """Sums of the types of each family."""
    out = Counter[str]()
    for name, count in amounts.items():
        family, colon, _ = name.partition(":")
        if colon:
            out[family] += count
    return out


def demands(amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts asked for, with what they come to in each family."""
    return dict(Counter(amounts) + _families(amounts)) if amounts else {}


def supplies(amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts that are there, with each family as large as its types at least."""
    return {**amounts, **(Counter(amounts) | _families(amounts))} if amounts else {}


def room_of(node: Sized) -> Room:
    """All that a node has."""
    memory = inf if node.memory_mb is None else float(node.memory_mb)
    return Room(node.slots, memory, supplies(node.resources))


def taken(shape: Shape, memory_mb_per_proc: int, node: Sized, procs: int) -> Room:
    """Amounts that so many processes take of a node; no memory where it is not counted."""
    slots = procs
    if shape.cpus_per_proc:
        each = node.cpus_per_core
        cpus = -(-procs * shape.cpus_per_proc // each) * each
        slots = -(-cpus * node.slots // (node.cpus or node.slots))
    memory = shape.memory_mb_per_node + memory_mb_per_proc * procs
    if shape.all_memory:
        memory = node.memory_mb or 0
    if shape.exclusive:
        return Room(node.slots, float(memory), supplies(node.resources))
    asked = demands(shape.per_node)
    for name, count in demands(shape.per_proc).items():
        asked[name] = asked.get(name, 0) + count * procs
    return Room(slots, 0.0 if node.memory_mb is None else float(memory), asked)


def most_procs(shape: Shape, memory_mb_per_proc: int, node: Sized, free: Room | None = None) -> int:
    """Processes of a job that a node takes in what is free there; of all it has where not given."""
    all_room = room_of(node)
    free = all_room if free is None else free
    if shape.exclusive and (free.slots < node.slots or dict(free.resources) != all_room.resources):
        return 0
    most = free.slots
    if shape.cpus_per_proc:
        cpus = free.slots * (node.cpus or node.slots) // node.slots
        most = cpus // node.cpus_per_core * node.cpus_per_core // shape.cpus_per_proc
    memory = free.memory_mb - shape.memory_mb_per_node
    if memory < 0.0 or (shape.all_memory and free.memory_mb < all_room.memory_mb):
        return 0
    if memory_mb_per_proc and memory < inf:
        most = min(most, int(memory // memory_mb_per_proc))
    on_node, each = demands(shape.per_node), demands(shape.per_proc)
    for name in on_node.keys() | each.keys():
        left = free.resources.get(name, 0) - on_node.get(name, 0)
        most = min(most, left // each[name] if name in each else most if left >= 0 else 0)
    if shape.procs_per_node is not None:
        most = min(most, shape.procs_per_node)
    return max(most, 0)


def charged_slots(shape: Shape, node: Sized, procs: int) -> int:
    """Slots that so many processes take of a node."""
    return procs if shape == ONE_SLOT else taken(shape, 0, node, procs).slots


def lays_out(shape: Shape, procs: int, room: list[int]) -> bool:
    """Whether processes fit on nodes of these sizes, in as many nodes as the shape allows."""
    sizes = sorted((size for size in room if size > 0), reverse=True)[: shape.max_nodes]
    return shape.min_nodes <= min(len(sizes), procs) and procs <= sum(sizes)
