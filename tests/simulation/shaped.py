"""Users of a third of all worlds: jobs with shapes, on nodes whose memory and GPUs are counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from coalloc.core.base.messages import Prepare
from coalloc.core.base.requests import Submit, SubmitWorkflow
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.values import replace

MEMORY_MB = 1000
SHAPES: tuple[Mapping[str, Any], ...] = (
    {"memory_mb_per_node": 600},
    {"cpus_per_proc": 1, "all_memory": True},
    {"cpus_per_proc": 2},
    {"per_proc": {"gpu": 1}},
    {"per_node": {"gpu:x": 1}, "memory_mb_per_node": 100},
    {"exclusive": True},
    {"procs_per_node": 1},
    {"min_nodes": 2, "max_nodes": 2},
)


def equipped(read: ClusterReading) -> ClusterReading:
    """The cluster with memory and a GPU in each node."""
    more: dict[str, Any] = {"memory_mb": MEMORY_MB, "resources": {"gpu:x": 1}}
    return replace(read, nodes=tuple(replace(node, **more) for node in read.nodes))


@dataclass
class Shaped:
    """What users ask for beside processes, drawn apart from all others."""

    seed: int

    def __post_init__(self) -> None:
        self._dice = random.Random(f"shapes of jobs {self.seed}")

    def shaped(self, command: Submit) -> Submit:
        """The submit with what they add to it."""
        dice, job = self._dice, dict(command.job)
        if dice.random() < 0.3:
            return command
        if isinstance(command, SubmitWorkflow):
            tasks = [{**t, "shape": dice.choice([None, *SHAPES[:4]])} for t in job["tasks"]]
            return replace(command, job={**job, "tasks": tasks})
        kinds = SHAPES[2:4] if job["kind"] == "divisible" else SHAPES
        job["shape"] = dice.choice(kinds)
        if not {"all_memory", "memory_mb_per_node", "max_nodes"}.intersection(job["shape"]):
            job["memory_mb_per_proc"] = dice.choice([0, 300, 800])
        sized = {"cpus_per_proc", "exclusive", "max_nodes"}.intersection(job["shape"])
        if sized and "procs" in job:
            job["procs"] = 2  # more might fit nowhere, be taken while unread, or pass every limit
        return replace(command, job=job)


def use_of(order: Prepare, node: NodeReading, procs: int) -> Counter[str]:
    """What processes of a part take of a node; one slot is one CPU."""
    shape = order.shape
    use = Counter(slots=procs * max(1, shape.cpus_per_proc))
    use["memory"] = shape.memory_mb_per_node + order.memory_mb_per_proc * procs
    use["gpu"] = sum(shape.per_node.values()) + procs * sum(shape.per_proc.values())
    if shape.exclusive:
        use["slots"], use["gpu"] = node.slots, sum(node.resources.values())
    if shape.all_memory:
        use["memory"] = node.memory_mb or 0
    return use


def over(
    nodes: Mapping[str, NodeReading], parts: Iterable[tuple[Prepare, Mapping[str, int]]]
) -> str:
    """A node of which parts take more than it has; empty if there is none."""
    used: dict[str, Counter[str]] = {}
    for order, held in parts:
        for name, procs in held.items():
            used.setdefault(name, Counter()).update(use_of(order, nodes[name], procs))
    for name, use in used.items():
        node = nodes[name]
        memory = inf if node.memory_mb is None else node.memory_mb
        sizes = {"slots": node.slots, "memory": memory, "gpu": sum(node.resources.values())}
        if any(count > sizes[what] for what, count in use.items()):
            return f"{name} of {sizes} has {dict(use)}"
    return ""


def check_layout(order: Prepare, nodes: Mapping[str, int]) -> None:
    """The nodes of a whole job are as many as its shape says, and none has too many processes.

    Raises
    ------
    AssertionError
    """
    shape = order.shape
    if shape is not ONE_SLOT:
        most = len(nodes) if shape.max_nodes is None else shape.max_nodes
        assert shape.min_nodes <= len(nodes) <= most, f"job {order.job} of {shape} has {nodes}"
        each = shape.procs_per_node or max(nodes.values())
        assert max(nodes.values()) <= each, f"job {order.job} of {shape} has {nodes}"
