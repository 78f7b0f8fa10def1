"""Launches parts on this machine: one part runner for each, found again after any restart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.launcher import PartLauncher
from coalloc.adapters.local.settings import LocalSettings
from coalloc.adapters.part_folder import PartFolder
from coalloc.model.sites.parts import PartSpec


class LocalLauncher(PartLauncher):
    """Claims slots of this machine's nodes and starts processes on them.

    Parameters
    ----------
    settings : LocalSettings
    state_dir : Path
        See `PartLauncher`.

    Raises
    ------
    AdapterError
        The folder cannot be used, or another executor uses it.
    """

    runner = "runner.runner:Runner"

    def __init__(self, settings: LocalSettings, state_dir: Path) -> None:
        self._nodes = {node.name: node for node in settings.nodes}
        self._address = settings.address
        super().__init__(state_dir)

    def _create(self, part: PartSpec) -> PartFolder:
        cpus = {name: self._nodes[name].cpus for name in part.nodes}
        # the names of its nodes are nothing to a script's mpirun
        address = self._address if part.once else ""
        return PartFolder.create(self._root, part, cpus, address=address)

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse nodes that do not exist, or have too few slots left."""
        known = [folder for key, folder in self._parts.items() if key not in self._ended]
        try:
            self._check_slots(part, known)
        except ClaimRefusedError:
            # Some of them may have ended meanwhile.
            self._looked = float("-inf")
            living = {report.key for report in self.poll() if not report.is_ended}
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
