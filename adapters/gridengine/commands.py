"""Grid Engine's commands: what steers them, and how "out of reach" sounds.

``SGE_ROOT``, ``SGE_CELL`` and the two ports say which qmaster is meant. Imports the standard
library only, as the part runner does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from coalloc.adapters.runner.command import Commands

STEERING = (
    "SGE_ROOT",
    "SGE_CELL",
    "SGE_CLUSTER_NAME",
    "SGE_QMASTER_PORT",
    "SGE_EXECD_PORT",
)

BEFORE = ("Unable to run job: ", "error: ")
CHATTER = frozenset({"Exiting.", ""})
LONGEST = 300

UNREACHABLE = (
    "commlib error",
    "unable to send message to qmaster",
    "unable to contact qmaster",
    "can't get answer from qmaster",
    "error reading answer list",
    "failed receiving gdi request",
    "got send error",
    "can't read qmaster name",
    "can't resolve qmaster",
    "qmaster is not up",
    "cell directory",
)
"""What Grid Engine's commands say, in lower case, when nothing is known of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEngine(Commands):
    """One Grid Engine cell's commands."""

    unreachable: ClassVar[tuple[str, ...]] = UNREACHABLE

    root: str = ""
    """SGE_ROOT; empty: the environment's."""
    cell: str = ""
    """SGE_CELL; empty: the environment's."""
    qmaster_port: int = 0
    """0: the environment's, else that of ``/etc/services``."""
    execd_port: int = 0
    """0: the environment's, else that of ``/etc/services``."""

    def steering(self) -> dict[str, str]:
        given = {
            "SGE_ROOT": self.root,
            "SGE_CELL": self.cell,
            "SGE_QMASTER_PORT": str(self.qmaster_port or ""),
            "SGE_EXECD_PORT": str(self.execd_port or ""),
        }
        kept = {key: os.environ[key] for key in STEERING if key in os.environ and not self.ssh}
        return kept | {key: value for key, value in given.items() if value}

    def words(self, said: str) -> str:
        """A command's error output on one line; ``denied:`` stays, unlike ``error:``."""
        kept = []
        for line in map(str.strip, said.splitlines()):
            for prefix in BEFORE:
                line = line.removeprefix(prefix)
            if line not in CHATTER:
                kept.append(line)
        return "; ".join(kept)[:LONGEST]
