"""The store: commits against the disk's own speed, and a start with many waiting jobs.

    python -m benchmarks store [--jobs 100000] [--folder DIR] [--seconds 2]

*Commits*: a submit is a job, its launch, its token and an event; so many submits share one commit.
Beside it stands what the disk does without a store: 4 KiB written and synced.

*Start*: a fresh process opens a store with so many waiting jobs (``quick_check`` included), reads
them back into the daemon's core, and reports its time and its peak memory.

*Upkeep*: as many jobs have ended; they are forgotten, and their pages given back, step by step.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.daemon.records import waiting
from coalloc.core.base.effects import AppendEvent, Effect, SaveJob, SaveLaunch, SaveToken
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.upkeep import PAGES_AT_ONCE, PRUNED_AT_ONCE
from coalloc.model.event_kinds import EventKind
from coalloc.model.jobs import RigidJob
from coalloc.model.settings import Config
from coalloc.model.sites.parts import Launch

BATCHES = (1, 32, 500)
SCRIPT = "#!/bin/sh\n#COALLOC -n 16\nexec mpirun ./solver --input case.json --steps 1000\n"
MAX_START_S, MAX_MB = 3.0, 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement."""

    name: str
    value: float
    unit: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name:<44} {self.value:>10.4g} {self.unit:<10} {self.note}".rstrip()


def submit(number: int) -> list[Effect]:
    """Effects of one submitted job."""
    record = waiting(number)
    launch = Launch(argv=("solver.sh",), script=SCRIPT, env={"PATH": "/usr/bin"}, cwd="/home/user")
    return [
        SaveJob(record=record),
        SaveLaunch(job=record.id, launch=launch),
        SaveToken(user=record.user, token=f"{number:032x}", job=record.id),
        AppendEvent(
            seq=number, time=1e9, kind=EventKind.JOB_SUBMITTED, job=record.id, fields={"procs": 16}
        ),
    ]


def sync_rate(folder: Path, seconds: float) -> float:
    """Writes of 4 KiB per second, each synced."""
    block, count = b"x" * 4096, 0
    with (folder / "sync").open("wb", buffering=0) as file:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            file.write(block)
            os.fsync(file.fileno())
            count += 1
    return count / seconds


def commit_rate(folder: Path, batch: int, seconds: float) -> tuple[float, float]:
    """Commits per second of so many submits each, and the median seconds of one."""
    store = Store(folder / f"batch{batch}.db")
    number, times = 0, []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        effects = [effect for k in range(batch) for effect in submit(number + k + 1)]
        number += batch
        began = time.perf_counter()
        store.commit(effects)
        times.append(time.perf_counter() - began)
    store.close()
    return len(times) / sum(times), sorted(times)[len(times) // 2]


def filled(path: Path, jobs: int) -> float:
    """Make a store with so many waiting jobs; returns the seconds it took to write them."""
    store = Store(path)
    spent = 0.0
    for first in range(1, jobs + 1, 500):
        last = min(first + 500, jobs + 1)
        effects = [effect for number in range(first, last) for effect in submit(number)]
        began = time.perf_counter()
        store.commit(effects)
        spent += time.perf_counter() - began
    store.close()
    return spent


def start(path: Path) -> dict[str, float]:
    """Open a store and hand its jobs to the core, as the daemon does; run in a fresh process."""
    before = peak_mb()
    began, began_cpu = time.perf_counter(), time.process_time()
    store = Store(path)
    opened, opened_cpu = time.perf_counter(), time.process_time()
    core = Coordinator(Config(), recall(store, 1000).remembered)
    serving, serving_cpu = time.perf_counter(), time.process_time()
    after = peak_mb()
    store.backup(path.with_suffix(".backup"))
    copied = time.perf_counter()
    pruned = store.prune(1000)
    end = time.perf_counter()
    store.close()
    return {
        "jobs": len(core.state.waiting),
        "open_s": opened - began,
        "open_cpu_s": opened_cpu - began_cpu,
        "serving_s": serving - began,
        "serving_cpu_s": serving_cpu - began_cpu,
        "before_mb": before,
        "peak_mb": after,
        "backup_s": copied - serving,
        "prune_s": end - copied,
        "pruned": pruned,
    }


def ended(number: int) -> list[Effect]:
    """A job that ended long ago, its launch and its three events."""
    name = str(number)
    job = RigidJob(id=name, procs=16, base_time=3600.0)
    record = JobRecord(
        id=name,
        job=job,
        name="x" * 400,
        user="u",
        state=JobState.COMPLETED,
        ended=float(number),
    )
    events = [
        AppendEvent(
            seq=3 * number + k,
            time=float(number),
            kind=EventKind.JOB_ENDED,
            job=name,
            fields={"z": "z" * 70},
        )
        for k in (1, 2, 3)
    ]
    launch = Launch(argv=("y" * 250,), cwd="/")
    return [SaveJob(record=record), SaveLaunch(job=name, launch=launch), *events]


def tended(path: Path, jobs: int) -> Iterator[Row]:
    """Forget jobs that have ended, and give their pages back, in the daemon's steps."""
    store = Store(path)
    for first in range(0, jobs, 500):
        effects: list[Effect] = []
        for n in range(first, min(first + 500, jobs)):
            effects += ended(n)
        store.commit(effects)
    for name, step in (
        (f"prune {PRUNED_AT_ONCE} events", partial(store.prune, 1000, PRUNED_AT_ONCE)),
        (f"give {PAGES_AT_ONCE} pages back", partial(store.compact, PAGES_AT_ONCE)),
    ):
        times = []
        done = 1
        while done:
            began = time.perf_counter()
            done = step()
            times.append(time.perf_counter() - began)
        note = f"worst of {len(times)}: {max(times) * 1e3:.0f} ms"
        median = sorted(times)[len(times) // 2]
        yield Row(name=f"{name}, median", value=median * 1e3, unit="ms", note=note)
    yield Row(name="store after that", value=path.stat().st_size / 2**20, unit="MiB")
    store.close()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def run(folder: Path, jobs: int, seconds: float) -> Iterator[Row]:
    """Measure everything in a folder of the disk in question."""
    disk = sync_rate(folder, seconds)
    yield Row(name="4 KiB written and synced", value=disk, unit="1/s")
    for batch in BATCHES:
        rate, median = commit_rate(folder, batch, seconds)
        note = f"{rate / disk:.2f} x the disk's own rate"
        yield Row(name=f"commits of {batch} submits", value=rate, unit="1/s", note=note)
        yield Row(name=f"commit of {batch} submits, median", value=median * 1e3, unit="ms")
        yield Row(name=f"durable submits, {batch} a commit", value=rate * batch, unit="1/s")
    path = folder / "many.db"
    spent = filled(path, jobs)
    yield Row(name=f"write {jobs} jobs, 500 a commit", value=spent, unit="s")
    yield Row(name="size of the store", value=path.stat().st_size / 2**20, unit="MiB")
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.daemon.store", "--start", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(answer.stdout)
    assert found["jobs"] == jobs
    note = f"{found['open_cpu_s']:.2f} s of processor time"
    yield Row(
        name=f"open, {jobs} jobs, with quick_check", value=found["open_s"], unit="s", note=note
    )
    note = f"{found['serving_cpu_s']:.2f} s of processor time"
    note += f"; at most {MAX_START_S} s for the whole daemon"
    yield Row(name=f"open to serving, {jobs} jobs", value=found["serving_s"], unit="s", note=note)
    note = f"{found['before_mb']:.0f} before; at most {MAX_MB:.0f} for the whole daemon"
    yield Row(name=f"peak memory, {jobs} jobs", value=found["peak_mb"], unit="MiB", note=note)
    yield Row(name="backup", value=found["backup_s"], unit="s")
    yield Row(name=f"prune {found['pruned']} events", value=found["prune_s"] * 1e3, unit="ms")
    yield from tended(folder / "tended.db", jobs)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each rate")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.start:
        print(json.dumps(start(given.start)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for row in run(Path(folder), given.jobs, given.seconds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
