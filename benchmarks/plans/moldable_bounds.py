"""The priced bound on weighted completion against the paper's: value and time.

    python -m benchmarks moldable_bounds [--sizes 25x200 50x200 … 20000x10000] [--seeds 5]

Instances of the four families of the bi-criteria paper. *prices* is the priced bound, *LP* the
paper's linear program, repaired (section 3.3): the ratio of the sums over the seeds, and the least
of one. *printed* is the program as printed over the repaired one. Each priced value is added up
again by the verifier, from the snapshot and by the checker's own code; the sizes where that would
take more than `MOST` steps are named. Times are CPU seconds of one thread: of the certificate
(arrays that are ready; the search for prices, at most `SEARCH_S`, and its value on every
allotment), of the verifier, of the program. *two-shelf* is the makespan of that schedule over the
bound on it, and its time in milliseconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from coalloc.model.plan import Objective, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.checking.certificates import certified
from coalloc.policies.checking.pool import pool_of
from coalloc.policies.checking.proofs import LADDER
from coalloc.policies.checking.sheet import node_columns
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.priced_bound import PricedBound, priced_bound
from coalloc.policies.moldable.published_lp import published_lp
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.moldable.two_shelf import two_shelf_schedule

PAPER = ("25x200", "50x200", "100x200", "200x200", "400x200")
LARGE = "20000x10000"
SEARCH_S = 5.0
MOST = 2_000_000_000
LP_JOBS = 2000
NOTHING_DEFERRED = Plan(
    policy="none", status=Status.HEURISTIC, objective=Objective(name="makespan", value=0.0)
)
T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Result of a call, and its CPU seconds."""
    began = time.process_time()
    result = call()
    return result, time.process_time() - began


@dataclass(slots=True, kw_only=True)
class Row:
    """Sums over the instances of one size and family."""

    prices: float = 0.0
    program: float = 0.0
    printed: float = 0.0
    least: float = inf
    confirmed: int = 0
    skipped: int = 0
    shelf: float = 0.0
    cmax: float = 0.0
    worst_s: dict[str, float] = field(default_factory=dict)

    def took(self, what: str, seconds: float) -> None:
        self.worst_s[what] = max(self.worst_s.get(what, 0.0), seconds)


def search_prices(planner: Planner, horizon: float, row: Row) -> PricedBound:
    """The certificate of a queue, timed."""
    whole, search = of_planner(planner, for_bounds=True), of_planner(planner, limit=LADDER)
    deadline = time.process_time() + SEARCH_S
    bound, seconds = timed(
        lambda: priced_bound(
            search, whole, horizon=horizon, stop=lambda: time.process_time() >= deadline
        )
    )
    row.took("certificate", seconds)
    return bound


def confirm(snapshot: Snapshot, bound: PricedBound, row: Row) -> None:
    """Add the certificate up from the snapshot; another value ends the program."""
    pool = pool_of(snapshot, NOTHING_DEFERRED, node_columns(snapshot))
    if 2 * pool.allotments * bound.grid.size > MOST:
        row.skipped += 1
        return
    found, seconds = timed(
        lambda: certified(pool.rows(), pool.steps, bound.grid, bound.prices, bound.cap)
    )
    row.took("verifier", seconds)
    if not abs(found - bound.value) <= 1e-9 * bound.value:
        raise SystemExit(f"the verifier finds {found}, the bound says {bound.value}")
    row.confirmed += 1


def measure(family: str, jobs: int, procs: int, seed: int, row: Row) -> None:
    """Bound one instance in every way."""
    snapshot = moldable_instance(family, jobs, procs, seed)
    planner = Planner(snapshot, {})
    queue = of_planner(planner)
    shelves, seconds = timed(lambda: two_shelf_schedule(queue))
    row.took("two-shelf", seconds)
    row.shelf += shelves.makespan
    row.cmax += cmax_bound(of_planner(planner, for_bounds=True))
    bound = search_prices(planner, 1.3 * shelves.makespan, row)
    row.prices += bound.value
    confirm(snapshot, bound, row)
    if jobs > LP_JOBS:
        return
    whole = of_planner(planner, for_bounds=True)
    program, seconds = timed(lambda: published_lp(whole, shelves.guess))
    row.took("program", seconds)
    row.program += program
    row.printed += published_lp(whole, shelves.guess, is_repaired=False)
    row.least = min(row.least, bound.value / program)


def told(size: str, family: str, seeds: int, row: Row) -> str:
    """The line of one size and family."""
    out = f"{size:12}{family:8}"
    if row.program:
        ratio = row.prices / row.program
        out += f" prices/LP {ratio:5.3f} (least {row.least:5.3f})"
        out += f"  printed/LP {row.printed / row.program:5.3f}"
    out += f"  confirmed {row.confirmed}/{seeds}" + (" (too many steps)" if row.skipped else "")
    for what, seconds in row.worst_s.items():
        if what == "two-shelf":
            out += f"  two-shelf {row.shelf / row.cmax:5.3f} in {1e3 * seconds:.1f} ms"
        else:
            out += f"  {what} {seconds:.2f} s"
    return out


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks moldable_bounds")
    parser.add_argument("--sizes", nargs="+", default=[*PAPER, LARGE])
    parser.add_argument("--seeds", type=int, default=5, help="instances of each family and size")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    chosen = parser.parse_args(argv)
    _, compiling = timed(lambda: measure("weakly", 8, 5, 0, Row()))
    print(f"first calls, with compiling where nothing is cached: {compiling:.1f} s")
    ratios: dict[str, list[float]] = {}
    for size in chosen.sizes:
        jobs, procs = (int(part) for part in size.split("x"))
        seeds = chosen.seeds if jobs <= LP_JOBS else 1
        for family in chosen.families:
            row = Row()
            for seed in range(seeds):
                measure(family, jobs, procs, seed, row)
            if row.program:
                ratios.setdefault(family, []).append(row.prices / row.program)
            print(told(size, family, seeds, row), flush=True)
    for family, found in ratios.items():
        print(f"{family}: prices/LP {sum(found) / len(found):.3f}, mean over the sizes")


if __name__ == "__main__":
    main()
