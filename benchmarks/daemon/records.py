"""Records of jobs: read, written, replaced, and all of a full queue read at a start.

    python -m benchmarks records [--beside SRC] [--turns 7] [--jobs 100000]

CPU time, the best of several turns, each in a fresh process. `--beside` names the ``src`` folder of
another version, a worktree's: both take turns, and the ratio stands beside each row.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

MANY = 20_000
HERE = Path(__file__).resolve()


def measure(path: Path, jobs: int) -> dict[str, float]:
    """CPU times of the version that is imported; makes the store where there is none."""
    # What both versions have, imported where it is known which one this is.
    from coalloc.core.base.effects import SaveJob
    from coalloc.core.base.records import JobRecord
    from coalloc.core.coordinator import Coordinator
    from coalloc.daemon.store.recall import recall
    from coalloc.daemon.store.records_json import read_record, write_object
    from coalloc.daemon.store.sqlite import Store

    replace: Callable[..., JobRecord] = dataclasses.replace
    if not dataclasses.is_dataclass(JobRecord):
        from msgspec.structs import replace

    out = {}
    for kind, one in kinds(replace).items():
        text = write_object(one)
        out[f"read, {kind}, µs"] = cpu_s(partial(read_record, text)) * 1e6
        out[f"write, {kind}, µs"] = cpu_s(partial(write_object, one)) * 1e6
        out[f"replace one field, {kind}, µs"] = cpu_s(partial(replace, one, attempt=3)) * 1e6
        out[f"length of the text, {kind}, bytes"] = float(len(text))
    is_new = not path.exists()
    store = Store(path)
    if is_new:
        store.commit([SaveJob(record=waiting(number)) for number in range(1, jobs + 1)])
    texts = [row.body for row in store.active_jobs()]
    begun = time.process_time()
    kept = [read_record(each) for each in texts]
    out["read the records of a full queue, s"] = time.process_time() - begun
    del kept, texts
    begun = time.process_time()
    remembered = recall(store, 1000).remembered
    out["read the store, s"] = time.process_time() - begun
    begun = time.process_time()
    Coordinator(settings_type()(clusters=()), remembered)
    out["make the core's tables, s"] = time.process_time() - begun
    store.close()
    return out


def waiting(number: int) -> Any:
    """The record of a job that waits."""
    from coalloc.core.base.records import JobRecord
    from coalloc.model.jobs import RigidJob

    name = str(number)
    return JobRecord(
        id=name,
        job=RigidJob(id=name, procs=16, base_time=3600.0, sigma=0.7, proc_gbps=0.05, submitted=1e9),
        name="solver",
        user=f"user{number % 50}",
        uid=1000,
        gid=1000,
        command="solver.sh",
        submitted=1e9,
        sources={"base_time": "history", "sigma": "defaults", "proc_gbps": "defaults"},
    )


def kinds(replace: Callable[..., Any]) -> dict[str, Any]:
    """Records of three kinds, the last of a job of two parts."""
    from coalloc.core.base.records import JobRecord, JobState, PartRecord
    from coalloc.model.jobs import RigidJob
    from coalloc.model.sites.parts import PartState

    def part(number: int) -> PartRecord:
        return PartRecord(
            cluster="ab"[number],
            index=number,
            nodes={"ab"[number] + str(node): 4 for node in (1, 2)},
            first_rank=8 * number,
            state=PartState.RUNNING,
            started=1e9 + 5.5,
            asked=1e9 + 1.5,
            granted=1e9 + 2.5,
        )

    return {
        "plain": JobRecord(
            id="1", job=RigidJob(id="1", procs=4, base_time=60.0), name="n", user="ann"
        ),
        "waiting": waiting(1),
        "running": replace(
            waiting(1),
            state=JobState.RUNNING,
            attempt=1,
            rendezvous="a1:29000",
            planned=3600.0,
            link_gbps={"a": 0.3, "b": 0.3},
            round=3,
            policy="auto",
            started=1e9 + 5.5,
            skew_s=0.01,
            parts=(part(0), part(1)),
        ),
    }


def settings_type() -> Any:
    """The class of the core's settings."""
    try:
        return import_module("coalloc.model.settings").Config
    except ModuleNotFoundError:
        return import_module("coalloc.core.base.settings").Settings


def cpu_s(call: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    for _ in range(MANY // 10):
        call()
    begun = time.process_time()
    for _ in range(MANY):
        call()
    return (time.process_time() - begun) / MANY


def turn(source: Path, store: Path, jobs: int) -> dict[str, float]:
    """One turn of a version, in a process of its own."""
    command = [sys.executable, "-P", str(HERE), "--measure", str(store), "--jobs", str(jobs)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> int:
    """Print the figures; returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--beside", type=Path, metavar="SRC")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.jobs)))
        return 0
    sources = [HERE.parents[2] / "src", *([options.beside] if options.beside else [])]
    best: list[dict[str, float]] = [{} for _ in sources]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.turns):
            for number, source in enumerate(sources):
                found = turn(source, Path(folder) / f"{number}.db", options.jobs)
                least = best[number]
                least |= {name: min(value, least.get(name, value)) for name, value in found.items()}
    for name, value in best[0].items():
        beside = "".join(f"{other[name]:>12.4g}{other[name] / value:>9.2f} ×" for other in best[1:])
        print(f"{name:<40}{value:>12.4g}{beside}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
