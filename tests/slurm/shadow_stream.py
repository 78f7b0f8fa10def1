"""Minutes of users on clusters with accounts, and the texts that ``coalloc shadow`` asks for."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from coalloc.simulation.shadow.site import COMMANDS
from tests.testbeds.slurm import Cluster, ClusterShape, SlurmTestbed, bed

PLANS = "SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1,bf_resolution=1\n"
"""Backfilling as fine as these short jobs; by default it counts in minutes."""
SHAPES = (
    ClusterShape(name="a", nodes=4, conf=PLANS),
    ClusterShape(
        name="b",
        nodes=3,
        conf=f"{PLANS}SelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1000\nGresTypes=gpu\n",
        groups=((2, ""), (1, "Gres=gpu:a100:2")),
        gres="NodeName=b3 Name=gpu Type=a100 File=/dev/null,/dev/zero\n",
    ),
)
WIDTHS = (1, 1, 2, 2, 4, 4, 6, 8, 8, 12)


def arrivals(cluster: str, jobs: int, over_s: float, seed: int) -> list[tuple[float, list[str]]]:
    """When each job comes, and the words of its ``sbatch``."""
    draws = random.Random(f"{cluster} {seed}")
    out = []
    for at in sorted(draws.uniform(0.0, over_s) for _ in range(jobs)):
        seconds = min(max(draws.lognormvariate(3.1, 0.5), 6.0), 110.0)
        width = draws.choice(WIDTHS)
        words = ["-n", str(width), "-t", str(int(seconds / 60) + draws.randint(1, 2))]
        if cluster == "b":
            kind = draws.random()
            if kind < 0.15:
                words = ["-n", "2", "--gres=gpu:1", *words[2:]]
            elif kind < 0.5:
                words.append(f"--mem-per-cpu={draws.choice((1500, 1900))}")
        out.append((at, [*words, "-o", "/dev/null", "--wrap", f"sleep {seconds:.1f}"]))
    return out


def carry_out(running: SlurmTestbed, jobs: int, over_s: float, seed: int = 1) -> None:
    """Submit the streams of all clusters, and wait until all has ended and is accounted."""
    began = time.monotonic()
    stream = sorted(
        (at, cluster.name, words)
        for cluster in running
        for at, words in arrivals(cluster.name, jobs, over_s, seed)
    )
    for at, name, words in stream:
        time.sleep(max(0.0, began + at - time.monotonic()))
        running[name].run("sbatch", *words)
    for cluster in running:
        _wait(running, cluster, jobs)


def _wait(running: SlurmTestbed, cluster: Cluster, jobs: int) -> None:
    running.wait(lambda: _ended(cluster) >= jobs, f"{jobs} accounts of {cluster.name}", 900.0)


def _ended(cluster: Cluster) -> int:
    words = ("-n", "-a", "-X", "-P", "-S", "now-1hour", "-M", cluster.name, "-o", "End,State")
    rows = cluster.run("sacct", *words).splitlines()
    return sum("Unknown" not in row and "COMPLETED" in row for row in rows)


def export(running: SlurmTestbed, folder: Path) -> None:
    """Write a folder for each cluster."""
    for cluster in running:
        here = folder / cluster.name
        here.mkdir(parents=True)
        for file, command in COMMANDS.items():
            words = command.replace("DATE", "now-1hour").split()
            (here / f"{file}.txt").write_text(cluster.run(*words), encoding="utf-8")


if __name__ == "__main__":
    with bed(*SHAPES, accounting=True) as site:
        carry_out(site, int(sys.argv[2]), float(sys.argv[3]))
        export(site, Path(sys.argv[1]))
