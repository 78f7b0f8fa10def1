"""Runs one part of a job on this machine, from its claim to its end (see `runner.runner`).

Imports the standard library only.
"""

from __future__ import annotations

import socket

from coalloc.adapters.runner.fork_server import nest
from coalloc.adapters.runner.runner import Runner


def main(argv: list[str]) -> None:
    """Be the nest at the other end of the socket with this descriptor."""
    nest(socket.socket(fileno=int(argv[0])), Runner)
