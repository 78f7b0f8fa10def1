"""Runs one part of a job on a Slurm cluster, from its claim to its end (see `runner.held`).

The nodes are asked for (`slurm.part_job`) by ``salloc --no-shell --immediate`` and a step that
hangs on a detached ``srun``, or by ``sbatch``. Imports the standard library only.
"""

from __future__ import annotations

import socket

from coalloc.adapters.runner.fork_server import nest
from coalloc.adapters.runner.held import HeldPart
from coalloc.adapters.slurm.part_job import SlurmJob


class SlurmPart(HeldPart):
    """A part on a Slurm cluster."""

    job_type = SlurmJob


def main(argv: list[str]) -> None:
    """Be the nest at the other end of the socket with this descriptor."""
    nest(socket.socket(fileno=int(argv[0])), SlurmPart)
