"""The run time of an item as a formula in its processes, and its trade of time against area.

A task, a rigid job and a moldable job by Amdahl's law run for (a + b / n) / power + c + d / n
seconds; others have a table of modes. On nodes of one power the area, processes x seconds, rises by
(a / power + c) with each process while the time falls: a convex trade.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.speedup import AmdahlSpeedup
from coalloc.policies.array_types import Floats
from coalloc.policies.kernel.instance.modes import Item, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Run time of an item."""

    scaled: tuple[float, float] = (0.0, 0.0)
    """a, b and c, d of the module's formula, seconds."""
    fixed: tuple[float, float] = (0.0, 0.0)
    comm: float = 0.0
    """Gbit of the all-to-all inside a task."""
    low: int = 1
    """Processes."""
    high: int = 1
    table: tuple[Mode, ...] = ()
    """In place of the formula, if not empty."""

    def trade(self, power: float, intra: float) -> tuple[float, float]:
        """The time is the first + the second / n, seconds, at this power.

        `intra`: seconds for a Gbit inside a cluster.
        """
        return (
            self.scaled[0] / power + self.fixed[0],
            self.scaled[1] / power + self.fixed[1] + self.comm * intra,
        )

    def shortest(self, power: float, intra: float, most: int) -> float:
        """Least seconds on at most so many processes; inf if it has no such count."""
        if self.table:
            return min((m[1] / power + m[2] for m in self.table if m[0] <= most), default=inf)
        if most < self.low:
            return inf
        alone, shared = self.trade(power, intra)
        return alone + shared / min(self.high, most)

    def below(self, limit: float, weakest: float, intra: float) -> Form:
        """A form of no longer times than these up to a limit, to which the longest is scaled.

        `limit`: seconds.
        `weakest`, `intra`: the least power, and seconds for a Gbit inside a cluster.
        """
        if limit == inf:
            return self
        alone, shared = self.trade(weakest, intra)
        share = min(limit / max(alone + shared / self.low, limit), 1.0)
        return replace(
            self,
            scaled=(self.scaled[0] * share, self.scaled[1] * share),
            fixed=(self.fixed[0] * share, self.fixed[1] * share),
            comm=self.comm * share,
            table=tuple(_below(mode, limit, weakest) for mode in self.table),
        )

    def partly_fixed(self, intra: float) -> bool:
        """Whether a part of the run time is the same on nodes of any power."""
        moves = self.comm * intra > 0.0
        return moves or any(self.fixed) or any(mode[2] > 0.0 for mode in self.table)

    def least_work(self, seconds: float, strongest: float, weakest: float, intra: float) -> float:
        """Least processes x power x seconds of what runs for at most so long; inf if nothing does.

        Between the powers `strongest` and `weakest` lies the weakest node used. The first says what
        is short enough; the second what the fixed part takes, which is more on stronger nodes.
        """
        limit = seconds * (1.0 + 1e-12)
        if self.table:
            return min(
                (
                    procs * (scaled + fixed * weakest)
                    for procs, scaled, fixed, *_ in self.table
                    if scaled / strongest + fixed <= limit
                ),
                default=inf,
            )
        alone, shared = self.trade(strongest, intra)
        if alone + shared / self.high > limit:
            return inf
        fewest = float(self.low)
        if alone + shared / self.low > seconds and shared > 0.0:
            fewest = shared / max(seconds - alone, shared / self.high)
        work = self.scaled[0] + self.fixed[0] * weakest
        return work * fewest + self.scaled[1] + (self.fixed[1] + self.comm * intra) * weakest

    def corners(
        self, most: int, power: float, intra: float, tangents: int
    ) -> tuple[Floats, Floats]:
        """Corners of a polygon around the trade: seconds and processes x seconds.

        `most`: processes that there are.
        `tangents`: at so many counts, in a geometric row, the polygon touches the trade.
        """
        if self.table:
            modes = [m for m in self.table if m[0] <= most]
            time = np.array([m[1] / power + m[2] for m in modes])
            return time, time * np.array([float(m[0]) for m in modes])
        high = min(self.high, most)
        if high < self.low:
            return np.zeros(0), np.zeros(0)
        alone, shared = self.trade(power, intra)
        if shared == 0.0:
            return np.array([alone]), np.array([alone * self.low])
        if alone == 0.0 or high == self.low:
            return np.array([alone + shared / high]), np.array([alone * high + shared])
        touch = np.geomspace(self.low, high, tangents)
        a, b = touch[:-1], touch[1:]
        mean, harmonic = (a + b) / 2.0, 2.0 * a * b / (a + b)
        counts = np.concatenate(([self.low], mean, [high]))
        widths = np.concatenate(([self.low], harmonic, [high]))
        return alone + shared / counts, alone * widths + shared


def _below(mode: Mode, limit: float, weakest: float) -> Mode:
    share = limit / max(mode[1] / weakest + mode[2], limit)
    return mode[0], mode[1] * share, mode[2] * share, mode[3]


def form_of(item: Item) -> Form:
    """The run time of an item."""
    task, job = item.task, item.job
    if task is not None:
        pf = task.parallel_fraction
        scales = pf > 0.0 or task.comm_gb > 0.0
        return Form(
            scaled=(task.work * (1.0 - pf), task.work * pf),
            comm=8.0 * task.comm_gb,
            low=task.min_procs,
            high=task.max_procs if scales else task.min_procs,
        )
    if isinstance(job, MoldableJob) and isinstance(job.speedup, AmdahlSpeedup):
        alone = job.speedup.time_1 * (1.0 - job.speedup.parallel_fraction)
        shared = job.speedup.time_1 * job.speedup.parallel_fraction
        return Form(
            scaled=(alone * job.sigma, shared * job.sigma),
            fixed=(alone * (1.0 - job.sigma), shared * (1.0 - job.sigma)),
            low=job.min_procs,
            high=job.max_procs if shared > 0.0 else job.min_procs,
        )
    if isinstance(job, RigidJob):
        procs, scaled, fixed, _ = item.modes[0]
        return Form(scaled=(scaled, 0.0), fixed=(fixed, 0.0), low=procs, high=procs)
    return Form(low=item.modes[0][0], high=item.modes[-1][0], table=tuple(item.modes))
