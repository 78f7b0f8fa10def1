"""A compressed month: the real cores on a real store, in virtual time, under random faults.

``python -m benchmarks soak --workload LOG`` sends the jobs of a log (SWF) through the daemon's
core, the journal, SQLite and the executors' cores (`soak_site` has the faults); without
a log, jobs come at random. It prints memory, descriptors and the size of the store at the end of
each day.

It ends with an error where memory or descriptors of the last quarter are above those of the first
(medians; the first tenth is warm-up), where the store outgrows what it keeps, and where a job that
was acknowledged did not end, or was started or ended more than once. Launching is instant; planning
is that of ``plain``.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.daemon.soak_site import Arrival, SoakSite
from coalloc.adapters.formats.swf import read_swf

DAY_S = 86_400.0
DRAIN_S = 40.0 * DAY_S
SIZES = (1, 1, 2, 4, 8, 20)
MEAN_RUN_S = 600.0
GROWTH = 0.05
"""What memory may be higher by in the last quarter than in the first."""
STORE_MB = 2.0
EVENT_BYTES = 2000.0
"""The store may hold so much at first, and so much for each event that it keeps."""
WAL_MB = 4.3
"""And its WAL so much: SQLite moves it into the file once it has 1,000 pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Measurements at the end of a day."""

    rss_mb: float
    fds: int
    store_mb: float


def logged(path: Path, days: int, widest: int) -> list[Arrival]:
    """The jobs of a log's first days that fit the site."""
    out = []
    jobs = read_swf(path).jobs
    begin = jobs[0].submit_s
    for job in jobs:
        at, procs = job.submit_s - begin, job.requested or job.allocated or 0
        if at > days * DAY_S:
            break
        if 0 < procs <= widest and job.run_s is not None and job.run_s >= 0.0:
            out.append(Arrival(at=at, procs=procs, run_s=job.run_s))
    return out


def drawn(days: int, a_day: int, seed: int) -> list[Arrival]:
    """Jobs at random."""
    dice = random.Random(seed)
    times = sorted(dice.uniform(0.0, days * DAY_S) for _ in range(days * a_day))
    return [
        Arrival(at=at, procs=dice.choice(SIZES), run_s=dice.expovariate(1.0 / MEAN_RUN_S))
        for at in times
    ]


def soaked(site: SoakSite, folder: Path, days: int) -> Iterator[Row]:
    """Let the days pass; a row for each."""
    process = psutil.Process()
    for day in range(1, days + 1):
        site.run_until(day * DAY_S)
        gc.collect()
        yield Row(
            rss_mb=process.memory_info().rss / 1e6,
            fds=process.num_fds(),
            store_mb=sum(os.path.getsize(file) for file in folder.iterdir()) / 1e6,
        )


def growth(rows: list[Row], keep_events: int) -> list[str]:
    """Figures that go on growing, one line each."""
    warm = rows[len(rows) // 10 :]
    quarter = max(1, len(warm) // 4)
    found = []
    for name, share in (("rss_mb", GROWTH), ("fds", 0.0)):
        first = statistics.median(getattr(row, name) for row in warm[:quarter])
        last = statistics.median(getattr(row, name) for row in warm[-quarter:])
        print(f"{name}: {first:.1f} in the first quarter, {last:.1f} in the last")
        if last > first * (1.0 + share):
            found.append(f"{name} grows: {first:.1f} to {last:.1f}")
    most = max(row.store_mb for row in rows)
    bound = STORE_MB + WAL_MB + keep_events * EVENT_BYTES / 1e6
    print(f"store: at most {most:.1f} MB, bound {bound:.1f} MB")
    if most > bound:
        found.append(f"the store outgrows what it keeps: {most:.1f} MB")
    return found


def losses(site: SoakSite, submitted: int) -> list[str]:
    """Jobs that did not end as they should, once everything had time to end."""
    jobs = site.acknowledged.values()
    counts = {
        "never acknowledged": submitted - len(site.acknowledged),
        "shared by two tokens": len(site.acknowledged) - len(set(jobs)),
        "not ended": sum(site.ends[job] == 0 for job in jobs),
        "ended more than once": sum(site.ends[job] > 1 for job in jobs),
        "not started": sum(site.runs[job] == 0 for job in jobs),
        "started more than once": sum(site.runs[job] > 1 for job in jobs),
    }
    return [f"{count} jobs were {what}" for what, count in counts.items() if count]


def main() -> int:
    """Print a row a day; returns 1 where something grows, or a job was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", type=Path, metavar="LOG", help="jobs of this log (SWF)")
    parser.add_argument("--nodes", default="64,48", help="of the clusters, by commas")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=300, help="submits a day, without a log")
    parser.add_argument("--keep-events", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sizes = [int(size) for size in args.nodes.split(",")]
    nodes = {f"c{n}": size for n, size in enumerate(sizes)}
    if args.workload is None:
        jobs = drawn(args.days, args.jobs, args.seed)
    else:
        jobs = logged(args.workload, args.days, sum(sizes))
    with tempfile.TemporaryDirectory(prefix="co-") as name:
        folder = Path(name)
        site = SoakSite(
            folder / "coalloc.db", jobs, nodes, keep_events=args.keep_events, seed=args.seed
        )
        rows = []
        print("day submitted ended waiting  rss_MB fds store_MB cpu_s")
        for row in soaked(site, folder, args.days):
            rows.append(row)
            print(
                f"{len(rows):3} {len(site.acknowledged):9} {sum(site.ends.values()):5}"
                f" {len(site.core.state.waiting):7} {row.rss_mb:7.1f} {row.fds:3}"
                f" {row.store_mb:8.1f} {time.process_time():5.0f}",
                flush=True,
            )
        site.is_calm = True
        while len(site.ends) < len(jobs) and site.now < args.days * DAY_S + DRAIN_S:
            site.run_until(site.now + DAY_S / 8.0)
        site.store.close()
    wrong = growth(rows, args.keep_events) + losses(site, len(jobs))
    print("faults: " + ", ".join(f"{count} {what}" for what, count in site.faults.items()))
    print(f"{len(jobs)} jobs, each once" if not wrong else "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
