"""CBS and JPN: jobs that start now, placed blind to power.

*CBS*, chunk big small, takes one job after the other. A job that some cluster can hold alone goes
to the first one that does. Otherwise one cluster takes all it can, if that is at least ``chunk`` of
the processes and its link carries it: the first of those that take most. The others fill in, the
emptiest first. Nodes are taken in snapshot order.

*JPN*, job preferences on network, has the least traffic for the whole queue at once: the program
minimises the sum of BW_{j,k} over jobs and links. Many allocations share that minimum, and the
power of the nodes they use differs, so a second run chooses among them by ``ties``:

* ``first``: the first clusters, earlier jobs before later ones, and in them the first nodes;
* ``strong``: the least sum of run times;
* ``weak``: clusters of little mean power for jobs with much processing, the weakest nodes first;
* ``random``: by the seed.

Notes
-----
JPN tells nothing before the end: the objective of plans is the sum of run times, by which it does
not go, and what it prefers to its first allocation often runs for longer.

Deviations
----------
The paper of CBS names the chunk (75 %) and FCFS only; which cluster is tried first, and where the
rest goes, are ours. The MBPC paper says what JPN minimises, not how it breaks ties; the four rules
are ours.

References
----------
Jones, Ligon, Pang, Stanzione, "Characterization of bandwidth-aware meta-schedulers for
co-allocating jobs across multiple clusters", Journal of Supercomputing 34(2), 2005 (CBS). Naik,
Liu, Yang, Wagner, "Online resource matching for heterogeneous grid environments", CCGRID 2005
(JPN).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from coalloc.model.plan import Plan, Status
from coalloc.policies.allocation.choosing import Rest, blind, patient, select, spread
from coalloc.policies.allocation.mbpc import Prover, limits_of
from coalloc.policies.allocation.placing import (
    Allocation,
    Uses,
    is_allowed,
    link_totals,
    make_plan,
)
from coalloc.policies.allocation.program import PublishedModel, Terms
from coalloc.policies.allocation.scene import CandidateJob, Scene, on_scene
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.mip.runner import End, SolverLimits, SolverOutcome, run, scale_of


def chunk_and_rest(rest: Rest, job: CandidateJob, chunk: float) -> Uses | None:
    """Choose clusters and nodes for one job."""
    room = patient(rest, job)
    free = [0] * len(rest.links)
    for c, count in room.items():
        free[rest.scene.classes[c].cluster] += count
    for k, count in enumerate(free):
        if count >= job.procs:
            return spread(rest, room, _take(free, {k: job.procs}), float)
    if not job.splits:
        return None
    low = rest.low_sides(job)
    least = ceil(job.procs * chunk - 1e-9)
    for leading in sorted(range(len(free)), key=lambda k: (-free[k], k)):
        inside = _admitted(job.procs, free[leading], low[leading])
        if inside < least:
            continue
        taken = {leading: inside}
        left = job.procs - inside
        for k in sorted(range(len(free)), key=lambda k: (-free[k], k)):
            if k != leading and left > 0:
                taken[k] = _admitted(job.procs, min(free[k], left), low[k])
                left -= taken[k]
        if left == 0:
            return spread(rest, room, _take(free, taken), float)
    return None


def _admitted(procs: int, most: int, low: int) -> int:
    """The largest count up to `most` that a link admits: 0..low and procs - low..procs."""
    return most if most >= procs - low else min(most, low)


def _take(free: list[int], taken: Mapping[int, int]) -> list[int]:
    return [taken.get(k, 0) for k in range(len(free))]


def plan_chunks(scene: Scene, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan the jobs that start now."""
    chunk = scene.options.get("chunk", 0.75)
    selection = select(scene, lambda rest, job: chunk_and_rest(rest, job, chunk))
    return make_plan(
        scene,
        selection.allocation,
        selection.deferred,
        policy="cbs",
        status=Status.HEURISTIC,
        stats={"work": len(selection.allocation.jobs), "seed": budget.seed},
    )


def traffic_of(scene: Scene, allocation: Allocation) -> Fraction:
    """The sum of BW_{j,k} of an allocation, Gbit/s."""
    return sum(link_totals(scene, allocation), Fraction(0)) - sum(scene.loaded, Fraction(0))


ROUNDING = 1e-6
"""Share by which a later criterion may exceed an earlier one: sums of floats in another order."""


class Ties:
    """The criteria behind the traffic, one after the other; all are minimised."""

    def __init__(self, model: PublishedModel, seed: int) -> None:
        self.model, self.rng = model, np.random.default_rng(seed)
        scene = model.scene
        self.earlier = {j: len(model.jobs) - n for n, j in enumerate(model.jobs)}
        self.place = {c: n for own in scene.of_cluster for n, c in enumerate(own)}
        self.mean_power = [
            sum(scene.classes[c].power * scene.classes[c].capacity for c in own)
            / max(sum(scene.classes[c].capacity for c in own), 1)
            for own in scene.of_cluster
        ]

    def criteria(self, rule: str) -> list[Terms]:
        """Terms of each criterion of a rule."""
        classes, of = self.model.scene.classes, self.model.scene.candidates
        match rule:
            case "strong":
                return [self.model.run_times()]
            case "weak":
                return [
                    self._on_nodes(lambda j, c: of[j].scaled * self.mean_power[classes[c].cluster]),
                    self._on_nodes(lambda j, c: of[j].scaled * classes[c].power),
                ]
            case "random":
                return [self._on_nodes(lambda j, c: float(self.rng.random()))]
            case _:
                return [
                    self._on_nodes(lambda j, c: float(classes[c].cluster * self.earlier[j])),
                    self._on_nodes(lambda j, c: float(self.place[c] * self.earlier[j])),
                ]

    def _on_nodes(self, cost: Callable[[int, int], float]) -> Terms:
        """Cost of a process of each job on a node of each class."""
        costs: dict[tuple[int, int], float] = {}
        for j, r in self.model.X:
            c = self.model.of[r]
            if (j, c) not in costs:
                costs[j, c] = cost(j, c)
        return [(x, costs[j, self.model.of[r]]) for (j, r), x in self.model.X.items()]


def plan_traffic(scene: Scene, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan the jobs that start now."""
    prover = Prover(scene, budget)
    selection = select(scene, blind, prover)
    best, status = selection.allocation, Status.HEURISTIC
    stats: dict[str, Any] = {"seed": budget.seed, "work": prover.nodes}

    def ended() -> Plan:
        told = {**stats, "traffic_gbps": float(traffic_of(scene, best))}
        return make_plan(scene, best, selection.deferred, policy="jpn", status=status, stats=told)

    model = PublishedModel(scene, best.jobs)
    if not best.jobs or model.size > scene.options["largest_model"]:
        return ended()
    model.build()
    limits, traffic = limits_of(scene.options, budget), model.traffic()
    amounts = [value for _, value in traffic]
    scale = scale_of(amounts, max(amounts, default=Fraction(0)))
    whole = [(t, float(value * scale)) for t, value in traffic]
    least, found = _minimised(model, whole, limits.less(stats["work"]))
    stats["work"] += least.nodes
    if found is not None and traffic_of(scene, found) <= traffic_of(scene, best):
        best = found
    if least.end is not End.OPTIMAL:
        status = _status(least.end)
        return ended()
    stats["least_traffic_gbps"] = float(traffic_of(scene, best))
    model.add(whole, "<=", float(traffic_of(scene, best) * scale) + 0.5)
    for criterion in Ties(model, budget.seed).criteria(scene.options["ties"]):
        tied, found = _minimised(model, criterion, limits.less(stats["work"]))
        stats["work"] += tied.nodes
        status = _status(tied.end)
        if found is None:
            break
        best = found
        if tied.end is not End.OPTIMAL:
            break
        reached = sum(value * tied.value(x) for x, value in criterion)
        model.add(criterion, "<=", reached + ROUNDING * max(abs(reached), 1.0))
    return ended()


def _minimised(
    model: PublishedModel, terms: Terms, limits: SolverLimits
) -> tuple[SolverOutcome, Allocation | None]:
    """The end of a run of the solver, and its allocation if that is allowed."""
    model.minimise(terms)
    outcome = run(model.problem, limits)
    if outcome.values is None:
        return outcome, None
    found = model.allocation(outcome)
    return outcome, found if is_allowed(model.scene, found) else None


def _status(end: End) -> Status:
    """There is no bound on the sum of run times, whatever was proved of the traffic."""
    return Status.TIME_LIMIT if end is End.STOPPED else Status.HEURISTIC


SOLVERS: Mapping[str, SolveFunction] = {
    "cbs": on_scene(plan_chunks),
    "jpn": on_scene(plan_traffic),
}
