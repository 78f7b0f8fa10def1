"""Streams of jobs over several clusters: ours, and those of local users, with arrival times."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log

from benchmarks.lab.queue import minutes


@dataclass(frozen=True, kw_only=True)
class Work:
    """One job: when its submit command is given, and what it needs."""

    at: float
    width: int
    run_s: float
    limit_s: float


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A cluster: whole nodes (one slot each) or CPUs."""

    nodes: int
    cpus: int = 1

    @property
    def slots(self) -> int:
        return self.nodes * self.cpus


@dataclass(frozen=True, kw_only=True)
class Stream:
    """All that arrives."""

    ours: tuple[Work, ...]
    local: Mapping[str, tuple[Work, ...]]
    span_s: float


@dataclass(frozen=True, kw_only=True)
class Site:
    """Clusters with the kind of jobs that they get.

    Attributes
    ----------
    ours, wide : int
        Number of our jobs, and of those among them that no cluster can hold.
    share : float
        Of all slots, what our jobs need.
    mean_s, local_mean_s : float
        Mean run times of ours, and of local jobs, lognormal with `sigma`.
    factor : (low, high)
        Time limits of jobs by run time; (0, 0): one minute for ours, one to three for locals.
    interval_s : float
        Between two readings.
    """

    shapes: Mapping[str, Shape]
    ours: int
    wide: int
    share: float
    span_s: float
    mean_s: float
    local_mean_s: float
    sigma: float = 0.8
    factor: tuple[float, float] = (0.0, 0.0)
    interval_s: float = 1.0


BED = Site(
    shapes={"alpha": Shape(nodes=3, cpus=2), "beta": Shape(nodes=6)},
    ours=100,
    wide=16,
    share=0.355,
    span_s=380.0,
    mean_s=4.5,
    local_mean_s=5.0,
)
"""Two clusters of six slots: one by core, one of whole nodes."""
SITES = {
    "bed": BED,
    "narrow": replace(BED, wide=0),
    "bed-2-5": replace(
        BED, mean_s=90.0, local_mean_s=100.0, factor=(2.0, 5.0), span_s=7600.0, interval_s=5.0
    ),
    "three": Site(
        shapes={"alpha": Shape(nodes=3, cpus=2), "beta": Shape(nodes=6), "gamma": Shape(nodes=8)},
        ours=150,
        wide=24,
        share=0.355,
        span_s=400.0,
        mean_s=4.5,
        local_mean_s=5.0,
    ),
    "hours": Site(
        shapes={"alpha": Shape(nodes=8, cpus=8), "beta": Shape(nodes=24)},
        ours=160,
        wide=24,
        share=0.35,
        span_s=24 * 3600.0,
        mean_s=3600.0,
        local_mean_s=4000.0,
        sigma=1.0,
        factor=(2.0, 5.0),
        interval_s=60.0,
    ),
}
"""The bed of the measurements, without wide jobs, with limits as on real sites, with three
clusters, and clusters with run times of hours."""


def lognormal(dice: random.Random, mean: float, sigma: float) -> float:
    """A run time, s."""
    return exp(dice.gauss(log(mean) - sigma * sigma / 2.0, sigma))


def drawn(site: Site, load: float, seed: int) -> Stream:
    """The streams of a site at an offered load."""
    dice = random.Random(f"lab {seed}")
    most = max(shape.slots for shape in site.shapes.values())
    total = sum(shape.slots for shape in site.shapes.values())
    widths = [most + 1 + n % 2 * max(1, most // 6) for n in range(site.wide)]
    widths += [_narrow(dice, most) for _ in range(site.ours - site.wide)]
    dice.shuffle(widths)
    times = sorted(dice.uniform(0.0, site.span_s) for _ in widths)
    works = [
        _work(site, dice, at, width, site.mean_s, (1, 1))
        for at, width in zip(times, widths, strict=True)
    ]
    ours = _scaled(works, site.share * total * site.span_s)
    local = {}
    for name, shape in site.shapes.items():
        area = (load - site.share) * shape.slots * site.span_s
        count = max(1, round(area / (site.local_mean_s * 2.05 * max(1.0, shape.slots / 6.0))))
        found = []
        for _ in range(count):
            width = max(1, round(dice.choices((1, 2, 3, 4), (40, 30, 15, 15))[0] * shape.slots / 6))
            at = dice.uniform(0.0, site.span_s)
            found.append(_work(site, dice, at, width, site.local_mean_s, (1, 3)))
        local[name] = tuple(_scaled(sorted(found, key=lambda w: w.at), area))
    return Stream(ours=tuple(ours), local=local, span_s=site.span_s)


def _narrow(dice: random.Random, most: int) -> int:
    """As many processes as one cluster holds: rather few."""
    return max(1, round(dice.choices((1, 2, 3, 4, 5, 6), (28, 22, 18, 14, 10, 8))[0] * most / 6))


def _work(
    site: Site, dice: random.Random, at: float, width: int, mean: float, fixed: tuple[int, int]
) -> Work:
    run = lognormal(dice, mean, site.sigma)
    low, high = site.factor
    limit = 60.0 * dice.randint(*fixed) if not high else 0.0
    return Work(at=at, width=width, run_s=run, limit_s=limit or run * dice.uniform(low, high))


def _scaled(works: list[Work], area: float) -> list[Work]:
    """The same with run times that fill this many slot-seconds exactly."""
    by = area / sum(work.width * work.run_s for work in works)
    return [
        Work(
            at=work.at,
            width=work.width,
            run_s=work.run_s * by,
            limit_s=minutes(max(work.limit_s, 1.2 * work.run_s * by)),
        )
        for work in works
    ]
