"""One round of the on-line forms on long queues: ``python -m benchmarks rolling [JOBS ...]``.

Amdahl jobs on 1 to 200 processors wait for 1,000 nodes, as one cluster of equal nodes or as ten
clusters of two powers. CPU seconds of one thread, planner and plan included; a small queue of the
same kind first, so that nothing is compiled.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from coalloc.model.jobs import MoldableJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.model.speedup import AmdahlSpeedup
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

NODES = 1000
POLICIES = ("bicriteria", "bicriteria-batch")


def snapshot(jobs: int, clusters: int, seed: int = 1) -> Snapshot:
    """A long queue; every second cluster is half as powerful."""
    rng = np.random.default_rng(seed)
    queue = tuple(
        MoldableJob(
            id=str(n),
            submitted=float(n - jobs),
            earliest=float(n - jobs),
            speedup=AmdahlSpeedup(
                time_1=float(rng.uniform(10.0, 1000.0)),
                parallel_fraction=float(rng.uniform(0.8, 1.0)),
            ),
            min_procs=1,
            max_procs=200,
            proc_gbps=0.0,
        )
        for n in range(jobs)
    )
    return Snapshot(
        clusters=tuple(
            Cluster(
                name=f"c{k}",
                link_gbps=10.0,
                nodes=tuple(
                    Node(name=f"c{k}n{i}", power=0.5 if k % 2 else 1.0)
                    for i in range(NODES // clusters)
                ),
            )
            for k in range(clusters)
        ),
        queue=queue,
    )


def measured(name: str, problem: Snapshot) -> tuple[float, int]:
    """CPU seconds of one call, and the jobs that it starts."""
    policy = lookup(name)
    options = read_options({}, policy.options)
    began = time.process_time()
    plan = policy.solve(problem, options, Budget(live=True))
    spent = time.process_time() - began
    assert not plan.deferred
    return spent, sum(placement.start <= 0.0 for placement in plan.placements)


def main(arguments: list[str]) -> int:
    """Print a line for each policy, size and platform."""
    for clusters in (1, 10):
        for name in POLICIES:
            measured(name, snapshot(50, clusters))
        for jobs in map(int, arguments or ("1000", "10000")):
            for name in POLICIES:
                spent, started = measured(name, snapshot(jobs, clusters))
                print(
                    f"{name:17}{jobs:7} jobs, {clusters:2} clusters: {spent:6.2f} CPU-s, "
                    f"{started} start",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
