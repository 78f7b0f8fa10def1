"""Variation of real run times around the planned ones; plain Python, as the options read it too.

A *ratio* is real run time / planned run time. Distributions are asked for quantiles, so that the
samples of a job can be spread evenly over its distribution, and for quantiles above a value, for
work that has already run so long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from statistics import NormalDist
from typing import Protocol

from coalloc.model.errors import InputError

HISTORY, EXACT = "history", "exact"
FORMS = "history, exact, lognormal:MU,SIGMA or uniform:LOW,HIGH"
LARGEST_MU = 20.0
"""Beyond exp of this a ratio means nothing."""
EDGE = 1e-9
"""Quantiles stay this far from 0 and 1."""


class RatioDistribution(Protocol):
    """A distribution of ratios."""

    def quantile(self, u: float, above: float = 0.0) -> float | None:
        """The ratio below which a share u of those above a value lies; None: none is above it."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Ratios that were seen, each as likely as the others; rising."""

    values: tuple[float, ...]

    def quantile(self, u: float, above: float = 0.0) -> float | None:
        """See `RatioDistribution`."""
        first = bisect_right(self.values, above)
        left = len(self.values) - first
        return self.values[first + min(int(u * left), left - 1)] if left else None


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The logarithm of the ratio is normal, with mean mu and standard deviation sigma > 0."""

    mu: float
    sigma: float

    def quantile(self, u: float, above: float = 0.0) -> float | None:
        """See `RatioDistribution`."""
        normal = NormalDist(self.mu, self.sigma)
        low = normal.cdf(log(above)) if above > 0.0 else 0.0
        if low >= 1.0 - EDGE:
            return None
        ratio = exp(normal.inv_cdf(min(max(low + u * (1.0 - low), EDGE), 1.0 - EDGE)))
        return max(ratio, above)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any ratio between two is as likely as any other."""

    low: float
    high: float

    def quantile(self, u: float, above: float = 0.0) -> float | None:
        """See `RatioDistribution`."""
        if above > 0.0 and above >= self.high:
            return None
        low = max(self.low, above)
        return low + u * (self.high - low)


PLANNED = Sampled((1.0,))
"""Every job runs as long as planned."""


def sampled(values: Sequence[float]) -> RatioDistribution:
    """The distribution of ratios that were seen; without any, all is as planned."""
    return Sampled(tuple(sorted(values))) if values else PLANNED


def read_run_times(text: str, where: str) -> RatioDistribution | None:
    """Read the option `run_times`; None: by the history. Raises `InputError`."""
    kind, colon, rest = text.partition(":")
    if text == HISTORY:
        return None
    if text == EXACT:
        return PLANNED
    if not colon or kind not in ("lognormal", "uniform"):
        raise InputError(where, f"{text!r} is not {FORMS}")
    first, second = _two(rest, text, where)
    if kind == "uniform":
        if first <= 0.0:
            raise InputError(where, f"{text}: {first:g} is not above 0")
        if first > second:
            raise InputError(where, f"{text} has its bounds reversed")
        return Uniform(first, second) if first < second else Sampled((first,))
    if abs(first) > LARGEST_MU or not 0.0 <= second <= LARGEST_MU:
        raise InputError(
            where, f"{text}: MU is -{LARGEST_MU:g}..{LARGEST_MU:g}, SIGMA 0..{LARGEST_MU:g}"
        )
    return Lognormal(first, second) if second > 0.0 else Sampled((exp(first),))


def _two(rest: str, text: str, where: str) -> tuple[float, float]:
    try:
        first, second = map(float, rest.split(","))
    except ValueError:
        first = second = inf
    if not (isfinite(first) and isfinite(second)):
        raise InputError(where, f"{text!r} is not {FORMS}")
    return first, second


def check_run_times(text: str, where: str) -> None:
    """Raise InputError if the option `run_times` cannot be read."""
    read_run_times(text, where)
