"""Real Slurm clusters: what co-allocation costs beside plain Slurm, and what it holds idle.

``python -m benchmarks.slurm_busy --only start`` submits jobs that need both of two idle clusters,
one after the other, beside two plain ``srun`` at once; ``--only idle``, as root, a mix of jobs to
two clusters in which a background user always has jobs waiting, with what the claims held by cause
(`benchmarks.slurm_idle`) and a line for each job that ran on both. Ratios of one run are worth more
than seconds; the load is printed too.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.live_site import ENDED
from tests.testbeds.accounts import accounts
from tests.testbeds.background import BackgroundUser
from tests.testbeds.slurm import Cluster, SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

from benchmarks.slurm_idle import CAUSES, Held, causes_of, held_in, row

NODES = {"a": 4, "b": 1}
"""Of a job that starts on both clusters."""
START = "prepare_timeout_s = 30.0\nbackoff_first_s = 0.5\nbackoff_max_s = 5.0"
LIMIT_S = 600.0


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


def idle_share(root: Path, count: int, seed: int) -> None:
    """Node-seconds that the jobs of an ordinary user hold idle, of those that they use."""
    draw = random.Random(seed)
    with accounts("ann", "bob") as (ann, bob), bed(*alike(2, 7)) as running:
        site = SlurmSite(root, running, given={"start": "sbatch"}, account=ann, start=START)
        site.start()
        try:
            with BackgroundUser(running, bob):
                began, used = time.monotonic(), 0.0
                jobs = []
                for number in range(count):
                    width = draw.choice((8, 9, 10) if number % 11 == 10 else (1, 1, 2, 2, 3, 4))
                    seconds = draw.uniform(1.0, 6.0)
                    used += width * seconds
                    asks = {"base_time": seconds, "time_limit": 60.0}
                    jobs.append(site.submit(["sleep", f"{seconds:.2f}"], width, job=asks))
                site.until(lambda: all(site.job(job)["state"] in ENDED for job in jobs), LIMIT_S)
                took = time.monotonic() - began
                running.wait(
                    lambda: all(not _holds(cluster, ann.name) for cluster in running),
                    "every claim is over",
                )
            held = [claim for cluster in running for claim in held_in(cluster, ann.name)]
            shown = {job: site.job(job) for job in jobs}
            lines = [*site.lines("job_started"), *site.lines("job_requeued")]
            several = [line for line in lines if "," in line.get("clusters", "")]
        finally:
            site.stop()
    idle = sum(line.get("idle_node_s", 0.0) for line in lines)
    share = sum(line["idle_node_s"] for line in several) / used
    print(f"{count} jobs in {took:.0f} s, {len(several)} on both clusters; {used:.0f} node-s used")
    print(f"{idle:.0f} node-s held idle, {idle / used:.0%}; by jobs on both {share:.0%}")
    _print_causes(held, shown)


def _holds(cluster: Cluster, user: str) -> bool:
    """Whether Slurm has a job of this user's, or cleans up behind one."""
    return bool(cluster.run("squeue", "-h", "-u", user, "-o", "%i").split())


def _print_causes(held: list[Held], shown: dict[str, dict[str, Any]]) -> None:
    """Claims as Slurm saw them, by cause, and the jobs over several clusters one by one."""
    for id, job in shown.items():
        if len(job["parts"]) > 1:
            print(row(id, job))
    sums = causes_of(held, shown)
    used, several = sums["used"], {id for id, job in shown.items() if len(job["parts"]) > 1}
    of_both = causes_of([claim for claim in held if claim.job in several], shown)
    print(f"by Slurm's clock, of {used:.0f} node-s used: all claims, those of jobs on both")
    for cause in CAUSES:
        print(f"{cause:>12} {sums[cause] / used:7.1%} {of_both[cause] / used:7.1%}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("start", "idle"), required=True)
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        if args.only == "start":
            start_times(root, args.jobs)
        else:
            idle_share(root, args.jobs, args.seed)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
