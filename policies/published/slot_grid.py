"""Time in slots: what the slot model sees of a snapshot, and a first plan on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, fsum

from coalloc.model.errors import InputError
from coalloc.model.plan import Placement, Plan
from coalloc.model.split import TOLERANCE
from coalloc.model.values import replace
from coalloc.policies.allocation.scene import bandwidth, exact
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.kinds import floored_power
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.state import SHORTEST

NEAR = 1e-9
"""A run that passes a slot's end by less, relative, is taken to end with it: rounding."""


def slot_seconds(text: str, planner: Planner) -> float:
    """Read the option ``slot``: seconds, or a share of the mean base time such as ``50%``.

    Raises `InputError`.
    """
    share = text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e18:
        what = f"{text!r} is neither seconds above 0 nor a share such as 50%"
        raise InputError("options.slot", what)
    if not share:
        return value
    times = [item.modes[0][1] + item.modes[0][2] for item in planner.items]
    mean = fsum(times) / len(times) if times else 0.0
    return value / 100.0 * mean if mean > 0.0 else 1.0


def slots_up(seconds: float, slot: float) -> int:
    """Slots that a length takes, rounded up."""
    return max(ceil(seconds / slot * (1.0 - NEAR)), 0)


@dataclass(slots=True, kw_only=True)
class Busy:
    """Amounts over intervals of slots."""

    intervals: list[tuple[int, int, Fraction]] = field(default_factory=list)

    def add(self, start: int, end: int, amount: Fraction) -> None:
        """Take an amount in [start, end)."""
        if start < end:
            self.intervals.append((start, end, amount))

    def peak(self, start: int, end: int) -> Fraction:
        """The largest sum in [start, end)."""
        meeting = [one for one in self.intervals if one[0] < end and one[1] > start]
        at = [start, *(one[0] for one in meeting if one[0] > start)]
        return max(sum((m for a, b, m in meeting if a <= t < b), Fraction(0)) for t in at)


class SlotGrid:
    """Nodes and links over slots of `slot` seconds from the snapshot's time on.

    Other work has its processes in `nodes`, by node of the intake, and its load, Gbit/s, in
    `links`, by cluster. `limits` are the slots in which a placement loads the link, and its SC, by
    cluster.
    """

    def __init__(self, planner: Planner, slot: float) -> None:
        self.planner, self.slot = planner, slot
        snapshot, intake = planner.snapshot, planner.intake
        self.time = snapshot.time
        place = intake.table.place
        home = {cluster.name: k for k, cluster in enumerate(snapshot.clusters)}
        self.nodes = [Busy() for _ in intake.nodes]
        self.links = [Busy() for _ in snapshot.clusters]
        self.limits: list[list[tuple[int, int, Fraction]]] = [[] for _ in snapshot.clusters]
        for n, node in enumerate(intake.nodes):
            if node.free_at > self.time:
                self.nodes[n].add(0, self.up(node.free_at), Fraction(node.slots))
        for hold in intake.holds.nodes:
            self.nodes[place[hold.node]].add(0, self.up(hold.end), Fraction(hold.slots))
        for load in intake.holds.links:
            self.links[home[load.cluster]].add(0, self.up(load.end), exact(load.gbps))
        self.capacity = [
            None if c.link_gbps == float("inf") else exact(c.link_gbps) * (1 + exact(TOLERANCE))
            for c in snapshot.clusters
        ]

    def up(self, when: float) -> int:
        """The first slot that begins at or after a time."""
        return slots_up(when - self.time, self.slot)

    def at(self, number: int) -> float:
        """Begin of a slot, seconds."""
        return self.time + number * self.slot

    def load(self, k: int, start: int, end: int, gbps: Fraction, sc: Fraction) -> None:
        """Load a link in [start, end) by a placement of this SC."""
        self.links[k].add(start, end, gbps)
        if gbps:
            self.limits[k].append((start, end, sc))

    def carries(self, k: int, start: int, end: int, gbps: Fraction, sc: Fraction) -> bool:
        """Whether a placement of this SC may load a link in [start, end)."""
        capacity = self.capacity[k]
        if not gbps or capacity is None:
            return True
        spans = [(start, end, sc)]
        spans += [
            (max(a, start), min(b, end), other)
            for a, b, other in self.limits[k]
            if a < end and b > start
        ]
        return all(self.links[k].peak(a, b) + gbps <= other * capacity for a, b, other in spans)

    def closed(self, item: Item, node: int) -> list[tuple[int, int]]:
        """Slots in which a node is kept for other jobs."""
        intake = self.planner.intake
        exempt = intake.groups[item.group].exempt
        out = []
        for r in intake.kinds[intake.node_kind[node]].cover:
            if r not in exempt:
                kept = intake.reservations[r]
                first = floor((kept.start - self.time) / self.slot * (1.0 + NEAR))
                out.append((max(first, 0), self.up(kept.end)))
        return out

    def cluster(self, node: int) -> int:
        """Cluster of a node."""
        intake = self.planner.intake
        return intake.kinds[intake.node_kind[node]].cluster


def on_grid(planner: Planner, plan: Plan, slot: float) -> tuple[Placement, ...]:
    """Move every start of a plan to the first slot that keeps its order and nodes.

    `plan`: of rigid and moldable jobs.
    """
    grid = SlotGrid(planner, slot)
    place = planner.intake.table.place
    items = {item.job.id: item for item in planner.items}
    numbers = {item.job.id: n for n, item in enumerate(planner.items)}
    ends: dict[int, int] = {}
    out = []
    for p in sorted(plan.placements, key=lambda p: (p.start, p.end)):
        item = items[p.job]
        nodes = {place[name]: count for name, count in p.nodes.items()}
        seconds = seconds_of(planner, item, nodes, p.sc)
        length = slots_up(seconds, slot)
        first = max([grid.up(item.release), *(ends[parent] for parent, _ in item.parents)])
        start = _first_fit(grid, item, nodes, exact(p.sc), first, length)
        for n, count in nodes.items():
            grid.nodes[n].add(start, start + length, Fraction(count))
        for k, load in loads_of(grid, item, nodes).items():
            grid.load(k, start, start + length, load, exact(p.sc))
        ends[numbers[p.job]] = start + length
        begin = grid.at(start)
        out.append(replace(p, start=begin, end=begin + seconds))
    return tuple(out)


def least_slowdowns(
    planner: Planner, placements: Sequence[Placement], slot: float
) -> tuple[Placement, ...]:
    """Slow communication down only as far as the links' loads ask for: equations (5) to (7).

    Every placement loads its links to the end of its last slot.
    """
    grid = SlotGrid(planner, slot)
    items = {item.job.id: item for item in planner.items}
    place = planner.intake.table.place
    spans = []
    for p in placements:
        nodes = {place[name]: count for name, count in p.nodes.items()}
        span = grid.up(p.start), grid.up(p.end)
        loads = loads_of(grid, items[p.job], nodes)
        spans.append((span, nodes, loads))
        for k, load in loads.items():
            grid.links[k].add(*span, load)
    out = []
    for p, (span, nodes, loads) in zip(placements, spans, strict=True):
        needed = [1.0]
        for k, load in loads.items():
            capacity = planner.snapshot.clusters[k].link_gbps
            if load and 0.0 < capacity < float("inf"):
                needed.append(float(grid.links[k].peak(*span) / exact(capacity)))
        sc = max(needed)
        if sc != p.sc:
            end = p.start + seconds_of(planner, items[p.job], nodes, sc)
            p = replace(p, sc=sc, end=end)
        out.append(p)
    return tuple(out)


def seconds_of(planner: Planner, item: Item, nodes: dict[int, int], sc: float) -> float:
    """Run time on so many processes of these nodes, whose end may be too late to tell it from."""
    step = planner.options.get("power_step", 0.0)
    power = min(floored_power(planner.intake.nodes[n].power, step) for n in nodes)
    procs = sum(nodes.values())
    _, scaled, fixed, _ = next(mode for mode in item.modes if mode[0] == procs)
    return max(min(scaled / power + fixed * sc, item.limit), SHORTEST)


def loads_of(grid: SlotGrid, item: Item, nodes: dict[int, int]) -> dict[int, Fraction]:
    """Equation (4) on every link, Gbit/s."""
    inside: dict[int, int] = {}
    for n, count in nodes.items():
        inside[grid.cluster(n)] = inside.get(grid.cluster(n), 0) + count
    procs = sum(inside.values())
    return {k: bandwidth(exact(item.proc_gbps), procs, t) for k, t in inside.items()}


def _first_fit(
    grid: SlotGrid, item: Item, nodes: dict[int, int], sc: Fraction, first: int, length: int
) -> int:
    loads = loads_of(grid, item, nodes)
    closed = {n: grid.closed(item, n) for n in nodes}
    tries = {first}
    for n in nodes:
        tries.update(one[1] for one in grid.nodes[n].intervals if one[1] > first)
        tries.update(b for _, b in closed[n] if b > first)
    for k in loads:
        tries.update(one[1] for one in grid.links[k].intervals if one[1] > first)
    for start in sorted(tries):
        if not all(grid.carries(k, start, start + length, loads[k], sc) for k in loads):
            continue
        if _fits(grid, nodes, closed, start, start + length):
            return start
    return max(tries)


def _fits(
    grid: SlotGrid,
    nodes: dict[int, int],
    closed: dict[int, list[tuple[int, int]]],
    start: int,
    end: int,
) -> bool:
    for n, count in nodes.items():
        slots = grid.planner.intake.nodes[n].slots
        if grid.nodes[n].peak(start, end) + count > slots:
            return False
        if any(a < end and b > start for a, b in closed[n]):
            return False
    return True


def slots_used(placements: Sequence[Placement], time: float, slot: float) -> int:
    """The slot in which the last job ends: the makespan that the model counts."""
    return max((slots_up(p.end - time, slot) for p in placements), default=0)
