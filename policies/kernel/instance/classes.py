"""Classes of nodes that are interchangeable, and what holds their slots now.

A class is a usable kind at one power; of a kind that is cut (see `intake`), every node. The package
says why counts of free slots are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from coalloc.model.platform import Node
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.kernel.instance.intake import Intake
from coalloc.policies.kernel.instance.kinds import Kind, floored_power


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Node classes by falling power; not to be changed."""

    kind: list[int]
    power: list[float]
    nodes: list[list[int]]
    of_node: Ints
    """The class of each node; -1 where it is not usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupation:
    """Nodes in use now: for each entry a node, its units, and the end."""

    node: Ints
    units: Ints
    until: Floats


def classes_of(nodes: Sequence[Node], kinds: Sequence[Kind], power_step: float = 0.0) -> Classes:
    """Divide usable nodes into classes.

    `power_step`: powers are rounded down to this step first; 0 keeps them.
    """
    kind_of: list[int] = []
    powers: list[float] = []
    members: list[list[int]] = []
    for number, kind in enumerate(kinds):
        if not kind.usable:
            continue
        found: dict[Any, int] = {}
        for node in kind.nodes:
            power = floored_power(nodes[node].power, power_step)
            index = found.setdefault(node if kind.cut else power, len(members))
            if index == len(members):
                members.append([])
                kind_of.append(number)
                powers.append(power)
            members[index].append(node)
    # by falling power, equal ones in reverse: what fills from the back takes weak nodes first
    order = sorted(range(len(powers)), key=lambda c: (-powers[c], -c))
    of_node = np.full(len(nodes), -1, dtype=np.int64)
    for place, c in enumerate(order):
        of_node[members[c]] = place
    return Classes(
        kind=[kind_of[c] for c in order],
        power=[powers[c] for c in order],
        nodes=[members[c] for c in order],
        of_node=of_node,
    )


def free_now(intake: Intake) -> tuple[list[int], list[float]]:
    """Free slots and free memory of each node at this instant; memory is inf where not limited."""
    now, place = intake.snapshot.time, intake.table.place
    slots = [
        node.slots if intake.kinds[kind].usable and node.free_at <= now else 0
        for node, kind in zip(intake.nodes, intake.node_kind, strict=True)
    ]
    memory = [inf if node.memory_mb is None else float(node.memory_mb) for node in intake.nodes]
    for hold in intake.holds.nodes:
        n = place[hold.node]
        slots[n] = max(slots[n] - hold.slots, 0)
        memory[n] -= hold.memory_mb
    return slots, memory


def occupied(intake: Intake) -> Occupation:
    """Cut the occupation of each usable node into stretches that end once.

    `running` and ``free_at`` may overlap; at any time the smaller of their sum and the node counts.
    """
    now, place = intake.snapshot.time, intake.table.place
    ends: dict[int, list[tuple[float, int, int]]] = {}
    for hold in intake.holds.nodes:
        ends.setdefault(place[hold.node], []).append((hold.end, hold.slots, hold.memory_mb))
    for n in intake.table.late:
        node = intake.nodes[n]
        if node.free_at > now:
            ends.setdefault(n, []).append((node.free_at, node.slots, node.memory_mb or 0))
    rows: list[tuple[int, int, float]] = []
    for n in sorted(ends):
        kind = intake.kinds[intake.node_kind[n]]
        if not kind.usable:
            continue
        taken, spare = 0, kind.grain - 1
        for until, count, memory_mb in sorted(ends[n], reverse=True):
            part = min(count, kind.slots - taken)
            if part > 0:
                units = part * kind.grain
                back = units - kind.units_held(part, memory_mb) if part == count else 0
                rows.append((n, units - min(back, spare), until))
                taken, spare = taken + part, spare - min(back, spare)
    return Occupation(
        node=np.array([row[0] for row in rows], dtype=np.int64),
        units=np.array([row[1] for row in rows], dtype=np.int64),
        until=np.array([row[2] for row in rows], dtype=np.float64),
    )
