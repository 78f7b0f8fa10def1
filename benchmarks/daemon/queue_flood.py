"""Starts of some beside a flood of others, on four slots.

``python -m benchmarks queue_flood --only arrays`` (as root): one user queues two arrays of 10,000
``true``; then another one submits jobs of one process, each when the one before has ended. Shares
are on, so each is due at once: how long from its submit until it starts.

``--only submits [--seconds 600]``: 200 submits a second beside 50,000 waiting jobs. How long from
the end of a job until the next one starts on its slot, by the daemon's log; memory of the daemon
before, by the minute and after; jobs that were acknowledged and are not known.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from tests.support.live_site import Running, warm_site
from tests.support.multi_user import ADA, BOB, MultiUser

from benchmarks.daemon.queue_flow import DAEMON, MOST_IN_ARRAY, queue

SHARES = "\n[priority]\nshares = 16.0\n"
WAITING, A_SECOND, EACH_S, AT_ONCE = 50_000, 200, 0.1, 200
SLOTS = {"alpha": 4}
LIMIT_S, MINUTE_S = 900.0, 60.0


def spread(values: Sequence[float]) -> str:
    """Median, 99th percentile and greatest of some seconds."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"median {statistics.median(ordered):.3f}, p99 {p99:.3f}, most {ordered[-1]:.3f} s"


def beside_arrays(policy: str, jobs: int) -> None:
    """Print how long one user's jobs wait beside two arrays of another."""
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        MultiUser(Path(root), clusters=SLOTS, policy=policy, daemon=DAEMON + SHARES) as site,
    ):
        site.until(lambda: bool(site.lines("solver_warmed")), 300.0)
        one, waits = site.submission(["true"]), []
        del one["job"]["base_time"]  # as ``coalloc submit -- true`` has it
        with site.asking(site.key(BOB)) as bob, site.asking(site.key(ADA)) as ada:
            for number in range(2):
                array = {"token": f"array{number}", "array": list(range(MOST_IN_ARRAY))}
                bob.ask({"type": "submit", **one, **array})
            site.until(lambda: bool(site.lines("job_started")))
            for number in range(jobs):
                began = time.time()
                job = ada.ask({"type": "submit", **one, "token": f"job{number}"})["job"]
                ada.ask({"type": "wait", "job": job}, timeout_s=LIMIT_S)
                waits.append(site.job(job)["started"] - began)
        left = site.ask("status")["waiting"]
    print(f"beside two arrays, {policy}: first job {waits[0]:.3f} s; all {jobs}: {spread(waits)};")
    print(f"  {left:,} members wait then", flush=True)


def freed_slots(site: Running) -> list[float]:
    """Seconds from each end until the next start on the same node, by the daemon's log."""

    def told(name: str) -> list[tuple[float, str, dict[str, Any]]]:
        lines = site.lines(name)
        stamps = (datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines)
        return [(at, name, line) for at, line in zip(stamps, lines, strict=True)]

    node_of: dict[str, str] = {}
    ended: dict[str, float] = {}
    gaps = []
    lines = told("job_started") + told("job_ended")
    for at, name, line in sorted(lines, key=lambda row: row[0]):
        if name == "job_started":
            node = node_of[line["job"]] = line["nodes"]
            if node in ended:
                gaps.append(at - ended.pop(node))
        else:
            ended[node_of.pop(line["job"], "")] = at  # "": it never began
    return gaps


def memory_mb(site: Running) -> float:
    """Resident memory of the daemon."""
    return psutil.Process(site.processes["coallocd"].pid).memory_info().rss / 2**20


def beside_submits(policy: str, waiting: int, seconds: float) -> None:
    """Print what submits at a steady rate cost those who wait, and the daemon."""
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        warm_site(Path(root), 300.0, clusters=SLOTS, policy=policy, daemon=DAEMON) as site,
    ):
        empty_mb = memory_mb(site)
        site.ask("pause_rounds")
        queue(site, waiting, distinct=True)
        site.ask("resume_rounds")
        before_mb, began = memory_mb(site), time.monotonic()
        answers: list[float] = []
        jobs: list[str] = []
        each_kb = [(before_mb - empty_mb) * 1024 / waiting]
        while (now := time.monotonic()) < began + seconds:
            if now - began >= MINUTE_S * len(each_kb):
                here_mb = memory_mb(site) - empty_mb
                each_kb.append(here_mb * 1024 / site.ask("status")["waiting"])
            due = int((now - began) * A_SECOND) - len(jobs)
            bodies = ({"type": "submit", **site.submission(["true"])} for _ in range(due))
            sent = [site.asker.send(body) for body in bodies]
            jobs += [site.asker.answer_to(request).plain()["job"] for request in sent]
            answers.append(time.monotonic() - now)
            time.sleep(EACH_S)
        after_mb = memory_mb(site)
        gaps, queued = freed_slots(site), site.ask("status")["waiting"]
        ends = Counter(line["state"] for line in site.lines("job_ended"))
        lost = 0
        for first in range(0, len(jobs), AT_ONCE):
            asked = [site.asker.send({"type": "show", "job": j}) for j in jobs[first:][:AT_ONCE]]
            lost += sum(site.asker.answer_to(each).plain()["type"] != "show" for each in asked)
    print(f"beside {waiting:,} waiting, {policy}: {len(jobs):,} submits in {seconds:g} s")
    print(f"  answers to {EACH_S:g} s of submits: {spread(answers)}")
    print(f"  from an end to the next start there: {len(gaps)} times, {spread(gaps)}")
    each_kb.append((after_mb - empty_mb) * 1024 / queued)
    print(
        f"  memory {empty_mb:.0f} MiB empty, {before_mb:.0f} before, {after_mb:.0f} after with"
        f" {queued:,} waiting; KiB a waiting job before, by the minute, and after:"
        f" {' '.join(f'{kb:.2f}' for kb in each_kb)}"
    )
    print(f"  acknowledged and not known: {lost}; ended: {dict(ends)}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--only", choices=("arrays", "submits"))
    parser.add_argument("--jobs", type=int, default=100, help="of the other user")
    parser.add_argument("--waiting", type=int, default=WAITING)
    parser.add_argument("--seconds", type=float, default=120.0)
    args = parser.parse_args()
    if args.only != "submits":
        beside_arrays(args.policy, args.jobs)
    if args.only != "arrays":
        beside_submits(args.policy, args.waiting, args.seconds)


if __name__ == "__main__":
    main()
