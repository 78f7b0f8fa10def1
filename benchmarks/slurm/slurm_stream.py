"""A stream of jobs through three real Slurm clusters: how long it takes, and what it costs.

``python -m benchmarks slurm_stream`` prints a table of three measurements on loopback:

- *rounds*: one daemon over 3 × 64 nodes that others keep busy, and 500 queued jobs;
- *stream*: many jobs over clusters of different sizes and powers, beside the same jobs by plain
  ``sbatch`` to each cluster in turn. Some jobs are wider than any cluster: only we run them, and
  they count against us;
- the same with daemon, executors and slurmctlds killed at random meanwhile (``--kills``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.slurm import stream
from tests.testbeds.slurm import SlurmTestbed, alike, bed, missing
from tests.testbeds.slurm_commands import Commands
from tests.testbeds.slurm_site import SlurmSite

WARM_LIMIT_S = 600.0
QUEUED = 500
ROUNDS = 10


@contextmanager
def folder() -> Iterator[Path]:
    """A short one that every user may enter."""
    root = Path(tempfile.mkdtemp(prefix="co-"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def serving(site: SlurmSite, cache: str) -> Iterator[SlurmSite]:
    """A site whose solver is warm."""
    if cache:
        text = site.config.read_text()
        old = next(line for line in text.splitlines() if line.startswith("cache_dir"))
        site.config.write_text(text.replace(old, f'cache_dir = "{cache}"'))
    site.start()
    try:
        if site.policy != "plain":
            site.until(lambda: bool(site.lines("solver_warmed")), WARM_LIMIT_S)
        yield site
    finally:
        site.stop()


def rounds(policy: str, cache: str) -> list[tuple[str, str]]:
    """Cost of a round beyond solving, and number of questions to Slurm in a cycle."""
    with folder() as root, bed(*alike(3, 64)) as running:
        commands = Commands(root / "bin")
        site = SlurmSite(root, running, policy=policy, given={"bin": str(commands.folder)})
        for cluster in running:
            cluster.run("salloc", "--no-shell", "--exclusive", "-N", "64", "-t", "60", "-J", "full")
        with serving(site, cache):
            for number in range(QUEUED):
                site.submit(["true"], 1 + number % 96, job={"base_time": 60.0 + number})
            first = len(site.lines("round_finished"))
            commands.forget()
            began = time.monotonic()
            for _ in range(ROUNDS):
                count = len(site.lines("round_finished"))
                site.ask("round_now")
                site.until(lambda count=count: len(site.lines("round_finished")) > count)  # type: ignore[misc]
            spent = time.monotonic() - began
            lines = [
                line
                for line in site.lines("round_finished")[first:]
                if line["queued"] == QUEUED and line["policy"] == policy
            ]
            beyond = [line["total_s"] - line["solve_s"] for line in lines]
            asked = {
                name: commands.calls(*name.split())
                for name in (
                    "squeue",
                    "scontrol -a -o show node",
                    "scontrol -a -o show partition",
                    "scontrol -a -o show reservation",
                )
            }
            others = commands.calls() - sum(asked.values())
    return [
        ("rounds with 500 queued jobs over 3 x 64 nodes", f"{len(lines)} in {spent:.0f} s"),
        ("beyond solving, in each", shown(beyond, "ms", 1e3)),
        ("calls of Slurm meanwhile", f"{asked}, other calls {others}"),
    ]


def through(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The stream, ours and plain."""
    wide = [4 * args.scale] * (args.jobs // 50)
    jobs = stream.workload(args.jobs, widest=2 * args.scale, mean_s=args.mean, seed=args.seed)
    with_wide = stream.workload(
        args.jobs, widest=2 * args.scale, mean_s=args.mean, seed=args.seed, wide=wide
    )
    found: list[tuple[str, str]] = []
    with folder() as root:
        if args.plain:
            with bed(*stream.shapes(args.scale, root)) as running:
                took = stream.round_robin(running, jobs, root / "plain")
                more = stream.occupied(running, jobs, root)
                assert len(more) == len(jobs), (len(more), len(jobs))
                extra = statistics.mean(more)
                found += [
                    ("plain sbatch, each cluster in turn", f"{len(jobs)} jobs in {took:.0f} s"),
                    ("nodes are held longer than a job runs", f"mean {extra:.2f} s"),
                    ("bound, and with that added", bounds(jobs, running, extra)),
                ]
        for name in stream.POWERS:
            (root / f"ended.{name}").unlink(missing_ok=True)
        with bed(*stream.shapes(args.scale, root)) as running:
            found += ours(root, running, with_wide, args)
    return found


def ours(
    root: Path, running: SlurmTestbed, jobs: list[stream.Work], args: argparse.Namespace
) -> list[tuple[str, str]]:
    """The stream through the daemon."""
    lines = root / "runs"
    site = SlurmSite(
        root,
        running,
        policy=args.policy,
        powers=stream.POWERS,
        interval_s=1.0,
        daemon="keep_ended = 100000",
        rounds="time_limit_s = 2.0",
        start="prepare_timeout_s = 30.0\nbackoff_max_s = 10.0",
    )
    with serving(site, args.cache):
        chaos = None
        if args.kills:
            chaos = stream.Chaos(site, args.kills, every_s=args.every, seed=args.seed)
        took, rows = stream.drive(site, jobs, lines, chaos=chaos, limit_s=args.limit, say=say)
        running.wait(
            lambda: all(cluster.is_idle() for cluster in running), "every node is idle again", 120.0
        )
        off = (stream.runs(lines) - stream.expected(jobs)) + (
            stream.expected(jobs) - stream.runs(lines)
        )
        by_forgetting = [] if chaos is None else stream.forgotten(rows, chaos.kills)
        kinds = "" if chaos is None else ", ".join(f"{k.kind} {k.name}" for k in chaos.kills)
        held = [
            row["ended"] - row["started"]
            for row in rows
            if row["state"] == "completed" and row["started"]
        ]
        return [
            ("through the daemon", f"{len(jobs)} jobs in {took:.0f} s; {stream.counted(rows)}"),
            ("bound", bounds(jobs, running, 0.0)),
            ("processes not started exactly once", str(sum(off.values()))),
            ("jobs over several clusters", str(sum(len(row["clusters"]) > 1 for row in rows))),
            ("starts called off and tried again", str(len(site.lines("job_requeued")))),
            ("run time of a job", shown(held, "s", 1.0)),
            ("kills", kinds or "none"),
            ("cut short as slurmctld forgot their start", str(len(by_forgetting))),
            ("cut short otherwise", lost_otherwise(rows, by_forgetting)),
        ]


def lost_otherwise(rows: list[dict[str, Any]], known: list[str]) -> str:
    """Reasons that the daemon gives for jobs that were lost otherwise."""
    found = [r for r in rows if r["state"] != "completed" and r["id"] not in known]
    return "; ".join(f"{r['id']} on {r['clusters']}: {r['detail']}" for r in found) or "none"


def bounds(jobs: list[stream.Work], running: SlurmTestbed, extra_s: float) -> str:
    """The bound of a workload, and the bound where each job takes that much longer."""
    plain = stream.bound_s(jobs, running)
    if not extra_s:
        return f"{plain:.0f} s"
    return f"{plain:.0f} s, {stream.bound_s(jobs, running, extra_s):.0f} s"


def say(text: str) -> None:
    """Print what goes on, now and then."""
    if time.monotonic() - _said[0] >= 10.0:
        _said[0] = time.monotonic()
        print(text, file=sys.stderr, flush=True)


_said = [0.0]


def shown(values: list[float], unit: str, scale: float) -> str:
    """Median and largest."""
    if not values:
        return "none"
    return f"median {statistics.median(values) * scale:.3g} {unit}, worst {max(values) * scale:.3g}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("rounds", "stream"))
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--scale", type=int, default=4, help="clusters of 3, 2 and 1 times as many")
    parser.add_argument("--mean", type=float, default=6.0, help="of the jobs' run times, seconds")
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--every", type=float, default=12.0, help="between two kills, seconds")
    parser.add_argument("--no-plain", dest="plain", action="store_false")
    parser.add_argument("--cache", default="", help="folder of compiled code, to be kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    args = parser.parse_args()
    absent = missing()
    if absent:
        print(f"Slurm is not installed: {absent}", file=sys.stderr)
        return 0
    print(f"{os.cpu_count()} cores, load {', '.join(f'{x:.1f}' for x in os.getloadavg())}")
    found = []
    if args.only != "stream":
        found += rounds(args.policy, args.cache)
    if args.only != "rounds":
        found += through(args)
    print(f"load at the end {', '.join(f'{x:.1f}' for x in os.getloadavg())}")
    width = max(len(name) for name, _ in found)
    for name, text in found:
        print(f"{name:<{width}}  {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
