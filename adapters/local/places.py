"""Places of a part on a node: room by its shape, CPUs and GPUs by number.

The numbers are in the part's folder: they are given back when it has ended, whoever was restarted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from coalloc.adapters.base import ClaimRefusedError
from coalloc.adapters.local.settings import LocalNode
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner.spec import OwnPlace
from coalloc.model.shape import Room, is_gpu, room_of, taken
from coalloc.model.sites.parts import PartSpec


def places_on(
    node: LocalNode, gpus: Mapping[int, str], part: PartSpec, there: Sequence[PartFolder]
) -> list[OwnPlace]:
    """Places of a part's processes on a node with these GPUs, beside parts; or refused."""
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
