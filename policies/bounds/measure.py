"""The common measure of all times: where there is one, every plan of use ends at a multiple of it.

In a plan in which no item can start earlier, each starts when something ends or becomes free. So
where run times, releases and the ends of what is there are multiples of a measure, so are all ends,
and a bound may be raised to the next multiple.
"""

from __future__ import annotations

from math import ceil, gcd

import numpy as np

from coalloc.model.jobs import Job, MoldableJob
from coalloc.model.speedup import TableSpeedup
from coalloc.policies.array_types import Floats
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.state import SHORTEST

PARTS = (1, 10, 100, 1000)
"""Parts of a second in which times are whole, if they are."""
MOST = 1 << 40
"""Units of a time up to which it is looked at."""
NEAR = 1e-9
"""By so much, relative, a bound may pass a multiple by rounding."""


def measure_of(planner: Planner, objective: str = "makespan") -> float:
    """The measure of an objective: undominated plans reach multiples of it; 0: not known."""
    measure = _of_times(planner)
    if objective == "makespan" or not measure:
        return measure
    weights = planner.weights
    if (weights != np.floor(weights)).any() or weights.max(initial=0.0) > MOST:
        return 0.0
    return measure * gcd(*(int(weight) for weight in weights))


def _of_times(planner: Planner) -> float:
    """The largest common measure of all times, seconds; 0 where there is none."""
    problem, base, now = planner.compiled.problem, planner.compiled.base, planner.snapshot.time
    slowed = (planner.options.get("saturation_threshold") or 1.0) > 1.0
    if slowed or (problem.parent_gbit >= 0.0).any() or problem.mode_comm.any():
        return 0.0
    if any(item.parts or item.arrival or _has_more(item.job) for item in planner.items):
        return 0.0
    power = np.unique(problem.class_power)
    runs = problem.mode_scaled[:, None] / power + problem.mode_fixed[:, None]
    limits = problem.item_limit[np.isfinite(problem.item_limit)]
    axis = np.concatenate((base.time, problem.item_release, problem.reserved.ravel())) - now
    times = np.abs(np.concatenate((runs.ravel(), limits, axis[axis > 0.0])))
    return common_measure(np.maximum(times, SHORTEST))


def common_measure(times: Floats) -> float:
    """The largest number of which all times are multiples, in parts of a second; 0: none."""
    times = np.unique(times)
    for parts in PARTS:
        units = np.round(times * parts)
        if units.max(initial=0.0) > MOST:
            break
        if (np.abs(units - times * parts) <= NEAR * np.maximum(units, 1.0)).all():
            return gcd(*(int(unit) for unit in units)) / parts
    return 0.0


def _has_more(job: Job) -> bool:
    """Whether a job may run in other times than its modes have."""
    return isinstance(job, MoldableJob) and not isinstance(job.speedup, TableSpeedup)


def raised(bound: float, measure: float) -> float:
    """The next multiple, where there is a measure."""
    return bound if measure <= 0.0 else ceil(bound / measure * (1.0 - NEAR)) * measure
