"""The shape of a job that its user submitted in Slurm, by the fields that Slurm shows of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from coalloc.adapters.slurm.parsers.records import ParseError
from coalloc.adapters.slurm.parsers.text import read_gres, read_integer
from coalloc.model.shape import ONE_SLOT, Shape


class Asked(NamedTuple):
    """Processes of a job, and their needs."""

    procs: int
    memory_mb_per_proc: int = 0
    shape: Shape = ONE_SLOT


def asked_for(pairs: Mapping[str, str], *, whole_nodes: bool) -> Asked | None:
    """Needs of a job by ``scontrol show job``; None: they are not known, or no shape says them.

    Where one process on each slot is all that it says, it has no shape.
    """
    numbers = ("NumTasks", "CPUs/Task", "MinCPUsNode", "NtasksPerN:B:S:C")
    memory = {unit: pairs.get(f"MinMemory{unit}", "0") for unit in ("CPU", "Node")}
    try:
        tasks, cpus, least, per_node = (_number(pairs.get(key, "")) for key in numbers)
        # Megabytes, unless another unit is named.
        mb = {unit: _number(re.sub(r"(\d)$", r"\1M", text)) >> 20 for unit, text in memory.items()}
        low, _, high = pairs.get("NumNodes", "").partition("-")
        least_nodes, most_nodes = _number(low), _number(high or "0")
    except ParseError:
        return None
    if not tasks or not cpus or least > cpus * max(per_node, 1) or "TresPerJob" in pairs:
        return None
    is_exclusive = pairs.get("OverSubscribe") in {"NO", "EXCLUSIVE", "USER", "MCS"}
    shape = Shape(
        cpus_per_proc=cpus,
        memory_mb_per_node=mb["Node"],
        all_memory=is_exclusive and memory["Node"] == "0" and "MinMemoryNode" in pairs,
        min_nodes=least_nodes if most_nodes else 1,
        max_nodes=most_nodes or None,
        procs_per_node=per_node or None,
        exclusive=is_exclusive,
        per_proc=_leaves(pairs.get("TresPerTask", "")),
        per_node=_leaves(pairs.get("TresPerNode", "")),
    )
    procs = max(tasks, shape.min_nodes)
    of_nodes = Shape(cpus_per_proc=1, min_nodes=procs, max_nodes=procs)
    if shape == (of_nodes if whole_nodes else Shape(cpus_per_proc=1)):
        shape = ONE_SLOT
    return Asked(procs, mb["CPU"] * cpus, shape)


def _number(text: str) -> int:
    return read_integer(text.partition(":")[0], text, "count")


def _leaves(text: str) -> dict[str, int]:
    """Named counts; of names with a type that alone."""
    found = read_gres(text)
    typed = {name.partition(":")[0] for name in found if ":" in name}
    return {name: count for name, count in found.items() if name not in typed}
