"""The checker's families on a plan as a whole: answers, objective, status, front; metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import fsum, inf, isclose, isfinite

import numpy as np

from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Deferred, Placement, Plan, Reason, Status
from coalloc.model.shape import Shape
from coalloc.model.snapshot import Snapshot
from coalloc.policies.checking.occupation import LinkUse, peak
from coalloc.policies.checking.sheet import (
    RELATIVE,
    Floats,
    NodeColumns,
    Sheet,
    Unit,
    named,
    shown,
    tolerance,
)

Units = Mapping[tuple[str, str | None], Unit]
JUDGED = Reason.HELD, Reason.INFEASIBLE


def answers(
    units: Units, placements: Sequence[Placement], deferred: Sequence[Deferred]
) -> Iterator[str]:
    """Every unit exactly once: in `placements` or in `deferred`."""
    placed = {(p.job, p.task) for p in placements}
    once = {(item.job, item.task) for item in deferred}
    if len(once) == len(deferred) and not once & placed and once | placed == units.keys():
        return
    left: set[tuple[str, str | None]] = set()
    for item in deferred:
        key = item.job, item.task
        if key not in units:
            yield f"{named(*key)}: is deferred, yet not in the queue"
        elif key in left:
            yield f"{named(*key)}: is deferred twice"
        elif key in placed:
            yield f"{named(*key)}: is both placed and deferred"
        left.add(key)
    for key, unit in units.items():
        if key not in placed and key not in left:
            yield f"{unit.name}: is neither placed nor deferred"


def reasons(
    snapshot: Snapshot, units: Units, nodes: NodeColumns, deferred: Sequence[Deferred]
) -> Iterator[str]:
    """`held` only for held jobs; `infeasible` not for what one empty cluster can run.

    Only what is certain is reported: all units of the job fit on a single cluster that it
    allows, with its features, memory and resources, all nodes free whatever their state.
    """
    fits: dict[str, bool] = {}
    empty = _empty_clusters(snapshot, nodes)
    for item in deferred:
        unit = units.get((item.job, item.task)) if item.reason in JUDGED else None
        if unit is None:
            continue
        if item.reason is Reason.HELD and not unit.job.held:
            yield f"{unit.name}: is deferred as held, and is not"
        if item.reason is Reason.INFEASIBLE:
            if item.job not in fits:
                tasks = unit.job.tasks if isinstance(unit.job, WorkflowJob) else ()
                mine = [units[item.job, task.id] for task in tasks] or [unit]
                fits[item.job] = bool(set.intersection(*map(empty, mine)))
            if fits[item.job]:
                yield f"{unit.name}: is deferred as infeasible, and fits an empty cluster"


def _empty_clusters(snapshot: Snapshot, nodes: NodeColumns) -> Callable[[Unit], set[str]]:
    """Clusters on which a unit certainly fits when they are empty."""

    @cache
    def rooms(features: tuple[str, ...], memory_mb: int, shape: Shape) -> dict[str, Floats]:
        most = np.where(nodes.with_features(features), nodes.most(shape, memory_mb), 0.0)
        inside = {c.name: most[nodes.cluster == k] for k, c in enumerate(snapshot.clusters)}
        return {
            name: -np.sort(-room[room > 0.0])[: shape.max_nodes] for name, room in inside.items()
        }

    def fitting(unit: Unit) -> set[str]:
        shape, procs = unit.shape, unit.fewest or inf
        room = rooms(unit.job.features, unit.job.memory_mb_per_proc, shape)
        found = {
            k for k, most in room.items() if most.sum() >= procs and shape.min_nodes <= len(most)
        }
        allowed = found if unit.job.clusters is None else found.intersection(unit.job.clusters)
        return set() if shape.per_job or procs < shape.min_nodes else allowed

    return fitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Objectives of placements."""

    value: Mapping[str, float]
    """The value, and how much it may be off for the tolerance on times."""
    allowed: Mapping[str, float]


def values_of(snapshot: Snapshot, placements: Iterable[Placement]) -> Values:
    """Makespan, weighted completion (a workflow once, at its last task), total execution."""
    weights = {job.id: job.weight for job in snapshot.queue}
    sound = [p for p in placements if isfinite(p.start) and isfinite(p.end)]
    ends: dict[str, float] = {}
    for p in sound:
        ends[p.job] = max(ends.get(p.job, -inf), p.end)
    off = tolerance(np.array(list(ends.values()), dtype=np.float64), snapshot.time).tolist()
    weight = [weights.get(job, 0.0) for job in ends]
    completion = [w * (end - snapshot.time) for w, end in zip(weight, ends.values(), strict=True)]
    runs = [p.end - p.start for p in sound]
    return Values(
        value={
            "makespan": max(ends.values(), default=snapshot.time) - snapshot.time,
            "weighted_completion": fsum(completion),
            "total_execution": fsum(runs),
        },
        allowed={
            "makespan": max(off, default=1e-6),
            "weighted_completion": fsum(w * t for w, t in zip(weight, off, strict=True)) + 1e-9,
            "total_execution": len(runs) * max(off, default=0.0) + 1e-9,
        },
    )


def objective(plan: Plan, values: Values) -> Iterator[str]:
    """The value is what the placements give; bound <= value; deferred = jobs without a start."""
    told = plan.objective
    actual = values.value.get(told.name)
    if actual is None:
        yield f"objective.name: {told.name!r} is not one of {', '.join(values.value)}"
    elif not abs(told.value - actual) <= values.allowed[told.name]:
        yield f"objective.value: {shown(told.value)}, the placements give {shown(actual)}"
    if told.bound is not None and not _at_most(told.bound, told.value):
        yield f"objective.bound: {shown(told.bound)} is above the value {shown(told.value)}"
    jobs = len({item.job for item in plan.deferred})
    if told.deferred != jobs:
        yield f"objective.deferred: {told.deferred}, {jobs} jobs are deferred"


def status(plan: Plan) -> Iterator[str]:
    """Optimal: bound = value to 1e-9. Feasible: has a bound. Infeasible: nothing is placed."""
    bound, value = plan.objective.bound, plan.objective.value
    match plan.status:
        case Status.OPTIMAL if bound is None:
            yield "status: optimal without a bound"
        # A bound above the value is reported with the objective.
        case Status.OPTIMAL if bound is not None and bound < value and not _equal(bound, value):
            yield f"status: optimal, yet bound {shown(bound)} is not the value {shown(value)}"
        case Status.FEASIBLE if bound is None:
            yield "status: feasible without a bound"
        case Status.INFEASIBLE if plan.placements:
            yield f"status: infeasible, yet {len(plan.placements)} placements"


def front_values(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Values right, bounds below them; cmax rises, weighted completion falls."""
    for i, point in enumerate(plan.front):
        values = values_of(snapshot, point.placements)
        for key, objective, told, bound in (
            ("cmax", "makespan", point.cmax, point.cmax_bound),
            (
                "weighted_completion",
                "weighted_completion",
                point.weighted_completion,
                point.weighted_completion_bound,
            ),
        ):
            actual = values.value[objective]
            if not abs(told - actual) <= values.allowed[objective]:
                yield f"front[{i}].{key}: {shown(told)}, the placements give {shown(actual)}"
            if bound is not None and not _at_most(bound, told):
                yield f"front[{i}].{key}_bound: {shown(bound)} is above {shown(told)}"
    for i, (one, next_one) in enumerate(pairwise(plan.front), start=1):
        if not next_one.cmax > one.cmax:
            yield f"front[{i}].cmax: {shown(next_one.cmax)} does not rise"
        elif not next_one.weighted_completion < one.weighted_completion:
            found = shown(next_one.weighted_completion)
            yield f"front[{i}].weighted_completion: {found} does not fall"
    yield from _front_summary(plan)


def _front_summary(plan: Plan) -> Iterator[str]:
    if plan.front and plan.chosen is None:
        yield "chosen: is missing, and there is a front"
    if plan.chosen is not None:
        if not 0 <= plan.chosen < len(plan.front):
            yield f"chosen: {plan.chosen} is not an index into front"
        elif _as_set(plan.front[plan.chosen].placements) != _as_set(plan.placements):
            yield f"chosen: the placements of front[{plan.chosen}] are not the plan's"
    gaps = [point.pareto_gap for point in plan.front if point.pareto_gap is not None]
    told, actual = plan.pareto_gap, min(gaps, default=None)
    if (told is None) != (actual is None) or (
        told is not None and actual is not None and not _equal(told, actual)
    ):
        yield f"pareto_gap: {told}, the smallest of the front is {actual}"


def _as_set(placements: Sequence[Placement]) -> dict[tuple[str, str | None], list[Placement]]:
    """The placements of each job and task; the pieces of a divisible job in one order."""
    out: dict[tuple[str, str | None], list[Placement]] = {}
    for p in placements:
        out.setdefault((p.job, p.task), []).append(p)
    for same in out.values():
        same.sort(key=lambda p: (p.start, p.end, p.chunks or 0, *p.nodes))
    return out


def metrics_of(
    sheet: Sheet, plan: Plan, values: Values, coallocated: int, uses: Sequence[LinkUse]
) -> dict[str, float | None]:
    """Measure what `check` reports beside violations; seconds, ratios and counts."""
    makespan = values.value["makespan"]
    total = int(sheet.nodes.slots.sum())
    taken = np.where(sheet.exclusive(), sheet.nodes.slots[sheet.node], sheet.slots)
    work = fsum((sheet.end - sheet.start) * np.bincount(sheet.row, taken, len(sheet.units)))
    return {
        **values.value,
        "compaction": work / (total * makespan) if total and makespan > 0.0 else None,
        "bound": plan.objective.bound,
        "gap": plan.objective.gap,
        "pareto_gap": plan.pareto_gap,
        "placed": len({p.job for p in plan.placements}),
        "deferred": len({item.job for item in plan.deferred}),
        "coallocated": coallocated,
        **{f"peak_link_use.{use.name}": peak(use) for use in uses},
    }


def _at_most(bound: float, value: float) -> bool:
    return bound <= value or _equal(bound, value)


def _equal(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=RELATIVE, abs_tol=1e-9)
