"""Runs one part of a job on a Grid Engine cell, from its claim to its end (see `part_held`).

A job for each host is submitted by ``qsub`` (`gridengine_part_job`). Imports the standard library
only.
"""

from __future__ import annotations

import socket

from coalloc.adapters.gridengine_part_job import GridEngineJob
from coalloc.adapters.part_held import HeldPart
from coalloc.adapters.part_nest import nest


class GridEnginePart(HeldPart):
    """A part on a Grid Engine cell."""

    job_type = GridEngineJob


def main(argv: list[str]) -> None:
    """Be the nest at the other end of the socket with this descriptor."""
    nest(socket.socket(fileno=int(argv[0])), GridEnginePart)
