"""Slurm's commands: what steers them, and how "out of reach" sounds.

Every command is steered by ``SLURM_CONF``; no ``SQUEUE_FORMAT`` or ``SBATCH_PARTITION`` of
whoever started the daemon reaches it (see `runner.command`). Imports the standard library only:
part runners load it without the rest of the package.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import ClassVar

from coalloc.adapters.runner.command import Commands

UNREACHABLE = (
    "unable to contact slurm controller",
    "unable to establish controller machine",
    "unable to establish configuration source",
    "connect failure",
    "connection refused",
    "connection reset by peer",
    "connection timed out",
    "socket timed out",
    "zero bytes were transmitted or received",
    "transport endpoint is not connected",
    "unexpected message received",
    "insane message length",
    "incompatible versions of client and server",
    "message receive failure",
    "protocol authentication error",
    "invalid authentication credential",
    "munge encode failed",
    "failed to connect to socket",
    "controller in standby mode",
    "slurm controller not responding",
    "temporarily unable to accept",
    "resource temporarily unavailable",
)
"""What Slurm's commands say, in lower case, when nothing is known of the cluster."""


COSTS = (("squeue", 2), ("sinfo", 2), ("scontrol show node", 2), ("scontrol show config", 2))
"""Commands that ask slurmctld twice (22.05, by ``sdiag``; those of one job thrice without
``--local``); the others count as one request, also srun, which asks more than once."""


def rpcs_of(name: str, arguments: tuple[str, ...]) -> int:
    """Requests to slurmctld that a command makes."""
    if name == "scancel":
        return sum(not word.startswith("-") for word in arguments)
    if name in {"sacct", "/bin/sh"} or arguments[:2] == ("show", "hostnames"):
        return 0
    words = " ".join([name, *(word for word in arguments if not word.startswith("-"))])
    return next((cost for command, cost in COSTS if words.startswith(command)), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm(Commands):
    """One cluster's commands."""

    unreachable: ClassVar[tuple[str, ...]] = UNREACHABLE

    conf: str = ""
    """Path of its ``slurm.conf``; empty: Slurm's own search, this machine's cluster."""
    tally: str = ""
    """File that grows by a byte with each request to slurmctld, the runners' too; empty: none."""

    def about_to_run(self, name: str, arguments: tuple[str, ...]) -> None:
        if self.tally:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with contextlib.suppress(OSError):
                fd = os.open(self.tally, flags, 0o600)
                os.write(fd, b"." * rpcs_of(name, arguments))
                os.close(fd)

    def steering(self) -> dict[str, str]:
        return {"SLURM_CONF": self.conf} if self.conf else {}
