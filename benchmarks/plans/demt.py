"""`demt` against its comparators: solve time and objectives.

    python -m benchmarks demt [--sizes 400x200 20000x10000] [--seeds 3]

Instances of the four families of the bi-criteria paper. C is the makespan and S the weighted
completion, divided by the lower bound on the makespan and by the smallest S in the row's table;
times are CPU times of one thread: of the search (dual approximation, shelves, lists) on arrays that
are ready, and of the arrays (`intake`: reading the snapshot into them).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.laying import Layer
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.options import read_options
from coalloc.policies.published.demt import COMPARATORS, ShelfSearch, order_and_rows
from coalloc.policies.published.options import DemtOptions

LISTS = tuple(name for name in COMPARATORS if name != "gang")
VARIANTS = {
    f"demt {guess} {selection} {shuffles}": {
        "guess": guess,
        "selection": selection,
        "shuffles": shuffles,
    }
    for selection in ("knapsack", "greedy")
    for guess in ("reached", "accepted", "both")
    for shuffles in (0, 20)
}
CELLS = 10_000_000
"""Jobs times processors above which the knapsack is left out."""


@dataclass(slots=True, kw_only=True)
class Total:
    """Sums over the instances of a family."""

    cmax: float = 0.0
    bound: float = 0.0
    weighted: float = 0.0
    worst_s: float = 0.0
    sum_s: float = 0.0
    runs: int = 0

    def add(self, schedule: Schedule, bound: float, seconds: float) -> None:
        self.cmax += schedule.makespan
        self.weighted += schedule.weighted_completion
        self.bound += bound
        self.worst_s = max(self.worst_s, seconds)
        self.sum_s += seconds
        self.runs += 1


def run(layer: Layer, name: str, seed: int) -> tuple[Schedule, float]:
    """One algorithm on ready arrays, and its CPU seconds."""
    began = time.process_time()
    if name in LISTS:
        schedule = layer.lay(*order_and_rows(name, layer.queue))
        assert schedule is not None
    else:
        search = ShelfSearch(layer, read_options(VARIANTS[name], DemtOptions), Budget(seed=seed))
        schedule = search.run().schedule
    return schedule, time.process_time() - began


def family_table(family: str, jobs: int, procs: int, seeds: int) -> None:
    names = [name for name in VARIANTS if "knapsack" not in name or jobs * procs <= CELLS]
    totals = {name: Total() for name in (*names, *LISTS)}
    intake = 0.0
    for seed in range(seeds):
        snapshot = moldable_instance(family, jobs, procs, seed)
        began = time.process_time()
        planner = Planner(snapshot, {})
        layer = Layer(planner, of_planner(planner))
        intake += time.process_time() - began
        bound = cmax_bound(layer.queue)
        for name, total in totals.items():
            schedule, seconds = run(layer, name, seed)
            total.add(schedule, bound, seconds)
    best = min(total.weighted for total in totals.values())
    print(f"\n{family}, {jobs} jobs, {procs} processors: intake {intake / seeds:.2f} s")
    for name, total in totals.items():
        print(
            f"{name:28}C {total.cmax / total.bound:6.3f}  S {total.weighted / best:6.3f}"
            f"  mean {1e3 * total.sum_s / total.runs:8.1f} ms  worst {1e3 * total.worst_s:8.1f} ms",
            flush=True,
        )


def compile_all() -> None:
    """Run every kernel once, so that no time contains compiling."""
    planner = Planner(moldable_instance("weakly", 20, 10, 0), {})
    layer = Layer(planner, of_planner(planner))
    for name in (*VARIANTS, *LISTS):
        run(layer, name, 0)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks demt", description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["400x200", "20000x10000"])
    parser.add_argument("--seeds", type=int, default=3, help="instances of each family and size")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    chosen = parser.parse_args(argv)
    began = time.process_time()
    compile_all()
    print(
        f"first calls, with compiling where nothing is cached: {time.process_time() - began:.1f} s"
    )
    for size in chosen.sizes:
        jobs, procs = (int(part) for part in size.split("x"))
        for family in chosen.families:
            family_table(family, jobs, procs, chosen.seeds)


if __name__ == "__main__":
    main()
