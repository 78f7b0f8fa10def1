"""Trying changes: each is made to the snapshot, which is planned again by the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from coalloc.policies.explain.changes import WhyCase, WhyChange, apply, cost
from coalloc.policies.explain.rule import Rule, RulePlan, Timing

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
            solved = RulePlan(case.snapshot, replace(self.rule, options=case.options))
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
