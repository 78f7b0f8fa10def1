"""Seeded instances of the size of the OAS papers' experiments, and the six workloads of Fig. 4.

Notes
-----
What is published: three clusters behind 1 Gbit/s links, powers 1, .75 and .5, eight jobs of 1 to 12
processes, sigma .7, mean base time 6.7e5 s. The job lists and the bandwidth of a process are not.
The rule used here: processes uniform in 1 to 12, or to the size of the machine where it is smaller;
base times uniform in .2 to 1.8 of the mean; bandwidth of a process uniform in 25 to 250 Mbit/s, so
that the links restrict how wide jobs are split, and every job can run.

The papers publish what the workloads have in common, and that WL-1 was made for
techniques which match free resources with what the jobs ask for, WL-2 for techniques that take
small jobs first, WL-3 to WL-6 for none; the lists of jobs they do not publish. Here WL-3 to WL-6
are the first four draws of the generator. WL-1 is the first later draw on which neither `fpfs` nor
`bjf` ends after any of the other four plain orders, and one of them ends before them all by at
least a hundredth; WL-2 is the same with `sjf` and `spt`.

The draws found by this rule are written down in `DRAWS`, so that a workload stays what it is when
an order breaks a tie in another way; `find_draw` is how they were found, and a test compares both.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.simulation.reproduce.solving import solve

POWERS = (1.0, 0.75, 0.5)
LINK_GBPS = 1.0
SIGMA = 0.7
MEAN_BASE_TIME_S = 6.7e5
WIDEST = 12
PROC_GBPS = (0.025, 0.25)


def oas_clusters(nodes_per_cluster: int) -> tuple[Cluster, ...]:
    """Three clusters of equal nodes, one for each power."""
    return tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=LINK_GBPS,
            nodes=tuple(Node(name=f"c{k}n{n}", power=power) for n in range(nodes_per_cluster)),
        )
        for k, power in enumerate(POWERS, start=1)
    )


def oas_instance(seed: int, nodes_per_cluster: int, jobs: int) -> Snapshot:
    """Draw a queue by the rule of this module; a seed has its times whatever the platform."""
    rng = random.Random(f"oas-{seed}")
    widest = min(WIDEST, len(POWERS) * nodes_per_cluster)
    queue = []
    for n in range(jobs):
        width, length, traffic = rng.random(), rng.uniform(0.2, 1.8), rng.uniform(*PROC_GBPS)
        queue.append(
            RigidJob(
                id=f"j{n + 1}",
                procs=1 + int(width * widest),
                base_time=length * MEAN_BASE_TIME_S,
                sigma=SIGMA,
                proc_gbps=traffic,
            )
        )
    return Snapshot(clusters=oas_clusters(nodes_per_cluster), queue=tuple(queue))


PLAIN = ("fcfs", "sjf", "bjf", "fpfs", "spt", "lpt")
"""The papers' comparison, in their order."""
JOBS = 8
SHAPES = (2, 4)
"""Nodes per cluster: the extended paper's platform and the conference paper's."""
FIRST: Mapping[int, int] = {2: 0, 4: 5000}
"""Draw of WL-3 on each platform; WL-4 to WL-6 are the next. One draw is alike on both."""
RANDOM = 4
FAVOURED: Mapping[str, tuple[str, ...]] = {"WL-1": ("fpfs", "bjf"), "WL-2": ("sjf", "spt")}
DRAWS: Mapping[int, Mapping[str, int]] = {
    2: {"WL-1": 8, "WL-2": 588},
    4: {"WL-1": 5028, "WL-2": 5684},
}
"""Of each platform, the draws of WL-1 and WL-2."""
MARGIN = 1.01
STRIDE = 10_000
"""Draws that belong to one seed of the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Eight jobs on a platform, as one of the papers' workloads."""

    name: str
    """WL-1 to WL-6."""
    nodes: int
    """Per cluster."""
    draw: int
    """Seed of the generator."""
    snapshot: Snapshot


def workloads(nodes: int, seed: int = 0) -> list[Workload]:
    """WL-1 to WL-6 on three clusters of so many nodes; of seed 0 the documented ones."""
    first = seed * STRIDE + FIRST[nodes]
    draws = {
        name: DRAWS[nodes][name] if seed == 0 else find_draw(name, nodes, first)
        for name in FAVOURED
    }
    draws |= {f"WL-{n + 3}": first + n for n in range(RANDOM)}
    return [
        Workload(name=name, nodes=nodes, draw=draw, snapshot=oas_instance(draw, nodes, JOBS))
        for name, draw in draws.items()
    ]


def find_draw(name: str, nodes: int, first: int) -> int:
    """The first draw after the random ones that favours the orders WL-1 or WL-2 stands for."""
    for draw in count(first + RANDOM):
        if is_favoured(name, oas_instance(draw, nodes, JOBS)):
            return draw
    raise AssertionError


def is_favoured(name: str, snapshot: Snapshot) -> bool:
    """No favoured order ends after any other, and one of them before all, by the margin."""
    favoured = sorted(solve(snapshot, policy).makespan for policy in FAVOURED[name])
    least = max(favoured[0] * MARGIN, favoured[-1] * (1.0 - 1e-9))
    return all(
        solve(snapshot, policy).makespan >= least
        for policy in PLAIN
        if policy not in FAVOURED[name]
    )
