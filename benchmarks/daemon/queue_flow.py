"""Starts while many jobs wait: how many a second on four slots, beside queues of growing length.

``python -m benchmarks queue_flow [--policy easy] [--distinct]`` starts a daemon and an executor on
this machine for each length, queues so many jobs that run ``true`` while rounds pause, and counts
the starts of 25 seconds in the daemon's log, or of less where all have begun. The jobs are arrays
of 10,000 at most; with ``--distinct`` each is a submission of its own with its own time limit.
``processor_ms`` is what each process has used for a job that has started; a runner's is that of all
that it ran, the job's own process included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from tests.support.live_site import Running

NAMES = ("daemon.main", "daemon.solver", "executor.main")
LENGTHS = (100, 1_000, 10_000)
SPAN_S = 25.0
MOST_IN_ARRAY = 10_000
DAEMON = "max_array = 20000\nmax_jobs_per_user = 0"


def queue(site: Running, jobs: int, distinct: bool) -> None:
    """Queue so many jobs."""
    if distinct:
        sent = []
        for number in range(jobs):
            body = {"type": "submit", **site.submission(["true"])}
            body["job"] = {**body["job"], "time_limit": 60.0 + number}
            sent.append(site.asker.send(body))
        for request in sent:
            site.asker.answer_to(request).checked()
        return
    for first in range(0, jobs, MOST_IN_ARRAY):
        members = list(range(min(MOST_IN_ARRAY, jobs - first)))
        site.ask("submit", **{**site.submission(["true"]), "array": members})


def starts(site: Running) -> list[float]:
    """Times of all starts so far, seconds; of members of an array that of their first."""
    lines = [(line, 1) for line in site.lines("job_started")]
    lines += [(line, line["behind"]) for line in site.lines("members_started")]
    return [
        datetime.fromisoformat(line["timestamp"]).timestamp()
        for line, count in lines
        for _ in range(count)
    ]


def spent_s() -> dict[str, float]:
    """Processor time so far of daemon, solver, executor, fork server and what it has reaped."""
    total: dict[str, float] = defaultdict(float)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            words, times = " ".join(process.cmdline()), process.cpu_times()
            named = (name for name in NAMES if f"coalloc.{name}" in words)
            name = next(named, "fork server")
            total[name] += times.user + times.system
            if name == "fork server":
                total["runner and job"] += times.children_user + times.children_system
    return total


def measured(policy: str, jobs: int, distinct: bool) -> dict[str, Any]:
    """Starts a second beside so many waiting jobs, and the rounds meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        Running(Path(root), clusters={"alpha": 4}, policy=policy, daemon=DAEMON) as site,
    ):
        site.until(lambda: bool(site.lines("solver_warmed")), 300.0)
        site.ask("pause_rounds")
        queue(site, jobs, distinct)
        before = spent_s()
        began = time.time()
        site.ask("resume_rounds")
        while True:
            found = [at for at in starts(site) if at >= began]
            if time.time() - began >= SPAN_S or len(found) >= jobs:
                break
            time.sleep(1.0)
        span_s = min(SPAN_S, max(found, default=began + SPAN_S) - began)
        ended = site.lines("round_finished")
        used = {name: spent - before[name] for name, spent in spent_s().items()}
        return {
            "jobs": jobs,
            "started": len(found),
            "a second": round(len(found) / max(span_s, 1e-3), 1),
            "rounds": len(ended),
            "policies": dict(Counter(line["policy"] for line in ended)),
            "processor_ms": {n: round(each / len(found) * 1e3, 2) for n, each in used.items()},
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--distinct", action="store_true", help="each job is one of its own")
    parser.add_argument("--jobs", type=int, nargs="+", default=LENGTHS)
    args = parser.parse_args()
    for jobs in args.jobs:
        print(measured(args.policy, jobs, args.distinct), flush=True)


if __name__ == "__main__":
    main()
