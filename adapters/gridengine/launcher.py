"""Launches parts on a Grid Engine cell: each on exactly its hosts, held at a barrier.

One runner process for each part, on the executor's machine (see `gridengine.part_job`), does all
the talking to qmaster: no call here waits for it, but for the first sight of a host's name. A part
is ready when the next scheduling run has started its jobs: a second where the cell schedules on
submission (``flush_submit_sec 1``), up to ``schedule_interval`` elsewhere.
"""

from __future__ import annotations

import time
from pathlib import Path

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.launcher import (
    BatchLauncher,
    avoided,
    check_known,
    plain_counts,
    site_of_part,
)
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.part_commands import GridEngineSite
from coalloc.adapters.gridengine.reader import read_status
from coalloc.adapters.gridengine.reading import chosen_queues
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.runner.grant import kept
from coalloc.model.sites.parts import PartKey, PartSpec

SLOTS_MAX_AGE_S = 60.0


class GridEngineLauncher(BatchLauncher):
    """Claims hosts of a Grid Engine cell and starts processes on them."""

    runner = "gridengine.part_job:GridEnginePart"
    honours = frozenset({"account", "partition"})

    def __init__(self, settings: GridEngineSettings, state_dir: Path) -> None:
        self._settings = settings
        self._commands = commands_of(settings)
        self._slots: dict[str, int] = {}
        self._slots_read = float("-inf")
        super().__init__(state_dir)

    def limit(self, key: PartKey, limit_s: float) -> None:
        """Let a part run shorter: Grid Engine ends it after what its ``h_rt`` was asked for."""
        folder = self._parts.get(key)
        spec = {} if folder is None else kept(str(folder.path), "spec.json")
        most_s = spec.get("time_limit_s")
        if most_s is not None and limit_s > most_s:
            raise AdapterError(f"Grid Engine ends it after {most_s:g} s: h_rt cannot be extended")
        super().limit(key, limit_s)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse hosts that are not the queue's, and more processes than they have slots."""
        counts = plain_counts(self._settings, part, is_whole=self._settings.slots == "node")
        is_old = time.monotonic() - self._slots_read > SLOTS_MAX_AGE_S
        if is_old or not counts.keys() <= self._slots.keys():
            self._read_slots()
        if part.batch.partition not in {"", self._settings.queue}:
            why = f"only queue {self._settings.queue} is used here, not {part.batch.partition}"
            raise ClaimRefusedError("not_permitted", why)
        check_known(counts, self._slots)
        for host, count in counts.items():
            if count > self._slots[host]:
                raise ClaimRefusedError(
                    "nodes_taken", f"{host} has {self._slots[host]} slots, {count} are asked for"
                )

    def _read_slots(self) -> None:
        try:
            entries = chosen_queues(self._settings, read_status(self._commands, []))
        except AdapterError:
            if not self._slots:
                raise
            return
        self._slots = {entry.host: entry.slots for entry in entries}
        self._slots_read = time.monotonic()

    def _site(self, part: PartSpec) -> GridEngineSite:
        """The cell's settings, for the runner."""
        site = self._settings
        options = [
            word
            for option, value in (("-P", part.batch.account or site.project), ("-A", site.account))
            if value
            for word in (option, value)
        ]
        facts = site_of_part(site, part, options)
        hosts = facts["names"].values()
        return {
            **facts,
            "root": self._commands.root,
            "cell": self._commands.cell,
            "qmaster_port": site.qmaster_port,
            "execd_port": site.execd_port,
            "queue": site.queue,
            "pe": site.pe,
            "queue_wait_s": site.queue_wait_s,
            "whole": {host: self._slots[host] for host in hosts} if site.slots == "node" else {},
            "avoid": sorted(avoided(site, part, self._slots)),
        }


def commands_of(settings: GridEngineSettings) -> GridEngine:
    """The cell's commands; what the settings leave out is the environment's."""
    return GridEngine(
        root=settings.root,
        cell=settings.cell,
        qmaster_port=settings.qmaster_port,
        execd_port=settings.execd_port,
        bin_dir=settings.bin,
        timeout_s=settings.command_limit_s,
    )
