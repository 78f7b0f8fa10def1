"""Explanation of a job's waiting: what binds, and one change after which it would run earlier.

Nothing is guessed. Each constraint that is named was relaxed alone, and the snapshot planned again
by the rule of the round (`rule`): the job ran earlier. Where none helps alone but all together do,
those without which it does not help are named, as binding together. The counterfactual is the
trial that gains most for the size of its change.

Notes
-----
A gain is an earlier end; after a change of processes, which changes the run time, an earlier start.
A trial is worth share · Π (1 − cost), with the share of the wait (or of the time to the end) that
it saves, and the costs of `changes.cost`. Each trial is one decoding: about 1 s at 10,000 jobs on
2,000 nodes, some ms at 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf, isfinite

from coalloc.model.errors import InputError
from coalloc.model.jobs import DivisibleJob, Job, MoldableJob, RigidJob
from coalloc.model.plan import Deferred, Placement, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import never
from coalloc.policies.explain import candidates
from coalloc.policies.explain.changes import WhyCase, WhyChange, cost
from coalloc.policies.explain.explanation import Constraint, Counterfactual, Explanation
from coalloc.policies.explain.room import NEAR_S, Room
from coalloc.policies.explain.rule import (
    ChangeSearch,
    Rule,
    RulePlan,
    Timing,
    Trial,
    deferral,
    planned,
    rule_of_plan,
)

MOST_OF_IT = 0.5
"""Share of the gain of all jobs that a few of them must bring to stand for all."""
NAMED = 8
"""Jobs that a change names, at most, unless it takes all."""
RANK = (
    *("release", "dependency", "tasks", "earliest", "reachable", "reservation", "link", "order"),
    *("running", "nodes", "slots", "features", "memory", "shape"),
    *("clusters", "split", "bandwidth"),
)
KINDS = {"release": "hold"}
"""Kinds of constraint that are not called as the change that relaxes them."""


def explain_plan(
    snapshot: Snapshot, plan: Plan, job: str, stop: Callable[[], bool] = never
) -> Explanation:
    """Explain why a job waits in a plan of this snapshot."""
    return explain(
        snapshot,
        rule_of_plan(plan),
        job,
        timing=planned(plan, job),
        deferred=deferral(plan, job),
        stop=stop,
    )


def explain(
    snapshot: Snapshot,
    rule: Rule,
    job: str,
    *,
    timing: Timing | None = None,
    deferred: Deferred | None = None,
    stop: Callable[[], bool] = never,
) -> Explanation:
    """Explain why a job waits; of a divisible one, what the plan says of it.

    `timing` and `deferred` are what the round's plan says of the job; by default the rule says it.
    Once `stop` is true, which is asked before each trial, what is known must do.

    Raises `InputError` where the job does not wait in this snapshot.
    """
    target = next((other for other in snapshot.queue if other.id == job), None)
    if target is None:
        raise InputError("job", f"no job {job!r} waits in this snapshot")
    base = RulePlan(snapshot, rule)
    by_rule = base.timing(job)
    references = [t for t in (timing, by_rule) if t is not None]
    if deferred is None and timing is None:
        deferred = base.deferral(job)
    reference = timing if timing is not None else (None if deferred is not None else by_rule)
    made = Explanation(
        job=job,
        time=snapshot.time,
        policy=rule.policy,
        reason="waits" if deferred is None else str(deferred.reason),
        detail="" if deferred is None else deferred.detail,
        start=None if reference is None else reference.start,
        end=None if reference is None else reference.end,
    )
    if reference is not None and reference.start <= snapshot.time + NEAR_S:
        return replace(made, reason="starts_now")
    if isinstance(target, DivisibleJob):
        return made  # No rule places it, but what the others leave.
    return _Inquiry(snapshot, rule, target, base, references, stop).answer(made)


class _Inquiry:
    """The work of `explain`, with what is looked at often."""

    def __init__(
        self,
        snapshot: Snapshot,
        rule: Rule,
        job: Job,
        base: RulePlan,
        references: Sequence[Timing],
        stop: Callable[[], bool],
    ) -> None:
        self.snapshot, self.job, self.base = snapshot, job, base
        self.now = snapshot.time
        self.end = references[0].end if references else inf
        self.splits = base.splits(job)
        self.placements = base.plan.placements
        self.room = Room(snapshot, job, self.placements, self.end, splits=self.splits)
        self.mine = self._placement(base)
        case = WhyCase(snapshot=snapshot, options=rule.options, job=job.id)
        self.search = ChangeSearch(case, rule, references, stop)
        self.family = candidates.ancestors(snapshot, job)

    def answer(self, made: Explanation) -> Explanation:
        alone: list[Trial] = []
        tests: list[WhyChange] = []
        gates = len(list(candidates.gates(self.snapshot, self.job)))
        for change in self._tests():
            tests.append(change)
            if len(tests) == gates + 1:
                for fewer in candidates.fewer_procs(self.job, self.room):
                    self.search.attempt(fewer)
            found = self.search.attempt(change)
            if found is not None:
                alone.append(self._refined(found))
        if any(trial.changes[0].kind == "link" for trial in alone):
            self.search.first(candidates.less_bandwidth(self.job), 3)
        together: Trial | None = None
        if self.search.complete and all(t.changes[0].kind == "slots" for t in alone):
            together = self._together([c for c in tests if c.kind != "slots"])
            if together is None and not alone:
                together = self._together(tests)
        listed = together.changes if together is not None else ()
        if together is not None:
            alone = []
        constraints = [self._constraint(trial) for trial in self._distinct(alone)]
        constraints += [Constraint(kind=_kind(c), change=c) for c in listed]
        return replace(
            made,
            slots=self.room.slots(self.mine),
            constraints=tuple(constraints),
            several=together is not None,
            counterfactual=self._best(),
            complete=self.search.complete,
            tried=self.search.tried,
        )

    def _tests(self) -> Iterable[WhyChange]:
        """Candidates for what binds, most likely first."""
        yield from candidates.gates(self.snapshot, self.job)
        ahead = self._ahead()
        if ahead:
            yield WhyChange(kind="order", names=ahead)
        running = tuple(job.id for job in self.snapshot.running)
        if running:
            yield WhyChange(kind="running", names=running)
        yield from candidates.site_side(self.snapshot, self.job, self.splits)
        yield from candidates.job_side(self.snapshot, self.job, self.splits)
        yield from self._more_slots()

    def _ahead(self) -> tuple[str, ...]:
        """Planned jobs that start before this one would end."""
        names = (p.job for p in self.placements if p.start < self.end)
        return tuple(name for name in dict.fromkeys(names) if name not in self.family)

    def _more_slots(self) -> Iterable[WhyChange]:
        """Slots of its own, as many and as strong as those of its placement."""
        if not isinstance(self.job, RigidJob | MoldableJob) or not self.snapshot.clusters:
            return
        allowed = [
            c.name
            for c in self.snapshot.clusters
            if (self.job.clusters is None or c.name in self.job.clusters) and not c.stale
        ]
        if self.mine is not None:
            power, inside = self.room.shape(self.mine)
            home, count = max(inside, key=lambda name: inside[name]), sum(inside.values())
        elif allowed:
            power, home = 1.0, allowed[0]
            count = self.job.procs if isinstance(self.job, RigidJob) else self.job.min_procs
        else:
            return
        yield WhyChange(kind="slots", names=(home,), after=float(count), power=power)

    def _refined(self, trial: Trial) -> Trial:
        """The same relaxation with less of it, where that helps too."""
        change = trial.changes[0]
        match change.kind:
            case "order" | "running":
                fewer = self._fewer_jobs(trial, change)
                return fewer if self._gain(fewer) >= MOST_OF_IT * self._gain(trial) else trial
            case "features" if len(change.names) > 1:
                singles = (replace(change, names=(name,)) for name in change.names)
                return self.search.first(singles, len(change.names)) or trial
            case "memory":
                return self.search.first(candidates.less_memory(self.job, self.room), 4) or trial
            case "shape":
                return self.search.first(candidates.halves(change), 2) or trial
            case "clusters":
                used = self._used(trial)
                added = tuple(name for name in change.names if name in used)
                if added and added != change.names:
                    return self.search.attempt(replace(change, names=added)) or trial
            case _:
                pass
        return trial

    def _gain(self, trial: Trial) -> float:
        """Time by which it ends earlier, seconds; 1 where it had no end."""
        return self.end - _end(trial) if isfinite(self.end) else 1.0

    def _fewer_jobs(self, trial: Trial, change: WhyChange) -> Trial:
        """Only jobs that hold what this one waits for; first those that end when it starts."""
        if self.mine is None:
            return trial
        names = self.room.instead(self.mine)
        at = self.mine.start
        eligible = set(change.names)
        ending = self.room.enders(names, at)
        before = self.room.holders(names, at - 2.0 * NEAR_S)
        held = self.room.holders(names, self.now)
        links = [x for cluster in self.room.loads for x in self.room.loads[cluster]]
        close = [use.who for use in (*ending, *before, *held)]
        close += [x.who for x in links if x.start < self.end and x.end > self.now]
        listed = [who for who in dict.fromkeys(close) if who in eligible]
        singles = (replace(change, names=(who,)) for who in listed[:3])
        found = self.search.first(singles, 3)
        if found is not None:
            return found
        for group in ([u.who for u in ending], [u.who for u in before], listed):
            some = tuple(who for who in dict.fromkeys(group) if who in eligible)
            if 1 < len(some) < len(change.names):
                found = self.search.attempt(replace(change, names=some))
                if found is not None:
                    return self._thinned(found, 0)
        return self._thinned(trial, 0)

    def _thinned(self, trial: Trial, which: int) -> Trial:
        """Leave out, one after the other, the jobs without which it helps as well."""
        change = trial.changes[which]
        if len(change.names) > NAMED:
            return trial
        for name in change.names:
            kept = tuple(n for n in trial.changes[which].names if n != name)
            if kept:
                less = list(trial.changes)
                less[which] = replace(change, names=kept)
                trial = self.search.attempt(*less) or trial
        return trial

    def _together(self, tests: Sequence[WhyChange]) -> Trial | None:
        """All relaxations at once, less those that are not needed."""
        distinct: dict[str, WhyChange] = {}
        for change in tests:
            kind = " ".join((change.kind, *change.names)) if change.kind == "shape" else change.kind
            kept = distinct.get(kind)
            if kept is None or len(change.names) > len(kept.names):
                distinct[kind] = change
        wanted = sorted(distinct.values(), key=cost, reverse=True)
        found = self.search.attempt(*wanted) if len(wanted) > 1 else None
        if found is None:
            return None
        for change in wanted:
            less = tuple(c for c in found.changes if c != change)
            if less:
                found = self.search.attempt(*less) or found
        for which in range(len(found.changes)):
            if found.changes[which].kind in ("order", "running"):
                found = self._thinned(found, which)
        return found

    def _distinct(self, alone: Sequence[Trial]) -> list[Trial]:
        """Each kind once, but links and reservations by name; what helps most comes first."""
        found: dict[object, Trial] = {}
        for trial in alone:
            change = trial.changes[0]
            by_name = change.kind in ("link", "reservation", "reachable", "shape")
            named = change.names if by_name else ()
            if len(named) > 1 and any(
                t.changes[0].kind == change.kind and set(t.changes[0].names) < set(named)
                for t in alone
            ):
                continue
            found.setdefault((change.kind, named), trial)
        return sorted(found.values(), key=lambda t: (_end(t), RANK.index(t.changes[0].kind)))

    def _best(self) -> Counterfactual | None:
        if not self.search.helpful:
            return None
        asks = [trial for trial in self.search.helpful if all(map(_is_an_ask, trial.changes))]
        best = max(asks or self.search.helpful, key=self.search.worth)
        assert best.timing is not None
        return Counterfactual(changes=best.changes, start=best.timing.start, end=best.timing.end)

    def _constraint(self, trial: Trial) -> Constraint:
        change, timing = trial.changes[0], trial.timing
        assert timing is not None
        link = None
        if change.kind == "link":
            link = self.room.link_use(self._placement(trial.solved), change.names[0])
        return Constraint(
            kind=_kind(change), change=change, start=timing.start, end=timing.end, link=link
        )

    def _placement(self, solved: RulePlan) -> Placement | None:
        """The job's own, or its first task's."""
        mine = [p for p in solved.plan.placements if p.job == self.job.id]
        return min(mine, key=lambda p: p.start, default=None)

    def _used(self, trial: Trial) -> set[str]:
        return {
            self.room.cluster_of[name]
            for p in trial.solved.plan.placements
            if p.job == self.job.id
            for name in p.nodes
        }


def _is_an_ask(change: WhyChange) -> bool:
    """Whether anybody could be asked to make this change."""
    many = change.kind in ("order", "running") and len(change.names) > NAMED
    return change.kind != "slots" and not many


def _kind(change: WhyChange) -> str:
    return KINDS.get(change.kind, change.kind)


def _end(trial: Trial) -> float:
    assert trial.timing is not None
    return trial.timing.end
