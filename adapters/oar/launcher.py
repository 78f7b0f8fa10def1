"""An OAR cluster by its commands: read, and launched on."""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.base import Adapter, ClaimRefusedError
from coalloc.adapters.batch.launcher import (
    BatchLauncher,
    check_known,
    login_of,
    plain_counts,
    site_of_part,
)
from coalloc.adapters.oar.commands import Oar
from coalloc.adapters.oar.part_job import OarSite
from coalloc.adapters.oar.reader import OarReader, Resource, nodes_of, read_rows
from coalloc.adapters.oar.settings import OarSettings
from coalloc.model.shape import taken
from coalloc.model.sites.parts import PartSpec


class OarLauncher(BatchLauncher):
    """Claims resources of an OAR cluster's nodes and starts processes on them."""

    runner, keeps_limits = "oar.part_job:OarPart", "OAR"
    honours = frozenset({"account", "partition"})

    def __init__(self, settings: OarSettings, oar: Oar, state_dir: Path) -> None:
        self._settings, self._oar = settings, oar
        self._asked: dict[str, int] = {}
        """Resources of each node of the part that was checked last."""
        super().__init__(state_dir)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse nodes that OAR does not have, and what cannot be asked for of them."""
        counts = plain_counts(self._settings, part, is_whole=False)
        nodes = nodes_of(self._settings, read_rows(self._oar, Resource, "oarnodes"))
        check_known(counts, nodes)
        self._asked = {}
        for host, procs in counts.items():
            node, _ = nodes[host]
            room = taken(part.shape, part.memory_mb_per_proc, node, procs)
            if room.slots > node.slots:
                why = f"{host} has {node.slots} slots, {room.slots} are asked for"
                raise ClaimRefusedError("nodes_taken", why)
            if room.resources:
                why = f"{', '.join(room.resources)} cannot be asked for"
                raise ClaimRefusedError("not_permitted", why)
            self._asked[host] = room.slots

    def _site(self, part: PartSpec) -> OarSite:
        site, batch = self._settings, part.batch
        given = {"queue": batch.partition or site.queue, "project": batch.account or site.project}
        options = [f"--{option}={value}" for option, value in given.items() if value]
        return {
            **site_of_part(site, part, options, self._root),
            "scripts": site.scripts,
            "queue_wait_s": site.queue_wait_s,
            "asked": self._asked,
        }


def open_oar(settings: OarSettings, state_dir: Path) -> Adapter:
    """Open both faces; OAR itself is not asked for anything yet."""
    limit_s = settings.command_limit_s
    oar = Oar(bin_dir=settings.bin, timeout_s=limit_s, ssh=login_of(settings))
    launcher = OarLauncher(settings, oar, state_dir)
    reader = OarReader(settings, oar, launcher.claims)
    traits = frozenset({"slow_claims"})
    return Adapter(reader=reader, launcher=launcher, streams=launcher.streams, traits=traits)
