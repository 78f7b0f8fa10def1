"""An OAR cluster by its commands: read, and launched on.

One runner process for each part, on the executor's machine (see `oar.part_job`), does all the
talking to OAR; no call here waits for it, but for the first sight of a node's name.
"""

from __future__ import annotations

import time
from pathlib import Path

from coalloc.adapters.base import Adapter, AdapterError, ClaimRefusedError
from coalloc.adapters.batch.launcher import (
    BatchLauncher,
    check_known,
    login_of,
    plain_counts,
    site_of_part,
)
from coalloc.adapters.oar.commands import Oar
from coalloc.adapters.oar.part_job import OarSite
from coalloc.adapters.oar.reader import OarReader, nodes_of, read_rows
from coalloc.adapters.oar.settings import OarSettings
from coalloc.model.shape import taken
from coalloc.model.sites.parts import PartSpec
from coalloc.model.sites.reading import NodeReading

NODES_MAX_AGE_S = 60.0


class OarLauncher(BatchLauncher):
    """Claims resources of an OAR cluster's nodes and starts processes on them."""

    runner = "oar.part_job:OarPart"
    honours = frozenset({"account", "partition"})
    keeps_limits = "OAR"

    def __init__(self, settings: OarSettings, state_dir: Path) -> None:
        self._settings, self._oar = settings, commands_of(settings)
        self._nodes: dict[str, NodeReading] = {}
        self._nodes_read = float("-inf")
        self._asked: dict[str, int] = {}
        """Resources of the nodes of the part that was checked last."""
        super().__init__(state_dir)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse nodes that OAR does not have, and what cannot be asked for of them."""
        counts = plain_counts(self._settings, part, is_whole=False)
        is_old = time.monotonic() - self._nodes_read > NODES_MAX_AGE_S
        if is_old or not counts.keys() <= self._nodes.keys():
            try:
                self._nodes = nodes_of(self._settings, read_rows(self._oar, "oarnodes"))
                self._nodes_read = time.monotonic()
            except AdapterError:
                if not self._nodes:
                    raise
        check_known(counts, self._nodes)
        for host, procs in counts.items():
            node = self._nodes[host]
            room = taken(part.shape, part.memory_mb_per_proc, node, procs)
            if room.resources:
                why = f"{', '.join(room.resources)} cannot be asked for"
                raise ClaimRefusedError("not_permitted", why)
            if room.slots > node.slots:
                why = f"{host} has {node.slots} slots, {room.slots} are asked for"
                raise ClaimRefusedError("nodes_taken", why)
            self._asked[host] = room.slots
        self._asked = {host: self._asked[host] for host in counts}

    def _site(self, part: PartSpec) -> OarSite:
        site, batch = self._settings, part.batch
        queue, project = batch.partition or site.queue, batch.account or site.project
        options = [f"--queue={queue}"] if queue else []
        options += [f"--project={project}"] if project else []
        return {
            **site_of_part(site, part, options, self._root),
            "scripts": site.scripts,
            "queue_wait_s": site.queue_wait_s,
            "asked": self._asked,
        }


def commands_of(settings: OarSettings) -> Oar:
    """The cluster's commands."""
    limit_s = settings.command_limit_s
    return Oar(bin_dir=settings.bin, timeout_s=limit_s, ssh=login_of(settings))


def open_oar(settings: OarSettings, state_dir: Path) -> Adapter:
    """Open both faces; OAR itself is not asked for anything yet."""
    launcher = OarLauncher(settings, state_dir)
    reader = OarReader(settings, commands_of(settings), claims=launcher.claims)
    return Adapter(reader=reader, launcher=launcher, streams=launcher.streams, has_slow_claims=True)
