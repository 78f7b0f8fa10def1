"""Lower bounds of what any plan can reach, whatever the policy.

Notes
-----
Every bound is valid for the plans that `coalloc.policies.checking.check` admits: running work,
reservations, nodes that are not up, earliest starts, precedence, allotments, features, memory,
clusters, links and the options that change what is allowed. Only what the planner takes in is
counted.

``docs/policies/bounds.md`` explains each bound, and cites its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coalloc.policies.base import never
from coalloc.policies.bounds.case import read_case
from coalloc.policies.bounds.completion import completion_bounds
from coalloc.policies.bounds.makespan import makespan_bounds
from coalloc.policies.bounds.measure import measure_of, raised
from coalloc.policies.kernel.instance.decoding import Planner

ROUNDING = 1e-11
"""Share of a bound that is given up, so that sums in another order cannot pass it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound of all plans."""

    value: float
    """Seconds from the snapshot's time (makespan), or weighted seconds: the sum of weight * (end -
    time)."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Each bound by name; the largest is the value. Where all times have a common measure, each is
    a multiple of it."""

    @property
    def binding(self) -> str:
        """Name of the largest part; "" if there is nothing to place."""
        return max(self.parts, key=lambda name: self.parts[name], default="")

    def beside(self, parts: Mapping[str, float]) -> Bound:
        """The best of this bound and of others, by name."""
        lowered = {name: value * (1.0 - ROUNDING) for name, value in parts.items()}
        return Bound(value=max([self.value, *lowered.values()]), parts={**self.parts, **lowered})


def lower_bound(
    planner: Planner,
    objective: str = "makespan",
    stop: Callable[[], bool] = never,
    effort: str = "quick",
) -> Bound:
    """Bound the objective of every plan that places what the planner takes in.

    The effort is quick (milliseconds) or full (up to about a second). Once `stop` is true, what is
    known by then is returned.
    """
    if not planner.items:
        return Bound(value=0.0)
    case = read_case(planner, effort)
    find = BOUNDS[objective]
    measure = measure_of(planner, objective)
    found = find(case, stop).items()
    parts = {name: raised(value * (1.0 - ROUNDING), measure) for name, value in found}
    return Bound(value=max(parts.values(), default=0.0), parts=parts)


BOUNDS = {"makespan": makespan_bounds, "weighted_completion": completion_bounds}
