"""Beginning of the search for workflows: published policies, and allotments along two trajectories.

*CPA*: every task starts on its fewest processes; as long as the critical path is longer than the
mean area, the tasks of the path grow whose time falls most for the area it costs. Some thirty
allotments on the way are kept, since no rule says where to stop.

*Program*: the allotments of the linear program behind the bound, told that only a share of the
processes is there, since no schedule fills them all.

References
----------
A. Radulescu, A. van Gemund, "A low-cost approach towards mixed task and data parallel scheduling",
ICPP 2001 (CPA).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from coalloc.policies.array_types import Ints
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.options import Options, defaults_of
from coalloc.policies.published import cpa, m_heft, mca_heft, options
from coalloc.policies.workflow.bound import WorkflowBound
from coalloc.policies.workflow.forms import Form
from coalloc.policies.workflow.mapping import Mapper
from coalloc.policies.workflow.search.search_case import WorkflowCase

STOPS = 30
"""Allotments that are kept of a trajectory."""
GROWTH = 1.1
"""Factor by which a task's processes grow."""
SHARES = (0.95, 0.85, 0.75, 0.65)
"""Of the processes, that the program is told of."""


RUNS: Mapping[str, m_heft.Run] = {**m_heft.RUNS, **cpa.RUNS, **mca_heft.RUNS}
MEMBERS: Mapping[str, type[Options]] = {
    "m-heft": options.MappedOptions,
    "m-heft-imp": options.MHeftImpOptions,
    "m-heft-eff": options.MHeftEffOptions,
    "m-heft-max": options.MHeftMaxOptions,
    "hcpa": options.CpaOptions,
    "mcpa": options.CpaOptions,
    "mca-heft": options.McaHeftOptions,
}
"""The published policies with their options, as they are registered."""


def members(planner: Planner, may_go_on: Callable[[], bool]) -> Iterator[tuple[str, Schedule]]:
    """Plan with each published policy, under the planner's options and its own defaults."""
    mapper = Mapper(planner)
    for name, form in MEMBERS.items():
        if not may_go_on():
            return
        mapper.clear()
        RUNS[name](mapper, {**defaults_of(form), **planner.options})
        yield name, mapper.schedule()


def smallest(case: WorkflowCase) -> Ints:
    """The fewest processes of each item."""
    return np.array(case.items.low)


def trajectory(case: WorkflowCase, stop: Callable[[], bool]) -> list[Ints]:
    """Allotments on the way of CPA, the first stop and the last among them."""
    steps = _Growth(case)
    kept = [np.array(steps.procs)]
    while steps.grow() and not stop():
        kept.append(np.array(steps.procs))
    chosen = np.unique(np.linspace(0, len(kept) - 1, STOPS).astype(np.int64))
    return [kept[x] for x in reversed(chosen)]


class _Growth:
    """Allotments that grow along the critical path."""

    def __init__(self, case: WorkflowCase) -> None:
        self.case, self.graph = case, case.graph
        planner = case.planner
        self.forms = case.forms
        self.power = case.mean_power
        self.most = np.minimum(
            case.items.high, case.site.room[case.problem.item_group].max(axis=1, initial=0)
        )
        self.procs = np.array(case.items.low)
        size = len(planner.items)
        self.time = np.zeros(size)
        for n in case.inside.tolist():
            self.time[n] = self._seconds(n, int(self.procs[n]))
        self.area = float((self.time * self.procs)[case.inside].sum())
        self.at_once = max(1, case.size // 30)

    def _seconds(self, n: int, procs: int) -> float:
        return seconds(self.forms[n], procs, self.power, self.case.mean_intra)

    def grow(self) -> bool:
        """One step; false where the path is no longer than the area, or nothing on it grows."""
        bottom, top = self.graph.bottom(self.time), self.graph.top(self.time)
        longest = float(bottom.max(initial=0.0))
        if longest <= self.area / max(self.case.slots, 1):
            return False
        path = np.flatnonzero(bottom + top >= longest * (1.0 - 1e-9))
        gains: list[tuple[float, int, int, float]] = []
        for n in path[np.isin(path, self.case.inside)].tolist():
            found = self._next(n)
            if found is None:
                continue
            procs, time = found
            cost = procs * time - self.procs[n] * self.time[n]
            gains.append(((self.time[n] - time) / max(cost, 1e-12), n, procs, time))
        for _, n, procs, time in sorted(gains, reverse=True)[: self.at_once]:
            self.area += procs * time - float(self.procs[n] * self.time[n])
            self.procs[n], self.time[n] = procs, time
        return bool(gains)

    def _next(self, n: int) -> tuple[int, float] | None:
        """The next larger allotment that is faster."""
        form, now = self.forms[n], int(self.procs[n])
        most = int(self.most[n])
        larger: Iterator[int] | list[int]
        if form.table:
            larger = (mode[0] for mode in form.table if now < mode[0] <= most)
        else:
            larger = [min(most, max(now + 1, int(now * GROWTH)))] if now < most else []
        for procs in larger:
            time = self._seconds(n, procs)
            if time < self.time[n]:
                return procs, time
        return None


def seconds(form: Form, procs: int, power: float, intra: float) -> float:
    """Run time on so many processes of one cluster, seconds."""
    if form.table:
        mode = [m for m in form.table if m[0] <= procs][-1]
        return mode[1] / power + mode[2]
    alone, shared = form.trade(power, intra)
    return alone + shared / procs


def of_program(case: WorkflowCase, bound: WorkflowBound, share: float) -> Ints | None:
    """Allotments of the program where only a share of the processes is there."""
    times = bound.times(share)
    if times is None:
        return None
    procs = np.array(case.items.low)
    power, intra = case.mean_power, case.mean_intra
    widest = case.site.room[case.problem.item_group].max(axis=1, initial=0)
    for n in case.inside.tolist():
        form, most = case.forms[n], int(min(case.items.high[n], widest[n]))
        if form.table:
            fitting = [m[0] for m in form.table if m[0] <= most]
            quick = [p for p in fitting if seconds(form, p, power, intra) <= times[n]]
            procs[n] = min(quick, default=max(fitting, default=procs[n]))
            continue
        alone, shared = form.trade(power, intra)
        spare = float(times[n]) - alone
        wanted = shared / spare if spare > 0.0 else most
        procs[n] = max(form.low, min(round(wanted), most))
    return procs
