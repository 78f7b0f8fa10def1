"""Nodes and partitions of a cluster, of what ``scontrol show node`` and ``sinfo`` printed."""

from __future__ import annotations

from pathlib import Path

from coalloc.adapters.formats.files import read_bytes
from coalloc.adapters.slurm.parsers.records import ParseError, node_state
from coalloc.adapters.slurm.parsers.text import parse_node_list, read_duration
from coalloc.model.errors import InputError
from coalloc.model.platform import Node

LARGEST_FILE = 200_000_000


def read_nodes(path: Path, cluster: str) -> list[Node]:
    """Nodes as they are now, a slot for each CPU, their partitions as features.

    Raises `InputError`.
    """
    try:
        records = parse_node_list(_text(path))
    except ParseError as error:
        raise InputError(str(path), str(error)) from error
    return [
        Node(
            name=f"{cluster}:{record.name}",
            slots=record.cpus,
            memory_mb=record.memory_mb,
            resources=record.gres,
            features=record.partitions,
            state=node_state(record.states)[0],
        )
        for record in records
    ]


def read_limits(path: Path) -> dict[str, float | None]:
    """Time limit of each partition, seconds; None: it has none. Raises `InputError`."""
    head, *rows = map(str.split, _text(path).splitlines() or [""])
    if head[:3] != ["PARTITION", "AVAIL", "TIMELIMIT"]:
        raise InputError(str(path), "is not what sinfo prints by default")
    try:
        return {words[0].rstrip("*"): read_duration(words[2]) for words in rows if len(words) > 5}
    except ParseError as error:
        raise InputError(str(path), str(error)) from error


def _text(path: Path) -> str:
    return read_bytes(path, LARGEST_FILE).decode("utf-8", "replace")
