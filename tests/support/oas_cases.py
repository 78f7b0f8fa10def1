"""Random small snapshots for the comparison of exact solvers, as JSON, by seed.

All run times are whole seconds: base times are multiples of 30 s, and so are the times of moldable
jobs, powers are 1, 3/4, 3/5 and 1/2.
"""

from __future__ import annotations

import random
from typing import Any

NOW = 50.0
MOLDABLE = ([360.0, 180.0, 120.0, 120.0, 90.0], [240.0, 150.0, 120.0, 90.0, 90.0])
"""Times that need no repair: with more processes neither time rises nor work falls."""
OBJECTIVES = ("makespan", "weighted_completion", "makespan_then_weighted_completion")


def random_case(seed: int) -> dict[str, Any]:
    """A snapshot with options and an objective."""
    rng = random.Random(f"case-{seed}")
    clusters = _clusters(rng)
    jobs = rng.choice([2, 3, 3, 4, 4, 5])
    queue = [_job(rng, number, clusters) for number in range(jobs)]
    return {
        "snapshot": {
            "format": "coalloc-snapshot/1",
            "time": NOW,
            "overrun_s": rng.choice([0.0, 60.0]),
            "clusters": clusters,
            "queue": queue,
            "running": _running(rng, clusters) if rng.random() < 0.4 else [],
            "reservations": _reservations(rng, clusters) if rng.random() < 0.25 else [],
        },
        "options": {
            "coallocation": rng.choice(["sooner"] * 4 + ["needed", "forbidden"]),
            "coallocate_moldable": rng.random() < 0.3,
        },
        "objective": rng.choice(OBJECTIVES),
    }


def _clusters(rng: random.Random) -> list[dict[str, Any]]:
    mixed, tight = rng.random() < 0.4, rng.random() < 0.5
    out = []
    for name in ("a", "b", "c")[: rng.choice([1, 2, 2, 3])]:
        power = rng.choice([1.0, 0.75, 0.6, 0.5])
        nodes = []
        for n in range(rng.randint(1, 3)):
            node = {
                "name": f"{name}{n}",
                "power": rng.choice([1.0, 0.75, 0.5]) if mixed else power,
                "slots": rng.choice([1, 1, 1, 2]),
                "features": rng.choice([[], [], [], ["gpu"]]),
                "state": rng.choice(["up"] * 9 + ["draining"]),
            }
            if rng.random() < 0.08:
                node["free_at"] = NOW + rng.choice([12.0, 45.0])
            nodes.append(node)
        link = rng.choice([0.2, 0.3, 0.5] if tight else [1.0, 4.0, None])
        stale = rng.random() < 0.04
        out.append({"name": name, "link_gbps": link, "stale": stale, "nodes": nodes})
    return out


def _job(rng: random.Random, number: int, clusters: list[dict[str, Any]]) -> dict[str, Any]:
    slots = sum(node["slots"] for cluster in clusters for node in cluster["nodes"])
    out: dict[str, Any] = {
        "id": f"j{number}",
        "submitted": 0.0,
        "weight": rng.choice([0.0, 0.5, 1.0, 1.0, 2.5]),
        "sigma": rng.choice([1.0, 0.7, 0.5, 0.0]),
    }
    if rng.random() < 0.2:
        out["earliest"] = NOW + rng.choice([7.0, 30.0, 64.0])
    if rng.random() < 0.2 and number:
        out["after"] = [rng.choice([f"j{rng.randrange(number)}", "r0", "gone"])]
    if rng.random() < 0.06:
        out["features"] = ["gpu"]
    if rng.random() < 0.08:
        out["clusters"] = [rng.choice(clusters)["name"]]
    if rng.random() < 0.05:
        out["held"] = True
    gbps = rng.choice([0.0, 0.05, 0.1, 0.15, 0.25])
    if rng.random() < 0.25:
        times = rng.choice(MOLDABLE)
        out |= {"kind": "moldable", "times": times[: rng.randint(1, 5)]}
        if rng.random() < 0.6:
            out["proc_gbps"] = gbps
        return out
    procs = rng.choice([1, 1, rng.randint(1, slots), rng.randint(1, slots), slots + 1])
    return {**out, "kind": "rigid", "procs": procs, "base_time": 30.0 * rng.randint(1, 6)} | {
        "proc_gbps": gbps
    }


def _running(rng: random.Random, clusters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    nodes = [(c["name"], node) for c in clusters for node in c["nodes"]]
    out = []
    for n, (cluster, node) in enumerate(rng.sample(nodes, rng.randint(1, min(3, len(nodes))))):
        job = {
            "id": f"r{n}",
            "nodes": {node["name"]: rng.randint(1, node["slots"])},
            "start": 0.0,
            "end": NOW + rng.choice([-5.0, 20.0, 77.0, 130.0]),
            "ours": rng.random() < 0.5,
        }
        if rng.random() < 0.4:
            job["link_gbps"] = {cluster: 0.05}
        out.append(job)
    return out


def _reservations(rng: random.Random, clusters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = [node["name"] for c in clusters for node in c["nodes"]]
    return [
        {
            "id": f"v{n}",
            "nodes": rng.sample(names, rng.randint(1, min(2, len(names)))),
            "start": NOW + rng.choice([-10.0, 60.0, 90.0]),
            "end": NOW + rng.choice([95.0, 200.0]),
            "jobs": rng.choice([[], ["j0"], ["j0", "j1"]]),
        }
        for n in range(rng.randint(1, 2))
    ]
