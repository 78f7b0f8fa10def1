"""Real idle Slurm clusters: what co-allocation costs beside plain Slurm.

``python -m benchmarks.slurm_start`` submits jobs that need both of two idle clusters, one after the
other, beside two plain ``srun`` at once. Differences of one run are worth more than seconds; the
load is printed too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from tests.testbeds.slurm import SlurmTestbed, alike, bed
from tests.testbeds.slurm_site import SlurmSite

NODES = {"a": 4, "b": 1}
"""Of a job that starts on both clusters."""


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="co-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        start_times(root, args.jobs)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
