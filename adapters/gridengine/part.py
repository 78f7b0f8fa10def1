"""Runs one part of a job on a Grid Engine cell, from its claim to its end (see `runner.held`).

A job for each host is submitted by ``qsub`` (`gridengine.part_job`). Imports the standard library
only.
"""

from __future__ import annotations

import socket

from coalloc.adapters.gridengine.part_job import GridEngineJob
from coalloc.adapters.runner.fork_server import nest
from coalloc.adapters.runner.held import HeldPart


class GridEnginePart(HeldPart):
    """A part on a Grid Engine cell."""

    job_type = GridEngineJob


def main(argv: list[str]) -> None:
    """Be the nest at the other end of the socket with this descriptor."""
    nest(socket.socket(fileno=int(argv[0])), GridEnginePart)
