"""The MBPC paper's cases, and the literal programs beside what replaces them.

    python -m benchmarks mbpc [--full] [--cap 60] [--slots-cap 300]

The search over levels on case 1 (every ABW, and below with a threshold) and case 2 (seeded powers,
every ABW). With ``--full`` the literal programs as well: `mbpc-published` on case 1, and the slot
program of `oas-slots` at 50 % slots on eight jobs and 3 x 4 nodes, next to the exact search on the
same grid. Times are of the call: processor time and wall time. A run that ends at its cap is
reported with what it reached; the cap over the other time is a lower bound of the ratio.
"""

import argparse
import random
import time
from statistics import median

from benchmarks.papers.mbpc.study import ABW, case_1, case_2
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

CASE_1 = 3.3119047619
"""Optimum of case 1 at every ABW from .4 on, in base times."""
SATURATED = ((0.35, 3.5136), (0.3, 3.7972), (0.2, 5.1391))
"""ABW, and the optimum of case 1 there where links may saturate."""


def eight_jobs(seed: int) -> Snapshot:
    """Eight jobs of 1 to 12 processes on 3 x 4 nodes of power 1, .75 and .5; 1 Gbit/s links."""
    rng = random.Random(seed)
    clusters = tuple(
        Cluster(
            name=f"C{k}",
            link_gbps=1.0,
            nodes=tuple(Node(name=f"c{k}n{n}", power=power) for n in range(4)),
        )
        for k, power in enumerate((1.0, 0.75, 0.5))
    )
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=rng.randint(1, 12),
            base_time=6.7e5 * rng.uniform(0.4, 1.6),
            sigma=0.7,
            proc_gbps=rng.uniform(0.02, 0.1),
        )
        for n in range(8)
    )
    return Snapshot(clusters=clusters, queue=queue)


def timed(name: str, snapshot: Snapshot, cap: float, **given: object) -> tuple[Plan, float, float]:
    """One call; the plan, processor seconds and wall seconds."""
    policy = lookup(name)
    options = read_options(given, policy.options)
    wall, cpu = time.perf_counter(), time.process_time()
    stop_at = wall + cap
    plan = policy.solve(snapshot, options, Budget(stop=lambda: time.perf_counter() >= stop_at))
    return plan, time.process_time() - cpu, time.perf_counter() - wall


def show(what: str, plan: Plan, cpu: float, wall: float) -> None:
    told = plan.objective
    bound = "-" if told.bound is None else f"{told.bound:.6f}"
    left = f" deferred {told.deferred}" if told.deferred else ""
    print(
        f"{what:44}{plan.status.value:>12} {told.value:12.6f} {bound:>12}"
        f" {cpu:8.2f} {wall:8.2f}{left}",
        flush=True,
    )


def searched(cap: float, seeds: int) -> int:
    """The search over levels; returns how many proofs or known optima were missed."""
    missed = 0
    for abw in ABW:
        plan, cpu, wall = timed("mbpc", case_1(abw), cap)
        show(f"case 1, ABW {abw:g}, search", plan, cpu, wall)
        missed += _missed(plan, CASE_1)
    for abw, value in SATURATED:
        plan, cpu, wall = timed("mbpc", case_1(abw), cap, saturation_threshold=3.0)
        show(f"case 1, ABW {abw:g}, SC up to 3, search", plan, cpu, wall)
        missed += _missed(plan, value)
    for abw in ABW:
        runs = [timed("mbpc", case_2(abw, seed), cap) for seed in range(seeds)]
        unproved = sum(plan.status is not Status.OPTIMAL for plan, _, _ in runs)
        missed += unproved
        cpus = [cpu for _, cpu, _ in runs]
        print(
            f"case 2, ABW {abw:g}, search, {seeds} seeds: {seeds - unproved} proved;"
            f" cpu s median {median(cpus):.2f} worst {max(cpus):.2f}",
            flush=True,
        )
    return missed


def _missed(plan: Plan, value: float) -> bool:
    return plan.status is not Status.OPTIMAL or abs(plan.objective.value - value) > 5e-5


def literal(cap: float, slots_cap: float) -> None:
    """The programs as published, at their caps."""
    plan, cpu, wall = timed("mbpc-published", case_1(0.4), cap)
    show("mbpc-published, case 1, ABW .4", plan, cpu, wall)
    for seed in range(2):
        snapshot = eight_jobs(seed)
        for engine in ("search", "mip"):
            plan, cpu, wall = timed("oas-slots", snapshot, slots_cap, engine=engine)
            show(f"oas-slots 50%, seed {seed}, {engine}", plan, cpu, wall)
            told = {name: plan.stats.get(name) for name in ("slotted_makespan", "slotted_bound")}
            print(f"    {told} rows about {plan.stats.get('rows', '-')}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mbpc", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the literal programs, too")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds of one mbpc call")
    parser.add_argument("--slots-cap", type=float, default=300.0, help="of one oas-slots call")
    parser.add_argument("--seeds", type=int, default=10, help="draws of case 2 at each ABW")
    chosen = parser.parse_args(argv)
    print(f"{'':44}{'status':>12} {'value':>12} {'bound':>12} {'cpu s':>8} {'wall s':>8}")
    missed = searched(chosen.cap, chosen.seeds)
    if chosen.full:
        literal(chosen.cap, chosen.slots_cap)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
