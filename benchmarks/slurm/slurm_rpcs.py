"""Requests a minute that coalloc makes to a real slurmctld: idle, and with many jobs that wait.

``python -m benchmarks slurm_rpcs`` prints them by ``sdiag`` and as the executor counts them itself.
Submissions and withdrawals are apart. The bed's own requests, and those of its nodes, are left out.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from tests.testbeds.slurm import Cluster, alike, bed
from tests.testbeds.slurm_site import SlurmSite

from coalloc.adapters.runner.status import RUNNER_NAME

READS = ("PARTITION", "JOB", "NODE", "RESERVATION", "BUILD", "FED", "ASSOC_MGR", "LICENSE")
OURS = re.compile(rf"(REQUEST_(?:(?:{'|'.join(READS)})_INFO\w*|PING)) +\( *\d+\) +count:(\d+)")
SENT = re.compile(r"(REQUEST_(?:SUBMIT|KILL|CANCEL|UPDATE)\w+) +\( *\d+\) +count:(\d+)")


def counts(cluster: Cluster, kinds: re.Pattern[str]) -> Counter[str]:
    """Requests since slurmctld has started."""
    said = cluster.run("sdiag").partition("statistics by user")[0]
    return Counter({name: int(count) for name, count in kinds.findall(said)})


def cpu_s() -> dict[str, float]:
    """Processor time of daemon and executor, seconds."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        words = " ".join(process.cmdline())
        for name in ("daemon", "executor"):
            if f"coalloc.{name}.main" in words:
                found[name] = sum(process.cpu_times()[:2])
    return found


def measured(site: SlurmSite, cluster: Cluster, what: str, seconds: float) -> None:
    """Print the requests of some minutes in which nothing changes."""
    before, began, used = counts(cluster, OURS) + counts(cluster, SENT), time.monotonic(), cpu_s()
    time.sleep(seconds)
    took = time.monotonic() - began
    shares = {name: 100.0 * (now - used.get(name, now)) / took for name, now in cpu_s().items()}
    read = counts(cluster, OURS) - before
    sent = counts(cluster, SENT) - before
    (row,) = site.ask("nodes")["clusters"]
    below = psutil.Process().children(recursive=True)
    runners = sum(process.name() == RUNNER_NAME for process in below)
    print(
        f"{what}: {read.total() / took * 60.0:.1f} a minute"
        f" ({', '.join(f'{name} {count}' for name, count in sorted(read.items()))});"
        f" submissions and withdrawals {sent.total()}; the executor counts"
        f" {row['rpcs_per_min'] or 0.0:.1f}; runner processes {runners}; of a core "
        + ", ".join(f"{name} {share:.1f} %" for name, share in shares.items())
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=2.0, help="of each state")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r-") as folder, bed(*alike(1, 4)) as running:
        cluster = running["a"]
        with SlurmSite(Path(folder), running, interval_s=5.0) as site:
            site.until(lambda: site.ask("nodes")["clusters"][0]["age_s"] is not None)
            measured(site, cluster, "idle", args.minutes * 60.0)
            hold = ("-N", "4", "--exclusive", "-t", "600", "-o", "/dev/null", "--wrap=sleep 36000")
            for _ in range(2):
                cluster.run("sbatch", *hold)
            site.until(lambda: site.ask("nodes")["clusters"][0]["waiting_there"] == 1)
            for _ in range(args.jobs):
                site.submit(["true"], 1)
            listed = ("squeue", "-h", "-o", "%k")
            site.until(lambda: cluster.run(*listed).count("coalloc:") >= args.jobs, 900.0)
            measured(site, cluster, f"{args.jobs} jobs wait", args.minutes * 60.0)
            cluster.run("scancel", "--user=root")


if __name__ == "__main__":
    main()
