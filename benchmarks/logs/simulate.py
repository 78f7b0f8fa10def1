"""Simulated jobs per second: ``python -m benchmarks simulate``.

- EASY on 100,000 jobs: the logs of KTH and HPC2N on both their machines, merged in time and
  repeated; the reach is 20,000 jobs/s.
- METACENTRUM, 50,000 jobs on 14 clusters, under four policies.
- The checker over each finished trace.

Every policy runs once on a few jobs first, so that compiling is timed apart.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from coalloc.adapters.formats.platforms import Platform, parse_platform, read_platform
from coalloc.model.values import replace
from coalloc.simulation.metrics import measure
from coalloc.simulation.replay import replay
from coalloc.simulation.verify import verify
from coalloc.simulation.workload import Workload, read_workload

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("COALLOC_SHARED") or ROOT.parent / "shared")
LOGS = SHARED / "data" / "swf"
KTH = LOGS / "KTH-SP2-1996-2.1-cln.swf.gz"
HPC2N = LOGS / "HPC2N-2002-2.1-cln.first25k.swf.gz"
METACENTRUM = LOGS / "METACENTRUM-2009-2.part1.swf.gz"
JOBS = 100_000
REACH = 20_000
BOTH = b"""
name = "kth+hpc2n"
[[clusters]]
name = "sp2"
nodes = [{name = "sp2n[1-100]"}]
[[clusters]]
name = "seth"
nodes = [{name = "sethn[1-120]", slots = 2}]
"""


def repeated(workload: Workload, jobs: int) -> Workload:
    """Return a workload of so many jobs: the log again and again, a day between its rounds."""
    out = list(workload.jobs)
    period = out[-1].job.submitted + 86400.0
    turn = 0
    while len(out) < jobs:
        turn += 1
        later = turn * period
        for logged in workload.jobs:
            at = logged.job.submitted + later
            job = replace(logged.job, id=f"{turn}.{logged.job.id}", submitted=at, earliest=at)
            out.append(replace(logged, job=job))
    return Workload(name=workload.name, jobs=tuple(out[:jobs]))


def timed(workload: Workload, platform: Platform, policy: str) -> float:
    """Replay, check and print one row; returns jobs per second."""
    trace = replay(workload, platform, policy)
    began = time.perf_counter()
    faults = verify(trace)
    checked = time.perf_counter() - began
    metrics = measure(trace)
    elapsed = float(trace.stats["elapsed_s"])
    speed = len(workload.jobs) / elapsed
    print(
        f"{workload.name[:24]:24} {policy:12} {len(workload.jobs):7} jobs "
        f"{elapsed:7.2f} s {speed:9,.0f} jobs/s   check {checked:5.2f} s "
        f"{len(faults)} faults   wait {metrics.mean_wait_s:10,.0f} s "
        f"bsld {metrics.mean_bounded_slowdown:9.2f}",
        flush=True,
    )
    if faults:
        sys.exit(f"the checker refuses the trace: {faults[0]}")
    return speed


def main() -> int:
    """Run the measurements; returns 1 where the reach is missed."""
    missing = [str(path) for path in (KTH, HPC2N, METACENTRUM) if not path.exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} absent (COALLOC_SHARED names another folder)")
        return 0
    both = parse_platform(BOTH, "kth+hpc2n.toml")
    began = time.perf_counter()
    pair = read_workload([KTH, HPC2N])
    read = time.perf_counter() - began
    print(f"read {len(pair.jobs)} jobs in {read:.2f} s: {len(pair.jobs) / read:,.0f} jobs/s")
    began = time.perf_counter()
    replay(Workload(name="warm", jobs=pair.jobs[:50]), both, "easy")
    print(f"compiled, or loaded from the cache, in {time.perf_counter() - began:.2f} s")
    speed = timed(repeated(pair, JOBS), both, "easy")
    metacentrum = read_workload([METACENTRUM])
    platform = read_platform(ROOT / "etc/platforms/metacentrum-14.toml")
    began = time.perf_counter()
    for policy in ("fcfs", "easy", "conservative", "sjf"):
        timed(metacentrum, platform, policy)
    print(f"METACENTRUM under four policies, checks included: {time.perf_counter() - began:.1f} s")
    reached = "reached" if speed >= REACH else "missed"
    print(f"easy on {JOBS:,} jobs: {speed:,.0f} jobs/s; {REACH:,} jobs/s {reached}")
    return 0 if speed >= REACH else 1


if __name__ == "__main__":
    sys.exit(main())
