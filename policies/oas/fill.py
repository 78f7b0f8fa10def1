"""Looks for schedules of equal nodes that waste next to nothing: see `kernel.packing`.

Applies to jobs of fixed width that may start at once on nodes of one power, on one cluster or where
links do not matter, beside work that only ends. Restarts sort the types of jobs anew, with chance.
"""

from __future__ import annotations

from math import inf

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.bounds.measure import measure_of
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.search.packing import CLOSE, DEPTH, FOUND, NONE, Packing, fill
from coalloc.policies.kernel.state import SHORTEST

CHUNK = 20_000
"""Nodes between two looks at the clock."""
PATIENCE = (2_000, 4_000, 8_000, 2_000, 16_000, 4_000, 32_000, 2_000)
"""Nodes of each restart; longer after each round of them."""
AIMS = (0.0, 0.0, 0.25, 0.5)
"""Where between the bound and the best value the restarts aim."""
ITEMS = 400
"""More items make a search by depth hopeless."""


def applies(lister: Lister) -> bool:
    """Whether all that a schedule must respect is the number of slots."""
    problem, rows, items = lister.problem, lister.rows, lister.items
    if not 1 < items.size <= ITEMS or items.size < problem.item_group.size:
        return False
    group = np.unique(problem.item_group[items])
    power = problem.class_power
    if group.size != 1 or power.min() != power.max() or problem.closed.size:
        return False
    classes = problem.group_class[group[0], : problem.group_size[group[0]]]
    if classes.size != power.size or (problem.need[group[0]] != 1).any() or rows.dips.any():
        return False
    spread = problem.link_gbps.size > 1
    if spread and (not problem.item_splits[items].all() or (problem.item_gbps[items] > 0.0).any()):
        return False
    if (np.diff(problem.mode_first) != 1).any() or problem.item_apart[items].any():
        return False
    if (rows.ready[items] > rows.time[0]).any() or rows.missing[items].any():
        return False
    return bool(rows.free.sum(axis=1).max() >= problem.mode_procs.max())


class Filling:
    """Restarts of the compiled search, each for one aim and one order of types.

    `work` are nodes so far. No schedule ends before `bound`, seconds from now. `order` has the
    items by start of a schedule that was found, in which everything blocks.
    """

    def __init__(self, lister: Lister, seed: int) -> None:
        problem, rows = lister.problem, lister.rows
        self.lister, self.random = lister, np.random.default_rng(seed)
        mode = problem.mode_first[lister.items]
        power = problem.class_power[0]
        seconds = problem.mode_scaled[mode] / power + problem.mode_fixed[mode]
        seconds = np.maximum(np.minimum(seconds, problem.item_limit[lister.items]), SHORTEST)
        widths = problem.mode_procs[mode].astype(np.float64)
        table, kind = np.unique(np.stack((widths, seconds)), axis=1, return_inverse=True)
        self.procs, self.seconds = table[0].astype(np.int64), table[1]
        self.members = [lister.items[kind.ravel() == k].tolist() for k in range(self.procs.size)]
        free = rows.free.sum(axis=1)
        self.ends: Floats = rows.time[1:] - rows.time[0]
        self.held: Ints = np.diff(free)
        self.slots, self.now = int(free[-1]), int(free[0])
        self.needed = float((widths * seconds).sum())
        self.step = measure_of(lister.planner)
        self.work, self.restart, self.bound = 0, 0, 0.0
        self.order: list[int] | None = None
        self.room = 0
        self.limit = inf

    def run(self, best: float, nodes: int) -> bool:
        """Some nodes, for a makespan below `best`; whether one was found.

        `best`: seconds from now.
        """
        self.order = None
        if self.room <= 0 or self.limit >= best:
            self._begin(best)
        some = min(nodes, self.room)
        answer = fill(self._packing, some)
        self.work += some
        self.room -= some
        if answer == NONE:
            self.bound = max(self.bound, self.limit + self.step)
            self.room = 0
        if answer == FOUND:
            self.order = self._found()
            self.room = 0
        return self.order is not None

    def _begin(self, best: float) -> None:
        """Choose an aim and an order, and go to the present."""
        number = self.restart
        self.restart += 1
        self.room = PATIENCE[number % len(PATIENCE)] << min(number // (4 * len(PATIENCE)), 12)
        below = best - max(self.step, 1e-6 * best)
        aim = self.bound + AIMS[number // 2 % len(AIMS)] * (below - self.bound)
        if self.step > 0.0:
            aim = float(np.floor(aim / self.step * (1.0 + 1e-9)) * self.step)
        self.limit = max(min(aim, below), 0.0)
        keys = (self.seconds, self.procs * self.seconds, self.procs.astype(np.float64))
        noise = 0.0 if number < 3 else (0.1, 0.3, 1.0)[number // 3 % 3]
        key = keys[number % 3] * (1.0 + self.random.uniform(0.0, noise, self.procs.size))
        self.sorted = np.argsort(-key, kind="stable")
        running, count = self.ends.size, self.lister.items.size
        length = running + 2 * count + 2
        end, held = np.zeros(running + count), np.zeros(running + count, dtype=np.int64)
        end[:running], held[:running] = self.ends, self.held
        tolerance = 1e-9 * max(best, 1.0)
        busy = float((self.held * np.minimum(self.ends, self.limit)).sum())
        idle = self.slots * self.limit - busy - self.needed
        soon = float(self.ends.min(initial=inf))
        counts = np.array([len(self.members[k]) for k in self.sorted], dtype=np.int64)
        self._packing = Packing(
            procs=self.procs[self.sorted],
            seconds=self.seconds[self.sorted],
            left=counts,
            end=end,
            held=held,
            start=np.zeros(running + count),
            kind=np.full(length, CLOSE, dtype=np.int64),
            past=np.zeros((length, 3), dtype=np.int64),
            lasting=np.zeros((length, 3)),
            number=np.array([0, running, count, self.now, 0, 0], dtype=np.int64),
            measure=np.array(
                [0.0, 0.0, soon, self.limit + tolerance, idle + tolerance * self.slots, tolerance]
            ),
        )

    def _found(self) -> list[int]:
        """Items by start, those of a type as they come."""
        kind, start = self._packing.kind, self._packing.start[self.ends.size :]
        taken = kind[: int(self._packing.number[DEPTH])]
        waiting = [list(items) for items in self.members]
        items = [waiting[self.sorted[k]].pop(0) for k in taken[taken != CLOSE]]
        return [items[x] for x in np.argsort(start, kind="stable")]
