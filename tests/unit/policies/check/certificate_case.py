"""Plans of moldable jobs that carry proofs: made by the bounds, for the checker to doubt."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import FrontPoint, Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.bicriteria.pareto import BoundCurve
from coalloc.policies.moldable.queue import of_planner
from coalloc.policies.options import CommonOptions, read_options


def proved_plan(snapshot: Snapshot, steps: int = 60, **options: Any) -> Plan:
    """Two schedules of every order's own makespan, their bounds, and all certificates."""
    planner = Planner(snapshot, read_options(options, CommonOptions))
    size = len(planner.items)
    whole = of_planner(planner, for_bounds=True)
    curve = BoundCurve(of_planner(planner, limit=30), whole, steps=steps)
    order = np.argsort(-planner.weights, kind="stable").tolist()
    found = {}
    for sequence in (order, order[::-1], list(range(size))):
        schedule = planner.decode(sequence, "event")
        found[schedule.makespan, schedule.weighted_completion] = schedule
    kept = [key for key in sorted(found) if not any(_worse(key, other) for other in found)]
    free = curve.at(inf, kept[-1][0])
    points = []
    for cmax, total in kept:
        curve.refine(cmax, total, rounds=2)
        # cut to what is finite: a rounding below the longest job, no plan ends by the cap
        near = [bound.value for bound in curve.bounds if bound.cap >= cmax and bound.value < inf]
        points.append(
            FrontPoint(
                cmax=cmax,
                weighted_completion=total,
                cmax_bound=curve.cmax,
                weighted_completion_bound=min(max(near), total),
                pareto_gap=0.0,
                placements=planner.plan(found[cmax, total], "by hand").placements,
            )
        )
    gaps = [curve.gap(cmax, total) for cmax, total in kept]
    plan = planner.plan(found[kept[0]], "by hand")
    return replace(
        plan,
        objective=replace(
            plan.objective, name="weighted_completion", value=kept[0][1], bound=free.value
        ),
        front=tuple(
            replace(point, pareto_gap=gap) for point, gap in zip(points, gaps, strict=True)
        ),
        chosen=0,
        pareto_gap=min(gaps),
        certificates=tuple(b.certificate() for b in curve.bounds if b.value < inf),
    )


def _worse(key: tuple[float, float], other: tuple[float, float]) -> bool:
    return key != other and key[0] >= other[0] and key[1] >= other[1]


def random_site(seed: int) -> Snapshot:
    """One to three clusters, powers, memory, features; running work, reservations, rigid jobs."""
    rng = np.random.default_rng(seed)
    clusters: list[dict[str, Any]] = []
    names: list[str] = []
    for k in range(int(rng.integers(1, 4))):
        nodes = []
        for g in range(int(rng.integers(1, 4))):
            count = int(rng.integers(1, 5))
            name = f"c{k}g{g}n"
            node: dict[str, Any] = {
                "name": f"{name}[1-{count}]",
                "power": float(rng.choice([0.3, 0.5, 0.85, 1.0])),
                "slots": int(rng.choice([1, 2, 4])),
                "features": [["gpu"], [], []][int(rng.integers(3))],
                "memory_mb": [None, 1000, 3000][int(rng.integers(3))],
                "state": str(rng.choice(["up", "up", "up", "draining"])),
            }
            node |= {"free_at": 130.0} if rng.random() < 0.2 else {}
            nodes.append(node)
            names += [f"{name}{i}" for i in range(1, count + 1)]
        link = [None, 0.0, 0.4, 1.0][int(rng.integers(4))]
        clusters.append({"name": f"c{k}", "link_gbps": link, "nodes": nodes})
    picked = rng.permutation(names).tolist()
    running = [
        {"id": f"r{i}", "nodes": {name: 1}, "start": 50.0, "end": float(rng.integers(60, 200))}
        for i, name in enumerate(picked[: len(picked) // 3])
    ]
    reservations = [
        {
            "id": "kept",
            "nodes": picked[-2:],
            "start": float(rng.choice([90.0, 140.0])),
            "end": 260.0,
            "jobs": ["2"] if rng.random() < 0.4 else [],
        }
    ]
    queue = [_job(n, rng) for n in range(int(rng.integers(2, 9)))]
    return read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "time": 100.0,
            "overrun_s": 5.0,
            "clusters": clusters,
            "queue": queue,
            "running": running,
            "reservations": reservations,
        }
    )


def _job(number: int, rng: np.random.Generator) -> dict[str, Any]:
    job: dict[str, Any] = {
        "id": str(number),
        "weight": float(rng.integers(0, 5)),
        "sigma": float(rng.choice([1.0, 0.6])),
        "memory_mb_per_proc": int(rng.choice([0, 0, 300, 1100])),
        "features": [["gpu"], [], [], []][int(rng.integers(4))],
        "earliest": float(rng.choice([0.0, 100.0, 133.0])),
        "after": ["r0"] if rng.random() < 0.2 else [],
    }
    kind = int(rng.integers(4))
    if kind == 0:
        return job | {"kind": "rigid", "procs": int(rng.integers(1, 7)), "base_time": 20.0}
    if kind == 1:
        speedup = {"model": "amdahl", "time": 90.0, "parallel_fraction": 0.9}
        return job | {"kind": "moldable", "speedup": speedup, "min_procs": 1, "max_procs": 9}
    times = (60.0 / np.arange(1, 10) ** rng.uniform(0.2, 1.0)).round(3).tolist()
    job |= {"proc_gbps": float(rng.choice([0.0, 0.1, 0.2]))} if kind == 2 else {}
    return job | {"kind": "moldable", "times": times}
