"""Processor time of each step that a round takes of the daemon's loop: core and store.

``python -m benchmarks commit [--jobs 10000] [--policy easy] [--rounds 3]`` queues so many rigid
jobs of 20 users on 10 clusters of 1,000 nodes, and follows some rounds; what starts runs on. Each
step is one turn of the loop, which serves nothing else meanwhile: the core's part of it, and the
commit of its effects in a store. The plan is made and laid out here, and is not part of the times.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.core_site import Site

from benchmarks.rounds.round import CLUSTERS, NODES, log_uniform
from coalloc.core.base.effects import Effect, Solve, Wake
from coalloc.core.base.events import CoreEvent, Requested, Solved, Ticked, Together
from coalloc.core.base.plan_order import PlanOrder
from coalloc.core.base.requests import RoundNow, Submit
from coalloc.daemon.solver.planner import NODE_ENTRIES
from coalloc.daemon.store.sqlite import Store
from coalloc.model.sites.parts import Launch
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup

USERS = 20


def queued_site(jobs: int) -> Site:
    """A site with so many waiting jobs, which plans when it is asked to."""
    rng = random.Random(1)
    sizes = {f"c{k}": NODES for k in range(CLUSTERS)}
    site = Site(sizes, solving=False, min_interval_s=0.0, trigger=())
    for number in range(jobs):
        procs, seconds = round(log_uniform(rng, 1, NODES)), log_uniform(rng, 60, 86400)
        job = {"kind": "rigid", "procs": procs, "base_time": seconds}
        command = Submit(token=f"t{number}", job=job, launch=Launch(argv=("work",)))
        site.ask(command, user=f"u{number % USERS}")
    return site


def step(site: Site, store: Store, event: CoreEvent, name: str) -> list[Effect]:
    """One turn of the loop: print its processor time; returns its effects."""
    gc.collect()
    began = time.process_time()
    effects = site.core.handle(event, site.now)
    handled = time.process_time()
    store.commit(effects)
    stored = time.process_time()
    kinds = Counter(type(effect).__name__ for effect in effects)
    most = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(3))
    core_ms, store_ms = (handled - began) * 1e3, (stored - handled) * 1e3
    print(f"  {name:<8} core {core_ms:4.0f} ms, store {store_ms:4.0f} ms: {most}", flush=True)
    return effects


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    policy, budget = lookup(args.policy), Budget(live=True, node_entries=NODE_ENTRIES)
    asked: dict[str, Any] = {"origin": "c", "user": "ann", "uid": 1, "gid": 1, "operator": True}
    wanted = Requested(**asked, command=RoundNow())
    site = queued_site(args.jobs)
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        store = Store(Path(folder) / "coalloc.db")
        store.commit(site.effects)
        effects = step(site, store, wanted, "begin")
        for number in range(1, args.rounds + 1):
            while not any(isinstance(effect, Solve) for effect in effects):
                assert any(isinstance(effect, Wake) for effect in effects)
                effects = step(site, store, Ticked(), "then")
            (solve,) = (effect for effect in effects if isinstance(effect, Solve))
            plan = policy.solve(solve.snapshot, read_options({}, policy.options), budget)
            site.now += 1.0
            print(f"round {number}: {len(plan.placements):,} placed")
            solved = Solved(
                round=solve.round,
                plan=plan,
                solve_s=1.0,
                order=PlanOrder.of(plan),
            )
            effects = step(site, store, Together(events=(solved, wanted)), "commit")
        store.close()


if __name__ == "__main__":
    main()
