"""Of allocations that run equally long, one that loads the links least.

SC is clamped at 1 in the run times, so many allocations share the least total. Equation (8) as
printed tells them apart: it counts SC_j below 1 too. Here the levels of power stay as they are
found, and the sum of T'_j (1 - sigma_j) SC_j with equation (7) as printed is minimised over the
splits that are left, by the tables of `counts` and the search of `levels`. Where splits are alike
in that too, the job that computes most gets most of the strongest clusters.
"""

from __future__ import annotations

from collections.abc import Callable

from coalloc.policies.allocation.counts import Counts
from coalloc.policies.allocation.levels import Axes, Descent, axes_of
from coalloc.policies.allocation.placing import (
    Allocation,
    in_order,
    is_allowed,
    lengths,
    link_seconds,
    total_execution,
)
from coalloc.policies.allocation.scene import Scene

CHECKS = 400
"""Level vectors that are looked at by default."""


def ease(
    scene: Scene,
    allocation: Allocation,
    *,
    stop: Callable[[], bool],
    work: int,
) -> tuple[Allocation, int]:
    """Unload the links without a longer sum of run times; the allocation, and the checks made.

    `stop` is polled before every check; after `work` checks the best so far stands.
    """
    best, least = allocation, link_seconds(scene, allocation)
    if least <= 0.0:
        return best, 0
    longest = total_execution(scene, allocation) * (1.0 + 1e-12)
    heaviest = sorted(allocation.jobs, key=lambda j: -scene.candidates[j].scaled)
    counts = Counts(scene, heaviest, below=True)

    def tell(found: Allocation) -> float:
        nonlocal best, least
        value = link_seconds(scene, found)
        if value < least and total_execution(scene, found) <= longest and is_allowed(scene, found):
            best, least = found, value
        return least

    axes = _axes(counts, in_order(allocation, heaviest))
    descent = Descent(axes, counts, tell, at_most=least, stop=stop, work=work)
    return in_order(best, allocation.jobs), descent.run().checks


def _axes(counts: Counts, allocation: Allocation) -> Axes:
    """One level of power for each job, the one it has, and of SC all that lengthen no run."""
    axes, scene = axes_of(counts), counts.scene
    for n, (uses, (_, sc)) in enumerate(
        zip(allocation.uses, lengths(scene, allocation), strict=True)
    ):
        fixed = scene.candidates[counts.jobs[n]].fixed
        if scene.candidates[counts.jobs[n]].scaled > 0:
            axes.powers[n] = [min(scene.classes[c].power for c in uses)]
        axes.seconds[n] = [0.0]
        cost = len(allocation.jobs) + n
        if len(axes.slows[n]) == 1:  # it loads no link, and its one level costs nothing
            axes.seconds[cost] = [0.0]
            continue
        most = sc * (1.0 + 1e-12)
        axes.slows[n] = [i for i in axes.slows[n] if counts.slowdowns[i] <= most]
        axes.seconds[cost] = [fixed * counts.slowdowns[i] for i in axes.slows[n]]
    axes.alike = [
        same
        for group in axes.alike
        for power in {axes.powers[n][0] for n in group}
        if len(same := [n for n in group if axes.powers[n][0] == power]) > 1
    ]
    return axes
