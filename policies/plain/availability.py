"""Free slots of node classes and load of links over time, in plain Python.

Rows are stretches of constant availability; they only ever fill. `fit` tries one start, as
`kernel.fit` does: levels of power from the strongest on, each with its own run time and the least
that is free over it. `earliest` tries the starts from one on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from coalloc.model.cost import link_loads
from coalloc.model.split import TOLERANCE, low_side, split
from coalloc.policies.kernel.instance.classes import Classes, classes_of, occupied
from coalloc.policies.kernel.instance.intake import Intake
from coalloc.policies.kernel.instance.modes import Item, Mode

SHORTEST_S = 5e-7
"""A run takes at least so long: a moment is none."""
MOST_POWERS = 40
POWER_STEP = 0.05
"""Where nodes have more different powers, they are rounded down to this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestFit:
    """Place of an item."""

    start: float
    """Seconds."""
    end: float
    procs: dict[int, int]


class Availability:
    """Profile of what is free beside running work, reservations and bookings.

    Entries, of a class in a row, may be read `work` times; then searches end without an answer.
    """

    def __init__(self, intake: Intake, work: int) -> None:
        self.intake = intake
        self.left = work
        powers = {node.power for node in intake.nodes}
        self.power_step = POWER_STEP if len(powers) > MOST_POWERS else 0.0
        self.classes: Classes = classes_of(intake.nodes, intake.kinds, self.power_step)
        self.kinds = [intake.kinds[kind] for kind in self.classes.kind]
        self.cluster = [kind.cluster for kind in self.kinds]
        self.clusters = intake.snapshot.clusters
        self.names = {cluster.name: k for k, cluster in enumerate(self.clusters)}
        self.seconds_per_gbit = [
            1.0 / c.intra_gbps if isfinite(c.intra_gbps) else 0.0 for c in self.clusters
        ]
        self.held = occupied(intake)
        self.time: list[float] = []
        self.free: list[list[int]] = []
        self.load: list[list[float]] = []
        self._begin()
        self._allowed: dict[int, list[tuple[int, int]]] = {}

    @property
    def spent(self) -> bool:
        """Whether all work is done that may be."""
        return self.left <= 0

    def _begin(self) -> None:
        now, loads = self.intake.snapshot.time, self.intake.holds.links
        ends = {until for _, _, until in self.held} | {load.until for load in loads}
        ends |= {reservation.end for reservation in self.intake.reservations}
        self.time = sorted({now} | {end for end in ends if now < end < inf})
        capacity = [
            kind.slots * kind.grain * len(nodes)
            for kind, nodes in zip(self.kinds, self.classes.nodes, strict=True)
        ]
        self.free = [list(capacity) for _ in self.time]
        self.load = [[0.0] * len(self.clusters) for _ in self.time]
        class_of = {n: c for c, nodes in enumerate(self.classes.nodes) for n in nodes}
        for node, units, until in self.held:
            for row in self.free[: bisect_left(self.time, until)]:
                row[class_of[node]] -= units
        for load in loads:
            for loaded in self.load[: bisect_left(self.time, load.until)]:
                loaded[self.names[load.cluster]] += load.gbps

    def allowed(self, group: int) -> list[tuple[int, int]]:
        """Classes that items of a group may use, the strongest first, with units per process."""
        if group not in self._allowed:
            need = self.intake.groups[group].need
            units = [(c, need[kind]) for c, kind in enumerate(self.classes.kind)]
            self._allowed[group] = [(c, count) for c, count in units if count > 0]
        return self._allowed[group]

    def earliest(
        self, item: Item, mode: Mode, start: float, only: int | None, before: float = inf
    ) -> EarliestFit | None:
        """Find the first start from which a mode fits, and ends before a time.

        `only`: the cluster, where it makes a difference to the item.
        """
        allowed = self.allowed(item.group)
        if not allowed or start == inf:
            return None
        shortest = min(mode[1] / self.classes.power[allowed[0][0]] + mode[2], item.limit)
        row = bisect_right(self.time, start) - 1
        while start + shortest < before and not self.spent:
            fit, short = self._fit(item, mode, start, row, only)
            if fit is not None:
                return fit
            row = max(row, short) + 1
            if row >= len(self.time):
                return None
            start = self.time[row]
        return None

    def now(self, item: Item, mode: Mode, start: float, only: int | None) -> EarliestFit | None:
        """Fit a mode at this start."""
        return self._fit(item, mode, start, bisect_right(self.time, start) - 1, only)[0]

    def _fit(
        self, item: Item, mode: Mode, start: float, row: int, only: int | None
    ) -> tuple[EarliestFit | None, int]:
        """Fit a mode at a start; or no start before the end of that row will do."""
        procs, scaled, fixed, gbit = mode
        if only is not None:
            fixed += gbit * self.seconds_per_gbit[only]
        allowed, power = self.allowed(item.group), self.classes.power
        least = list(self.free[row])
        loaded = list(self.load[row])
        after, level = row + 1, 0
        while level < len(allowed):
            strength = power[allowed[level][0]]
            while level < len(allowed) and (power[allowed[level][0]] == strength or scaled == 0.0):
                level += 1
            end = start + max(min(scaled / strength + fixed, item.limit), SHORTEST_S)
            while after < len(self.time) and self.time[after] < end:
                self._lower(after, least, loaded)
                after += 1
            self.left -= len(allowed)
            if sum(max(least[c], 0) // need for c, need in allowed) < procs:
                return None, self._short(allowed, procs, row, after)
            room = self._room(item, allowed[:level], least, start, end, only)
            take = self._spread(item, procs, room, loaded)
            if take is not None:
                chosen = self._fill(allowed[:level], room, take)
                weakest = min(power[c] for c in chosen)
                end = start + max(min(scaled / weakest + fixed, item.limit), SHORTEST_S)
                return EarliestFit(start=start, end=end, procs=chosen), row
        return None, row

    def _lower(self, row: int, least: list[int], loaded: list[float]) -> None:
        self.left -= len(least)
        least[:] = map(min, least, self.free[row])
        loaded[:] = map(max, loaded, self.load[row])

    def _short(self, allowed: Sequence[tuple[int, int]], procs: int, first: int, after: int) -> int:
        """The last row of these that alone offers too little; `first` if none does."""
        for row in range(after - 1, first, -1):
            self.left -= len(allowed)
            free = self.free[row]
            if sum(max(free[c], 0) // need for c, need in allowed) < procs:
                return row
        return first

    def _room(
        self,
        item: Item,
        allowed: Sequence[tuple[int, int]],
        least: Sequence[int],
        start: float,
        end: float,
        only: int | None,
    ) -> dict[int, int]:
        """Processes that each class takes from a start to an end."""
        exempt = self.intake.groups[item.group].exempt
        room = {}
        for c, need in allowed:
            count = least[c] // need
            if (
                count > 0
                and only in (None, self.cluster[c])
                and not self._closed(c, start, end, exempt)
            ):
                room[c] = count
        return room

    def _closed(self, c: int, start: float, end: float, exempt: frozenset[int]) -> bool:
        """Whether a reservation keeps a class in between."""
        return any(
            r not in exempt
            and self.intake.reservations[r].start < end
            and self.intake.reservations[r].end > start
            for r in self.kinds[c].cover
        )

    def _spread(
        self, item: Item, procs: int, room: dict[int, int], loaded: Sequence[float]
    ) -> list[int] | None:
        """Processes on each cluster; None if neither nodes nor links admit so many."""
        free = [0] * len(self.clusters)
        for c, count in room.items():
            free[self.cluster[c]] += count
        if sum(free) < procs:
            return None
        if item.parts:
            for k, cluster in enumerate(self.clusters):
                most = cluster.link_gbps * (1.0 + TOLERANCE) - loaded[k]
                if free[k] < item.parts[k] or item.rates[k] > max(most, 0.0):
                    return None
            return list(item.parts)
        low = [0] * len(free)
        if item.splits and max(free) < procs:
            for k, cluster in enumerate(self.clusters):
                residual, slack = cluster.link_gbps - loaded[k], cluster.link_gbps * TOLERANCE
                low[k] = low_side(procs, item.proc_gbps, residual, slack)
        return split(procs, free, low)

    def _fill(
        self, allowed: Sequence[tuple[int, int]], room: dict[int, int], take: list[int]
    ) -> dict[int, int]:
        """Lay processes on classes, the weakest first."""
        out = {}
        for c, _ in reversed(allowed):
            count = min(take[self.cluster[c]], room.get(c, 0))
            if count > 0:
                take[self.cluster[c]] -= count
                out[c] = count
        return out

    def book(self, item: Item, fit: EarliestFit) -> None:
        """Take what an item uses."""
        need = dict(self.allowed(item.group))
        inside: dict[str, int] = {}
        for c, procs in fit.procs.items():
            name = self.clusters[self.cluster[c]].name
            inside[name] = inside.get(name, 0) + procs
        loads = link_loads(item.proc_gbps, inside)
        if item.parts:
            loads = {cluster.name: r for cluster, r in zip(self.clusters, item.rates, strict=True)}
        for row in range(self._cut(fit.start), self._cut(fit.end)):
            for c, procs in fit.procs.items():
                self.free[row][c] -= procs * need[c]
            for name, gbps in loads.items():
                self.load[row][self.names[name]] += gbps

    def _cut(self, at: float) -> int:
        """The row that begins at a time, which is made where there is none."""
        row = bisect_left(self.time, at)
        if row == len(self.time) or self.time[row] != at:
            self.time.insert(row, at)
            self.free.insert(row, list(self.free[row - 1]))
            self.load.insert(row, list(self.load[row - 1]))
        return row
