"""Speed-up models fitted to the run times of one command at several sizes.

Notes
-----
Least squares of log t(n): a run that took twice as long as the model says weighs as much as one
that took half. The time on one process is then a mean, so that Amdahl leaves one parameter to
search and Downey two. Amdahl's model is preferred unless Downey's has the lower corrected
information criterion (AICc), which a third parameter rarely has before six runs at four sizes.
Runs of different input are taken for noise; the error says how much of that there is.

References
----------
C. M. Hurvich, C.-L. Tsai, "Regression and time series model selection in small samples",
Biometrika 76(2), 1989.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import exp, expm1, inf, log, sqrt

from msgspec import Struct

from coalloc.model.speedup import AmdahlSpeedup, DowneySpeedup, Speedup

SizedRun = tuple[int, float]
"""Processes, and seconds on dedicated full-speed nodes."""

KEPT_OF_A_SIZE = 8
KEPT_SIZES = 16
LEAST_SIZES = 2
DOWNEY_SIZES = 4
"""Below this, three parameters would follow the noise."""
MEASURED_TO = 1e-3
"""Relative error below which two models explain runs equally well."""
ROUNDS = 40

SHARES = (0.0, *(10.0 ** (step / 4.0) for step in range(-24, 1)))
"""Sequential shares among which the best is looked for first."""
VARIANCES = (0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 16.0)


class SpeedupFit(Struct, frozen=True, kw_only=True):
    """A fitted model."""

    speedup: Speedup
    runs: int
    sizes: int
    error: float
    """Root mean square of the relative deviations."""


def remembered_runs(runs: Sequence[SizedRun], procs: int, base_time: float) -> tuple[SizedRun, ...]:
    """The runs with one more: the newest of each size, of the sizes last seen."""
    same = [run for run in runs if run[0] == procs]
    if len(same) >= KEPT_OF_A_SIZE:
        runs = [run for run in runs if run is not same[0]]
    out = [*runs, (procs, base_time)]
    newest_first = list(dict.fromkeys(size for size, _ in reversed(out)))
    kept = set(newest_first[:KEPT_SIZES])
    return tuple(run for run in out if run[0] in kept)


@lru_cache(maxsize=256)
def fitted(runs: tuple[SizedRun, ...]) -> SpeedupFit | None:
    """The model that explains these runs best; None for fewer than two sizes."""
    logs: dict[int, list[float]] = {}
    for size, time in runs:
        logs.setdefault(size, []).append(log(time))
    groups = {size: (len(row), sum(row) / len(row)) for size, row in sorted(logs.items())}
    if len(groups) < LEAST_SIZES:
        return None
    choices = [_amdahl(groups)]
    if len(groups) >= DOWNEY_SIZES:
        choices.append(_downey(groups))
    # What differs between runs of one size, no model explains.
    within = sum((log(time) - groups[size][1]) ** 2 for size, time in runs)
    scored = []
    for parameters, (loss, model) in zip((2, 3), choices, strict=False):
        error = sqrt((loss + within) / len(runs))
        scored.append((_criterion(error, len(runs), parameters), parameters, error, model))
    _, _, error, model = min(scored, key=lambda row: row[:2])
    return SpeedupFit(speedup=model, runs=len(runs), sizes=len(groups), error=expm1(error))


Groups = Mapping[int, tuple[int, float]]
"""Size to the number of runs and their mean log time."""


def _criterion(error: float, runs: int, parameters: int) -> float:
    """AICc of a model with normal errors in log time; their variance counts as a parameter."""
    k = parameters + 1
    room = runs - k - 1
    spread = 2.0 * runs * log(max(error, MEASURED_TO))
    return spread + 2.0 * k + (2.0 * k * (k + 1) / room if room > 0 else inf)


def _loss(groups: Groups, shape: Callable[[int], float]) -> tuple[float, float]:
    """Sum of squares for t(n) = T·shape(n), and the T that makes it least."""
    total = sum(count for count, _ in groups.values())
    rows = [(count, mean - log(shape(size))) for size, (count, mean) in groups.items()]
    middle = sum(count * value for count, value in rows) / total
    return sum(count * (value - middle) ** 2 for count, value in rows), exp(middle)


Point = tuple[float, ...]


def _amdahl(groups: Groups) -> tuple[float, Speedup]:
    """By its sequential share."""

    def shaped(point: Point, time_1: float = 1.0) -> Speedup:
        return AmdahlSpeedup(time_1=time_1, parallel_fraction=max(0.0, 1.0 - point[0]))

    grid = [(share,) for share in SHARES]
    return _searched(groups, shaped, grid, lambda point: (max(point[0], SHARES[1]),))


def _downey(groups: Groups) -> tuple[float, Speedup]:
    """By the logarithm of its average parallelism, and its variance."""

    def shaped(point: Point, time_1: float = 1.0) -> Speedup:
        return DowneySpeedup(time_1=time_1, parallelism=exp(point[0]), variance=point[1])

    reach = log(8.0 * max(groups))
    grid = [(reach * step / 24.0, variance) for step in range(25) for variance in VARIANCES]
    return _searched(groups, shaped, grid, lambda point: (reach / 24.0, max(0.25, point[1] / 2.0)))


def _searched(
    groups: Groups,
    shaped: Callable[..., Speedup],
    grid: Sequence[Point],
    first_step: Callable[[Point], Point],
) -> tuple[float, Speedup]:
    """The best of a grid, moved by steps that halve where none helps; its loss, and the model."""

    def loss(point: Point) -> float:
        return _loss(groups, shaped(point).time)[0]

    point = min(grid, key=loss)
    least, step = loss(point), first_step(point)
    for _ in range(ROUNDS):
        near = product(*((max(0.0, x - by), x, x + by) for x, by in zip(point, step, strict=True)))
        candidate = min(near, key=loss)
        if loss(candidate) < least:
            point, least = candidate, loss(candidate)
        else:
            step = tuple(by / 2.0 for by in step)
    return least, shaped(point, _loss(groups, shaped(point).time)[1])
