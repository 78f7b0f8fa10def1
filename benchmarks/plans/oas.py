"""`oas`: gap to its bound, and time to its first plan.

    python -m benchmarks oas [--seconds 10] [--seeds 1] [--no-packings | --no-queues]

Large queues: clusters of equal nodes, powers 1, .8, .6 in turn, links of 10 Gbit/s; rigid jobs of
1 to N/4 processes (uniform) and 10 to 120 minutes (uniform), sigma .7, three in ten with 10 Mbit/s
per process, the others with none. Perfect strip packings: one cluster, optimum known by
construction. A live round: 100 queued jobs over 5,000 nodes, all busy until some time. Seconds are
of the processor, compiling apart.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.support.strip_packing import perfect_instances, read_instance

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.policies.warming import CASES, warmed

POWERS = (1.0, 0.8, 0.6)
SIZES = ((5, 64, 50, 0.08), (5, 256, 100, 0.08), (10, 1000, 200, 0.10))
"""Clusters, nodes in each, jobs, the gap wanted."""
PACKING_GAP, PACKING_JOBS = 0.03, 200
FIRST_S = 0.1


def platform(clusters: int, nodes: int) -> tuple[Cluster, ...]:
    """Clusters of equal nodes."""
    return tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=10.0,
            nodes=tuple(
                Node(name=f"c{k}n{n}", power=POWERS[k % len(POWERS)]) for n in range(nodes)
            ),
        )
        for k in range(clusters)
    )


def wide_queue(clusters: int, nodes: int, jobs: int, seed: int) -> Snapshot:
    """A queue of jobs of up to a quarter of all nodes."""
    rng = random.Random(seed)
    most = clusters * nodes // 4
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=rng.randint(1, most),
            base_time=rng.uniform(600.0, 7200.0),
            sigma=0.7,
            proc_gbps=0.01 if rng.random() < 0.3 else 0.0,
        )
        for n in range(jobs)
    )
    return Snapshot(clusters=platform(clusters, nodes), queue=queue)


def busy_site(seed: int = 1) -> Snapshot:
    """A hundred jobs that wait for 5,000 busy nodes."""
    rng = random.Random(seed)
    waiting = wide_queue(5, 1000, 100, seed)
    running = tuple(
        Running(
            id=f"r{k}.{n}",
            nodes={f"c{k}n{10 * n + x}": 1 for x in range(10)},
            start=-60.0,
            end=rng.uniform(60.0, 7200.0),
        )
        for k in range(5)
        for n in range(100)
    )
    return Snapshot(clusters=waiting.clusters, queue=waiting.queue, running=running)


def solve(snapshot: Snapshot, seconds: float, seed: int = 1) -> tuple[Plan, float, float]:
    """Plan within a time; the plan, the seconds to the first incumbent and to the end."""
    policy = lookup("oas")
    options = read_options({"window": max(len(snapshot.queue), 1)}, policy.options)
    first: list[float] = []
    began = time.process_time()

    def spent() -> float:
        return time.process_time() - began

    def found(plan: Plan) -> None:
        if not first:
            first.append(spent())

    plan = policy.solve(snapshot, options, Budget(seed=seed, stop=lambda: spent() > seconds), found)
    return plan, first[0], spent()


def note(reached: bool) -> str:
    return "" if reached else "  not reached"


def large(seconds: float, seeds: int) -> Iterator[str]:
    """The large queues."""
    for clusters, nodes, jobs, wanted in SIZES:
        for seed in range(1, seeds + 1):
            plan, first, took = solve(wide_queue(clusters, nodes, jobs, seed), seconds, seed)
            gap = plan.objective.gap or 0.0
            yield (
                f"{clusters:3d} x {nodes:4d} nodes {jobs:4d} jobs seed {seed}: gap {gap:7.2%}"
                f"  first {first * 1e3:4.0f} ms  {took:5.1f} s  {plan.status}{note(gap <= wanted)}"
            )


def packings(folder: Path, seconds: float) -> Iterator[str]:
    """The perfect strip packings."""
    for path, height in perfect_instances(folder):
        snapshot = read_instance(path)
        if len(snapshot.queue) > PACKING_JOBS:
            continue
        plan, _, took = solve(snapshot, seconds)
        gap = plan.objective.value / height - 1.0
        yield (
            f"{path.parent.name:8} {path.stem:>3} {len(snapshot.queue):4d} jobs: "
            f"{plan.objective.value:6g} / {height:g}  gap {gap:6.2%}  {took:5.1f} s"
            f"  {plan.status}{note(gap <= PACKING_GAP)}"
        )


def queues(seconds: float, seeds: int) -> None:
    """Print the live round and the large queues."""
    site = busy_site()
    first = median(solve(site, 0.0)[1] for _ in range(5))
    print(f"live round, 100 jobs on 5,000 busy nodes: first {first * 1e3:.0f} ms", end="")
    print(note(first <= FIRST_S), flush=True)
    for line in large(seconds, seeds):
        print(line, flush=True)


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks oas", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each instance")
    parser.add_argument("--seeds", type=int, default=1, help="of each large queue")
    less = parser.add_mutually_exclusive_group()
    less.add_argument("--no-packings", action="store_true")
    less.add_argument("--no-queues", action="store_true")
    chosen = parser.parse_args(argv)
    began = time.process_time()
    for case in CASES:
        warmed(case)
    print(f"first call (compiling, if nothing is cached): {time.process_time() - began:.1f} s")
    if not chosen.no_queues:
        queues(chosen.seconds, chosen.seeds)
    shared = Path(os.environ.get("COALLOC_SHARED", "../shared")) / "data" / "strip_packing"
    if chosen.no_packings or not shared.is_dir():
        print("strip packings: left out")
        return
    for line in packings(shared, chosen.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
