"""Seeded instances of the size of the OAS papers' experiments.

What is published: three clusters behind 1 Gbit/s links, powers 1, .75 and .5, eight jobs of 1 to 12
processes, sigma .7, mean base time 6.7e5 s. The job lists and the bandwidth of a process are not.
The rule used here: processes uniform in 1 to 12, or to the size of the machine where it is smaller;
base times uniform in .2 to 1.8 of the mean; bandwidth of a process uniform in 25 to 250 Mbit/s, so
that the links restrict how wide jobs are split, and every job can run.
"""

from __future__ import annotations

import random

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot

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
