"""Calls and arrays beside the field's fastest: ``python -m benchmarks peers [--calls 4000]``.

On 4 slots of this machine, warm, in one run and in turn: `Executor.submit` and `map` beside Dask's
on four worker processes, and an array of ``true`` beside HyperQueue's. The peers come from PyPI
into ``.venv/peers``; where they cannot, rows say so. HyperQueue's wheel keeps no journal, so its
tasks are not durable there; ours are. Ends with the number of rows below their limits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.jobs_called import square
from tests.support.live_site import Running

from coalloc import Client, Executor

CALLS_BY_DASK = 1.0
TASKS_BY_HYPERQUEUE = 1.0
SLOTS = 4
PEERS = Path(sys.prefix) / "peers"
DASK = """
import sys, time
from distributed import Client, LocalCluster

def square(value):
    return value * value

if __name__ == "__main__":
    calls = int(sys.argv[1])
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.gather(client.map(square, range(400), pure=False))
            began = time.perf_counter()
            client.gather([client.submit(square, n, pure=False) for n in range(calls)])
            middle = time.perf_counter()
            client.gather(client.map(square, range(calls), pure=False))
            print([calls / (middle - began), calls / (time.perf_counter() - middle)])
"""
HYPERQUEUE = """
import sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

def run(client, tasks):
    job = Job()
    for _ in range(tasks):
        job.program(["true"])
    client.wait_for_jobs([client.submit(job)])

with LocalCluster(worker_config=WorkerConfig(cores=4)) as cluster:
    client = cluster.client()
    run(client, 100)
    began = time.perf_counter()
    run(client, int(sys.argv[1]))
    print([int(sys.argv[1]) / (time.perf_counter() - began)])
"""


def peer(package: str, script: str, count: int, folder: Path) -> list[float] | None:
    """Figures of a peer's script; None: it cannot be had, or failed."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
    install = [str(python), "-m", "pip", "--quiet", "install", package]
    if subprocess.run(install, check=False, capture_output=True).returncode:
        return None
    path = folder / f"bench_{package}.py"
    path.write_text(script)
    argv = [str(python), str(path), str(count)]
    environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "300s"}
    done = subprocess.run(argv, cwd=folder, env=environment, check=False, capture_output=True)
    if done.returncode:  # its connections end where the machine is too busy
        print(done.stderr.decode()[-300:], file=sys.stderr, flush=True)
        return None
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def calls(site: Running, folder: Path, count: int) -> list[float]:
    """Calls a second through `Executor`, by `submit` and by `map`."""
    with Executor(client=lambda: Client(config=site.config), folder=folder, base_time=5.0) as pool:
        list(pool.map(square, range(400)))
        began = time.perf_counter()
        futures = [pool.submit(square, number) for number in range(count)]
        assert [future.result() for future in futures] == [n * n for n in range(count)]
        middle = time.perf_counter()
        assert list(pool.map(square, range(count))) == [n * n for n in range(count)]
        return [count / (middle - began), count / (time.perf_counter() - middle)]


def tasks(site: Running, folder: Path, count: int) -> list[float]:
    """Members of an array of ``true`` that end in a second."""
    submit = [sys.executable, "-m", "coalloc.cli.main", "submit", "--parsable", "--time", "60"]
    environment = {**os.environ, "COALLOC_CONFIG": str(site.config)}

    def run(members: int) -> float:
        began = time.perf_counter()
        argv = [*submit, "--array", f"0-{members - 1}", "--", "true"]
        subprocess.run(argv, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        site.until(lambda: not site.ask("queue", limit=1)["jobs"], 3600.0)
        return members / (time.perf_counter() - began)

    run(100)
    return [run(count)]


def row(what: str, ours: list[float], theirs: list[float] | None, limit: float) -> bool:
    """Print a row; whether it is below its limit."""
    mean = statistics.median(ours)
    if not theirs:
        print(f"{what}: {mean:,.0f}/s; the peer is not to be had", flush=True)
        return False
    ratio = mean / statistics.median(theirs)
    words = "reached" if ratio >= limit else "NOT REACHED"
    beside = f"{mean:,.0f}/s by {statistics.median(theirs):,.0f}/s = {ratio:.2f}"
    print(f"{what}: {beside}; wanted: at least {limit:g}: {words}", flush=True)
    return ratio < limit


def main() -> int:
    """Measure, and print each figure beside its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=["calls", "tasks"])
    args = parser.parse_args()
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="co-", ignore_cleanup_errors=True) as root,
        Running(Path(root), clusters={"alpha": SLOTS}, policy="auto") as site,
    ):
        folder = site.work
        site.until(lambda: bool(site.lines("solver_warmed")), 300.0)
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        for kind, names, act, package, script, count, limit in (
            ("calls", ("submit", "map"), calls, "distributed", DASK, args.calls, CALLS_BY_DASK),
            ("tasks", ("array",), tasks, "hyperqueue", HYPERQUEUE, args.tasks, TASKS_BY_HYPERQUEUE),
        ):
            if args.only in (kind, None):
                rounds = [
                    (act(site, folder, count), peer(package, script, count, folder))
                    for _ in range(args.times)
                ]
                for place, name in enumerate(names):
                    ours = [figures[place] for figures, _ in rounds]
                    theirs = [figures[place] for _, figures in rounds if figures]
                    failed += row(f"{name} ({package})", ours, theirs, limit)
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
