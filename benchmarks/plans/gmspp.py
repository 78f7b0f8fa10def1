"""`oas` on GMSPP, rigid jobs on clusters of unequal size without splits, beside published values.

    python -m benchmarks gmspp FILE [--seconds 60] [--seed 0] [--only _020_]

FILE has a list of cases: `key`, `clusters` (their widths), `items` (width and height), `makespan`
(the smallest published) and `bound` (the largest). Seconds are of the processor, compiling apart.

References
----------
Lee, Cheong: Exact and Matheuristic Methods for the Generalized Multiple Strip Packing Problem,
arXiv 2604.04740, 2026.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.policies.warming import CASES, warmed


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    """A cluster for each strip, whose link carries nothing, and a job for each item."""
    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=0.0,
            nodes=tuple(Node(name=f"c{k}n{n}") for n in range(width)),
        )
        for k, width in enumerate(case["clusters"])
    )
    queue = tuple(
        RigidJob(id=str(n), procs=width, base_time=float(height), proc_gbps=1.0)
        for n, (width, height) in enumerate(case["items"])
    )
    return Snapshot(clusters=clusters, queue=queue)


def measure(case: dict[str, Any], seconds: float, seed: int) -> tuple[Plan, float]:
    """The plan of `oas`, and the time that it took."""
    policy, snapshot = lookup("oas"), snapshot_of(case)
    options = read_options({}, policy.options)
    began = time.process_time()
    budget = Budget(seed=seed, stop=lambda: time.process_time() - began >= seconds)
    plan = policy.solve(snapshot, options, budget)
    return plan, time.process_time() - began


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gmspp", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases with this in their key")
    chosen = parser.parse_args(argv)
    cases = [case for case in json.loads(chosen.file.read_text()) if chosen.only in case["key"]]
    for small in CASES:
        warmed(small)
    groups = defaultdict(list)
    for case in cases:
        plan, spent = measure(case, chosen.seconds, chosen.seed)
        value, bound = plan.objective.value, plan.objective.bound or 0.0
        known, proved = case["makespan"], plan.status is Status.OPTIMAL
        print(
            f"{case['key']}  {value:6g}  published {known:6g}  bound {bound:8.2f}  published "
            f"{case['bound']:9.4f}  {'proved' if proved else '':6}  {spent:5.1f} s",
            flush=True,
        )
        groups[len(case["items"])].append((value - known, value / bound - 1.0, proved))
    for size, rows in groups.items():
        print(
            f"{size} jobs, {len(rows)} cases: {sum(row[0] > 0 for row in rows)} worse than "
            f"published, {sum(row[0] < 0 for row in rows)} better, {sum(row[2] for row in rows)} "
            f"proved, mean gap {sum(row[1] for row in rows) / len(rows):.2%}"
        )


if __name__ == "__main__":
    main()
