"""Launches parts on this machine: one part runner for each, found again after any restart."""

from __future__ import annotations

import os
import secrets
from binascii import crc32
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from itertools import count, islice
from math import inf
from pathlib import Path

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.launcher import PartLauncher, unended
from coalloc.adapters.local.settings import LocalNode, LocalSettings
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.spec import OwnPlace
from coalloc.model.shape import Room, is_gpu, room_of, taken
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
        self._name_next()
        super().__init__(state_dir)
        used = {folder.cgroup for folder in self._parts.values()}
        for stale in set(glob(f"{self._groups}*") if home else ()) - used:
            cgroup.end(stale)

    def _name_next(self) -> None:
        """Choose the claim of the next part, and its cgroup, where a process may be before."""
        self._claim = secrets.token_hex(16)
        self._next_group = f"{self._groups}{self._claim}" if self._groups else ""

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
        extra = {"cgroup": self._next_group} if self._groups else {}
        folder = PartFolder.create(
            self._root, part, places=self._places, extra=extra, claim=self._claim, address=address
        )
        self._name_next()
        return folder

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


def places_on(
    node: LocalNode, gpus: Mapping[int, str], part: PartSpec, there: Sequence[PartFolder]
) -> list[OwnPlace]:
    """Places of a part's processes on a node with these GPUs, beside parts; or refused.

    CPUs and GPUs are by number. The numbers are in the part's folder: they are given back when it
    has ended, whoever was restarted.
    """
    shape, procs, held = part.shape, part.nodes[node.name], Counter[str]()
    for each in there:
        mine = each.shape, each.memory_mb_per_proc, node, each.nodes[node.name]
        held.update(_amounts(taken(*mine)))
    size = _amounts(room_of(node))
    for what, wanted in _amounts(taken(shape, part.memory_mb_per_proc, node, procs)).items():
        _check(node.name, what, wanted, size.get(what, 0) - held[what], size.get(what, 0))
    cpus: list[Sequence[int] | None] = [node.pinned] * procs
    if node.pinned and shape.cpus_per_proc and not shape.exclusive:
        busy = _held("cpus", node, [each for each in there if each.shape.cpus_per_proc])
        left = iter([cpu for cpu in node.pinned if cpu not in busy])
        cpus = [list(islice(left, shape.cpus_per_proc)) for _ in range(procs)]
    if not gpus:
        return [{"cpus": each} for each in cpus]
    busy = _held("gpus", node, there)
    free = {gpu: kind for gpu, kind in gpus.items() if gpu not in busy}
    shared = _picked(node, free, shape.per_node)
    own = [_picked(node, free, shape.per_proc) for _ in range(procs)]
    if shape.exclusive and not shared and not any(own):
        shared = [*free]
    return [{"cpus": each, "gpus": shared + mine} for each, mine in zip(cpus, own, strict=True)]


def _amounts(room: Room) -> dict[str, int]:
    memory = {} if room.memory_mb == inf else {"MiB": int(room.memory_mb)}
    return {"slots": room.slots, **memory, **room.resources}


def _check(node: str, what: str, wanted: int, free: int, size: int) -> None:
    if wanted > max(0, free):
        why = f"{node}: {wanted} {what} wanted, {max(0, free)} of {size} free"
        raise ClaimRefusedError("nodes_taken", why)


def _held(what: str, node: LocalNode, there: Iterable[PartFolder]) -> set[int]:
    places = (place for each in there for place in each.places if place["node"] == node.name)
    return {number for place in places for number in place.get(what) or ()}


def _picked(node: LocalNode, free: dict[int, str], asked: Mapping[str, int]) -> list[int]:
    """Take GPUs of those that are free, in their order."""
    found: list[int] = []
    for name, wanted in asked.items():
        able = [gpu for gpu, kind in free.items() if name in {kind, kind.partition(":")[0]}]
        if is_gpu(name):
            _check(node.name, f"{name} by number", wanted, len(able), node.resources.get(name, 0))
        found += able[:wanted]
        for gpu in able[:wanted]:
            del free[gpu]
    return found
