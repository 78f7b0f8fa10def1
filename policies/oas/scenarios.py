"""Samples of what may happen: real run times, and jobs that arrive, around one snapshot.

Notes
-----
In a scenario

- a waiting job takes ratio * planned run time, whatever its allotment; a task of a workflow has a
  ratio of its own. A ratio goes no further than a job's time limit, where it has one;
- work of ours that runs has a ratio above the share of its planned time that is over; if the
  distribution has none, it ends as planned. Work of others ends as announced;
- jobs arrive at a constant rate (a Poisson process) until the horizon, each a copy of a job in the
  queue, at most as many as jobs are searched. They stand last in every order.

The ratios of one job over K scenarios are spread evenly over its distribution, one from each K-th
of it, in random order (Latin hypercube sampling), so that few scenarios already have its mean.

References
----------
M. McKay, R. Beckman, W. Conover, "A comparison of three methods for selecting values of input
variables in the analysis of output from a computer code", Technometrics 21(2), 1979.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from coalloc.model.history import History
from coalloc.model.jobs import Job, MoldableJob, RigidJob
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.array_types import Floats
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.search.listing_state import BLEND, MADE, ListingGenes
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.oas.scenario_times import RatioDistribution, read_run_times, sampled

OWN = 3
"""Finished runs from which on a class of jobs stands for itself; below, all classes do."""
HOUR = 3600.0


class RunTimes:
    """Distribution of ratios of each job.

    The history is taken where the option `run_times` says so; `run_time_ratios` go into its pool.
    """

    def __init__(self, options: Mapping[str, Any], history: History) -> None:
        self._same = read_run_times(options["run_times"], "options.run_times")
        pool = (*history.pool, *options["run_time_ratios"])
        self._pool = sampled(pool)
        self._classes = [
            sampled(values) if len(values) >= OWN else self._pool for values in history.samples
        ]
        self._of = history.of

    def of(self, job: str) -> RatioDistribution:
        """The distribution of a job's ratio."""
        if self._same is not None:
            return self._same
        number = self._of.get(job)
        return self._pool if number is None else self._classes[number]


def spread(rng: np.random.Generator, count: int) -> Floats:
    """Numbers in [0, 1), one from each of `count` equal parts, in random order."""
    return np.asarray((rng.permutation(count) + rng.random(count)) / count)


def draw_ratios(planner: Planner, times: RunTimes, count: int, rng: np.random.Generator) -> Floats:
    """Ratios of the items, count x N."""
    out = np.ones((count, len(planner.items)))
    for n, item in enumerate(planner.items):
        ratios = times.of(item.job.id)
        for k, u in enumerate(spread(rng, count).tolist()):
            out[k, n] = min(ratios.quantile(u) or 1.0, _limit(item.job))
    return out


def _limit(job: Job) -> float:
    """The ratio at which a job meets its time limit, not below 1."""
    if job.time_limit is None or not isinstance(job, RigidJob):
        return inf
    return max(job.time_limit / job.base_time, 1.0)


def draw_ends(
    snapshot: Snapshot, times: RunTimes, count: int, rng: np.random.Generator
) -> list[tuple[Running, ...]]:
    """Running work with its ends, for each scenario; without any margin for what overruns."""
    now = snapshot.time
    out: list[list[Running]] = [[] for _ in range(count)]
    for work in snapshot.running:
        planned, over = work.end - work.start, now - work.start
        ratios = times.of(work.id)
        for k, u in enumerate(spread(rng, count).tolist()):
            end = work.busy_until(now, snapshot.overrun_s)
            if work.ours and planned > 0.0 and work.end > now:
                ratio = ratios.quantile(u, over / planned)
                if ratio is not None:
                    end = max(work.start + ratio * planned, now)
            out[k].append(replace(work, end=end))
    return [tuple(works) for works in out]


def draw_arrivals(
    planner: Planner, rate: float, horizon: float, most: int, rng: np.random.Generator
) -> list[tuple[Job, str]]:
    """Jobs that arrive in one scenario, each with the job that it copies.

    `rate`: jobs per second.
    `horizon`: seconds from now.
    """
    models = [
        item.job
        for item in planner.items
        if isinstance(item.job, RigidJob | MoldableJob) and not item.job.after
    ]
    if rate <= 0.0 or not models:
        return []
    known = {job.id for job in planner.snapshot.queue}
    now = planner.snapshot.time
    found: list[tuple[Job, str]] = []
    at = now + rng.exponential(1.0 / rate)
    while at <= now + horizon and len(found) < most:
        name = f"arrival-{len(found)}"
        while name in known:
            name += "'"
        model = models[int(rng.integers(len(models)))]
        found.append((replace(model, id=name, submitted=at, earliest=at, passed_over=0), model.id))
        at += rng.exponential(1.0 / rate)
    return found


class RunTimeScenario:
    """One sample, on which orders of the planner's items are listed.

    The snapshot is that of the planner, with this sample's ends of running work and arrivals.
    Ratios are those of the planner's items; arrivals come behind them. Items `inside` are searched.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: Mapping[str, Any],
        ratios: Sequence[float] | Floats,
        inside: Sequence[int],
        count: int,
    ) -> None:
        planner = Planner(snapshot, options)
        problem = planner.compiled.problem
        by_mode = np.repeat(np.asarray(ratios), np.diff(problem.mode_first))
        problem = problem._replace(
            mode_scaled=problem.mode_scaled * by_mode,
            mode_fixed=problem.mode_fixed * by_mode,
            mode_comm=problem.mode_comm * by_mode,
        )
        planner.compiled = dataclasses.replace(planner.compiled, problem=problem)
        arrived = range(count, len(planner.items))
        self.lister = Lister(planner, [*inside, *arrived], planner.decode([], "insert"))
        self.lister.desk.measure[BLEND] = 0.0
        self._own, self.size = len(inside), len(inside) + len(arrived)
        self._genes = self.lister.genes()
        rows = self.lister.rows
        power = max(float(rows.able[0]), 1e-12)
        self.least = float(rows.area[self.lister.items].sum()) / power
        """No makespan is shorter, s."""

    def value(self, genes: ListingGenes, objective: int, cutoff: float = inf) -> float:
        """The objective of an order in this sample; inf if it passes a limit.

        `genes`: of the planner's items; they stay as they are.
        `objective`: `MAKESPAN` or `WEIGHTED`, s.
        """
        mine = self._genes
        mine.order[: genes.order.size] = genes.order
        for name in ("mode", "level", "home", "block", "sc"):
            given = getattr(genes, name)
            getattr(mine, name)[: given.size] = given
        found = self.lister.evaluate(mine, objective, cutoff)
        if objective == MAKESPAN and found < inf:
            return float(self.lister.desk.measure[MADE])
        return found

    def last_item(self) -> int:
        """An item of the planner that ends last in what `value` listed to its end."""
        own = self.lister.items[: self._own]
        return int(own[np.argmax(self.lister.out.end[own])])

    def weighted_completion(self) -> float:
        """Of what `value` listed last, s."""
        planner = self.lister.planner
        return planner.measure(self.lister.out, 0).weighted_completion


def lay_out(
    planner: Planner,
    inside: Sequence[int],
    history: History,
    horizon: float,
    seed: int,
    stop: Callable[[], bool],
) -> list[RunTimeScenario]:
    """Draw the scenarios that the planner's options ask for.

    `horizon`: until when jobs arrive, seconds from now.
    `stop`: asked before each; then those that are drawn are all.
    """
    options, snapshot = planner.options, planner.snapshot
    count, rate = options["scenarios"], options["arrivals"] / HOUR
    times = RunTimes(options, history)
    rng = np.random.default_rng(seed)
    ratios = draw_ratios(planner, times, count, rng)
    ends = draw_ends(snapshot, times, count, rng)
    arrivals = [draw_arrivals(planner, rate, horizon, len(inside), rng) for _ in range(count)]
    if not any(arrivals) and (ratios == ratios[0]).all() and ends.count(ends[0]) == count:
        count = 1  # nothing varies
    out: list[RunTimeScenario] = []
    for k in range(count):
        if out and stop():
            break
        jobs = [job for job, _ in arrivals[k]]
        late = [
            min(times.of(model).quantile(rng.random()) or 1.0, _limit(job))
            for job, model in arrivals[k]
        ]
        sample = replace(snapshot, running=ends[k], overrun_s=0.0, queue=(*snapshot.queue, *jobs))
        out.append(
            RunTimeScenario(sample, options, [*ratios[k], *late], inside, len(planner.items))
        )
    return out
