"""`workflow` against its members, the bound, and itself without co-allocation.

    python -m benchmarks workflow [--seconds 10] [--seeds 1] [--pf .8 .95] [--work N]

Table 1's shapes on DAS-3, malleable tasks: geometric means of the makespan by the bound, by
`mca-heft`, by `m-heft` and by the best member. Then graphs with as many tasks a level as there are
clusters, with co-allocation by without. Then Montage_1000, where the reference data are there: when
the first plan is shown. Seconds are CPU seconds of one thread; fails where a plan is not allowed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.papers.workflow_instances import (
    TABLE_1,
    Shape,
    das_3,
    draw_workflow,
    table_1,
)
from coalloc.adapters.formats.workflow import read_workflow
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from coalloc.policies.workflow.search.portfolio import MEMBERS

POLICY = lookup("workflow")


class Run:
    """One search, and when it showed its plans."""

    def __init__(self, snapshot: Snapshot, seconds: float, **options: Any) -> None:
        begun = time.process_time()
        self.shown: list[float] = []
        self.plan: Plan = POLICY.solve(
            snapshot,
            read_options(options, POLICY.options),
            Budget(stop=lambda: time.process_time() - begun > seconds),
            lambda _: self.shown.append(time.process_time() - begun),
        )
        faults = check(snapshot, self.plan).violations
        if faults:
            raise SystemExit(f"not allowed: {faults[0]}")

    @property
    def value(self) -> float:
        return self.plan.objective.value


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return exp(sum(log(value) for value in values) / len(values))


def members(snapshot: Snapshot) -> dict[str, float]:
    """Makespan of each published policy with its own defaults."""
    out = {}
    for name in MEMBERS:
        policy = lookup(name)
        plan = policy.solve(snapshot, read_options({}, policy.options), Budget())
        out[name] = plan.objective.value
    return out


def measure_table(seconds: float, seeds: int, fractions: list[float]) -> None:
    """Print a row for each set."""
    print("pf    set      by bound  worst  by mca-heft  by m-heft  by best member")
    for pf in fractions:
        for name in TABLE_1:
            bound, mca, plain, best = [], [], [], []
            for seed in range(1, seeds + 1):
                for snapshot in table_1(name, seed, pf=pf):
                    found, others = Run(snapshot, seconds), members(snapshot)
                    bound.append(found.value / (found.plan.objective.bound or found.value))
                    mca.append(found.value / others["mca-heft"])
                    plain.append(found.value / others["m-heft"])
                    best.append(found.value / min(others.values()))
            print(
                f"{pf:<5} {name:8} {mean(bound):8.3f} {max(bound):6.3f} {mean(mca):12.3f}"
                f" {mean(plain):10.3f} {mean(best):15.3f}",
                flush=True,
            )


def few_wide(seeds: int) -> Iterator[Snapshot]:
    """Five tasks a level, one a cluster, that scale well and hardly communicate."""
    for seed in range(1, seeds + 1):
        for levels in (1, 2, 4):
            shape = Shape(tasks=5 * levels, levels=levels, pf=0.95, chatter=0.002)
            yield Snapshot(clusters=das_3(), queue=(draw_workflow(shape, seed),))


def measure_splits(seconds: float, seeds: int) -> None:
    """Print what co-allocation gains where levels are narrow."""
    ratios = []
    for snapshot in few_wide(seeds):
        split = Run(snapshot, seconds).value
        ratios.append(split / Run(snapshot, seconds, coallocation="forbidden").value)
    print(f"co-allocation, 5 tasks a level: {mean(ratios):.3f} of without,"
          f" {min(ratios):.3f} to {max(ratios):.3f}")  # fmt: skip


def measure_montage(seconds: float) -> None:
    """Print when the first plan of Montage_1000 is shown."""
    root = Path(os.environ.get("COALLOC_SHARED", Path(__file__).parents[3] / "shared"))
    path = root / "data/workflows/dax/Montage_1000.xml"
    if not path.exists():
        print(f"Montage_1000: {path} is not there")
        return
    Run(Snapshot(clusters=das_3(), queue=(draw_workflow(Shape(tasks=5, levels=2), 1),)), 0.1)
    found = Run(Snapshot(clusters=das_3(), queue=(read_workflow(path).job,)), seconds)
    objective = found.plan.objective
    print(f"Montage_1000: first plan after {found.shown[0]:.3f} s, {objective.value:.2f} s long,"
          f" bound {objective.bound:.2f}, {found.plan.status}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pf", type=float, nargs="+", default=[0.8, 0.95])
    given = parser.parse_args()
    measure_montage(given.seconds)
    measure_splits(given.seconds, given.seeds)
    measure_table(given.seconds, given.seeds, given.pf)


if __name__ == "__main__":
    main()
