"""Slurm's commands: what steers them, and how "out of reach" sounds.

Every command is steered by ``SLURM_CONF``; no ``SQUEUE_FORMAT`` or ``SBATCH_PARTITION`` of
whoever started the daemon reaches it (see `runner.command`). Imports the standard library only:
part runners load it without the rest of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coalloc.adapters.runner.command import Commands

UNREACHABLE = (
    "unable to contact slurm controller",
    "unable to establish controller machine",
    "unable to establish configuration source",
    "connect failure",
    "connection refused",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm(Commands):
    """One cluster's commands."""

    unreachable: ClassVar[tuple[str, ...]] = UNREACHABLE

    conf: str = ""
    """Path of its ``slurm.conf``; empty: Slurm's own search, this machine's cluster."""

    def steering(self) -> dict[str, str]:
        """SLURM_CONF."""
        return {"SLURM_CONF": self.conf} if self.conf else {}
