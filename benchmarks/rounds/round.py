"""One full round, from a snapshot to a plan with node names, for each simple policy.

    python -m benchmarks round [--jobs 1000 10000] [--policies fcfs easy] [--repeat 3]

Ten clusters of 1,000 nodes; rigid jobs of 1 to 2,000 processes and 1 minute to 1 day, both
log-uniform, one in ten with 10 Mbit/s per process; a tenth of the nodes runs something. The
platform comes in two forms: two powers per cluster, and 10,000 different powers with
``power_step`` .05. Compilation is not part of the times, it is reported apart.
"""

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES, lookup

SIMPLE = ("fcfs", "sjf", "bjf", "spt", "lpt", "fpfs", "easy", "conservative")
CLUSTERS, NODES = 10, 1000
TARGET_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement: the fastest of some repetitions."""

    policy: str
    jobs: int
    powers: str
    seconds: float
    makespan_h: float
    classes: int


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(low * (high / low) ** rng.random())


def platform(rng: random.Random, raw: bool, count: int) -> tuple[Cluster, ...]:
    clusters = []
    for k in range(count):
        nodes = []
        for n in range(NODES):
            power = 0.5 + 0.5 * rng.random() if raw else (0.75 if n % 2 else 1.0)
            nodes.append(Node(name=f"c{k}n{n}", power=power))
        clusters.append(Cluster(name=f"c{k}", nodes=tuple(nodes), link_gbps=10.0))
    return tuple(clusters)


def make_snapshot(
    jobs: int, raw: bool = False, seed: int = 1, clusters: int = CLUSTERS
) -> Snapshot:
    """A queue of so many jobs on clusters of 1,000 nodes."""
    rng = random.Random(seed)
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=round(log_uniform(rng, 1, 2000)),
            base_time=log_uniform(rng, 60, 86400),
            sigma=0.5 + 0.5 * rng.random(),
            proc_gbps=0.01 if rng.random() < 0.1 else 0.0,
        )
        for n in range(jobs)
    )
    running = tuple(
        Running(
            id=f"r{k}.{n}",
            nodes={f"c{k}n{n * 5 + x}": 1 for x in range(5)},
            start=-60.0,
            end=log_uniform(rng, 60, 86400),
        )
        for k in range(clusters)
        for n in range(NODES // 50)
    )
    return Snapshot(clusters=platform(rng, raw, clusters), queue=queue, running=running)


def measure(name: str, snapshot: Snapshot, powers: str, repeat: int) -> Row:
    """Time whole calls of a policy."""
    policy = lookup(name)
    given = {"power_step": 0.05} if powers == "raw" else {}
    options = read_options(given, policy.options)
    best = float("inf")
    for _ in range(repeat):
        began = time.perf_counter()
        plan = policy.solve(snapshot, options, Budget())
        best = min(best, time.perf_counter() - began)
    return Row(
        policy=name,
        jobs=len(snapshot.queue),
        powers=powers,
        seconds=best,
        makespan_h=plan.objective.value / 3600.0,
        classes=int(plan.stats["classes"]),
    )


def compile_seconds() -> float:
    """The first calls of every decoder; near zero where the cache is filled."""
    snapshot = make_snapshot(2)
    began = time.perf_counter()
    for name in ("conservative", "easy"):
        policy = lookup(name)
        policy.solve(snapshot, read_options({}, policy.options), Budget())
    return time.perf_counter() - began


def run(sizes: list[int], policies: list[str], repeat: int) -> Iterator[Row]:
    for powers in ("two", "raw"):
        for jobs in sizes:
            snapshot = make_snapshot(jobs, raw=powers == "raw")
            for name in policies:
                yield measure(name, snapshot, powers, repeat)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks round", description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(SIMPLE))
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args(argv)
    print(f"first calls (compilation, if the cache is empty): {compile_seconds():.2f} s")
    print(f"{'policy':14}{'jobs':>7}{'powers':>8}{'classes':>9}{'makespan h':>12}{'round s':>10}")
    for row in run(chosen.jobs, chosen.policies, chosen.repeat):
        late = "" if row.seconds <= TARGET_S else f"  above {TARGET_S:g} s"
        print(
            f"{row.policy:14}{row.jobs:7d}{row.powers:>8}{row.classes:9d}"
            f"{row.makespan_h:12.1f}{row.seconds:10.3f}{late}",
            flush=True,
        )


if __name__ == "__main__":
    main()
