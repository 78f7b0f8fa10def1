"""Tasks of a workflow that the running daemon starts per second, with empty commands.

``python -m benchmarks workflow_tasks`` runs ``true`` as the tasks of one workflow on two clusters
of this machine; ``--full`` runs 2,000 instead of 500. Each task needs one of the row above it, so
that every start follows an end. The sustained rate is that of the middle 80 % of the ends.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
from tests.support.live_site import Running

NODES = 4


def workflow(count: int, width: int) -> dict[str, Any]:
    """So many tasks in rows of a width."""
    tasks = [{"id": f"t{i}", "work": 0.05} for i in range(count)]
    edges = [{"from": f"t{i - width}", "to": f"t{i}"} for i in range(width, count)]
    return {"kind": "workflow", "tasks": tasks, "edges": edges}


def cpu_s(site: Running) -> dict[str, float]:
    """Processor seconds of each of our processes; not of the tasks and their runners."""
    out = {}
    for name, process in site.processes.items():
        times = psutil.Process(process.pid).cpu_times()
        out[name] = times.user + times.system
    return out


def measured(site: Running, count: int, width: int) -> list[tuple[str, str]]:
    """Run one workflow; rows of a table."""
    before, rounds = cpu_s(site), len(site.lines("round_finished"))
    launch = site.submission(["true"])["launch"] | {"stdout": os.devnull}
    body = {"token": uuid.uuid4().hex, "job": workflow(count, width), "launch": launch}
    began = time.perf_counter()
    answer = site.ask("submit_workflow", **body)
    queued = time.perf_counter() - began
    with site.fresh_asker(600.0) as asker:
        (ended,) = asker.ask({"type": "wait", "job": answer["job"]})["jobs"]
    assert ended["state"] == "completed", ended
    after = cpu_s(site)
    ends = sorted(task["ended"] for task in site.job(answer["job"])["tasks"])
    first, last = count // 10, count - count // 10
    rate = (last - 1 - first) / (ends[last - 1] - ends[first])
    spent = {name: 1e3 * (after[name] - before[name]) / count for name in after}
    return [
        ("submit of the workflow", f"{queued * 1e3:.0f} ms"),
        ("tasks per second, sustained", f"{rate:.0f}"),
        ("tasks per second, from submit to end", f"{count / (time.perf_counter() - began):.0f}"),
        ("rounds", str(len(site.lines("round_finished")) - rounds)),
        ("processor time of the daemon per task", f"{spent.pop('coallocd'):.1f} ms"),
        ("processor time of the executors per task", f"{sum(spent.values()):.1f} ms"),
        ("load of the machine, 1 minute", f"{os.getloadavg()[0]:.1f}"),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="2,000 tasks")
    parser.add_argument("--slots", type=int, default=2, help="of each of the eight nodes")
    args = parser.parse_args()
    count = 2000 if args.full else 500
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        site = Running(
            Path(folder), clusters={"alpha": NODES, "beta": NODES}, slots=args.slots, policy="easy"
        )
        try:
            site.start()
            site.until(lambda: bool(site.lines("solver_warmed")), 600.0)
            rows = measured(site, count, 2 * NODES * args.slots)
        finally:
            site.stop()
    for name, value in rows:
        print(f"{count} tasks: {name:42} {value}")


if __name__ == "__main__":
    main()
