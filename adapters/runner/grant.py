"""Nodes granted to a part whose claim might wait, and the layout of its job's other nodes.

``grant.json`` is the runner's: the part waits, or has these nodes. ``layout.json`` is the
launcher's (`adapters.part_folder`): all nodes of the job, when every part has its own. Neither has
to survive a loss of power: before the start, a part whose runner is gone is given up, and asked for
anew. ``claim.json`` has to: where the runner listens, the job's number, and whether it ``waits``
in the queue without a runner. What is ordered of such a claim stands in a file named after the
order, until a runner has seen to it. Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coalloc.adapters.runner.spec import BatchSpec, OwnPlace, RankPlace

PER_NODE = "COALLOC_NTASKS_PER_NODE"
GRANT, LAYOUT, CLAIM = "grant.json", "layout.json", "claim.json"
LIMIT = "limit.json"
"""The part's time limit where it was changed, and what the batch system shows then."""
ABORT, HASTEN = MARKS = ("abort", "hasten")
"""Orders that a claim without a runner takes, and the files that keep them."""
Nodes = list[tuple[str, int]]
"""Names as the service knows them, and processes, in rank order."""


def kept(folder: str, name: str) -> dict[str, Any]:
    """Content of one of the files; empty where it is not there."""
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of(folder: str, name: str) -> str | None:
    """Text of one of the other files, as of an order in `MARKS`; None: it is not there."""
    try:
        with open(f"{folder}/{name}", "rb") as file:
            return file.read().decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None


def keep(folder: str, name: str, record: Mapping[str, object]) -> None:
    """Write one of the files. Raises `OSError`."""
    path = f"{folder}/{name}"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.rename(f"{path}.new", path)


def planned_nodes(spec: BatchSpec) -> Nodes:
    """The nodes that a part was planned on."""
    return list(Counter(rank["node"] for rank in spec["ranks"]).items())


def is_whole(spec: BatchSpec) -> bool:
    """True if the part is the whole job."""
    return bool(spec["size"] == len(spec["ranks"]))


def dealt(spec: BatchSpec, slots: dict[str, int]) -> Nodes:
    """The part's processes on the nodes it was granted, by the batch system's names.

    In the planned order where the same nodes were granted. Each gets one before any gets more.
    """
    site, size = spec["site"], len(spec["ranks"])
    planned = planned_nodes(spec)
    found: Nodes = []
    chosen = [name for name, room in slots.items() if room][:size]
    left = size - len(chosen)
    for name in chosen:
        more = min(slots[name] - 1, left)
        left -= more
        found.append((site["prefix"] + name, 1 + more))
    if left:
        raise ValueError(f"{left} processes have no slot on {', '.join(slots)}")
    return planned if dict(found) == dict(planned) else found


def per_node(counts: Iterable[int]) -> dict[str, str]:
    """The variable that tells how many processes each node of a job has; empty: they differ."""
    found = set(counts)
    return {PER_NODE: str(found.pop())} if len(found) == 1 else {}


def ranks_on(
    nodes: Iterable[tuple[str, int]],
    first: int,
    places: Mapping[str, Sequence[OwnPlace]] | None = None,
) -> list[RankPlace]:
    """The places of processes on these nodes, in rank order, with what each has for itself."""
    ranks: list[RankPlace] = []
    for node, size in nodes:
        for local in range(size):
            own: OwnPlace = places[node][local] if places else {}
            rank = first + len(ranks)
            ranks.append(
                {"rank": rank, "node": node, "local_rank": local, "local_size": size, **own}
            )
    return ranks


def settled(spec: BatchSpec, folder: str) -> BatchSpec:
    """The spec with the nodes that the part and its job have in the end."""
    grant, layout = kept(folder, GRANT), kept(folder, LAYOUT)
    nodes = [(name, count) for name, count in grant.get("nodes", [])]
    if not nodes:
        return spec
    prefix = spec["site"]["prefix"]
    ranks = ranks_on(nodes, spec["ranks"][0]["rank"])
    names = {node: node.removeprefix(prefix) for node, _ in nodes}
    changed: BatchSpec = {**spec, "ranks": ranks, "site": {**spec["site"], "names": names}}
    if layout:
        hosts = "".join(f"{name} slots={count}\n" for name, count in layout["hosts"])
        changed["nodelist"], changed["hostfile_text"] = layout["nodelist"], hosts
        env = {name: value for name, value in spec["env"].items() if name != PER_NODE}
        changed["env"] = env | per_node(count for _, count in layout["hosts"])
        changed["rendezvous"] = layout["rendezvous"] or spec["rendezvous"]
    return changed
