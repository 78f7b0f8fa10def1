"""A daemon whose store has the accounts of a million ended jobs.

    python -m benchmarks ended_jobs [--jobs 1000000] [--folder DIR]

Printed are the start of the daemon, the time and peak memory of the commands that read all of it,
and how long submits wait for their answers meanwhile: against those on an idle daemon with the
same store, one after the other from one client. Jobs are submitted held, so that nothing runs.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.support.live_site import Running

from coalloc.core.base.effects import AddUsage, Effect, SaveAccount
from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.daemon.store.sqlite import Store
from coalloc.model.jobs import RigidJob

BATCH = 2_000
USERS, PROJECTS = 500, 50
FIRST_END, EVERY_S, RUN_S = 1.7e9, 30.0, 3600.0
IDLE_SUBMITS = 500
COMMANDS = (
    ("account", "--csv"),
    ("account", "--json"),
    ("account",),
    ("account", "--swf"),
    ("account", "--user", "user7"),
    ("account", "--project", "p7", "--csv"),
    ("usage", "--by", "project"),
    ("usage", "--by", "day,cluster", "--csv"),
)
MAX_P99_MS = 250.0


def effects_of(number: int) -> list[Effect]:
    """The account of one job, and its usage; a day has 2,880 of them."""
    end, name = FIRST_END + number * EVERY_S, str(10_000_000 + number)
    cluster = ("alpha", "beta")[number % 2]
    user, project = f"user{number % USERS}", f"p{number % PROJECTS}"
    record = JobRecord(
        id=name,
        job=RigidJob(id=name, procs=16, base_time=RUN_S),
        name="solver",
        user=user,
        command="solver.sh",
        submitted=end - 2.0 * RUN_S,
        started=end - RUN_S,
        ended=end,
        state=JobState.COMPLETED,
        exit_code=0,
        parts=(PartRecord(cluster=cluster, index=0, nodes={"n1": 16}, first_rank=0),),
    )
    used = AddUsage(
        day=int(end // 86_400),
        project=project,
        user=user,
        cluster=cluster,
        proc_s=16.0 * RUN_S,
        coallocated_proc_s=0.0,
        jobs=1,
        wait_s=RUN_S,
    )
    return [SaveAccount(record=record, project=project, proc_s=16.0 * RUN_S), used]


def fill(path: Path, jobs: int) -> None:
    """Write the accounts."""
    path.parent.mkdir(parents=True, mode=0o700)
    store = Store(path)
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(first + BATCH, jobs))
        store.commit([effect for number in numbers for effect in effects_of(number)])
    store.close()


def submits(site: Running, goes_on: Callable[[int], bool]) -> list[float]:
    """Milliseconds from each submit to its answer, sorted."""
    times: list[float] = []
    while goes_on(len(times)):
        body = {"type": "submit", **site.submission(["true"], hold=True)}
        began = time.perf_counter()
        assert site.asker.ask(body)["type"] == "done"
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)


def told(name: str, times: list[float], note: str = "") -> None:
    """Print one line; the 99th percentile is that of the submits."""
    at = times[min(len(times) - 1, int(0.99 * len(times)))]
    verdict = "" if at <= MAX_P99_MS else f"  above {MAX_P99_MS:g} ms"
    print(
        f"{name:<32} submits {len(times):>6}: median {times[len(times) // 2]:6.2f}, p99 {at:6.2f},"
        f" worst {times[-1]:6.2f} ms  {note}{verdict}",
        flush=True,
    )


def measured(site: Running, words: tuple[str, ...], daemon: psutil.Process) -> None:
    """Run a command that reads accounts, and submit until it has ended."""
    before, cpu = resource.getrusage(resource.RUSAGE_CHILDREN), daemon.cpu_times()
    command = [sys.executable, "-m", "coalloc.cli.main", words[0], "--endpoint", site.endpoint]
    with (site.root / "out").open("wb") as out:
        process = subprocess.Popen([*command, *words[1:]], stdout=out, stderr=subprocess.DEVNULL)
        peak = 0

        def goes_on(count: int) -> bool:
            nonlocal peak
            if process.poll() is not None:
                return count == 0
            if count % 50 == 0:
                peak = max(peak, psutil.Process(process.pid).memory_info().rss)
            return True

        times = submits(site, goes_on)
    assert process.wait() == 0, f"{' '.join(words)} failed"
    after, spent = resource.getrusage(resource.RUSAGE_CHILDREN), daemon.cpu_times()
    with (site.root / "out").open("rb") as file:
        lines = sum(1 for _ in file)
    note = f"{lines} lines, {after.ru_utime - before.ru_utime:.1f} CPU-s, {peak >> 20} MiB;"
    note += f" daemon {spent.user - cpu.user:.1f} CPU-s"
    told(" ".join(words), times, note)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="co-", dir=given.folder) as folder:
        path = Path(folder) / "state" / "coalloc.db"
        began = time.process_time()
        fill(path, given.jobs)
        size = path.stat().st_size >> 20
        print(f"{given.jobs} accounts, {size} MiB, {time.process_time() - began:.1f} CPU-s")
        site = Running(Path(folder), daemon="max_jobs_per_user = 0")
        began = time.monotonic()
        site.start_daemon()
        daemon = psutil.Process(site.processes["coallocd"].pid)
        cpu = daemon.cpu_times().user + daemon.cpu_times().system
        print(
            f"serving after {time.monotonic() - began:.1f} s, {cpu:.1f} CPU-s,"
            f" {daemon.memory_info().rss >> 20} MiB"
        )
        try:
            told("nothing", submits(site, lambda count: count < IDLE_SUBMITS))
            for words in COMMANDS:
                measured(site, words, daemon)
            print(f"daemon's memory {daemon.memory_info().rss >> 20} MiB")
        finally:
            site.stop()


if __name__ == "__main__":
    main()
