"""Rounds by counted resources against the same cores asked for as one-slot jobs.

    python -m benchmarks counted [--corpus FILE] [--jobs 10000] [--nodes N ...] [--auto 1000]

Shapes are drawn by count from options of batch scripts (``sbatch-options.json``); nodes have 64
cores, 256 GiB and 4 GPUs, of a type on every other one. EASY at each number of nodes, and a round
of `auto` on 200 nodes; processor time, the least of three in turns, without compiling.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES

CORPUS = Path(__file__).resolve().parents[3] / "shared/data/public/sbatch-options.json"
CORES, MEMORY_MB, GPUS = 64, 262_144, 4
TURNS = 3


def _value(text: str, *names: str) -> str | None:
    for name in names:
        found = re.search(rf"(?:^|\s){name}[= ]?(\S+)", text)
        if found:
            return found.group(1)
    return None


def _number(text: str | None, default: int = 0) -> int:
    found = re.match(r"\d+", text or "")
    return int(found.group()) if found else default


def _mebibytes(text: str | None) -> int:
    scale = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
    found = re.fullmatch(r"([\d.]+)([KMGT]?)B?", (text or "0").upper())
    return int(float(found.group(1)) * scale[found.group(2) or "M"]) if found else 0


def job_of(options: list[str]) -> dict[str, Any]:
    """Processes, memory and shape of a script's options, cut to what a node has."""
    text = " ".join(options)
    nodes = min(_number(_value(text, "-N", "--nodes")), 16)
    each = _number(_value(text, "--ntasks-per-node"))
    cpus = min(_number(_value(text, "-c", "--cpus-per-task"), 1), CORES)
    each = min(each, CORES // cpus)
    procs = _number(_value(text, "-n", "--ntasks")) or max(nodes, 1) * max(each, 1)
    procs = max(min(procs, 16 * (CORES // cpus)), nodes)
    if nodes:
        procs = min(procs, nodes * (each or CORES // cpus))
    shape: dict[str, Any] = {"cpus_per_proc": cpus}
    if nodes:
        shape |= {"min_nodes": nodes, "max_nodes": nodes}
    if each:
        shape["procs_per_node"] = each
    gpus = re.search(r"gpu[^\s]*?[:=](\d+)", text)
    if gpus:
        shape["per_node"] = {"gpu": max(1, min(int(gpus.group(1)), GPUS))}
    job: dict[str, Any] = {"procs": procs}
    if "--exclusive" in text:
        shape["exclusive"] = True
    if memory := _mebibytes(_value(text, "--mem")):
        shape["memory_mb_per_node"] = min(memory, MEMORY_MB)
    elif memory := _mebibytes(_value(text, "--mem-per-cpu")):
        job["memory_mb_per_proc"] = min(memory * cpus, MEMORY_MB * cpus // CORES)
    return {**job, "shape": shape}


def pair(corpus: Path, jobs: int, nodes: int) -> dict[str, Snapshot]:
    """The jobs with their shapes, and the same cores as one-slot jobs."""
    rows = json.loads(corpus.read_text())
    draws = Random(1)
    drawn = draws.choices([row["options"] for row in rows], [row["count"] for row in rows], k=jobs)
    shaped = [{**job_of(one), "base_time": draws.uniform(60.0, 7200.0)} for one in drawn]
    slots = [
        {
            "procs": job["procs"] * job["shape"]["cpus_per_proc"],
            "base_time": job["base_time"],
        }
        for job in shaped
    ]
    members = [
        {
            "name": f"n{n}",
            "slots": CORES,
            "memory_mb": MEMORY_MB,
            "resources": {"gpu:a100" if n % 2 else "gpu": GPUS},
        }
        for n in range(nodes)
    ]
    return {
        kind: read_snapshot(
            {
                "format": "coalloc-snapshot/1",
                "clusters": [{"name": "a", "nodes": members}],
                "queue": [{"id": str(n), "kind": "rigid", **job} for n, job in enumerate(queue)],
            }
        )
        for kind, queue in (("counted", shaped), ("slots", slots))
    }


def least(policy: str, snapshots: dict[str, Snapshot], *, live: bool) -> dict[str, float]:
    """Processor time of a round on each, s; they take turns."""
    row, out = POLICIES[policy], dict.fromkeys(snapshots, float("inf"))
    options = read_options({}, row.options)
    for turn in range(TURNS + 1):
        for kind, snapshot in snapshots.items():
            began = time.process_time()
            row.solve(snapshot, options, Budget(live=live))
            if turn:
                out[kind] = min(out[kind], time.process_time() - began)
    return out


def main() -> int:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 2_000, 10_000])
    parser.add_argument("--auto", type=int, default=1_000, help="jobs of the round of auto")
    args = parser.parse_args()
    cases = [("easy", args.jobs, nodes, False) for nodes in args.nodes]
    for policy, jobs, nodes, live in [*cases, ("auto", args.auto, 200, True)]:
        found = least(policy, pair(args.corpus, jobs, nodes), live=live)
        ratio = found["counted"] / found["slots"]
        times = ", ".join(f"{kind} {seconds:.3f} s" for kind, seconds in found.items())
        print(f"{policy}, {jobs} jobs, {nodes} nodes: {times}, ratio {ratio:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
