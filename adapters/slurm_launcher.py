"""Launches parts on a Slurm cluster: each on exactly its nodes, held at a barrier until told to go.

One runner process for each part, on the executor's machine (see `slurm_part`), does all the
talking to Slurm: no call here waits for slurmctld, but for the first sight of a node's name.
Runners outlive the executor. One that has died is replaced as soon as it is missed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Any

from coalloc.adapters.base import AdapterError, ClaimRefusedError, PartKey, PartReport, PartSpec
from coalloc.adapters.local_parts import PartFolder, ended_report
from coalloc.adapters.part_launcher import PartLauncher
from coalloc.adapters.part_status import END, PAGE, decoded
from coalloc.adapters.slurm_command import Slurm, SlurmError
from coalloc.adapters.slurm_settings import SlurmSettings
from coalloc.adapters.slurm_token import Token

ORPHANED = "orphaned"
HATCH_EVERY_S = 1.0
"""A runner that dies at once is not replaced more often than this, seconds."""


class SlurmFolder(PartFolder):
    """A part's folder; where its runner is dead, another takes it over."""

    def _sealed(self) -> PartReport:
        status = self.status()
        end = decoded(status[END * PAGE :])
        return self.reached(status, ORPHANED) if end is None else ended_report(self.key, end)


class SlurmLauncher(PartLauncher):
    """Claims nodes of a Slurm cluster and starts processes on them.

    Parameters
    ----------
    settings : SlurmSettings
    state_dir : Path
        See `PartLauncher`.

    Raises
    ------
    AdapterError
        The folder cannot be used, or another executor uses it.
    """

    folder_type = SlurmFolder
    runner = "slurm_part"

    def __init__(self, settings: SlurmSettings, state_dir: Path) -> None:
        self._settings = settings
        self._slurm = commands_of(settings)
        self._names: frozenset[str] = frozenset()
        self._hatched: dict[PartKey, float] = {}
        super().__init__(state_dir)

    def claims(self) -> frozenset[str]:
        """The claims of all parts that were not forgotten, as tokens of Slurm jobs name them."""
        return frozenset(folder.claim for folder in tuple(self._parts.values()))

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is that was not forgotten."""
        reports = super().poll()
        for report in reports:
            if report.reason == ORPHANED:
                self._replace_runner(report.key)
        return reports

    def _order(self, key: PartKey, line: str) -> None:
        folder = self._parts.get(key)
        if folder is None or key in self._ended:
            return
        try:
            if not folder.order(line) and not folder.report().is_ended:
                self._replace_runner(key)
                folder.order(line)
        except OSError as error:
            raise AdapterError(f"{key}: {error.strerror}") from error

    def _replace_runner(self, key: PartKey) -> None:
        now = time.monotonic()
        if now - self._hatched.get(key, float("-inf")) < HATCH_EVERY_S:
            return
        self._hatched[key] = now
        with contextlib.suppress(BlockingIOError, FileNotFoundError):  # one is there
            self._hatch(self._parts[key])

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse nodes that Slurm does not know."""
        wanted = {self._settings.plain(name) for name, _ in part.nodes}
        if len(wanted) < len(part.nodes):
            raise ClaimRefusedError("bad_spec", "a node is named twice")
        if self._settings.slots == "node" and any(count > 1 for _, count in part.nodes):
            raise ClaimRefusedError("nodes_taken", "a node takes one process here")
        if not wanted <= self._names:
            self._read_names()
        unknown = sorted(wanted - self._names)
        if unknown:
            raise ClaimRefusedError("unknown_node", f"there is no node {', '.join(unknown)}")

    def _read_names(self) -> None:
        try:
            self._names = frozenset(self._slurm.run("sinfo", "-h", "-N", "-a", "-o", "%N").split())
        except SlurmError as error:
            raise AdapterError(str(error)) from error

    def _create(self, part: PartSpec) -> PartFolder:
        token = Token(
            job=part.job, attempt=part.attempt, part=part.part, claim=secrets.token_hex(16)
        )
        extra = {
            "slurm": self._site(part),
            "key": secrets.token_hex(32),
            "token": {"name": token.name, "comment": token.comment},
        }
        cpus = {name: None for name, _ in part.nodes}
        return SlurmFolder.create(self._root, part, cpus, extra=extra, claim=token.claim)

    def _site(self, part: PartSpec) -> dict[str, Any]:
        """What the runner has to know of the cluster."""
        site = self._settings
        options = [
            f"--{name}={value}"
            for name, value in (
                ("partition", site.partition),
                ("account", site.account),
                ("qos", site.qos),
                ("reservation", site.reservation),
            )
            if value
        ]
        return {
            "conf": self._slurm.conf,
            "bin": site.bin,
            "limit_s": site.command_limit_s,
            "start": site.start,
            "exclusive": site.slots == "node",
            "names": {name: site.plain(name) for name, _ in part.nodes},
            "options": options,
            "address": site.address,
            "ports": list(site.ports),
            "python": site.python,
        }


def commands_of(settings: SlurmSettings) -> Slurm:
    """The cluster's commands; without a `conf` of its own, those of the environment's cluster."""
    return Slurm(
        conf=settings.conf or os.environ.get("SLURM_CONF", ""),
        bin_dir=settings.bin,
        timeout_s=settings.command_limit_s,
    )
