"""A probe on a node of a Slurm cluster: how much of it is taken by what Slurm did not start.

Run it on each node, from systemd or from Slurm's own ``HealthCheckProgram``::

    python -m coalloc.adapters.probe --every 30
    python -m coalloc.adapters.probe --once

It leaves its reading in the node's ``Extra``, where the reader of the cluster finds it; that
takes the right to update nodes, which root has where ``SlurmUser`` is root, and ``SlurmUser``
everywhere. What else ``Extra`` holds is replaced.

Notes
-----
CPU time between two samples: that of the whole machine, less that of all processes below a
``slurmstepd``, which are jobs, ours or not. The time of children that ended and were waited for
is counted with their parents', so short processes of a job are not taken for strangers.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence

import psutil
from msgspec import Struct

from coalloc.adapters.batch.node_load import probe_text
from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.slurm.commands import Slurm

STEP = "slurmstepd"
SAMPLE_S = 2.0
"""Between the two samples of ``--once``, seconds."""


class Sample(Struct, frozen=True, kw_only=True):
    """A node at one instant."""

    at: float
    """Monotonic seconds."""
    busy: float
    """CPU time of all CPUs that was not idle, seconds."""
    cpus: int
    steps: Mapping[tuple[int, float], float]
    """For each ``slurmstepd``: its own, its descendants', and that of children waited for."""


def sample(step: str = STEP) -> Sample:
    """The machine now; `step` is what a process is called below which jobs run."""
    times = psutil.cpu_times()
    # guest time is part of user time already
    busy = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
    return Sample(
        at=time.monotonic(), busy=busy, cpus=psutil.cpu_count() or 1, steps=_step_times(step)
    )


def _step_times(step: str) -> dict[tuple[int, float], float]:
    children: dict[int, list[psutil.Process]] = {}
    roots: list[psutil.Process] = []
    for process in psutil.process_iter(["name", "ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
        if (process.info["name"] or "") == step:
            roots.append(process)
    found: dict[tuple[int, float], float] = {}
    for root in roots:
        below, front, spent = {root.pid}, [root], 0.0
        while front:
            process = front.pop()
            spent += _spent(process)
            more = [child for child in children.get(process.pid, ()) if child.pid not in below]
            below.update(child.pid for child in more)
            front += more
        try:
            found[root.pid, root.create_time()] = spent
        except psutil.Error:
            continue  # it has just ended
    return found


def _spent(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.Error:
        return 0.0


def foreign_share(old: Sample, new: Sample, last: float) -> float:
    """Share of the node taken, between two samples, by what Slurm did not start, 0..1.

    `last`, the share before, is an upper bound where a step has ended: what it did is not known.
    """
    span = max(new.at - old.at, 1e-6) * max(new.cpus, 1)
    jobs = sum(max(0.0, spent - old.steps.get(key, 0.0)) for key, spent in new.steps.items())
    share = min(1.0, max(0.0, new.busy - old.busy - jobs) / span)
    return share if old.steps.keys() <= new.steps.keys() else min(share, last)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the probe; returns the exit code."""
    args = _parser().parse_args(argv)
    slurm = Slurm(conf=args.conf)
    share, last = 1.0, sample()
    while True:
        time.sleep(SAMPLE_S if args.once else args.every)
        now = sample()
        share, last = foreign_share(last, now, share), now
        try:
            tell(slurm, args.node, share, time.time())
        except BatchError as error:
            print(f"coalloc-probe: error: {error}", file=sys.stderr)
            if args.once:
                return 1
        if args.once:
            return 0


def tell(slurm: Slurm, node: str, share: float, at: float) -> None:
    """Leave a reading where the reader finds it. Raises `BatchError`."""
    slurm.run("scontrol", "update", f"NodeName={node}", f"Extra={probe_text(share, at)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="coalloc-probe",
        description="Tells Slurm how much of this node is taken by what Slurm did not start.",
        epilog="example: python -m coalloc.adapters.probe --every 30",
    )
    parser.add_argument(
        "--node",
        default=os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        help="the node's name in Slurm; default $SLURMD_NODENAME, else the host's",
    )
    parser.add_argument("--conf", default=os.environ.get("SLURM_CONF", ""), help="slurm.conf")
    parser.add_argument("--once", action="store_true", help="one reading, then end")
    parser.add_argument(
        "--every", type=_seconds, default=30.0, metavar="SECONDS", help="between two readings"
    )
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0.1 to 3600")
    return value


if __name__ == "__main__":
    sys.exit(main())
