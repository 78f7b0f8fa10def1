"""Launches parts on a Grid Engine cell: each on exactly its hosts, held at a barrier.

One runner process for each part, on the executor's machine (see `gridengine.part_job`), does all
the talking to qmaster: no call here waits for it, but for the first sight of a host's name. A part
is ready when the next scheduling run has started its jobs: a second where the cell schedules on
submission (``flush_submit_sec 1``), up to ``schedule_interval`` elsewhere.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.launcher import BatchLauncher
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.reader import read_status
from coalloc.adapters.gridengine.reading import chosen_queues
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.model.sites.parts import PartSpec

SLOTS_MAX_AGE_S = 60.0


class GridEngineLauncher(BatchLauncher):
    """Claims hosts of a Grid Engine cell and starts processes on them.

    Parameters
    ----------
    settings : GridEngineSettings
    state_dir : Path
        See `PartLauncher`.

    Raises
    ------
    AdapterError
        The folder cannot be used, or another executor uses it.
    """

    runner = "gridengine.part_job:GridEnginePart"
    honours = frozenset({"account", "partition"})

    def __init__(self, settings: GridEngineSettings, state_dir: Path) -> None:
        self._settings = settings
        self._commands = commands_of(settings)
        self._slots: dict[str, int] = {}
        self._slots_read = float("-inf")
        super().__init__(state_dir)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse hosts that are not the queue's, and more processes than they have slots."""
        counts = {self._settings.plain(name): count for name, count in part.nodes}
        if len(counts) < len(part.nodes):
            raise ClaimRefusedError("bad_spec", "a node is named twice")
        if self._settings.slots == "node" and any(count > 1 for count in counts.values()):
            raise ClaimRefusedError("nodes_taken", "a node takes one process here")
        is_old = time.monotonic() - self._slots_read > SLOTS_MAX_AGE_S
        if is_old or not counts.keys() <= self._slots.keys():
            self._read_slots()
        if part.batch.partition not in {"", self._settings.queue}:
            why = f"only queue {self._settings.queue} is used here, not {part.batch.partition}"
            raise ClaimRefusedError("not_permitted", why)
        unknown = sorted(counts.keys() - self._slots.keys())
        if unknown:
            raise ClaimRefusedError("unknown_node", f"there is no node {', '.join(unknown)}")
        for host, count in counts.items():
            if count > self._slots[host]:
                raise ClaimRefusedError(
                    "nodes_taken", f"{host} has {self._slots[host]} slots, {count} are asked for"
                )

    def _read_slots(self) -> None:
        try:
            entries = chosen_queues(self._settings, read_status(self._commands))
        except AdapterError:
            if not self._slots:
                raise
            return
        self._slots = {entry.host: entry.slots for entry in entries}
        self._slots_read = time.monotonic()

    def _avoided(self, part: PartSpec) -> list[str]:
        """The hosts that a claim which may wait must not get."""
        if part.queue is None:
            return []
        avoided = {self._settings.plain(name) for name in part.queue.avoid} & self._slots.keys()
        return sorted(avoided)

    def _site(self, part: PartSpec) -> dict[str, Any]:
        """The cell's settings, for the runner."""
        site = self._settings
        names = {name: site.plain(name) for name, _ in part.nodes}
        options = [
            word
            for option, value in (("-P", part.batch.account or site.project), ("-A", site.account))
            if value
            for word in (option, value)
        ]
        return {
            "root": self._commands.root,
            "cell": self._commands.cell,
            "qmaster_port": site.qmaster_port,
            "execd_port": site.execd_port,
            "bin": site.bin,
            "limit_s": site.command_limit_s,
            "queue": site.queue,
            "pe": site.pe,
            "queue_wait_s": site.queue_wait_s,
            "whole": (
                {host: self._slots[host] for host in names.values()} if site.slots == "node" else {}
            ),
            "names": names,
            "prefix": f"{site.cluster}/" if site.qualified else "",
            "avoid": self._avoided(part),
            "options": options,
            "address": site.address,
            "ports": list(site.ports or (0, 0)),
            "python": site.python,
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
