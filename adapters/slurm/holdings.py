"""Memory and GRES that Slurm has given out on each node, shared among the local jobs there.

The sums are Slurm's own, less what our parts have. ``squeue`` tells of no job how much it has: its
memory is taken to be by its CPUs, its GRES as it asked for them on each node, or by its CPUs too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from coalloc.adapters.slurm.parsers.records import NodeRecord
from coalloc.adapters.slurm.reading import Answers, spread
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.shape import taken
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Running
from coalloc.model.values import replace

MEMORY = ""
"""Stands among the names of resources."""


def with_holdings(
    settings: SlurmSettings,
    answers: Answers,
    readings: Iterable[NodeReading],
    running: tuple[Running, ...],
) -> tuple[Running, ...]:
    """Local jobs with the memory and GRES that they hold of nodes with a slot for each CPU."""
    if settings.slots != "cpus":
        return running
    sizes = {settings.plain(node.name): node for node in readings}
    ours = _ours(answers, sizes)
    asked = {f"{settings.cluster}:{entry.id}": entry.gres for entry in answers.queue}
    on: dict[str, dict[str, int]] = defaultdict(dict)
    for job in sorted(running, key=lambda job: -job.end):
        for name, count in job.nodes.items():
            on[settings.plain(name)][job.id] = count
    for entry in answers.queue:  # handed jobs of ours: their shares are left out
        for name, count in spread(entry) if entry.id in answers.claimed else ():
            on[name][entry.id] = count
    held: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for node in answers.nodes:
        slots = on[node.name]
        for what, total in _given_out(node, ours[node.name]) if slots else ():
            family = what.partition(":")[0]
            gres = {id: asked.get(id, {}) for id in slots}
            wanted = {id: own.get(what, own.get(family, 0)) for id, own in gres.items()}
            for id, count in shared(total, wanted if any(wanted.values()) else slots).items():
                there = held[id][settings.published(node.name)]
                there[what] += count
                if what != family:  # what is left of a family comes after its types
                    there[family] += count
    return tuple(
        replace(
            job,
            memory_mb={name: held[job.id][name].pop(MEMORY, 0) for name in job.nodes},
            resources={name: dict(+counts) for name, counts in held[job.id].items() if +counts},
        )
        for job in running
    )


def _ours(answers: Answers, sizes: Mapping[str, NodeReading]) -> Mapping[str, Counter[str]]:
    """Memory and GRES that our parts have of each node."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in answers.queue:
        held = answers.holding(entry)
        for name, procs in () if held is None else held.nodes.items():
            if held is not None and name in sizes:
                room = taken(held.shape, held.memory_mb_per_proc, sizes[name], procs)
                total[name].update({**room.resources, MEMORY: int(room.memory_mb)})
    return total


def _given_out(node: NodeRecord, ours: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Memory and GRES of a node that others than we have; by type where a GRES has types."""
    yield MEMORY, max(0, node.memory_taken_mb - ours[MEMORY])
    for family in (name for name in node.gres_taken if ":" not in name):
        left = max(0, node.gres_taken[family] - ours[family])
        for name, count in node.gres_taken.items():
            if name.startswith(f"{family}:"):
                own = min(left, max(0, count - ours[name]))
                left -= own
                yield name, own
        yield family, left


def shared(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """A total in proportion to these weights, exact in sum."""
    out, left = {}, sum(weights.values())
    for name, weight in weights.items():
        out[name] = total * weight // left if left else 0
        total -= out[name]
        left -= weight
    return out
