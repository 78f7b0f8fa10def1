"""The instances: drawn from their names alone, as snapshots of the format ``coalloc-snapshot/1``.

An instance's name is ``FAMILY-JOBS-NUMBER``, such as ``split-30-007``. Standard library only; the
numbers drawn are those of Python's ``random.Random(NAME)``, the same on every machine. All times
are whole seconds on nodes of full speed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

SIZES = (15, 30, 60)
EACH = 25
"""Instances of each family and size."""
POWERS = (1.0, 1.0, 0.8, 0.5)

Json = dict[str, Any]
Draw = random.Random


def names() -> Iterator[str]:
    """All of the library."""
    for family in FAMILIES:
        for size in SIZES:
            for number in range(EACH):
                yield f"{family}-{size}-{number:03}"


def instance(name: str) -> Json:
    """The snapshot of this name."""
    family, size, _ = name.split("-")
    return {"format": "coalloc-snapshot/1", "time": 0.0, **FAMILIES[family](Draw(name), int(size))}


def split(draw: Draw, size: int) -> Json:
    """Rigid jobs that may be split over clusters, as far as the links carry what they send."""
    clusters = _clusters(draw, draw.randint(2, 4), 4, 16)
    jobs = []
    for number in range(size):
        job = _rigid(draw, number, sum(map(_width, clusters)) // 2)
        # One that fits in no cluster sends nothing, so that it can run.
        rate = draw.choice((0.0, 0.01, 0.05, 0.1, 0.2))
        job["proc_gbps"] = rate if job["procs"] <= max(map(_width, clusters)) else 0.0
        job["sigma"] = draw.choice((1.0, 0.9, 0.7, 0.5))
        jobs.append(job)
    return {"clusters": clusters, "queue": jobs}


def moldable(draw: Draw, size: int) -> Json:
    """Jobs whose number of processes is to be chosen; half of them stay in one cluster."""
    clusters = _clusters(draw, draw.randint(2, 3), 4, 12)
    return {"clusters": clusters, "queue": [_moldable(draw, n) for n in range(size)]}


def divisible(draw: Draw, size: int) -> Json:
    """Rigid jobs, and work in equal chunks that fills what they leave."""
    clusters = _clusters(draw, draw.randint(2, 3), 4, 12)
    rigid = [
        {**_rigid(draw, number, max(map(_width, clusters))), "one_cluster": True}
        for number in range(size - size // 10)
    ]
    work = sum(job["procs"] * job["base_time"] for job in rigid)
    for number in range(size - size // 10, size):
        chunk = draw.choice((5, 10, 30))
        whole = max(1, int(work * draw.uniform(0.2, 0.6) / (size // 10) / chunk))
        job = {"id": str(number), "kind": "divisible", "work": whole * chunk, "chunk_s": chunk}
        rigid.insert(draw.randint(0, len(rigid)), job)
    return {"clusters": clusters, "queue": rigid}


def counted(draw: Draw, size: int) -> Json:
    """Rigid jobs that ask for CPUs, memory and GPUs of nodes of several kinds."""
    clusters: list[Json] = []
    for index in range(draw.randint(1, 3)):
        nodes: list[Json] = []
        for kind in range(draw.randint(1, 2)):
            cpus, power = draw.choice((8, 16, 32)), draw.choice(POWERS)
            memory = cpus * draw.choice((2000, 4000, 8000))
            gpus = draw.choice((0, 2, 4))
            nodes += (
                {
                    "name": f"c{index}k{kind}n{node}",
                    "slots": cpus,
                    "power": power,
                    "memory_mb": memory,
                    **({"resources": {"gpu": gpus}} if gpus else {}),
                }
                for node in range(draw.randint(2, 6))
            )
        clusters.append({"name": f"c{index}", "link_gbps": 0.0, "nodes": nodes})
    nodes = [node for cluster in clusters for node in cluster["nodes"]]
    return {"clusters": clusters, "queue": [_counted(draw, n, nodes) for n in range(size)]}


def _clusters(draw: Draw, count: int, least: int, most: int) -> list[Json]:
    """Clusters of nodes of one slot, each of one power; the fastest of all has power 1."""
    powers = [1.0, *(draw.choice(POWERS) for _ in range(count - 1))]
    draw.shuffle(powers)
    return [
        {
            "name": f"c{index}",
            "link_gbps": draw.choice((0.1, 0.2, 0.5, 1.0)),
            "nodes": [
                {"name": f"c{index}n{node}", "power": power}
                for node in range(draw.randint(least, most))
            ],
        }
        for index, power in enumerate(powers)
    ]


def _width(cluster: Json) -> int:
    nodes: list[Json] = cluster["nodes"]
    return len(nodes)


def _seconds(draw: Draw) -> int:
    """Of a run, log-uniform from 20 to 300."""
    return round(20.0 * math.pow(15.0, draw.random()))


def _rigid(draw: Draw, number: int, widest: int) -> Json:
    procs = min(widest, round(math.pow(2.0, draw.uniform(0.0, 4.5))))
    return {"id": str(number), "kind": "rigid", "procs": procs, "base_time": _seconds(draw)}


def _moldable(draw: Draw, number: int) -> Json:
    """Times by Amdahl's law, rounded up, so that neither times nor processors times times fall."""
    longest, fraction = 10 * _seconds(draw), draw.choice((0.5, 0.8, 0.9, 0.95, 0.99))
    most = draw.choice((2, 4, 8, 16))
    times = [longest]
    for procs in range(2, most + 1):
        wanted = math.ceil(longest * (1.0 - fraction + fraction / procs))
        times.append(min(times[-1], max(wanted, -(-times[-1] * (procs - 1) // procs))))
    spread = {"proc_gbps": 0.0} if draw.random() < 0.5 else {}
    return {"id": str(number), "kind": "moldable", "times": times, **spread}


def _counted(draw: Draw, number: int, nodes: list[Json]) -> Json:
    """A job that one node has room for."""
    node = draw.choice(nodes)
    cpus = draw.choice([c for c in (1, 2, 4, 8) if c <= node["slots"]])
    gpus = draw.choice((0, 0, 1)) if node.get("resources") else 0
    room = node["slots"] // cpus
    room = min(room, node["resources"]["gpu"] // gpus) if gpus else room
    memory = draw.choice((500, 1000, 2000, 4000)) * cpus
    while memory > node["memory_mb"]:
        memory //= 2
    room = min(room, node["memory_mb"] // memory)
    shape = {"cpus_per_proc": cpus, **({"per_proc": {"gpu": gpus}} if gpus else {})}
    return {
        "id": str(number),
        "kind": "rigid",
        "procs": draw.randint(1, min(room, 16)),
        "base_time": _seconds(draw),
        "one_cluster": True,
        "memory_mb_per_proc": memory,
        "shape": shape,
    }


FAMILIES: dict[str, Callable[[Draw, int], Json]] = {
    "split": split,
    "moldable": moldable,
    "divisible": divisible,
    "counted": counted,
}
