"""The running daemon: durable submits, submit to start, memory and restart with a full queue.

``python -m benchmarks service`` prints a table; ``--full`` queues 100,000 jobs instead of
10,000. Everything runs on this machine, over ipc, with the store on the disk of ``--dir``.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from tests.support.live_site import Running

from coalloc.wire.client import RequestConnection

SYNC_SUBMITS = 300
CLIENTS = 32
SUBMITS_EACH = 100
STARTS = 40
HELD: dict[str, Any] = {"hold": True}


def fsync_s(folder: Path, count: int = 200) -> float:
    """Median time of one 4 kB append and fsync, seconds."""
    times = []
    with open(folder / "fsync.probe", "wb", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    (folder / "fsync.probe").unlink()
    return statistics.median(times)


def synchronous(site: Running) -> float:
    """Seconds for a submit of one client that waits for each answer, median."""
    times = []
    for _ in range(SYNC_SUBMITS):
        body = {"type": "submit", **site.submission(["true"], **HELD)}
        began = time.perf_counter()
        assert site.asker.ask(body)["type"] == "done"
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def many_clients(site: Running) -> float:
    """Submits per second of 32 clients that each wait for their answers."""
    bodies = [[{"type": "submit", **site.submission(["true"], **HELD)} for _ in range(SUBMITS_EACH)]
              for _ in range(CLIENTS)]  # fmt: skip
    ready = threading.Barrier(CLIENTS + 1)

    def client(mine: list[dict[str, object]]) -> None:
        asker = RequestConnection(site.endpoint, timeout_s=30.0)
        asker.ask({"type": "status"})
        ready.wait()
        for body in mine:
            assert asker.ask(body)["type"] == "done"
        asker.close()

    threads = [threading.Thread(target=client, args=(mine,)) for mine in bodies]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return CLIENTS * SUBMITS_EACH / (time.perf_counter() - began)


def pipelined(site: Running, count: int, window: int = 500) -> float:
    """Submits per second of one client that keeps a window of them under way."""
    asker = RequestConnection(site.endpoint, timeout_s=60.0)
    waiting: list[str] = []
    began = time.perf_counter()
    for _ in range(count):
        waiting.append(asker.send({"type": "submit", **site.submission(["true"], **HELD)}))
        if len(waiting) >= window:
            asker.answer_to(waiting.pop(0)).checked()
    for request in waiting:
        asker.answer_to(request).checked()
    spent = time.perf_counter() - began
    asker.close()
    return count / spent


def submit_to_start(site: Running) -> tuple[list[float], list[float]]:
    """Seconds from the submit to the placement, and to the start; one job at a time."""
    placed, out = [], []
    for _ in range(STARTS):
        began = time.time()
        job = site.submit(["true"])
        site.asker.ask({"type": "wait", "job": job}, timeout_s=30.0)
        started = site.job(job)["started"]
        out.append(started - began)
        events = site.ask("events", job=job)["events"]
        placed += [each["time"] - began for each in events if each["kind"] == "job_placed"]
    return placed, out


def start_skews(site: Running) -> list[float]:
    """Milliseconds between the first processes of two parts, one job at a time."""
    out = []
    for _ in range(STARTS):
        job = site.submit(["true"], 6)
        site.asker.ask({"type": "wait", "job": job}, timeout_s=30.0)
        out.append(site.job(job)["skew_ms"])
    return out


def memory_mb(site: Running) -> float:
    """Resident memory of the daemon's process, MB."""
    return float(psutil.Process(site.processes["coallocd"].pid).memory_info().rss) / 1e6


def restart_s(site: Running) -> float:
    """Seconds from the start of the process to its first answer, after a SIGKILL."""
    site.kill("coallocd", signal.SIGKILL)
    began = time.perf_counter()
    site.start_daemon(wait=False)
    asker = RequestConnection(site.endpoint, timeout_s=120.0)
    asker.ask({"type": "status"})
    asker.close()
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="100,000 queued jobs")
    parser.add_argument("--dir", type=Path, help="where the store lies")
    args = parser.parse_args()
    queued = 100_000 if args.full else 10_000
    with tempfile.TemporaryDirectory(prefix="co-", dir=args.dir) as folder:
        root = Path(folder)
        site = Running(root, policy="easy", daemon="max_jobs_per_user = 0")
        try:
            site.start()
            site.until(lambda: bool(site.lines("solver_warmed")), 120.0)
            rows: list[tuple[str, str]] = []
            measure(site, rows, queued)
        finally:
            site.stop()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def measure(site: Running, rows: list[tuple[str, str]], queued: int) -> None:
    """Everything, in one run."""
    disk = fsync_s(site.root)
    rows.append(("fsync of 4 kB, median", f"{disk * 1e3:.2f} ms"))
    placed, starts = submit_to_start(site)
    rows.append(("submit to placement, policy easy, median", ms(statistics.median(placed))))
    rows.append(("submit to process start, policy easy, median", ms(statistics.median(starts))))
    rows.append(("submit to process start, worst", ms(max(starts))))
    skews = sorted(start_skews(site))
    middle, late = statistics.median(skews), skews[int(0.95 * len(skews))]
    rows.append(("start skew of two parts on this machine, median", f"{middle:.2f} ms"))
    rows.append(("  95th percentile", f"{late:.2f} ms"))
    one = synchronous(site)
    rows.append(("durable submit, one synchronous client, median", ms(one)))
    rows.append(("  ratio to one fsync", f"{one / disk:.2f}"))
    rate = many_clients(site)
    rows.append((f"durable submits, {CLIENTS} clients", f"{rate:.0f} /s"))
    rows.append(("durable submits, one pipelining client", f"{pipelined(site, 5000):.0f} /s"))
    base = memory_mb(site)
    rows.append(("daemon, resident", f"{base:.0f} MB"))
    have = len(site.ask("queue")["jobs"])
    pipelined(site, max(0, queued - have))
    rows.append((f"daemon, resident, {queued} queued jobs", f"{memory_mb(site):.0f} MB"))
    rows.append((f"restart to serving, {queued} queued jobs", f"{restart_s(site):.2f} s"))
    rows.append(("daemon, resident, after the restart", f"{memory_mb(site):.0f} MB"))


def ms(seconds: float) -> str:
    """Milliseconds, for a table."""
    return f"{seconds * 1e3:.1f} ms"


if __name__ == "__main__":
    main()
