"""Seeded random snapshots whose jobs ask much of the links, or little."""

from __future__ import annotations

import random

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot

NOW_S = 1000.0
POWERS = (1.0, 0.9, 0.75, 0.6, 0.5)
TIGHT_GBPS = (0.1, 0.15, 0.2, 0.3)
LOOSE_GBPS = (1.0, 2.0, 4.0)


def random_snapshot(seed: int, *, tight: bool, jobs: int = 10) -> Snapshot:
    """Three or four clusters of mixed power, a running job, and a queue of rigid jobs.

    Parameters
    ----------
    tight : bool
        Links of 0.1 to 0.3 Gbit/s, which two or three wide jobs fill, or of 1 to 4.
    """
    rng = random.Random(f"replay-{seed}-{tight}")
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=rng.choice(TIGHT_GBPS if tight else LOOSE_GBPS),
            nodes=tuple(
                Node(name=f"c{k}n{n}", power=rng.choice(POWERS), slots=rng.choice((1, 1, 2)))
                for n in range(rng.randint(3, 6))
            ),
        )
        for k in range(rng.randint(3, 4))
    )
    slots = sum(cluster.slots for cluster in clusters)
    queue = tuple(
        RigidJob(
            id=f"j{n}",
            procs=rng.randint(1, slots * 3 // 5),
            base_time=rng.uniform(600.0, 20_000.0),
            sigma=rng.uniform(0.2, 0.9),
            proc_gbps=rng.uniform(0.005, 0.05),
            weight=rng.uniform(0.5, 2.0),
            after=(f"j{rng.randrange(n)}",) if n and rng.random() < 0.2 else (),
        )
        for n in range(jobs)
    )
    first, second = clusters[0], clusters[1]
    running = Running(
        id="running",
        nodes={first.nodes[0].name: 1, second.nodes[0].name: 1},
        start=NOW_S - 500.0,
        end=NOW_S + rng.uniform(1000.0, 5000.0),
        link_gbps={first.name: 0.03, second.name: 0.03},
    )
    return Snapshot(time=NOW_S, clusters=clusters, queue=queue, running=(running,))
