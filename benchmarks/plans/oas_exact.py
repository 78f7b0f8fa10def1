"""The exact search of `oas` on seeded instances of the OAS papers' size.

    python -m benchmarks oas_exact [--full] [--seeds 20] [--first 100]

Each row: so many jobs on three clusters of so many nodes, from `oas_instance`, searched to the end
or to the limit. The incumbent is the best of the simple orders. Times are processor time of one
thread, with reading, patterns and prices; compiling is apart.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from statistics import median

from benchmarks.papers.oas.workloads import oas_instance
from coalloc.policies.bounds import lower_bound
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.mip.cp_sat import SECOND
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.orders.simple import SIMPLE, sort_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A set of instances and what is wanted of them."""

    nodes: int
    jobs: int
    seeds: int
    limit_s: float
    median_s: float | None = None


QUICK = (
    Size(nodes=4, jobs=8, seeds=20, limit_s=2.0, median_s=0.2),
    Size(nodes=2, jobs=8, seeds=20, limit_s=2.0, median_s=0.2),
    Size(nodes=4, jobs=10, seeds=10, limit_s=5.0),
)
FULL = (*QUICK, Size(nodes=4, jobs=12, seeds=20, limit_s=30.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One search."""

    seconds: float
    work: int
    proved: bool
    over_incumbent: float
    root_gap: float


def best_simple(planner: Planner) -> Schedule:
    """The best of the simple orders."""
    return min(
        (planner.decode(sort_items(planner, name), rule.decoder) for name, rule in SIMPLE.items()),
        key=lambda schedule: schedule.rank,
    )


def measure(seed: int, size: Size) -> Run:
    """Search one instance until it is proved, or for four times its limit."""
    began = time.process_time()
    planner = Planner(oas_instance(seed, size.nodes, size.jobs), {"objective": "makespan"})
    incumbent = best_simple(planner)
    search = ExactSearch(planner, "makespan", incumbent)
    root = lower_bound(planner).value
    search.run(int(4.0 * size.limit_s * SECOND))
    return Run(
        seconds=time.process_time() - began,
        work=search.work,
        proved=search.ended,
        over_incumbent=incumbent.makespan / search.value,
        root_gap=search.value / root - 1.0,
    )


def report(size: Size, seeds: int, first: int) -> str:
    """One line about a set of instances."""
    runs = [measure(first + n, size) for n in range(min(seeds, size.seeds))]
    seconds = [run.seconds for run in runs]
    inside = sum(run.proved and run.seconds <= size.limit_s for run in runs)
    late = "" if inside == len(runs) else f"  {len(runs) - inside} above {size.limit_s:g} s"
    if size.median_s is not None and median(seconds) > size.median_s:
        late += f"  median above {size.median_s:g} s"
    return (
        f"{size.jobs:4d} jobs on 3 x {size.nodes}: proved {sum(run.proved for run in runs):3d} of "
        f"{len(runs):3d}  median {median(seconds):7.3f} s  worst {max(seconds):7.3f} s  work "
        f"{median(run.work for run in runs):11,.0f} / {max(run.work for run in runs):12,d}  "
        f"root gap {100 * median(run.root_gap for run in runs):4.1f} %  best simple order "
        f"{max(run.over_incumbent for run in runs):.3f} x at worst{late}"
    )


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks oas_exact", description=__doc__)
    parser.add_argument("--full", action="store_true", help="with the largest instances")
    parser.add_argument("--seeds", type=int, default=1000, help="instances of each size at most")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    chosen = parser.parse_args(argv)
    began = time.process_time()
    measure(0, Size(nodes=1, jobs=2, seeds=1, limit_s=1.0))
    spent = time.process_time() - began
    print(f"first call (compilation, if the cache is empty): {spent:.1f} s")
    for size in FULL if chosen.full else QUICK:
        print(report(size, chosen.seeds, chosen.first), flush=True)


if __name__ == "__main__":
    main()
