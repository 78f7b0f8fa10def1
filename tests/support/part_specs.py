"""Specifications of parts, of which a test names what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coalloc.model.sites.parts import Launch, PartSpec

LAUNCH = ("script", "env", "cwd", "stdout", "stderr")


def part_spec(
    *argv: str, nodes: Iterable[tuple[str, int]] = (("n1", 1),), job: str = "1", **fields: Any
) -> PartSpec:
    """The first part of a job's first attempt; without other fields, it is all of it."""
    counts = dict(nodes)
    launch = Launch(argv=argv, **{name: fields.pop(name) for name in LAUNCH if name in fields})
    whole = {
        "cluster": "c",
        "attempt": 1,
        "part": 0,
        "nodes": counts,
        "all_nodes": counts,
        "first_rank": 0,
        "size": fields.get("first_rank", 0) + sum(counts.values()),
        "lease_s": 60.0,
    }
    return PartSpec(job=job, launch=launch, **{**whole, **fields})


def batch_spec(*nodes: tuple[str, int], site: Any = None, **fields: Any) -> Any:
    """What a batch system's runner reads in the folder of a part, which is the whole job."""
    names = [name for name, count in nodes for _ in range(count)]
    whole: dict[str, Any] = {
        "job": "1",
        "attempt": 1,
        "part": 0,
        "cluster": "c",
        "epoch": 1,
        "name": "",
        "claim": "c",
        "argv": ["true"],
        "script": "",
        "env": {},
        "cwd": "/",
        "stdout": "",
        "stderr": "",
        "uid": None,
        "shape": {},
        "memory_mb_per_proc": 0,
        "nodelist": "",
        "hostfile": "",
        "ranks": [
            {"rank": rank, "node": name, "cpus": None, "local_rank": 0, "local_size": 1}
            for rank, name in enumerate(names)
        ],
        "size": len(names),
        "rendezvous": "",
        "time_limit_s": None,
        "grace_s": 0.0,
        "lease_s": 60.0,
        "chunks": None,
        "once": False,
        "queue": None,
        "site": {
            "bin": "",
            "limit_s": 5.0,
            "prefix": "",
            "options": [],
            "address": "",
            "names": {name: name for name in names},
            "ports": [0, 0],
            "python": "python3",
            **(site or {}),
        },
        "key": "secret",
        "token": {"name": "coalloc-1", "comment": "coalloc:1.1.0:c"},
    }
    return {**whole, **fields}
