"""Effect of JPN's choice among allocations of least traffic on the run times, exactly.

JPN minimises the sum of BW_{j,k} and nothing else. All splits (t_{j,k}) of least traffic are
listed; of each the run times follow from the weakest node that a job gets. For the best and worst
of them it is enough to look at orders of the jobs in each cluster: for the best, the jobs take
blocks of the strongest nodes in some order; for the worst, each takes one of the weakest nodes.
Where each cluster has one power, the splits tell everything, and so the dispersions too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import fsum, inf

from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.solving import rigid_jobs

Split = tuple[int, ...]
"""Processes of a job per cluster."""


def least_traffic(snapshot: Snapshot) -> tuple[Fraction, list[tuple[Split, ...]]]:
    """The least sum of BW, equation (5), Gbit/s, and every split of all jobs that reaches it.

    Jobs of the queue are rigid and start together, every node runs one process, all jobs fit.
    """
    jobs = rigid_jobs(snapshot)
    nodes = [len(cluster.nodes) for cluster in snapshot.clusters]
    limits = [Fraction(repr(cluster.link_gbps)) for cluster in snapshot.clusters]
    rows = []
    for job in jobs:
        gbps = Fraction(repr(job.proc_gbps)) / max(job.procs - 1, 1)
        found = []
        for split in _splits(job.procs, nodes):
            loads = tuple(gbps * t * (job.procs - t) for t in split)
            found.append((sum(loads, Fraction(0)), split, loads))
        rows.append(sorted(found))
    rest = [sum((own[0][0] for own in rows[n:]), Fraction(0)) for n in range(len(rows) + 1)]
    best: list[tuple[Split, ...]] = []
    least: Fraction | float = inf

    def extend(
        chosen: tuple[Split, ...], traffic: Fraction, left: list[int], spare: Sequence[Fraction]
    ) -> None:
        nonlocal best, least
        n = len(chosen)
        if n == len(rows):
            if traffic < least:
                best, least = [], traffic
            best.append(chosen)
            return
        for own, split, loads in rows[n]:
            if traffic + own + rest[n + 1] > least:
                return
            after = [a - t for a, t in zip(left, split, strict=True)]
            links = [a - load for a, load in zip(spare, loads, strict=True)]
            if min(after) >= 0 and min(links) >= 0:
                extend((*chosen, split), traffic + own, after, links)

    extend((), Fraction(0), nodes, limits)
    assert isinstance(least, Fraction), "the jobs do not fit at once"
    return least, best


def _splits(procs: int, nodes: Sequence[int]) -> Iterator[Split]:
    if len(nodes) == 1:
        if procs <= nodes[0]:
            yield (procs,)
        return
    for inside in range(min(procs, nodes[0]) + 1):
        for others in _splits(procs - inside, nodes[1:]):
            yield (inside, *others)


def extremes(
    snapshot: Snapshot, splits: Sequence[tuple[Split, ...]]
) -> tuple[list[float], list[float]]:
    """The jobs' processing slowdowns in the best and in the worst allocation of these splits."""
    weights = [job.sigma * job.base_time for job in rigid_jobs(snapshot)]
    powers = [sorted(node.power for node in cluster.nodes) for cluster in snapshot.clusters]

    def slowdowns(strong: bool) -> Iterator[list[float]]:
        for split in splits:
            of_cluster = zip(powers, zip(*split, strict=True), strict=True)
            choices = [sorted(set(_weakest(*one, strong))) for one in of_cluster]
            for chosen in product(*choices):
                yield [1.0 / min(mine) for mine in zip(*chosen, strict=True)]

    def cost(found: list[float]) -> float:
        return fsum(w * sp for w, sp in zip(weights, found, strict=True))

    return min(slowdowns(True), key=cost), max(slowdowns(False), key=cost)


def of_one_power(snapshot: Snapshot, splits: Sequence[tuple[Split, ...]]) -> list[list[float]]:
    """Every list of the jobs' processing slowdowns, where each cluster has nodes of one power."""
    powers = [cluster.nodes[0].power for cluster in snapshot.clusters]
    found = {
        tuple(1.0 / min(power for power, t in zip(powers, row, strict=True) if t) for row in split)
        for split in splits
    }
    return [list(one) for one in sorted(found)]


def _weakest(
    powers: Sequence[float], counts: Sequence[int], strong: bool
) -> Iterator[tuple[float, ...]]:
    """Per job the power of its weakest node in a cluster, for each order of the jobs in it."""
    users = [j for j, count in enumerate(counts) if count]
    for order in permutations(users):
        out = [inf] * len(counts)
        place = len(powers) if strong else -1
        for j in order:
            place += -counts[j] if strong else 1
            out[j] = powers[place]
        yield tuple(out)
