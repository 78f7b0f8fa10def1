"""The rule by which a plan was made, so that a changed snapshot can be planned the same way.

A simple order is repeated as it is, and so is the order that won in `auto`. Of any other policy
the order of starts is kept, and each job gets its earliest fit in this order: a schedule that
exists, so what is said of it holds, though the policy's search may find a better one.

A change (`changes`) is tried so: it is made to the snapshot, which is planned again by the rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.plan import Deferred, Placement, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.counted import policy as counted
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.counted.planning import plain
from coalloc.policies.explain.changes import WhyCase, WhyChange, apply, cost
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.instance.modes import may_split
from coalloc.policies.orders.simple import (
    SIMPLE,
    SKIPPING,
    as_before,
    lay_simply,
    laying,
    sort_items,
)
from coalloc.policies.relative_time import at_time, from_now

AUTO_DECODERS: Mapping[str, str] = dict(SKIPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule by which to plan a snapshot."""

    policy: str
    """Whose plan it was; for the reader."""
    won: str = ""
    """Simple order that won in `auto`; empty: by `order`, where the policy is not simple itself."""
    order: Sequence[str] = ()
    """Jobs by planned start; those not named follow in arrival order."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Start and end of a job; of a workflow, of its first and last task."""

    start: float
    end: float


class RulePlan:
    """A snapshot planned by a rule."""

    def __init__(self, snapshot: Snapshot, rule: Rule) -> None:
        self.snapshot, self.rule = snapshot, rule
        self._planner: Planner | None = None
        self._schedule: Schedule | None = None
        self._plan: Plan | None = None
        if rule.policy == "plain":
            self._plan = at_time(plain(from_now(snapshot), {}, Budget()), snapshot.time)
            return
        if needs_counting(snapshot):
            self._plan = at_time(_counted(from_now(snapshot), rule, snapshot.time), snapshot.time)
            return
        planner = Planner(from_now(snapshot), rule.options, snapshot.time)
        self._planner, self._schedule = planner, _laid(planner, rule)

    @property
    def plan(self) -> Plan:
        """The plan with its nodes."""
        if self._plan is None:
            assert self._planner is not None
            assert self._schedule is not None
            plan = self._planner.plan(self._schedule, self.rule.policy)
            self._plan = at_time(plan, self.snapshot.time)
        return self._plan

    def timing(self, job: str) -> Timing | None:
        """Span in which a job runs; None if it, or a task of it, has no start."""
        if self._planner is None or self._schedule is None:
            return planned(self.plan, job)
        items = [n for n, item in enumerate(self._planner.items) if item.job.id == job]
        outcome = self._schedule.outcome
        starts = [float(outcome.start[n]) for n in items]
        if not items or any(start != start for start in starts):
            return None
        now, end = self.snapshot.time, max(float(outcome.end[n]) for n in items)
        return Timing(start=min(starts) + now, end=end + now)

    def deferral(self, job: str) -> Deferred | None:
        """Reason why a job has no start, if it has none."""
        if self._planner is None:
            return deferral(self.plan, job)
        return next((d for d in self._planner.intake.deferred if d.job == job), None)

    def splits(self, job: Job) -> bool:
        """Whether the job may run on several clusters."""
        items = [] if self._planner is None else self._planner.items
        mine = [item.splits for item in items if item.job.id == job.id]
        if mine:
            return any(mine)
        rated = isinstance(job, RigidJob | MoldableJob)
        return rated and may_split(job, self.rule.options, len(self.snapshot.clusters))


def _counted(problem: Snapshot, rule: Rule, origin: float) -> Plan:
    """By counted resources; what is no simple order books ahead in the order of its starts."""
    name = rule.policy if rule.policy in SIMPLE else "conservative"
    place = {job: n for n, job in enumerate(rule.order if name != rule.policy else ())}
    queue = sorted(problem.queue, key=lambda job: place.get(job.id, len(place)))
    budget = Budget(bounds=False, origin=origin)
    return counted.solve(name, replace(problem, queue=tuple(queue)), rule.options, budget)


def _laid(planner: Planner, rule: Rule) -> Schedule:
    if rule.policy in SIMPLE:
        return lay_simply(planner, laying(rule.policy, rule.options))
    if rule.won:
        return planner.decode(sort_items(planner, rule.won), AUTO_DECODERS[rule.won])
    order = as_before(planner, range(len(planner.items)), rule.order)
    return planner.decode(order, "insert")


def rule_of(
    policy: str,
    options: Mapping[str, Any] | None = None,
    stats: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
) -> Rule:
    """The rule behind a policy's plan.

    `options`, `stats`: of the plan: the policy's complete options, and what it said of its search.
    `order` (sequence of str): jobs by planned start.
    """
    first = (stats or {}).get("order") if policy == "auto" else None
    won = first if isinstance(first, str) and first in AUTO_DECODERS else ""
    return Rule(policy=policy, won=won, order=tuple(order), options=dict(options or {}))


def rule_of_plan(plan: Plan) -> Rule:
    """The rule behind a plan."""
    return rule_of(plan.policy, plan.options, plan.stats, start_order(plan.placements))


def start_order(placements: Sequence[Placement]) -> tuple[str, ...]:
    """Jobs by planned start, each once."""
    rising = sorted(placements, key=lambda p: p.start)
    return tuple(dict.fromkeys(p.job for p in rising))


def planned(plan: Plan, job: str) -> Timing | None:
    """Span in which a plan runs a job; None if it, or a task of it, has no start."""
    mine = [p for p in plan.placements if p.job == job]
    if not mine or deferral(plan, job) is not None:
        return None
    return Timing(start=min(p.start for p in mine), end=max(p.end for p in mine))


def deferral(plan: Plan, job: str) -> Deferred | None:
    """Reason why a plan gives a job no start, if it gives none."""
    return next((d for d in plan.deferred if d.job == job), None)


GAIN_S = 1e-3
"""A smaller difference is none, seconds."""
NEVER_S = 1e10
"""A start later than this is none: behind the reservation that the change ``slots`` makes."""
JOB_SIDE = frozenset({"procs", "cpus"})
"""Changes after which the job may run longer: what counts is its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Changes and what came of them."""

    changes: tuple[WhyChange, ...]
    timing: Timing | None
    solved: RulePlan


class ChangeSearch:
    """The trials for one job; `helpful` are those after which it runs earlier than planned."""

    def __init__(
        self,
        case: WhyCase,
        rule: Rule,
        references: Sequence[Timing],
        stop: Callable[[], bool],
    ) -> None:
        self.case, self.rule, self.stop = case, rule, stop
        self.references = references
        self.helpful: list[Trial] = []
        self.tried = 0
        self.complete = True
        self._known: dict[tuple[WhyChange, ...], Trial] = {}

    def attempt(self, *changes: WhyChange) -> Trial | None:
        """Plan with these changes; None if it does not help, or there is no time to know."""
        if changes not in self._known:
            if self.stop():
                self.complete = False
                return None
            case = apply(self.case, changes)
            solved = RulePlan(case.snapshot, dataclasses.replace(self.rule, options=case.options))
            self.tried += 1
            trial = Trial(changes=changes, timing=solved.timing(self.case.job), solved=solved)
            self._known[changes] = trial
            if self.helps(trial):
                self.helpful.append(trial)
        trial = self._known[changes]
        return trial if self.helps(trial) else None

    def first(self, candidates: Iterable[WhyChange], most: int) -> Trial | None:
        """The first of the candidates that helps."""
        for change, _ in zip(candidates, range(most), strict=False):
            found = self.attempt(change)
            if found is not None:
                return found
        return None

    def helps(self, trial: Trial) -> bool:
        """Whether the job runs earlier than in every plan without the changes."""
        timing = trial.timing
        if timing is None or timing.start - self.case.snapshot.time > NEVER_S:
            return False
        by_start = any(change.kind in JOB_SIDE for change in trial.changes)
        return all(
            timing.start < known.start - GAIN_S if by_start else timing.end < known.end - GAIN_S
            for known in self.references
        )

    def worth(self, trial: Trial) -> float:
        """Gain of a trial for the size of its changes, 0..1."""
        timing, now = trial.timing, self.case.snapshot.time
        assert timing is not None
        gain = 1.0 if timing.start <= now else 1.0 / (1.0 + (timing.start - now) / 3600.0)
        if self.references:
            first = self.references[0]
            gain = max(
                _share(first.start - now, timing.start - now),
                _share(first.end - now, timing.end - now),
            )
        left = 1.0
        for change in trial.changes:
            left *= 1.0 - cost(change)
        return gain * left


def _share(before: float, after: float) -> float:
    return max(0.0, (before - after) / before) if before > 0.0 else 0.0
