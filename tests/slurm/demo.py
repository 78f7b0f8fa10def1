"""``make slurm-demo``: three real Slurm clusters on this machine, made to work as one.

Clusters of 4, 8 and 4 nodes, of different powers and links; a daemon and an executor for each; a
local user who always has jobs running and waiting in each of them (as root, who can make one; else
one local job); a stream of rigid and moldable jobs, some wider than any cluster.
What happens is shown while it happens, and everything ends cleanly, Slurm too.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coalloc.cli.demo import START_LIMIT_S, WARM_LIMIT_S, DemoError, Show, say
from tests.testbeds.accounts import accounts
from tests.testbeds.background import BackgroundUser
from tests.testbeds.processes import BedError
from tests.testbeds.slurm import ClusterShape, SlurmTestbed, bed
from tests.testbeds.ssh import PYTHON

SHAPES = (
    ClusterShape(name="alpha", nodes=4),
    ClusterShape(name="beta", nodes=8),
    ClusterShape(name="gamma", nodes=4),
)
POWERS = {"alpha": 1.0, "beta": 0.7, "gamma": 0.5}
LINKS_GBPS = {"alpha": 1.0, "beta": 2.0, "gamma": 0.5}
HEAD = """\
[daemon]
state_dir = "{root}/state"
runtime_dir = "{root}/run"
log_format = "json"

[rounds]
policy = "POLICY"
time_limit_s = 2.0

[readings]
interval_s = 1.0
"""
CLUSTER = """
[[clusters]]
name = "{name}"
adapter = "slurm"
link_gbps = {link}
settings = {{{{ conf = "{conf}", address = "127.0.0.1", python = "{python}", \
power = {power}, load = "none" }}}}
"""
WORK = 'echo "rank $COALLOC_RANK of $COALLOC_SIZE on $COALLOC_CLUSTER, $COALLOC_NODE"; sleep '
ENDED = {"completed", "failed", "cancelled", "timeout", "lost"}
VIEW_S = 2.0


def configuration(running: SlurmTestbed, policy: str) -> str:
    """The daemon's configuration over these clusters."""
    return HEAD.replace("POLICY", policy) + "".join(
        CLUSTER.format(
            name=cluster.name,
            link=LINKS_GBPS[cluster.name],
            power=POWERS[cluster.name],
            conf=cluster.conf,
            python=PYTHON,
        )
        for cluster in running
    )


def stream(count: int, seed: int) -> deque[list[str]]:
    """Jobs as a user would type them; every fourth is wider than any cluster."""
    draw = random.Random(seed)
    jobs: deque[list[str]] = deque()
    for number in range(count):
        seconds = draw.randint(1, 4)
        tail = ["-t", "2", "--", "sh", "-c", f"{WORK}{seconds}"]
        if number % 4 == 0:
            width = str(draw.randint(9, 14))
            words = ["-J", f"wide{number}", "-n", width, "--bandwidth", "40Mbps"]
        elif number % 4 == 2:
            times = ",".join(f"{p}:{8 / p**0.9 + 1:.1f}" for p in (1, 2, 4, 6))
            words = ["-J", f"mold{number}", "--ntasks=1-6", "--times", times]
        else:
            words = ["-J", f"small{number}", "-n", str(draw.randint(1, 4))]
        jobs.append([*words, *tail])
    return jobs


class SlurmShow(Show):
    """The demonstration on a bed."""

    def __init__(
        self, root: Path, running: SlurmTestbed, jobs: deque[list[str]], policy: str
    ) -> None:
        names = [cluster.name for cluster in running]
        super().__init__(root, configuration(running, policy), names)
        self.bed, self.waiting, self.policy = running, jobs, policy

    def start(self, stack: ExitStack) -> None:
        """Start the daemon and the executors; `stack` stops them."""
        for cluster in self.bed:
            print(f"  {cluster.name}: {cluster.shape.nodes} nodes, SLURM_CONF={cluster.conf}")
        super().start(stack)

    def warm(self) -> None:
        """Wait for the solver, where the policy needs one."""
        if self.policy != "plain":
            super().warm()

    def run(self) -> None:
        """Submit the stream, and watch it."""
        with ExitStack() as stack:
            self.enter_local_user(stack)
            self.coalloc("nodes")
            total, began = len(self.waiting), time.monotonic()
            self.watch()
        rows = self.jobs()
        self.coalloc("queue", "--all")
        failed = [row["id"] for row in rows if row["state"] != "completed"]
        if failed or len(rows) != total:
            raise DemoError(f"jobs that did not complete: {', '.join(failed) or 'some'}")
        split = [row for row in rows if len(row["clusters"]) > 1]
        if not split:
            raise DemoError("no job was split over the clusters")
        skews = sorted(row["skew_ms"] for row in split)
        say(
            f"{total} jobs in {time.monotonic() - began:.0f} s, {len(split)} of them over several"
            f" clusters; start skew median {skews[len(skews) // 2]:.2f} ms"
        )
        wide = split[0]["id"]
        say(f"Job {wide} ran on {', '.join(split[0]['clusters'])}; its processes said:")
        for line in sorted((self.work / f"coalloc-{wide}.out").read_text().splitlines()):
            print(f"  {line}")

    def enter_local_user(self, stack: ExitStack) -> None:
        """Have the clusters used by others too; `stack` ends that."""
        if os.getuid() != 0:
            say("A local user, who knows nothing of us, uses one node of beta for a while:")
            local = ["-o", "/dev/null", "-w", "beta8", "-t", "1", "--wrap", "sleep 8"]
            print(self.bed["beta"].run("sbatch", *local), end="")
            return
        (account,) = stack.enter_context(accounts("local"))
        stack.enter_context(BackgroundUser(self.bed, account, waiting=1, run_s=(2.0, 4.0)))
        say("A local user, who knows nothing of us, keeps each cluster busy, and a job waiting:")
        for cluster in self.bed:
            print(cluster.run("squeue", "-h", "-o", f"  {cluster.name} %i %u %T %D %R"), end="")

    def watch(self) -> None:
        """Submit a job now and then, and show the queue, until all have ended."""
        end = time.monotonic() + WARM_LIMIT_S + START_LIMIT_S * 4
        while True:
            for _ in range(min(2, len(self.waiting))):
                self.submit(*self.waiting.popleft())
            rows = self.jobs()
            self.log_lines()
            self.view(rows)
            if not self.waiting and all(row["state"] in ENDED for row in rows):
                return
            if time.monotonic() > end:
                raise DemoError("the jobs do not end")
            time.sleep(VIEW_S)

    def view(self, rows: list[dict[str, Any]]) -> None:
        """One line for each cluster: its nodes in Slurm, and whose they are."""
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["state"]] = counts.get(row["state"], 0) + 1
        print("\n" + ", ".join(f"{n} {state}" for state, n in sorted(counts.items())))
        for cluster in self.bed:
            lines = cluster.run("squeue", "-h", "-t", "R", "-o", "%N|%k").splitlines()
            ours = [f"{n}={k.split(':')[1].split('.')[0]}" for n, _, k in parted(lines) if ":" in k]
            other = [nodes for nodes, _, comment in parted(lines) if ":" not in comment]
            waits = cluster.run("squeue", "-h", "-t", "PD", "-o", "%N|%k").splitlines()
            local = sum(":" not in comment for _, _, comment in parted(waits))
            queue = [f"({local} local and {len(waits) - local} of ours wait)"] if waits else []
            text = " ".join([*ours, *(f"{nodes}=local" for nodes in other), *queue])
            print(f"  {cluster.name:6} {text or '-'}", flush=True)


def parted(lines: list[str]) -> list[tuple[str, str, str]]:
    """Each line at its bar."""
    return [line.partition("|") for line in lines]


def main() -> int:
    """Run the demonstration; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="co-demo-"))
    root.chmod(0o755)
    try:
        say("Three real Slurm clusters, on loopback:")
        began = time.monotonic()
        with bed(*SHAPES) as running:
            print(f"  up after {time.monotonic() - began:.1f} s")
            with ExitStack() as stack:
                jobs = stream(args.jobs, args.seed)
                show = SlurmShow(root, running, jobs, args.policy)
                show.start(stack)
                show.run()
            say("The daemon and its executors are stopped; now Slurm.")
        print("Nothing of it is left.")
        return 0
    except (BedError, DemoError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if args.keep:
            print(f"Kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
