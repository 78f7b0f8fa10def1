"""`mbpc-published`: the jobs that fit now, by the paper's program alone.

With ``engine=search`` the tables of `mbpc` minimise the same, where they serve.

Deviations
----------
With ``sc=clamped``, the default, SC is at least 1 and (10) forbids saturation
(`coalloc.policies.allocation.program`). With ``sc=printed`` SC_j is (7) over the links that j
loads, below 1 too, as (8) has it. What is proved then is the least sum of (8), not of run times:
the plan is *heuristic*, and its stats have ``printed_value`` and ``printed_bound``, seconds.

References
----------
Blanco, Castella, Lerida, Guirado, "Multiple Job Allocation in Multicluster System", equations (4)
to (10).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum

from coalloc.model.plan import Plan, Status
from coalloc.policies.allocation.choosing import select, strongest
from coalloc.policies.allocation.mbpc import (
    AllocationSearch,
    Prover,
    by_levels,
    by_program,
    searches,
)
from coalloc.policies.allocation.placing import Allocation, link_seconds
from coalloc.policies.allocation.program import PublishedModel
from coalloc.policies.allocation.scene import Scene, on_scene
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction


class PrintedSearch(AllocationSearch):
    """The best allocation so far by equation (8) as printed."""

    def measure(self, allocation: Allocation) -> float:
        """Equation (8) with (7) not clamped, seconds."""
        of = self.scene.candidates
        processing = fsum(
            of[j].scaled / min(self.scene.classes[c].power for c in uses)
            for j, uses in zip(allocation.jobs, allocation.uses, strict=True)
        )
        return processing + link_seconds(self.scene, allocation)

    @property
    def is_ideal(self) -> bool:
        """Whether no job is slowed down by anything."""
        jobs = [self.scene.candidates[j] for j in self.best.jobs]
        least = fsum(job.scaled / max(self.scene.levels(job)) for job in jobs)
        return self.value <= least * (1.0 + 1e-12)

    def written(self, status: Status, bound: float | None) -> Plan:
        """The best as a plan; what bounds (8) as printed is told in the stats alone."""
        self.stats |= {"printed_value": self.value, "printed_bound": bound}
        unproved = {Status.OPTIMAL, Status.FEASIBLE}
        return super().written(Status.HEURISTIC if status in unproved else status, None)


def plan(scene: Scene, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan the jobs that start now; the selection is that of `pas`."""
    prover = Prover(scene, budget)
    selection = select(scene, strongest, prover)
    printed = scene.options["sc"] == "printed"
    kind = PrintedSearch if printed else AllocationSearch
    search = kind(scene, selection, "mbpc-published", budget, on_incumbent)
    search.incumbent.work += prover.nodes
    if search.is_ideal:
        return search.proved()
    if scene.options["engine"] == "search" and searches(scene, search.best.jobs):
        return by_levels(search, budget, below=printed)
    model = PublishedModel(scene, selection.allocation.jobs, printed=printed)
    return by_program(search, model, budget)


SOLVERS: Mapping[str, SolveFunction] = {"mbpc-published": on_scene(plan)}
