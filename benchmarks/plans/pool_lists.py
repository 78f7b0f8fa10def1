"""The lists of moldable jobs on the pool's builder, and on the parallel builder of `oas`.

    python -m benchmarks pool_lists [--sizes 100x50 400x200] [--seeds 3]

Instances of the four families of the bi-criteria paper. Each job has the allotment of the dual
approximation; both builders list the same order, and must come to the same schedule. CPU
milliseconds a list, and the parallel builder's by the pool's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from math import inf

import numpy as np

from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.pool.pool_insertion import Placed
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, list_on_pool, lists_for
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.options import read_options
from coalloc.policies.published.demt import order_and_rows
from coalloc.policies.published.options import DemtOptions

REPEATED = 40


def seconds(call: Callable[[], object]) -> float:
    """CPU seconds of one call, the least of five means."""
    call()
    means = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(REPEATED):
            call()
        means.append((time.process_time() - begun) / REPEATED)
    return min(means)


def measure(family: str, jobs: int, procs: int, seed: int) -> tuple[float, float]:
    """CPU seconds of a list on the pool's builder and on the parallel one."""
    planner = Planner(moldable_instance(family, jobs, procs, seed), read_options({}, DemtOptions))
    queue = of_planner(planner)
    order, rows = order_and_rows("list-saf", queue)
    listing = Listing(np.array(order, dtype=np.int64), np.array(rows, dtype=np.int64))
    rule, lists = ListRule(1.0, 1.0, inf, inf), lists_for(queue.size, queue.capacity)
    out = Placed(np.zeros(queue.size, np.int64), np.zeros(queue.size), np.zeros(queue.size))
    lister = Lister(planner, range(queue.size), planner.decode([], "insert"))
    genes = lister.genes(listing.order.tolist())
    genes.mode[:] = queue.mode[listing.wanted]
    pool = seconds(lambda: list_on_pool(queue.jobs, queue.processors, listing, rule, lists, out))
    parallel = seconds(lambda: lister.evaluate(genes, MAKESPAN))
    if not np.allclose(lister.out.end, out.end):
        raise SystemExit(f"{family}: the builders differ by {abs(lister.out.end - out.end).max()}")
    return pool, parallel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["100x50", "400x200"])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for size in given.sizes:
        jobs, procs = (int(number) for number in size.split("x"))
        for family in FAMILIES:
            rows = [measure(family, jobs, procs, seed) for seed in range(given.seeds)]
            pool, parallel = (1000.0 * sum(times) / len(rows) for times in zip(*rows, strict=True))
            print(f"{size:10} {family:8} {pool:7.3f} {parallel:7.3f} ms, {parallel / pool:.2f} x")


if __name__ == "__main__":
    main()
