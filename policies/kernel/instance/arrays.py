"""The kernel's arrays from an `Intake`, and its working memory.

Notes
-----
The cost of a round grows with the number of classes: a cluster of 1,000 nodes whose
queue asks for more memory than a slot's share costs what 1,000 different powers cost.

*Classes* are sets of nodes that are interchangeable: a usable kind at one power; of a kind that is
cut (see `intake`), every node. The package says why counts of free slots are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from coalloc.model.platform import Node
from coalloc.policies.array_types import Floats, Ints, firsts
from coalloc.policies.kernel.instance.graph import children_of, compressed
from coalloc.policies.kernel.instance.intake import Intake, NodeTable
from coalloc.policies.kernel.instance.kinds import Kind, floored_power
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.record import room_for
from coalloc.policies.kernel.state import (
    BLOCK,
    FULL,
    MOST_LOAD,
    WIDTH,
    Base,
    Outcome,
    Problem,
    Profile,
    Scratch,
)
from coalloc.policies.latest import keep_latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A snapshot as the kernel sees it."""

    intake: Intake
    problem: Problem
    base: Base
    class_nodes: list[list[int]]
    occupation: Occupation


def compile_intake(intake: Intake, power_step: float = 0.0) -> Compiled:
    """Lay out an intake as arrays.

    `power_step`: powers are rounded down to this step first; 0 keeps them.
    """
    if any(kind.cut for kind in intake.kinds):
        classes = classes_of(intake.nodes, intake.kinds, power_step)
    else:
        classes = _whole_classes(intake.table, power_step)
    occupation = occupied(intake)
    return Compiled(
        intake=intake,
        problem=_problem(intake, classes.kind, classes.power),
        base=_base(intake, classes, occupation),
        class_nodes=classes.nodes,
        occupation=occupation,
    )


@keep_latest
def _whole_classes(table: NodeTable, power_step: float) -> Classes:
    """The classes where no kind is cut: the nodes alone decide."""
    return classes_of(table.nodes, table.kinds, power_step)


def _base(intake: Intake, classes: Classes, occupation: Occupation) -> Base:
    snapshot = intake.snapshot
    now = snapshot.time
    loads = intake.holds.links
    ends = {hold.end for hold in loads} | set(occupation.until.tolist())
    ends |= {reservation.end for reservation in intake.reservations}
    times = np.array(sorted({now} | {end for end in ends if end > now}))
    free = np.zeros((len(times), len(classes.nodes)), dtype=np.int64)
    capacity = [
        intake.kinds[kind].slots * intake.kinds[kind].grain * len(nodes)
        for kind, nodes in zip(classes.kind, classes.nodes, strict=True)
    ]
    free[:] = np.array(capacity, dtype=np.int64)
    # what is held until a time is missing in all rows before it
    held = np.zeros((len(times) + 1, len(classes.nodes)), dtype=np.int64)
    upto = np.searchsorted(times, occupation.until)
    np.add.at(held, (upto, classes.of_node[occupation.node]), occupation.units)
    free -= held[::-1].cumsum(axis=0)[::-1][1:]
    names = {cluster.name: k for k, cluster in enumerate(snapshot.clusters)}
    load = np.zeros((len(times), len(names)))
    for hold in loads:
        load[: int(np.searchsorted(times, hold.end)), names[hold.cluster]] += hold.gbps
    return Base(time=times, free=free.astype(np.int32), load=_load_units(load, _links(intake)))


def _links(intake: Intake) -> Floats:
    return np.array([cluster.link_gbps for cluster in intake.snapshot.clusters], dtype=np.float64)


def _load_units(load: Floats, links: Floats) -> Ints:
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(load > 0.0, load / links, 0.0)
    return (np.minimum(share * FULL, MOST_LOAD) + 0.5).astype(np.int64)


def _problem(intake: Intake, class_kind: list[int], powers: list[float]) -> Problem:
    items, clusters = intake.items, intake.snapshot.clusters
    modes = [mode for item in items for mode in item.modes]
    parents = [item.parents for item in items]
    parent_first, parent, parent_gbit = compressed(parents)
    child_first, child, _ = compressed(children_of(parents))
    kinds = [intake.kinds[kind] for kind in class_kind]
    need = _ints([[group.need[kind] for kind in class_kind] for group in intake.groups])
    need = need.reshape(len(intake.groups), len(class_kind))
    group_size = (need != 0).sum(axis=1)
    allowed = np.arange(len(class_kind)) < group_size[:, None]
    release = _floats([item.release for item in items])
    apart = [n for n, item in enumerate(items) if _is_apart(item)]
    arrival = np.repeat(release[apart][:, None], len(clusters), axis=1)
    for row, n in enumerate(apart):
        if items[n].arrival:
            arrival[row] = np.maximum(arrival[row], items[n].arrival)
    wide = [n for n in apart if items[n].parts]
    shape = (len(wide), len(clusters))
    return Problem(
        mode_first=firsts([len(item.modes) for item in items]),
        mode_procs=_ints([mode[0] for mode in modes]),
        mode_scaled=_floats([mode[1] for mode in modes]),
        mode_fixed=_floats([mode[2] for mode in modes]),
        mode_comm=_floats([mode[3] for mode in modes]),
        item_group=_ints([item.group for item in items]),
        item_release=release,
        item_limit=_floats([item.limit for item in items]),
        item_gbps=_floats([item.proc_gbps for item in items]),
        item_splits=np.array([item.splits for item in items], dtype=np.bool_),
        item_apart=_rows(apart, len(items)),
        item_arrival=arrival,
        item_wide=_rows(wide, len(items)),
        wide_parts=_ints([items[n].parts for n in wide]).reshape(shape),
        wide_units=_load_units(
            _floats([items[n].rates for n in wide]).reshape(shape), _links(intake)
        ),
        parent_first=parent_first,
        parent=parent,
        parent_gbit=parent_gbit,
        child_first=child_first,
        child=child,
        need=need,
        group_class=np.where(allowed, np.argsort(need == 0, axis=1, kind="stable"), 0),
        group_size=group_size,
        group_plain=(need == 1).all(axis=1),
        exempt=np.array(
            [
                [r in group.exempt for r in range(len(intake.reservations))]
                for group in intake.groups
            ],
            dtype=np.int64,
        ).reshape(len(intake.groups), len(intake.reservations)),
        class_cluster=_ints([kind.cluster for kind in kinds]),
        class_power=_floats(powers),
        class_grain=_ints([kind.grain for kind in kinds]),
        closed_first=firsts([len(kind.cover) for kind in kinds]),
        closed=_ints([r for kind in kinds for r in kind.cover]),
        reserved=_floats([[r.start, r.end] for r in intake.reservations]).reshape(-1, 2),
        link_gbps=_links(intake),
        inverse_intra=_floats(
            [1.0 / c.intra_gbps if isfinite(c.intra_gbps) else 0.0 for c in clusters]
        ),
        latency=_floats([c.link_latency_s for c in clusters]),
    )


def _is_apart(item: Item) -> bool:
    """Tell whether a task's data or communication make its earliest start differ by cluster."""
    return item.task is not None and (  # nothing else has data to wait for
        len(item.parts) > 0
        or any(mode[3] > 0.0 for mode in item.modes)
        or any(g >= 0.0 for _, g in item.parents)
        or len(item.arrival) > 0
    )


def _rows(chosen: Sequence[int], items: int) -> Ints:
    """Of each item its place among these; -1: it is none of them."""
    rows = np.full(items, -1, dtype=np.int64)
    rows[chosen] = np.arange(len(chosen))
    return rows


def _ints(values: Sequence[Any]) -> Ints:
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[Any]) -> Floats:
    return np.array(values, dtype=np.float64)


def held(problem: Problem, free: Any) -> Ints:
    """Processes that free units of classes can hold, group of items x cluster."""
    classes = np.where(problem.need > 0, free // np.maximum(problem.need, 1), 0)
    fits = np.zeros((len(classes), problem.link_gbps.size), np.int64)
    np.add.at(fits.T, problem.class_cluster, classes.T)
    return fits


def any_mode(items: int) -> Ints:
    """Leave the mode of each item to the decoder; 0 and more fix it."""
    return np.full(items, -1, dtype=np.int64)


def make_outcome(problem: Problem) -> Outcome:
    """Room for the answer of a decoder."""
    n = problem.item_group.size
    classes = problem.class_power.size
    most = problem.mode_procs[problem.mode_first[1:] - 1]
    pool = 1 + int(np.minimum(most, classes).sum())
    blank = np.full(n, np.nan)
    return room_for(Outcome, N=n, pool=pool, start=blank, end=blank.copy(), ready=np.full(n, inf))


def make_profile(problem: Problem, base: Base) -> Profile:
    """Room for every row that the items can make."""
    classes, clusters = problem.class_power.size, problem.link_gbps.size
    rows = base.time.size + 2 * problem.item_group.size + 4
    blocks = rows // (WIDTH // 4) + 8
    return room_for(Profile, rows=rows, units=classes + clusters, K=clusters, blocks=blocks)


def make_scratch(problem: Problem) -> Scratch:
    """Working memory of the kernels."""
    n, groups = problem.item_group.size, problem.group_size.size
    classes, clusters = problem.class_power.size, problem.link_gbps.size
    position = np.full(n, -1, dtype=np.int64)
    sizes = {"N": n, "G": groups, "C": classes, "K": clusters}
    return room_for(Scratch, **sizes, B=n // BLOCK + n // BLOCK**2 + 2, position=position)


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
