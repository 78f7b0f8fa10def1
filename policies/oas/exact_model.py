"""The exact model of `oas` in CP-SAT: one function for each family of constraints.

Item j runs in one of its allocation patterns p (see `exact_patterns`) for d_p from s_j to e_j.
Families, in the order of the formulation:

1. `_choose_patterns`: sum over p of x_jp = 1, e_j = s_j + d_jp where x_jp.
2. `_fit_classes`: at any time, what the patterns of running items take of a class is free.
3. `_fit_links`: likewise the loads of a link, and the capacity that a pattern's slowdown leaves.
4. `_exclude_pairs`: two items overlap only in patterns p, q that fit beside each other:
   x_jp => before_jk or after_jk or the sum over such q of x_kq >= 1. Implied, and what proves most.
5. `_run_alone`: of items that exclude each other in all patterns, one runs at a time. Implied.
6. `_meet_no_reservation`: an item ends before a reservation, starts behind it or avoids its nodes.
7. `_keep_order`: an item starts once its parents have ended.
8. `_order_twins`: of items that cannot be told apart, the first in the queue starts first.
9. `_spend_energy`: sum over j of use_jp * d_jp <= capacity * last. Implied.
10. `break_symmetry`: of groups of items that exclude each other, one runs after the other.

Notes
-----
Time is in whole units of the grid. Run times and releases are rounded down to it, loads to the
nearest share of a link, so a bound of the model is one of the plans, but for the rounding of what
is no multiple; `exact` makes the plan anew from the order of its events.

References
----------
Perron, Didier: CP-SAT, OR-Tools. Baptiste, Le Pape, Nuijten: Constraint-based scheduling, 2001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np

from coalloc.policies.array_types import Floats
from coalloc.policies.bounds.measure import measure_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.state import FULL, ROUNDING
from coalloc.policies.oas.exact_patterns import Patterns

SHARES = 1 << 20
"""Units of a link's capacity."""
FINE = 1 << 35
"""Units of the longest run, where times have no common measure."""
HEAVY = 1 << 16
"""Units of the largest weight, where weights are not whole."""
NEAR = 1e-9
"""By so much of a unit a time may pass a boundary of the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactGrid:
    """The time axis of the model: whole units of so many seconds from `now` on."""

    now: float
    unit: float
    slotted: bool

    def up(self, seconds: float) -> int:
        """At or after this time."""
        return ceil((seconds - self.now) / self.unit - NEAR)

    def down(self, seconds: float) -> int:
        """At or before this time."""
        return floor((seconds - self.now) / self.unit + NEAR)

    def free(self, seconds: float) -> int:
        """The unit from which on something that is freed at this time is there."""
        return self.up(seconds) if self.slotted else self.down(seconds)

    def lasting(self, seconds: Floats) -> list[int]:
        """Lengths: whole slots, or rounded down."""
        units = seconds / self.unit
        whole = np.ceil(units - NEAR) if self.slotted else np.floor(units + NEAR)
        return [max(int(length), 1) for length in whole]


def make_grid(planner: Planner, patterns: Patterns, slot: float | None) -> ExactGrid:
    """The slots; else the common measure of all times; else units too fine to matter."""
    now = planner.snapshot.time
    measure = measure_of(planner) if slot is None else slot
    unit = measure or float(patterns.seconds.max(initial=0.0)) / FINE
    return ExactGrid(now=now, unit=unit, slotted=slot is not None)


Extra = tuple[int, Sequence[int]] | None
"""An item, and what each pattern takes in its case."""


class Span(NamedTuple):
    """The interval in which an item may run in some of its patterns."""

    item: int
    interval: Any
    patterns: tuple[int, ...]
    """Of one length, on the same classes."""


class ExactModel:
    """The variables of all items, and the constraints on them.

    `full_link` is the load that a link may carry, in units of the kernels.
    """

    def __init__(
        self, cp: Any, planner: Planner, patterns: Patterns, slot: float | None, full_link: int
    ) -> None:
        self.cp, self.model = cp, cp.CpModel()
        self.planner, self.patterns, self.full_link = planner, patterns, full_link
        self.problem, self.base = planner.compiled.problem, planner.compiled.base
        self.grid = grid = make_grid(planner, patterns, slot)
        self.lasting = grid.lasting(patterns.seconds)
        self.events = [max(grid.free(time), 0) for time in self.base.time.tolist()]
        self.closed = [(grid.down(a), grid.free(b)) for a, b in self.problem.reserved.tolist()]
        self.horizon = self._horizon()
        self.start: list[Any] = []
        self.end: list[Any] = []
        self.chosen: list[Any] = []
        self.spans: list[Span] = []
        self.apart: list[set[int]] = [set() for _ in planner.items]
        self.twins: set[int] = set()
        self._choose_patterns()
        self._fit_classes()
        self._fit_links()
        self._exclude_pairs()
        self._run_alone()
        self._meet_no_reservation()
        self._keep_order()
        self._order_twins()
        self.last = self.model.new_int_var(0, self.horizon, "last")
        self.model.add_max_equality(self.last, self.end)
        self._spend_energy(range(len(planner.items)), self.last)

    def of_item(self, item: int) -> range:
        """Its patterns."""
        return range(*self.patterns.first[item : item + 2].tolist())

    def _horizon(self) -> int:
        """By when a plan can end that places one item after the other."""
        releases = [self.grid.free(item.release) for item in self.planner.items]
        latest = max([*self.events, *releases, *(end for _, end in self.closed)])
        return latest + sum(
            max(self.lasting[p] for p in self.of_item(item))
            for item in range(len(self.planner.items))
        )

    def _choose_patterns(self) -> None:
        model, used = self.model, self.patterns.use > 0
        for n, item in enumerate(self.planner.items):
            first = max(self.grid.free(item.release), 0)
            start = model.new_int_var(first, self.horizon, "")
            end = model.new_int_var(first, self.horizon, "")
            alike: dict[tuple[int, bytes], list[int]] = {}
            for p in self.of_item(n):
                alike.setdefault((self.lasting[p], used[p].tobytes()), []).append(p)
                self.chosen.append(model.new_bool_var(""))
            model.add_exactly_one(self.chosen[p] for p in self.of_item(n))
            for (length, _), members in alike.items():
                there = self.chosen[members[0]]
                if len(members) > 1:
                    there = model.new_bool_var("")
                    model.add(sum(self.chosen[p] for p in members) == there)
                span = model.new_optional_interval_var(start, length, end, there, "")
                self.spans.append(Span(n, span, tuple(members)))
            self.start.append(start)
            self.end.append(end)

    def _demand(self, members: Sequence[int], amounts: Sequence[int]) -> Any:
        """Amount that the patterns of one span take."""
        taken = [amounts[p] for p in members]
        if len(set(taken)) == 1:
            return taken[0]
        demand = self.model.new_int_var(0, max(taken), "")
        self.model.add(demand == sum(amounts[p] * self.chosen[p] for p in members))
        return demand

    def _fit(self, amounts: Sequence[int], free: Sequence[int], extra: Extra = None) -> None:
        """Running items take no more than is free, by event; one of them as `extra` has it."""
        full, model = max(free), self.model
        spans, demands = [], []
        for n, span, members in self.spans:
            mine = extra[1] if extra is not None and extra[0] == n else amounts
            if any(mine[p] for p in members):
                spans.append(span)
                demands.append(self._demand(members, mine))
        ends = [*self.events[1:], self.horizon + 1]
        for begin, end, level in zip(self.events, ends, free, strict=True):
            if level < full and end > begin:
                spans.append(model.new_fixed_size_interval_var(begin, end - begin, ""))
                demands.append(full - level)
        model.add_cumulative(spans, demands, full)

    def _fit_classes(self) -> None:
        for use, free in zip(self.patterns.use.T.tolist(), self.base.free.T.tolist(), strict=True):
            self._fit(use, free)
        total = self.patterns.use.sum(axis=1).tolist()
        self._fit(total, self.base.free.sum(axis=1).tolist())

    def _fit_links(self) -> None:
        """Loads; where links may be saturated, for each item with what its slowdown leaves."""
        scale, room = SHARES / FULL, self.full_link
        spare = np.where(self.patterns.load > 0, room - self.patterns.sc[:, None] * FULL, 0)
        for k in range(self.problem.link_gbps.size):
            load = np.floor(self.patterns.load[:, k] * scale + 0.5).astype(int).tolist()
            if not any(load):
                continue
            slack = len(self.planner.items)  # half a unit for the rounding of each load
            free = [max(int((room - x) * scale), 0) + slack for x in self.base.load[:, k].tolist()]
            self._fit(load, free)
            more = np.floor(np.maximum(spare[:, k], 0.0) * scale).astype(int)
            for n in range(len(self.planner.items)) if more.any() else ():
                self._fit(load, free, (n, (np.array(load) + more).tolist()))

    def _exclude_pairs(self) -> None:
        model, patterns, full = self.model, self.patterns, self.base.free.max(axis=0)
        links = np.full(patterns.load.shape[1], self.full_link + ROUNDING)
        takes, room = np.hstack((patterns.use, patterns.load)), np.append(full, links)
        for n, m in combinations(range(len(self.start)), 2):
            here, there = self.of_item(n), self.of_item(m)
            fits = np.all(takes[here][:, None] + takes[there] <= room, axis=2)
            if fits.all():
                continue
            if not fits.any():
                self.apart[n].add(m)
                self.apart[m].add(n)
            before, after = model.new_bool_var(""), model.new_bool_var("")
            model.add(self.end[n] <= self.start[m]).only_enforce_if(before)
            model.add(self.end[m] <= self.start[n]).only_enforce_if(after)
            for mine, others, rows in ((here, there, fits), (there, here, fits.T)):
                for p, row in zip(mine, rows, strict=True):
                    beside = [self.chosen[q] for q, fit in zip(others, row, strict=True) if fit]
                    model.add_bool_or(~self.chosen[p], before, after, *beside)

    def _run_alone(self) -> None:
        model, spans = self.model, []
        left = {(n, m) for n, others in enumerate(self.apart) for m in others if n < m}
        for n, start in enumerate(self.start if left else ()):
            lengths = [self.lasting[p] for p in self.of_item(n)]
            length = model.new_int_var(min(lengths), max(lengths), "")
            terms = zip(lengths, (self.chosen[p] for p in self.of_item(n)), strict=True)
            model.add(length == sum(x * literal for x, literal in terms))
            spans.append(model.new_interval_var(start, length, self.end[n], ""))
        while left:
            clique = list(min(left))
            others = self.apart[clique[0]] & self.apart[clique[1]]
            while others:
                clique.append(max(others, key=lambda n: (len(self.apart[n] & others), -n)))
                others &= self.apart[clique[-1]]
            left -= {(n, m) for n in clique for m in clique}
            model.add_no_overlap(spans[n] for n in clique)

    def break_symmetry(self) -> None:
        """Of plans that differ in the order of groups, or run backwards, take one.

        Where nothing but the makespan counts, and the same is free at all times.
        """
        tied = any(item.parents for item in self.planner.items)
        late = any(self.grid.free(item.release) > 0 for item in self.planner.items)
        if tied or late or self.closed or len(set(map(tuple, self.base.free.tolist()))) > 1:
            return
        if len(set(map(tuple, self.base.load.tolist()))) > 1:
            return
        begin: Any = 0
        for group in self.groups():
            end = self.model.new_int_var(0, self.horizon, "")
            for n in group:
                self.model.add(self.start[n] >= begin)
                self.model.add(self.end[n] <= end)
            self._spend_energy(group, end - begin)
            self._break_mirror(group)
            begin = end

    def groups(self) -> list[list[int]]:
        """Items that can run beside each other, directly or by others; by their first item."""
        left, groups = set(range(len(self.start))), list[list[int]]()
        while left:
            group = [min(left)]
            for n in group:
                group += sorted(left - self.apart[n] - set(group))
            left -= set(group)
            groups.append(group)
        return groups

    def _break_mirror(self, group: Sequence[int]) -> None:
        least = {n: min(self.lasting[p] for p in self.of_item(n)) for n in group}
        single = set(group) - self.twins
        pairs = [(n, m) for n in single for m in self.apart[n] & single if n < m]
        if pairs:
            n, m = max(pairs, key=lambda pair: least[pair[0]] + least[pair[1]])
            self.model.add(self.end[n] <= self.start[m])

    def _spend_energy(self, items: Sequence[int], time: Any) -> None:
        """Of each class by itself, and of all."""
        asked = self.patterns.use * np.array(self.lasting)[:, None]
        asked = np.hstack((asked, asked.sum(axis=1, keepdims=True)))
        free, model = self.base.free.max(axis=0), self.model
        patterns = [p for n in items for p in self.of_item(n)]
        for needed, most in zip(asked.T.tolist(), [*free.tolist(), int(free.sum())], strict=True):
            model.add(sum(needed[p] * self.chosen[p] for p in patterns if needed[p]) <= most * time)

    def _meet_no_reservation(self) -> None:
        model = self.model
        for r, (begin, end) in enumerate(self.closed):
            for n, _, members in self.spans:
                shut = [self.chosen[p] for p in members if self.patterns.shut[p] >> r & 1]
                if shut and end > 0:
                    before = model.new_bool_var("")
                    for literal in shut:
                        model.add(self.end[n] <= begin).only_enforce_if(literal, before)
                        model.add(self.start[n] >= end).only_enforce_if(literal, ~before)

    def _keep_order(self) -> None:
        for n, item in enumerate(self.planner.items):
            for parent, _ in item.parents:
                self.model.add(self.start[n] >= self.end[parent])

    def _order_twins(self) -> None:
        seen: dict[Any, int] = {}
        items = self.planner.items
        tied = {parent for item in items for parent, _ in item.parents}
        for n, item in enumerate(items):
            if n in tied or item.parents:
                continue
            form = (tuple(item.modes), item.limit, item.group, item.proc_gbps, item.splits)
            key = (form, item.release, item.job.weight)
            if key in seen:
                self.model.add(self.start[seen[key]] <= self.start[n])
                self.twins |= {seen[key], n}
            seen[key] = n

    def over(self, at: int) -> list[float]:
        """Ends of what holds nodes now and is over by a time of the model, seconds."""
        times = list(zip(self.base.time.tolist(), self.events, strict=True))
        ends = self.problem.reserved[:, 1].tolist()
        times += zip(ends, (end for _, end in self.closed), strict=True)
        return [self.grid.now, *(time for time, units in times if units <= at)]

    def weigh(self) -> tuple[Any, float]:
        """Weighted completion from now on in whole units, and the worth of one."""
        weights = self.planner.weights
        unit = 1.0 if (weights == np.floor(weights)).all() else float(weights.max()) / HEAVY
        whole = [int(weight / unit + NEAR) for weight in weights.tolist()]
        return sum(w * end for w, end in zip(whole, self.end, strict=True)), unit * self.grid.unit
