"""Real idle Slurm clusters: from a command to its job's first line, beside plain Slurm.

``python -m benchmarks slurm_start --only start`` submits jobs that need both of two clusters, one
after the other, beside two plain ``srun`` at once; ``--only submit``, jobs of one process to one
cluster, by command, beside plain ``sbatch`` and ``srun``; ``--only arrays --jobs 400 --seconds 0``,
arrays of tasks that take so long to one cluster of 48 slots, beside ``sbatch --array`` of the same.
Ratios of one run are worth more than
seconds; the load is printed too. Busy clusters are those of `slurm_sites`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

NODES = {"a": 4, "b": 1}
"""Of a job that starts on both clusters."""
LIMIT_S = 600.0
OPEN = ("waiting", "placed")


def start_times(root: Path, trials: int) -> None:
    """From the submission to the start of the last process, and the same of plain ``srun``."""
    ours: list[float] = []
    plain: list[float] = []
    with bed(*alike(2, 4)) as running:
        site = SlurmSite(root, running)
        site.start()
        try:
            for number in range(trials):
                for times, submit in ((ours, _submitted), (plain, _plain)):
                    told = site.work / f"{submit.__name__}{number}"
                    began = time.time()
                    submit(site, running, f"date +%s.%N >> {told}")
                    times.append(max(map(float, told.read_text().split())) - began)
                    running.wait(lambda: all(c.is_idle() for c in running), "all is idle")
        finally:
            site.stop()
    coalloc_s, plain_s = statistics.median(ours), statistics.median(plain)
    print(f"submit to start, {trials} jobs on two clusters: median {coalloc_s:.2f} s")
    print(f"two plain srun at once: median {plain_s:.2f} s; {coalloc_s - plain_s:.2f} s over that")


def _submitted(site: SlurmSite, running: SlurmTestbed, command: str) -> None:
    site.wait(site.submit(["sh", "-c", command], sum(NODES.values())))


def _plain(site: SlurmSite, running: SlurmTestbed, command: str) -> None:
    started = [
        subprocess.Popen(
            ["srun", f"-N{count}", f"-n{count}", "--exclusive", "-t1", "sh", "-c", command],
            env=running[name].slurm.environment(),
            stderr=subprocess.DEVNULL,
        )
        for name, count in NODES.items()
    ]
    for process in started:
        process.wait()


def first_lines(root: Path, trials: int) -> None:
    """From a command to the first line of its job, and the command's own CPU, by plain sbatch."""
    ours = [sys.executable, "-m", "coalloc.cli.main"]
    with bed(*alike(1, 4)) as running:
        (cluster,) = running
        site = SlurmSite(root, running, given={"slots": "cpus"}, policy="auto", interval_s=5.0)
        config = ["--config", str(site.config), "-t1"]
        commands = {
            "sbatch": ["sbatch", "-Q", "-n1", "-t1", "-o", "/dev/null"],
            "srun": ["srun", "-Q", "-n1", "-t1"],
            "coalloc sbatch": [*ours, "sbatch", *config, "-o", "/dev/null"],
            "coalloc submit": [*ours, "submit", *config, "--once"],
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        site.start()
        try:
            site.until(lambda: bool(site.lines("solver_warmed")), LIMIT_S)
            for number in range(trials):
                for name, words in commands.items():
                    told = site.work / f"{name[-6:]}{len(name)}.{number}"
                    script = told.with_suffix(f".{number}.sh")
                    script.write_text(f"#!/bin/sh\ndate +%s.%N > {told}\n")
                    script.chmod(0o755)
                    env = {"PATH": os.environ["PATH"]} | cluster.slurm.environment()
                    began, used = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
                    subprocess.run(
                        [*words, script], cwd=site.work, env=env, stdout=subprocess.PIPE, check=True
                    )
                    own = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used.ru_utime
                    running.wait(partial(_is_told, told), "the job has said it")
                    times[name].append((float(told.read_text()) - began, own))
                    running.wait(cluster.is_idle, "all is idle")
        finally:
            site.stop()
    plain_s = statistics.median(first for first, _ in times["sbatch"])
    for name, found in times.items():
        first_s, own_s = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:>14} {first_s:.3f} s, {first_s / plain_s:.2f} of sbatch's; {own_s:.3f} CPU-s")


def _is_told(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def arrays(root: Path, tasks: int, seconds: float) -> None:
    """From the submission of an array to its last end; of ours a first one and those after it."""
    with bed(*alike(1, 6)) as running:
        (cluster,) = running
        site = SlurmSite(root, running, given={"slots": "cpus"}, policy="auto", interval_s=5.0)
        site.start()
        try:
            site.until(lambda: bool(site.lines("solver_warmed")), LIMIT_S)
            took: dict[str, float] = {}
            for name in ("sbatch", "first", "second", "sbatch again", "third"):
                began = time.monotonic()
                if name.startswith("sbatch"):
                    text = f"#!/bin/sh\nsleep {seconds:g}\n" if seconds else "#!/bin/sh\ntrue\n"
                    script = root / "task"
                    script.write_text(text)
                    words = ["-Q", "-n1", "-t1", "-o", "/dev/null"]
                    env = cluster.slurm.environment()
                    command = ["sbatch", *words, f"--array=0-{tasks - 1}", str(script)]
                    subprocess.run(command, env=env, check=True)
                    running.wait(lambda: not cluster.run("squeue", "-h"), "all have run", LIMIT_S)
                else:
                    argv = ["sleep", f"{seconds:g}"] if seconds else ["true"]
                    body = site.submission(argv)
                    body["launch"]["stdout"] = os.devnull
                    del body["job"]["base_time"]
                    site.ask("submit", **{**body, "array": list(range(tasks))})
                    site.until(lambda: not any(map(site.ask("status").get, OPEN)), LIMIT_S)
                took[name] = time.monotonic() - began
                running.wait(cluster.is_idle, "all is idle")
                print(
                    f"{name:>14} {took[name]:.1f} s, {tasks / took[name]:.1f} tasks/s", flush=True
                )
            behind = [line["behind"] for line in site.lines("members_started")]
        finally:
            site.stop()
    print(f"{len(behind)} batch jobs with {sum(behind)} members behind; {os.getloadavg()}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    measures: dict[str, Callable[..., None]] = {
        "start": start_times,
        "submit": first_lines,
        "arrays": arrays,
    }
    parser.add_argument("--only", choices=measures, required=True)
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.0, help="of a task of an array")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        given = (root, args.jobs, *([args.seconds] if args.only == "arrays" else []))
        measures[args.only](*given)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
