"""Lower bounds against proven optima and the best plans known.

    python -m benchmarks bounds [--seconds 10] [--seeds 10] [--only small|large]

Small: eight jobs on 3 x 4 and 2 x 8 nodes, against the optimum of the exact search (instances that
it does not prove in its limit of work are left out and counted). Large: 4 x 16 nodes with 20 jobs
to 5 x 256 nodes with 100, widths up to a quarter of the machine and up to all of it, against what
`oas` finds in so many seconds. Widths are uniform, base times .5 to 1.5 of 6.7e5 s, sigma .7; half
of each cluster's nodes have power .75. A job that is spread evenly loads each link with a share of
its capacity drawn from U(.5, 1) times the tightness. *before* is the largest of: longest job,
areas, dual feasible functions, jobs that exclude each other by slots, and the mix of these over
levels of power; *after* adds clusters as bins and what splits cost on the links.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.bounds import lower_bound
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.options import read_options
from coalloc.policies.orders.simple import SIMPLE, sort_items
from coalloc.policies.registry import lookup

SLOTS_ONLY = ("longest", "area", "widths", "exclusion", "levels")
EXACT_WORK = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A family of instances; `tight` is the share of a link that one evenly spread job may take."""

    clusters: int
    nodes: int
    jobs: int
    width: int
    tight: float

    def __str__(self) -> str:
        return f"{self.clusters}x{self.nodes}, {self.jobs} jobs <= {self.width}, {self.tight:g}"


SMALL = (
    Shape(clusters=3, nodes=4, jobs=8, width=3, tight=0.2),
    Shape(clusters=3, nodes=4, jobs=8, width=12, tight=0.2),
    Shape(clusters=3, nodes=4, jobs=8, width=12, tight=0.9),
    Shape(clusters=2, nodes=8, jobs=8, width=16, tight=0.9),
)
LARGE = (
    Shape(clusters=4, nodes=16, jobs=20, width=16, tight=0.1),
    Shape(clusters=4, nodes=16, jobs=20, width=64, tight=0.9),
    Shape(clusters=5, nodes=64, jobs=50, width=80, tight=0.1),
    Shape(clusters=5, nodes=64, jobs=50, width=320, tight=0.9),
    Shape(clusters=5, nodes=256, jobs=100, width=320, tight=0.1),
    Shape(clusters=5, nodes=256, jobs=100, width=1280, tight=0.9),
)


def make_snapshot(shape: Shape, seed: int) -> Snapshot:
    """An idle platform and a queue."""
    rng = random.Random(f"{shape} {seed}")
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=1.0,
            nodes=tuple(
                Node(name=f"c{k}n{n}", power=1.0 if 2 * n < shape.nodes else 0.75)
                for n in range(shape.nodes)
            ),
        )
        for k in range(shape.clusters)
    )
    queue = []
    for n in range(shape.jobs):
        procs = rng.randint(1, shape.width)
        part = procs / shape.clusters
        even = part * (procs - part) / max(procs - 1, 1)
        queue.append(
            RigidJob(
                id=str(n),
                procs=procs,
                base_time=6.7e5 * rng.uniform(0.5, 1.5),
                sigma=0.7,
                proc_gbps=rng.uniform(0.5, 1.0) * shape.tight / even,
            )
        )
    return Snapshot(clusters=clusters, queue=tuple(queue))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One instance: best / bound - 1 of each bound."""

    before: float
    quick: float
    full: float
    quick_s: float
    full_s: float


def measure(planner: Planner, best: float) -> Row:
    """Compare the bounds with an optimum, or with the best plan known."""
    began = time.process_time()
    quick = lower_bound(planner, "makespan", effort="quick")
    middle = time.process_time()
    full = lower_bound(planner, "makespan", effort="full")
    ended = time.process_time()
    before = max(full.parts.get(name, 0.0) for name in SLOTS_ONLY)
    if full.value > best * (1.0 + 1e-9):
        raise AssertionError(f"the bound {full.value} passes the plan {best}: {full.parts}")
    return Row(
        before=best / before - 1.0,
        quick=best / quick.value - 1.0,
        full=best / full.value - 1.0,
        quick_s=middle - began,
        full_s=ended - middle,
    )


def proven(planner: Planner) -> float | None:
    """The optimum, or None where it is not proved in the limit of work."""
    seeds = [
        planner.decode(sort_items(planner, name), decoder)
        for name in SIMPLE
        for decoder in ("insert", "event")
    ]
    search = ExactSearch(planner, "makespan", min(seeds, key=lambda found: found.rank))
    return search.value if search.run(EXACT_WORK) else None


def best_known(snapshot: Snapshot, seconds: float, seed: int) -> float:
    """Find a plan by `oas` in so many seconds by the clock."""
    policy = lookup("oas")
    deadline = time.monotonic() + seconds
    budget = Budget(seed=seed, stop=lambda: time.monotonic() >= deadline)
    return policy.solve(snapshot, read_options({}, policy.options), budget).objective.value


def rows_of(shape: Shape, seeds: int, seconds: float | None) -> Iterator[Row | None]:
    for seed in range(seeds):
        snapshot = make_snapshot(shape, seed)
        planner = Planner(snapshot, {})
        if planner.intake.deferred:
            raise AssertionError("an instance holds a job that cannot run")
        best = proven(planner) if seconds is None else best_known(snapshot, seconds, seed)
        yield None if best is None else measure(planner, best)


def show(shape: Shape, rows: list[Row | None]) -> None:
    found = [row for row in rows if row is not None]
    if not found:
        print(f"{shape!s:32}  none of {len(rows)} proved")
        return

    def mean(name: str) -> float:
        return sum(float(getattr(row, name)) for row in found) / len(found)

    print(
        f"{shape!s:32}{len(found):4d}{mean('before'):9.1%}{mean('quick'):9.1%}{mean('full'):9.1%}"
        f"{max(row.full for row in found):9.1%}"
        f"{1e3 * mean('quick_s'):9.1f}{mean('full_s'):9.2f}",
        flush=True,
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks bounds", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of oas on each large instance")
    parser.add_argument("--seeds", type=int, default=10, help="small instances of a family")
    parser.add_argument("--large-seeds", type=int, default=2, help="large instances of a family")
    parser.add_argument("--only", choices=("small", "large"))
    chosen = parser.parse_args(argv)
    print("best plan / bound - 1, means (worst: after, full); CPU time of the bounds")
    print(f"{'':32}{'n':>4}{'before':>9}{'quick':>9}{'full':>9}{'worst':>9}{'ms':>9}{'s':>9}")
    if chosen.only != "large":
        for shape in SMALL:
            show(shape, list(rows_of(shape, chosen.seeds, None)))
    if chosen.only != "small":
        for shape in LARGE:
            show(shape, list(rows_of(shape, chosen.large_seeds, chosen.seconds)))


if __name__ == "__main__":
    main()
