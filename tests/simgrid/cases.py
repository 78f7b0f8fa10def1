"""Seeded random snapshots whose jobs ask much of the links, or little, and plans for them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement, Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.simulation.reproduce.solving import solve

NOW_S = 1000.0
POWERS = (1.0, 0.9, 0.75, 0.6, 0.5)
TIGHT_GBPS = (0.1, 0.15, 0.2, 0.3)
RUNNING_GBPS = 0.03
LOOSE_GBPS = (1.0, 2.0, 4.0)

SHORT: Mapping[str, Mapping[str, Any]] = {
    "oas": {"patience": 100, "exact_work": 100_000},
    "auto": {"patience": 20, "exact_work": 20_000},
    "easy": {},
    "mbpc": {"solver_seconds": 20.0, "select": "skip"},
}
"""Options under which a plan is made in about a second; whether it is best does not matter."""


def planned(snapshot: Snapshot, policy: str, threshold: float | None = None, **more: Any) -> Plan:
    """A plan that the independent checker allows; without a threshold, by the default."""
    options = {**SHORT[policy], **more}
    if threshold is not None:
        options["saturation_threshold"] = threshold
    plan = solve(snapshot, policy, options).plan
    assert plan.placements
    return plan


def is_split(snapshot: Snapshot, placement: Placement) -> bool:
    """Whether it uses several clusters."""
    home = {node.name: cluster.name for cluster, node in snapshot.nodes()}
    return len({home[name] for name in placement.nodes}) > 1


def random_snapshot(seed: int, *, tight: bool, jobs: int = 10) -> Snapshot:
    """Three or four clusters of mixed power, a running job, and a queue of rigid jobs.

    Parameters
    ----------
    tight : bool
        Links of 0.1 to 0.3 Gbit/s that carry most jobs in some splits, but seldom two of them;
        or of 1 to 4 that are never full.
    """
    rng = random.Random(f"replay-{seed}-{tight}")
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=rng.choice(TIGHT_GBPS if tight else LOOSE_GBPS),
            nodes=tuple(
                Node(
                    name=f"c{k}n{n}",
                    power=rng.choice(POWERS),
                    slots=rng.choice((1, 1, 2)),
                )
                for n in range(rng.randint(3, 6))
            ),
        )
        for k in range(rng.randint(3, 4))
    )
    slots = sum(cluster.slots for cluster in clusters)
    narrowest = min(cluster.link_gbps for cluster in clusters) - RUNNING_GBPS
    queue = tuple(
        RigidJob(
            id=f"j{n}",
            procs=procs,
            base_time=rng.uniform(600.0, 20_000.0),
            sigma=rng.uniform(0.2, 0.9),
            proc_gbps=_tight_gbps(rng, procs, narrowest) if tight else rng.uniform(0.005, 0.05),
            weight=rng.uniform(0.5, 2.0),
            after=(f"j{rng.randrange(n)}",) if n and rng.random() < 0.2 else (),
        )
        for n, procs in enumerate(rng.randint(1, slots // 2) for _ in range(jobs))
    )
    first, second = clusters[0], clusters[1]
    running = Running(
        id="running",
        nodes={first.nodes[0].name: 1, second.nodes[0].name: 1},
        start=NOW_S - 500.0,
        end=NOW_S + rng.uniform(1000.0, 5000.0),
        link_gbps={first.name: RUNNING_GBPS, second.name: RUNNING_GBPS},
    )
    return Snapshot(time=NOW_S, clusters=clusters, queue=queue, running=(running,))


def _tight_gbps(rng: random.Random, procs: int, link_gbps: float) -> float:
    """A bandwidth at which a job takes 50 to 150 % of a link where it is split into halves.

    By equation (4) no other split loads a link more.
    """
    return rng.uniform(0.5, 1.5) * link_gbps * 4.0 * max(procs - 1, 1) / procs**2
