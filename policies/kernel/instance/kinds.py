"""Kinds of nodes, and groups of items that need the same of them; plain Python.

Notes
-----
Memory: a slot carries memory / slots of its node, and a process that needs more is charged more
than one slot. Free slots of several nodes then say too little, so such a kind is *cut*: each of its
nodes stands for itself, and is counted in `grain` units a slot, fine enough to charge the memory
exactly (in quarters of a slot where there are thousands of sizes, see `MOST_NEEDS`). Where
everything on a kind takes whole nodes, nothing needs to be cut. Running work holds
the memory that `holds` tells; where that is rounded down, a node has less than a slot's units more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, lcm

from coalloc.model.shape import ONE_SLOT, Amounts, Shape, most_procs

MOST_UNITS = 1 << 30
"""Units of one node at most: they are counted in 32 bits."""

MOST_NEEDS = 2_000_000
"""Sizes of memory times nodes that are charged exactly: the kernel's tables grow with both."""


def floored_power(power: float, step: float) -> float:
    """Round a power down to a step; one below the step, to the largest halving of it.

    `step`: 0 keeps the power as it is.
    """
    if step <= 0.0:
        return power
    while step > power * (1.0 + 1e-9):
        step /= 2.0
    return min(power, round(floor(power / step + 1e-9) * step, 12) or power)


@dataclass(slots=True, kw_only=True)
class Kind:
    """Nodes that differ in power only."""

    cluster: int
    features: frozenset[str]
    memory_mb: int | None
    slots: int
    cover: tuple[int, ...]
    usable: bool
    cpus: int | None = None
    cpus_per_core: int = 1
    resources: Amounts = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)
    cut: bool = False
    grain: int = 1

    def room(self, memory_mb_per_proc: int, shape: Shape = ONE_SLOT) -> int:
        """Processes that an empty node takes."""
        if shape != ONE_SLOT:
            return most_procs(shape, memory_mb_per_proc, self)
        if memory_mb_per_proc <= 0 or self.memory_mb is None:
            return self.slots
        return min(self.slots, self.memory_mb // memory_mb_per_proc)

    def need(self, memory_mb_per_proc: int, coarse: bool = False) -> int:
        """Units charged per process; 0 if no process fits on a node.

        `coarse` rounds up to quarters of a slot, as far as as many processes fit an empty node.
        """
        if memory_mb_per_proc <= 0 or self.memory_mb is None:
            return self.grain
        if memory_mb_per_proc > self.memory_mb:
            return 0
        units = -(-memory_mb_per_proc * self.slots * self.grain // self.memory_mb)
        if coarse and self.cut and units > self.grain:
            step = max(self.grain // 4, 1)
            most = self.slots * self.grain // self.room(memory_mb_per_proc)
            units = max(units, min(-(-units // step) * step, most))
        return max(self.grain, units)

    def units_held(self, slots: int, memory_mb: int) -> int:
        """Units of so many slots whose memory is rounded down to whole MiB."""
        if not self.cut or not self.memory_mb:
            return slots * self.grain
        return -(-memory_mb * self.slots * self.grain // self.memory_mb)

    def cut_up(self) -> None:
        """Count in units that divide slots and memory, if they are not too many."""
        self.cut = True
        units = lcm(self.slots, self.memory_mb or 1)
        self.grain = (units if units < MOST_UNITS else MOST_UNITS) // self.slots


@dataclass(slots=True, kw_only=True)
class Group:
    """Items with the same needs: units per process on each kind, 0 where they may not run."""

    need: tuple[int, ...]
    exempt: frozenset[int]


@dataclass(slots=True)
class Capacity:
    """Processes that empty clusters take."""

    alone: list[int]
    """Each cluster alone."""
    apart: list[int]
    """Each where others may have some of the nodes that are asked for."""
    largest: int = field(init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.largest, self.total = max(self.alone, default=0), sum(self.apart)


@dataclass(slots=True, kw_only=True)
class Needs:
    """Requirements of a job on its nodes, from which kinds are made."""

    kinds: tuple[bool, ...]
    memory_mb: int
    exempt: frozenset[int]
    usable: Capacity
    """With the nodes that are up."""
    exists: Capacity
    """With all nodes."""
