"""Waits on busy Slurm sites in virtual time: plain sbatch to a random cluster beside coalloc.

``python -m benchmarks lab --seeds 12 --load .9 1.1`` prints, for each arm, the mean over the seeds:
waits (mean / 95th percentile) of our jobs on one cluster, of co-allocated ones (plain: as two
unrelated jobs, a lower bound), and of locals, by those of the plain arm; node time of ours that was
held idle, of all and of the co-allocated; how many co-allocated jobs began while the streams ran.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from multiprocessing import Pool
from typing import Any

from benchmarks.lab.site import CoallocRun, Found, PlainRun
from benchmarks.lab.streams import SITES, drawn

ARMS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "coalloc": {"policy": "easy"},
    "auto": {"policy": "auto"},
}
"""Settings of each arm; None: sbatch."""


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def one(
    task: tuple[str, str, float, int, str, str, tuple[tuple[str, Any], ...]],
) -> dict[str, float]:
    """One run, in figures."""
    arm, site_name, load, seed, priority, backfill, more = task
    site = SITES[site_name]
    stream = drawn(site, load, seed)
    given = ARMS[arm]
    began = time.process_time()
    if given is None:
        found = PlainRun(site, stream, priority, backfill, seed).run()  # type: ignore[arg-type]
        end = 1_000_000.0 + stream.span_s
    else:
        terms = {**given, **dict(more)}
        run = CoallocRun(site, stream, priority, backfill, seed, **terms)  # type: ignore[arg-type]
        found = run.run()
        end = run.clock.began + stream.span_s
    return figures(found, end) | {"cpu": time.process_time() - began}


def figures(found: Found, end: float) -> dict[str, float]:
    """Figures of a run, as they are printed."""
    single = [each.started - each.at for each in found.ours if not each.is_wide]
    wide = [each.started - each.at for each in found.ours if each.is_wide]
    local = [wait for waits in found.local.values() for wait in waits]
    return {
        "single": mean(single),
        "single95": quantile(single, 0.95),
        "wide": mean(wide),
        "wide95": quantile(wide, 0.95),
        "local": mean(local),
        "local95": quantile(local, 0.95),
        "wide_begun": sum(e.started < end for e in found.ours if e.is_wide),
        "idle": 100.0 * found.idle_s[0] / max(1e-9, found.held_s[0]),
        "idle_wide": 100.0 * found.idle_s[1] / max(1e-9, found.held_s[1]),
        "over": found.over_s,
        "requeued": found.kinds.get("job_requeued", 0),
        "rounds": found.rounds,
    }


def table(args: argparse.Namespace, load: float) -> None:
    """Run all seeds of all arms at a load, and print a line for each."""
    more = tuple((key, float(value)) for key, _, value in (s.partition("=") for s in args.set))
    more = tuple((k, int(v) if v.is_integer() and not k.endswith("_s") else v) for k, v in more)
    tasks = [
        (arm, args.site, load, seed, args.priority, args.backfill, more if ARMS[arm] else ())
        for arm in args.arms
        for seed in range(args.first, args.first + args.seeds)
    ]
    with Pool(args.processes) as pool:
        rows = pool.map(one, tasks, chunksize=1)
    print(f"{args.site}, load {load}, {args.priority}, {args.backfill}, {args.seeds} seeds")
    base: dict[str, float] = {}
    for n, arm in enumerate(args.arms):
        mine = rows[n * args.seeds : (n + 1) * args.seeds]
        of = {key: mean([row[key] for row in mine]) for key in mine[0]}
        base = base or of

        def by(key: str, of: dict[str, float] = of, base: dict[str, float] = base) -> str:
            return f"{of[key]:7.1f} ({of[key] / base[key]:4.2f})"

        print(
            f"  {arm:10} single {by('single')} /{by('single95')}  wide {by('wide')} "
            f"/{by('wide95')}  local {by('local')} /{by('local95')}  idle {of['idle']:4.1f} "
            f"{of['idle_wide']:4.1f} %  begun {of['wide_begun']:4.1f}  over {of['over']:6.0f}  "
            f"requeued {of['requeued']:4.1f} rounds {of['rounds']:5.0f} cpu {of['cpu']:4.1f}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", choices=SITES, default="bed")
    parser.add_argument("--load", type=float, nargs="+", default=[0.9])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--priority", choices=("fcfs", "age"), default="fcfs")
    parser.add_argument("--backfill", choices=("conservative", "easy"), default="conservative")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the core, KEY=NUMBER")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    for load in args.load:
        table(args, load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
