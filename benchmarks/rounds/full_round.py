"""A whole round as the daemon runs it: snapshot to JSON, solved and checked elsewhere, read back.

    python -m benchmarks full_round [--full]

It prints, for 10,000 queued jobs on 10 clusters of 1,000 nodes, how long the daemon's own loop is
held up and how long the solver's process takes; last the processor time of both. ``--full``:
100,000 jobs on 100 such clusters, too, under `easy` and `auto`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.rounds.round import make_snapshot
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.planner import NODE_ENTRIES, plainly
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.solver.sent import decode_plan, encode_snapshot
from coalloc.model.snapshot import Snapshot

JOBS = (1_000, 10_000)
POLICIES = ("fcfs", "easy", "conservative", "auto")
LIMIT_S = 10.0
FULL_JOBS, FULL_CLUSTERS, FULL_LIMIT_S = 100_000, 100, 300.0


def processor_s() -> float:
    """Of this process and its solvers, so far."""
    here = psutil.Process()
    times = [one.cpu_times() for one in (here, *here.children(recursive=True))]
    return sum(sum(one[:4]) for one in times)  # with those of their children that have ended


async def measure(
    pool: SolverPool, snapshot: Snapshot, policy: str, limit_s: float = LIMIT_S
) -> str:
    """One round under one policy, as a line of the table."""
    before = processor_s()
    began = time.perf_counter()
    text = encode_snapshot(snapshot)
    written = time.perf_counter() - began
    first: list[float] = []

    def found(plan: bytes) -> None:
        if not first:
            first.append(processor_s() - before)

    request = Request(policy=policy, live=True, checked=True, node_entries=NODE_ENTRIES)
    outcome = await pool.solve(text, request, deadline_s=limit_s, on_incumbent=found)
    if outcome.plan is None:
        return f"{policy:<14} {outcome.status}: {outcome.message}"
    began = time.perf_counter()
    plan = decode_plan(outcome.plan)
    read = time.perf_counter() - began
    early = f"{first[0]:8.2f}" if first else f"{'-':>8}"
    return (
        f"{policy:<14} {len(snapshot.queue):>7} {written:>9.2f} {early} {outcome.elapsed_s:>8.2f}"
        f" {read:>9.2f} {written + outcome.elapsed_s + read:>8.2f} {processor_s() - before:>8.2f}"
        f"  {plan.status}"
    )


async def run(*, full: bool) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as cache:
        pool = SolverPool(cache_dir=Path(cache))
        began = time.perf_counter()
        await pool.start()
        await pool.wait_warm(300.0)
        print(f"solver warm after {time.perf_counter() - began:.1f} s, nothing cached")
        columns = f"{'queued':>7} {'write s':>9} {'1st CPU':>8} {'solve s':>8} {'read s':>9}"
        print(f"{'policy':<14} {columns} {'total s':>8} {'CPU s':>8}")
        try:
            for jobs in JOBS:
                snapshot = make_snapshot(jobs)
                for policy in POLICIES:
                    print(await measure(pool, snapshot, policy), flush=True)
                began = time.perf_counter()
                plainly(snapshot)
                print(f"plain, in the daemon itself: {time.perf_counter() - began:.2f} s")
            if full:
                large = make_snapshot(FULL_JOBS, clusters=FULL_CLUSTERS)
                for policy in ("easy", "auto"):
                    print(await measure(pool, large, policy, FULL_LIMIT_S), flush=True)
        finally:
            await pool.stop()


def main(argv: list[str]) -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks full_round", description=__doc__)
    parser.add_argument("--full", action="store_true", help="100,000 jobs on 100,000 nodes, too")
    asyncio.run(run(full=parser.parse_args(argv).full))


if __name__ == "__main__":
    main(sys.argv[1:])
