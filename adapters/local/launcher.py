"""Launches parts on this machine: one part runner for each, found again after any restart."""

from __future__ import annotations

import os
import secrets
from binascii import crc32
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.launcher import PartLauncher, unended
from coalloc.adapters.local.settings import LocalSettings
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner import cgroup
from coalloc.model.sites.parts import PartSpec


class LocalLauncher(PartLauncher):
    """Claims slots of this machine's nodes and starts processes on them."""

    runner = "runner.runner:Runner"

    def __init__(self, settings: LocalSettings, state_dir: Path) -> None:
        self._nodes = {node.name: node for node in settings.nodes}
        self._address = settings.address
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
        cpus = {name: self._nodes[name].cpus for name in part.nodes}
        # the names of its nodes are nothing to a script's mpirun
        address = self._address if part.once else ""
        claim = secrets.token_hex(16)
        extra = {"cgroup": f"{self._groups}{claim}"} if self._groups else {}
        return PartFolder.create(self._root, part, cpus, extra=extra, claim=claim, address=address)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse nodes that do not exist, or have too few slots left."""
        left = self.left()
        known = [
            folder for key, folder in self._parts.items() if key not in self._ended or key in left
        ]
        try:
            self._check_slots(part, known)
        except ClaimRefusedError:
            # Some of them may have ended meanwhile.
            self._looked = float("-inf")
            living = {report.key for report in self.poll() if not report.is_ended}
            living |= set(self.left())
            self._check_slots(part, [folder for folder in known if folder.key in living])

    def _check_slots(self, part: PartSpec, living: Iterable[PartFolder]) -> None:
        taken: dict[str, int] = {}
        for folder in living:
            for name, count in folder.nodes.items():
                taken[name] = taken.get(name, 0) + count
        for name, count in part.nodes.items():
            node = self._nodes.get(name)
            if node is None:
                raise ClaimRefusedError("unknown_node", f"there is no node {name}")
            taken[name] = taken.get(name, 0) + count
            if taken[name] > node.slots:
                free = max(0, node.slots - taken[name] + count)
                raise ClaimRefusedError(
                    "nodes_taken", f"{name}: {count} slots wanted, {free} of {node.slots} free"
                )
