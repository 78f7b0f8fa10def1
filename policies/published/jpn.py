"""JPN, job preferences on network: least traffic for the whole queue at once, blind to power.

The program minimises the sum of BW_{j,k} over jobs and links. Many allocations share that minimum,
and the power of the nodes they use differs, so a second run chooses among them by ``ties``:

* ``first``: the first clusters, earlier jobs before later ones, and in them the first nodes;
* ``strong``: the least sum of run times;
* ``weak``: clusters of little mean power for jobs with much processing, the weakest nodes first;
* ``random``: by the seed.

Notes
-----
Nothing is told before the end: the objective of plans is the sum of run times, by which JPN does
not go, and what it prefers to its first allocation often runs for longer.

Deviations
----------
The MBPC paper says what JPN minimises, not how it breaks ties; the four rules are ours.

References
----------
Naik, Liu, Yang, Wagner, "Online resource matching for heterogeneous grid environments", CCGRID
2005.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.allocation.choosing import blind
from coalloc.policies.allocation.mbpc import Prover, limits_of
from coalloc.policies.allocation.placing import Allocation, link_totals, make_plan
from coalloc.policies.allocation.scene import Scene, read_scene
from coalloc.policies.allocation.selecting import select
from coalloc.policies.base import Budget, OnIncumbent, Solve
from coalloc.policies.mip.allocating import ClassModel
from coalloc.policies.mip.links import LARGEST
from coalloc.policies.mip.runner import End
from coalloc.policies.mip.solving import solve_model


def traffic_of(scene: Scene, allocation: Allocation) -> Fraction:
    """The sum of BW_{j,k} of an allocation, Gbit/s."""
    return sum(link_totals(scene, allocation), Fraction(0)) - sum(scene.loaded, Fraction(0))


Terms = list[tuple[Any, float]]
"""Variables of a program with their coefficients."""


class Ties:
    """The objectives behind the traffic, and the order of nodes."""

    def __init__(self, model: ClassModel, rule: str, seed: int) -> None:
        self.model, self.rule = model, rule
        self.rng = np.random.default_rng(seed)
        classes = model.scene.classes
        self.drawn = self.rng.permutation(len(classes)).tolist()

    def rank(self, c: int) -> float:
        """Classes of lower rank are taken first."""
        power = self.model.scene.classes[c].power
        match self.rule:
            case "strong":
                return -power
            case "weak":
                return power
            case "random":
                return float(self.drawn[c])
            case _:
                return float(c)

    def objectives(self) -> list[Terms]:
        """Criteria among allocations of the same traffic, one after the other; minimised.

        All but the last are whole numbers.
        """
        model = self.model
        if self.rule == "strong":
            return [model.run_times()]
        if self.rule == "first":
            return self._first()
        return [[(z, self._cost(j, g)) for (j, g, _), z in model.z.items()]]

    def _first(self) -> list[Terms]:
        """The first clusters; then in each of them the strata whose nodes come first."""
        strata, jobs = self.model.strata, self.model.jobs
        inside = [0] * len(strata)
        seen: dict[int, int] = {}
        for g in sorted(range(len(strata)), key=lambda g: min(strata[g].classes)):
            inside[g] = seen.get(strata[g].cluster, 0)
            seen[strata[g].cluster] = inside[g] + 1
        earlier = {j: len(jobs) - n for n, j in enumerate(jobs)}
        items = self.model.z.items()
        clusters = [(z, float(strata[g].cluster * earlier[j])) for (j, g, _), z in items]
        if not any(inside):
            return [clusters]
        return [clusters, [(z, float(inside[g] * earlier[j])) for (j, g, _), z in items]]

    def _cost(self, j: int, g: int) -> float:
        stratum = self.model.strata[g]
        if self.rule == "random":
            return float(self.rng.random())
        classes = [self.model.scene.classes[c] for c in stratum.classes]
        power = sum(one.power * one.capacity for one in classes)
        most = sum(one.capacity for one in classes)
        return self.model.scene.candidates[j].scaled * power / most


def solve(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Plan the jobs that start now."""
    scene = read_scene(problem, options)
    prover = Prover(scene, budget)
    selection = select(scene, blind, prover)
    best, status = selection.allocation, Status.HEURISTIC
    stats: dict[str, Any] = {"seed": budget.seed, "work": prover.nodes}

    def plan() -> Plan:
        told = {**stats, "traffic_gbps": float(traffic_of(scene, best))}
        return make_plan(scene, best, selection.deferred, policy="jpn", status=status, stats=told)

    ties = options.get("ties", "first")
    model = ClassModel(scene, best.jobs, every_link=True, levels=ties == "strong")
    if not best.jobs or model.size > options["largest_model"]:
        return plan()
    model.build()
    chosen = Ties(model, ties, budget.seed)
    traffic, scale = _scaled(model)
    limits = limits_of(options, budget)
    left = limits.less(stats["work"])
    least, found = solve_model(model, traffic, left, best, rank=chosen.rank)
    stats["work"] += least.nodes
    if found is not None and traffic_of(scene, found) <= traffic_of(scene, best):
        best = found
    if least.end is not End.OPTIMAL:
        status = _status(least.end)
        return plan()
    stats["least_traffic_gbps"] = float(traffic_of(scene, best))
    model.add("least", traffic, "<=", float(traffic_of(scene, best) * scale) + 0.5)
    for number, objective in enumerate(chosen.objectives()):
        left = limits.less(stats["work"])
        tied, found = solve_model(model, objective, left, best, rank=chosen.rank)
        stats["work"] += tied.nodes
        status = _status(tied.end)
        if found is None:
            break
        best = found
        if tied.end is not End.OPTIMAL:
            break
        reached = sum(value * tied.value(z) for z, value in objective)
        model.add(f"tie_{number}", objective, "<=", round(reached) + 0.5)
    return plan()


def _status(end: End) -> Status:
    """There is no bound on the sum of run times, whatever was proved of the traffic."""
    return Status.TIME_LIMIT if end is End.STOPPED else Status.HEURISTIC


def _scaled(model: ClassModel) -> tuple[Terms, Fraction]:
    """The traffic as terms in units of which one is the least difference, if that is practical."""
    terms = model.traffic()
    loads = [value for _, value in terms]
    scale = Fraction(lcm(*(value.denominator for value in loads)))
    most = max(loads, default=Fraction(0))
    if most * scale > LARGEST:
        scale = LARGEST / most
    return [(u, float(value * scale)) for u, value in terms], scale


SOLVERS: Mapping[str, Solve] = {"jpn": solve}
