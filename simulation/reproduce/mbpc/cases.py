"""The two experiments of the MBPC paper as snapshots.

Published: four clusters of 16 nodes, three jobs of 18 processes with sigma .05, .2 and .3, 0.075
Gbit/s a process; in the first case one power a cluster, in the second every node's power uniform
from .3 to .9. Not published: the base time (1 s here, so that times are slowdowns) and the powers
that were drawn (seeded here).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot

POWERS = (0.5, 0.6, 0.7, 0.8)
SIGMAS = (0.05, 0.2, 0.3)
NODES = 16
PROCS = 18
PROC_GBPS = 0.075
ABW = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Capacities of every link in both cases, Gbit/s."""


def case_1(abw: float) -> Snapshot:
    """One power a cluster; `abw` is the capacity of every link, Gbit/s."""
    return _snapshot(abw, [[power] * NODES for power in POWERS])


def case_2(abw: float, seed: int) -> Snapshot:
    """Every node's power drawn from U(.3, .9)."""
    rng = random.Random(seed)
    return _snapshot(abw, [[rng.uniform(0.3, 0.9) for _ in range(NODES)] for _ in POWERS])


def _snapshot(abw: float, powers: Sequence[Sequence[float]]) -> Snapshot:
    clusters = tuple(
        Cluster(
            name=f"C{k}",
            link_gbps=abw,
            nodes=tuple(Node(name=f"c{k}n{n:02}", power=p) for n, p in enumerate(row, 1)),
        )
        for k, row in enumerate(powers, 1)
    )
    queue = tuple(
        RigidJob(id=f"J{n}", procs=PROCS, base_time=1.0, sigma=sigma, proc_gbps=PROC_GBPS)
        for n, sigma in enumerate(SIGMAS, 1)
    )
    return Snapshot(clusters=clusters, queue=queue)
