"""The checker's families on what a plan says is proved: certificates, bounds, Pareto gaps.

Everything is added up anew on the pool of `check_pool`: the value of prices by
`certified`, a bound on the makespan by `refutes`. Of a plan with certificates or a
front, no bound and no gap may claim more than that.

A proof costs as many steps as jobs have counts of processes, times twice the slots of its prices.
Beyond a limit it is named as not verified; what else the plan says must then agree with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isfinite
from typing import Any

import numpy as np

from coalloc.model.plan import FrontPoint, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.checking.pool import Pool, PoolJob, pool_of
from coalloc.policies.checking.sheet import RELATIVE, NodeColumns, shown

CELLS = 20_000_000
"""Steps that `check` takes to verify, about .6 s."""


@dataclass(slots=True, kw_only=True)
class Proved:
    """Bounds that hold for every plan of the same jobs."""

    makespan: float
    """Seconds."""
    completion: list[tuple[float, float]]
    """Plans that end by `cap` have at least this weighted completion."""
    faults: list[str] = field(default_factory=list)
    """Claims that are wrong, and those that cost too much to look at."""
    unverified: list[str] = field(default_factory=list)

    def completion_by(self, cap: float) -> float:
        """The best bound on weighted completion of plans that end by `cap`, seconds."""
        near = cap * (1.0 - RELATIVE)
        return max(value for known, value in self.completion if known >= near)

    def gap(self, point: FrontPoint) -> float:
        """Nothing is better than the point in both criteria by more than 1 + this factor.

        For each T: max(cmax / T, completion / LB(T)); below the bound on the makespan is no plan.
        """
        found = ratio(point.cmax, self.makespan)
        for cap, value in self.completion:
            here = max(ratio(point.cmax, cap), ratio(point.weighted_completion, value))
            found = min(found, here)
        return max(found, 1.0) - 1.0


def prove(snapshot: Snapshot, plan: Plan, nodes: NodeColumns, cells: int) -> Proved:
    """Verify the certificates and bounds of a plan, as far as so many steps go."""
    if not plan.certificates and not plan.front:
        return Proved(makespan=0.0, completion=[(inf, 0.0)])
    pool = pool_of(snapshot, plan, nodes)
    if pool.allotments > cells:
        return _taken_for_granted(plan, pool)
    rows = list(pool.rows())
    ends = (release + float(times[-1]) for _, times, _, release in rows if times.size)
    proved = Proved(makespan=max(ends, default=0.0), completion=[(inf, _alone(rows))])
    left = cells
    for i, item in enumerate(plan.certificates):
        where = f"certificates[{i}]"
        fault = malformed(item)
        if fault is not None:
            proved.faults.append(f"{where}{fault}")
            continue
        cap, value = _cap(item), float(item["value"])
        cost = 2 * len(item["grid"]) * sum(row[0].size for row in rows)
        if cost > left:
            proved.unverified.append(f"{where}: {cost} steps to verify, {left} are left")
        else:
            left -= cost
            found = certified(rows, pool.steps, item["grid"], item["prices"], cap)
            if value > _above(found):
                told = f"{shown(value)} is more than its prices prove, {shown(found)}"
                proved.faults.append(f"{where}.value: {told}")
            value = min(value, found)
        proved.completion.append((cap, value))
    for claim in sorted(_makespan_claims(plan)):
        if claim > proved.makespan and refutes(rows, pool.steps, claim * (1.0 - RELATIVE)):
            proved.makespan = claim
    return proved


def claims(plan: Plan, proved: Proved) -> Iterator[str]:
    """Bounds and Pareto gaps say no more than what is proved."""
    if not plan.certificates and not plan.front:
        return
    yield from proved.faults
    for where, value in _bounds(plan, "makespan"):
        if value > _above(proved.makespan):
            yield f"{where}: {shown(value)} is not proved, {shown(proved.makespan)} is"
    for where, value, cap in _completion_bounds(plan):
        found = proved.completion_by(cap)
        if value > _above(found):
            yield f"{where}: {shown(value)} is more than what is proved, {shown(found)}"
    for i, point in enumerate(plan.front):
        if point.pareto_gap is None or not isfinite(point.cmax + point.weighted_completion):
            continue
        found = proved.gap(point)
        if not point.pareto_gap >= found - RELATIVE * (1.0 + found):
            told = f"{shown(point.pareto_gap)} is less than what is proved, {shown(found)}"
            yield f"front[{i}].pareto_gap: {told}"


def malformed(item: Mapping[str, Any]) -> str | None:
    """Reason why a certificate cannot be read, with the key in front; None if it can."""
    if item.get("kind") != "prices":
        return f".kind: {item.get('kind')!r} cannot be verified"
    for key in ("value", "cap"):
        value = item.get(key)
        if not _is_finite(value) and not (key == "cap" and value is None):
            return f".{key}: {value!r} is not a finite number"
    grid, prices = item.get("grid"), item.get("prices")
    if not isinstance(grid, list | tuple):
        return ".grid: is not an array"
    if not isinstance(prices, list | tuple):
        return ".prices: is not an array"
    for key, numbers in (("grid", grid), ("prices", prices)):
        bad = next((n for n, x in enumerate(numbers) if not _is_finite(x) or x < 0.0), None)
        if bad is not None:
            return f".{key}[{bad}]: {numbers[bad]!r} is not a finite number of at least 0"
    if len(grid) != len(prices) + 1 or not prices:
        return f".grid: has {len(grid)} edges for {len(prices)} prices"
    if grid[0] != 0.0 or any(b < a for a, b in pairwise(grid)):
        return ".grid: does not rise from 0"
    return None


def refutes(rows: Sequence[PoolJob], steps: Any, guess: float) -> bool:
    """Whether it is certain that no schedule ends by `guess`, seconds.

    So it is if a job is too long; if the least work of all jobs is more than the processors do by
    then; or if it is more once jobs that run past half the guess, hence at its middle, share the
    processors that are there (a knapsack, in fractions).
    """
    starts, capacity = steps
    work, saved, size, shared = 0.0, [], [], 0
    for procs, times, _, release in rows:
        fits = times <= guess - release
        if not fits.any():
            return True
        least = float((procs * times)[fits].min())
        short = times <= guess / 2.0
        if not (fits & short).any():
            shared += int(procs[fits].min())
            work += least
            continue
        half = float((procs * times)[fits & short].min())
        work += half
        if half > least:
            saved.append(half - least)
            size.append(int(procs[fits].min()))
    level = int(capacity[np.searchsorted(starts, guess / 2.0, side="right") - 1])
    if shared > level:
        return True
    gain, count = np.array(saved), np.array(size, dtype=np.float64)
    order = np.argsort(-gain / count, kind="stable")
    before = np.cumsum(count[order]) - count[order]
    taken = np.clip((level - shared - before) / count[order], 0.0, 1.0)
    edges = np.append(starts[starts < guess], guess)
    area = float((capacity[: edges.size - 1] * np.diff(edges)).sum())
    return work - float(gain[order] @ taken) > area * (1.0 + RELATIVE)


def ratio(value: float, bound: float) -> float:
    """Ratio of a value to its bound; 1 where both are 0."""
    if bound > 0.0:
        return value / bound
    return 1.0 if value <= 0.0 else inf


def _taken_for_granted(plan: Plan, pool: Pool) -> Proved:
    """The plan's own word, where even its jobs are too many to look at."""
    readable = [item for item in plan.certificates if malformed(item) is None]
    values = [(_cap(item), float(item["value"])) for item in readable]
    unverified = f"bounds and certificates: the jobs have {pool.allotments} counts of processes"
    return Proved(
        makespan=max(_makespan_claims(plan), default=0.0),
        completion=[(inf, 0.0), *values],
        faults=[
            f"certificates[{i}]{fault}"
            for i, item in enumerate(plan.certificates)
            if (fault := malformed(item)) is not None
        ],
        unverified=[unverified],
    )


def _bounds(plan: Plan, objective: str) -> Iterator[tuple[str, float]]:
    told = plan.objective
    if told.name == objective and told.bound is not None:
        yield "objective.bound", told.bound
    if objective == "makespan":
        for i, point in enumerate(plan.front):
            if point.cmax_bound is not None:
                yield f"front[{i}].cmax_bound", point.cmax_bound


def _completion_bounds(plan: Plan) -> Iterator[tuple[str, float, float]]:
    """Path of a completion bound, its value, and by when the plans end that it is told of."""
    for where, value in _bounds(plan, "weighted_completion"):
        yield where, value, inf
    for i, point in enumerate(plan.front):
        if point.weighted_completion_bound is not None:
            where = f"front[{i}].weighted_completion_bound"
            yield where, point.weighted_completion_bound, point.cmax


def _makespan_claims(plan: Plan) -> set[float]:
    return {value for _, value in _bounds(plan, "makespan") if isfinite(value)}


def _alone(rows: Sequence[PoolJob]) -> float:
    """Weighted completion if each job had all processors for itself."""
    return sum(w * (release + float(times[-1])) for _, times, w, release in rows if times.size)


def _cap(item: Mapping[str, Any]) -> float:
    return inf if item.get("cap") is None else float(item["cap"])


def _above(value: float) -> float:
    """The largest number that is still taken for the same."""
    return value + RELATIVE * abs(value) + 1e-9


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def certified(
    jobs: Iterable[Any], steps: Any, grid: Any, prices: Any, cap: float = np.inf
) -> float:
    """Weighted completion below which no schedule is, by these prices of a processor-second.

    Parameters
    ----------
    jobs : iterable of (procs, times, weight, release), the first two arrays of equal length
    steps : pair of arrays
        Seconds from which so many processors are there, from 0; and how many.
    """
    starts, capacity, grid, prices = map(np.asarray, (*steps, grid, prices))
    if not (prices >= 0.0).all() or not (np.diff(grid) >= 0.0).all() or grid[0] != 0.0:
        return -np.inf
    paid = np.concatenate(([0.0], np.cumsum(prices * np.diff(grid))))
    edges = np.union1d(grid, starts[starts < grid[-1]])
    level = capacity[np.searchsorted(starts, edges[:-1], side="right") - 1]
    bound = -float(level @ np.diff(np.interp(edges, grid, paid)))
    for procs, times, weight, release in jobs:
        k, p = np.asarray(procs)[:, None], np.asarray(times)[:, None]
        s = np.concatenate((grid + 0.0 * p, grid - p, release + 0.0 * p, cap - p), axis=1)
        fits = (s >= release) & (s + p <= cap * (1.0 + 1e-12)) & (s < np.inf)
        s = np.where(fits, s, 0.0)
        run = np.interp(s + p, grid, paid) - np.interp(s, grid, paid)
        bound += (weight * (s + p) + k * run)[fits].min(initial=np.inf)
    return bound
