"""Launches parts on this machine: one part runner for each, found again after any restart."""

from __future__ import annotations

import os
import secrets
from binascii import crc32
from collections import defaultdict
from collections.abc import Mapping, Sequence
from glob import glob
from itertools import count
from pathlib import Path

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.launcher import PartLauncher, unended
from coalloc.adapters.local.places import places_on
from coalloc.adapters.local.settings import LocalSettings
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.spec import OwnPlace
from coalloc.model.sites.parts import PartSpec


class LocalLauncher(PartLauncher):
    """Claims slots of this machine's nodes and starts processes on them."""

    runner = "runner.spawned:SpawningRunner"
    _places: Mapping[str, Sequence[OwnPlace]]
    """Of the part that was checked last."""

    def __init__(self, settings: LocalSettings, state_dir: Path) -> None:
        self._nodes = {node.name: node for node in settings.nodes}
        numbers = count()
        self._gpus = {n.name: {next(numbers): kind for kind in n.gpus} for n in settings.nodes}
        self._address = settings.address
        if any(node.partitions for node in settings.nodes):
            self.honours = self.honours | {"partition"}
        home = cgroup.own()
        mark = crc32(os.fsencode(state_dir.resolve()))
        self._groups = f"{home}/coalloc-{mark:08x}-" if home else ""
        super().__init__(state_dir)
        used = {folder.cgroup for folder in self._parts.values()}
        for stale in set(glob(f"{self._groups}*") if home else ()) - used:
            cgroup.end(stale)

    def kept(self) -> dict[str, str]:
        """Nodes whose slots are kept from others by what could not be ended, and that in words."""
        return {
            node: unended(left, key.job)
            for key, left in self.left().items()
            for node in self._parts[key].nodes
        }

    def _create(self, part: PartSpec) -> PartFolder:
        # the names of its nodes are nothing to a script's mpirun
        address = self._address if part.once else ""
        claim = secrets.token_hex(16)
        extra = {"cgroup": f"{self._groups}{claim}"} if self._groups else {}
        return PartFolder.create(
            self._root, part, places=self._places, extra=extra, claim=claim, address=address
        )

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse nodes that do not exist, or have too little left, and choose what it gets."""
        left = self.left()
        known = [
            folder for key, folder in self._parts.items() if key not in self._ended or key in left
        ]
        try:
            self._places = self._placed(part, known)
        except ClaimRefusedError:
            # Some of them may have ended meanwhile.
            self._looked = float("-inf")
            living = {report.key for report in self.poll() if not report.is_ended}
            living |= set(self.left())
            known = [folder for folder in known if folder.key in living]
            self._places = self._placed(part, known)

    def _placed(self, part: PartSpec, known: list[PartFolder]) -> dict[str, list[OwnPlace]]:
        """Places of the processes of a part, by node, beside the parts that are known."""
        places, there = {}, defaultdict[str, list[PartFolder]](list)
        for folder in known:
            for name in folder.nodes:
                there[name].append(folder)
        for name in part.nodes:
            node = self._nodes.get(name)
            if node is None:
                raise ClaimRefusedError("unknown_node", f"there is no node {name}")
            places[name] = places_on(node, self._gpus[name], part, there[name])
        return places
