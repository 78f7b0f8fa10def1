"""A probe on a node of a Slurm cluster: how much of it is taken by what Slurm did not start.

Run it on each node, from systemd or from Slurm's own ``HealthCheckProgram``::

    python -m coalloc.adapters.probe --every 30
    python -m coalloc.adapters.probe --once

It leaves its reading in the node's ``Extra``, where the reader of the cluster finds it; that
takes the right to update nodes, which root has where ``SlurmUser`` is root, and ``SlurmUser``
everywhere. What else ``Extra`` holds is replaced.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence

from coalloc.adapters.batch.node_load import probe_text
from coalloc.adapters.machine_load import foreign_loads, sample
from coalloc.adapters.runner.command import BatchError
from coalloc.adapters.slurm.commands import Slurm

STEP = b"is_steptepd"
SAMPLE_S = 2.0
"""Between the two samples of ``--once``, seconds."""


def is_step(pid: int, name: bytes) -> bool:
    """Test if a process is that of a step of Slurm's jobs, ours or not."""
    return name == STEP


def main(argv: Sequence[str] | None = None) -> int:
    """Run the probe; returns the exit code."""
    args = _parser().parse_args(argv)
    slurm = Slurm(conf=args.conf)
    last = sample(is_step)
    while True:
        time.sleep(SAMPLE_S if args.once else args.every)
        now = sample(is_step)
        share, last = foreign_loads(last, now)[None], now
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
