"""Launches parts on a Grid Engine cell: each on exactly its hosts, held at a barrier.

One runner process for each part, on the executor's machine (see `gridengine.part_job`), does all
the talking to qmaster: no call here waits for it, but for the first sight of a host's name. A part
is ready when the next scheduling run has started its jobs: a second where the cell schedules on
submission (``flush_submit_sec 1``), up to ``schedule_interval`` elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.launcher import (
    BatchLauncher,
    avoided,
    check_known,
    login_of,
    plain_counts,
    site_of_part,
)
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.part_commands import GridEngineSite
from coalloc.adapters.gridengine.reader import read_status
from coalloc.adapters.gridengine.reading import EXCLUSIVE, MEMORY, chosen_queues, sized
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.model.shape import taken
from coalloc.model.sites.parts import PartSpec
from coalloc.model.sites.reading import NodeReading

HOSTS_MAX_AGE_S = 60.0


class GridEngineLauncher(BatchLauncher):
    """Claims hosts of a Grid Engine cell and starts processes on them."""

    runner = "gridengine.part_job:GridEnginePart"
    honours = frozenset({"account", "partition"})
    keeps_limits = "Grid Engine"

    def __init__(self, settings: GridEngineSettings, state_dir: Path) -> None:
        self._settings = settings
        self._commands = commands_of(settings)
        self._hosts: dict[str, tuple[NodeReading, int]] = {}
        """As shapes see them, and their slots in the queue."""
        self._asked: dict[str, tuple[int, list[str]]] = {}
        """Of the hosts of the part that was checked last."""
        self._hosts_read = float("-inf")
        super().__init__(state_dir)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse hosts that are not the queue's, and more processes than they have slots."""
        counts = plain_counts(self._settings, part, is_whole=False)
        is_old = time.monotonic() - self._hosts_read > HOSTS_MAX_AGE_S
        if is_old or not counts.keys() <= self._hosts.keys():
            self._read_hosts()
        if part.batch.partition not in {"", self._settings.queue}:
            why = f"only queue {self._settings.queue} is used here, not {part.batch.partition}"
            raise ClaimRefusedError("not_permitted", why)
        check_known(counts, self._hosts)
        self._asked = {host: self._asking(part, host, count) for host, count in counts.items()}

    def _read_hosts(self) -> None:
        site = self._settings
        try:
            entries = chosen_queues(site, read_status(site, self._commands, []))
        except AdapterError:
            if not self._hosts:
                raise
            return
        self._hosts = {entry.host: (sized(site, entry), entry.slots) for entry in entries}
        self._hosts_read = time.monotonic()

    def _asking(self, part: PartSpec, host: str, procs: int) -> tuple[int, list[str]]:
        """Slots that are asked for of a host, and what besides."""
        site, shape, (node, all_slots) = self._settings, part.shape, self._hosts[host]
        room = taken(shape, part.memory_mb_per_proc, node, procs)
        if room.slots > node.slots:
            why = f"{host} has {node.slots} slots, {room.slots} are asked for"
            raise ClaimRefusedError("nodes_taken", why)
        slots = all_slots if site.slots == "node" else room.slots
        asks = Counter(shape.per_node)
        asks.update({name: count * procs for name, count in shape.per_proc.items()})
        keys = site.complexes
        odd = [f"{name}={n}" for name, n in asks.items() if name not in keys or n % slots]
        words = [f"{keys.get(name)}={count // slots}" for name, count in asks.items()]
        if room.memory_mb and MEMORY in keys:
            words.append(f"{keys[MEMORY]}={int(1024 * room.memory_mb // slots)}K")
        if shape.exclusive and site.slots != "node":
            words.append(f"{keys.get(EXCLUSIVE)}=true")
            odd += [] if EXCLUSIVE in keys else ["--exclusive"]
        if odd or slots not in {1, site.pe_slots or slots}:
            why = f"{' '.join(odd)} ({slots} slots of {host}) cannot be asked for".lstrip()
            raise ClaimRefusedError("not_permitted", why)
        return slots, words

    def _site(self, part: PartSpec) -> GridEngineSite:
        site = self._settings
        options = [
            word
            for option, value in (("-P", part.batch.account or site.project), ("-A", site.account))
            if value
            for word in (option, value)
        ]
        return {
            **site_of_part(site, part, options, self._root),
            "root": self._commands.root,
            "cell": self._commands.cell,
            "qmaster_port": site.qmaster_port,
            "execd_port": site.execd_port,
            "queue": site.queue,
            "pe": site.pe,
            "queue_wait_s": site.queue_wait_s,
            "whole": site.slots == "node",
            "asked": self._asked,
            "avoid": sorted(avoided(site, part, self._hosts)),
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
        ssh=login_of(settings),
    )
