"""Divisible jobs with shapes, beside others: chunks take CPUs, memory and resources by process."""

from __future__ import annotations

import random
from typing import Any

import pytest

from coalloc.model.jobs import DivisibleJob
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from tests.seeds import seeds
from tests.support.planned import planned
from tests.unit.policies.check import shape_case
from tests.unit.policies.kernel.kernel_case import case


@pytest.mark.parametrize(
    ("shape", "fields", "procs"),
    [
        ({}, {}, 8),
        ({"cpus_per_proc": 3}, {}, 2),
        ({"procs_per_node": 3}, {}, 3),
        ({"per_proc": {"gpu:a100": 1}}, {}, 4),
        ({"per_proc": {"gpu": 2}}, {"memory_mb_per_proc": 150}, 2),
        ({"cpus_per_proc": 1}, {"memory_mb_per_proc": 150}, 6),
    ],
)
def test_lanes_are_as_wide_as_a_process(
    shape: dict[str, Any], fields: dict[str, Any], procs: int
) -> None:
    node = {"name": "n", "slots": 8, "memory_mb": 1000, "resources": {"gpu:a100": 4}}
    job = {"id": "d", "kind": "divisible", "work": 20.0 * procs, "chunk_s": 10.0, "shape": shape}
    plan = planned("easy", case([{"name": "a", "nodes": [node]}], [{**job, **fields}]))
    assert max(p.nodes["n"] for p in plan.placements) == procs


@pytest.mark.parametrize("seed", seeds(200))
def test_pieces_of_any_shape_are_allowed(seed: int) -> None:
    rng = random.Random(seed)
    snapshot, _ = shape_case.drawn(rng)
    shape = replace(shape_case.draw_shape(rng, False), memory_mb_per_node=0)
    job = DivisibleJob(id="d", work=20.0, chunk_s=1.0, shape=shape)
    others = tuple(job for job in snapshot.queue if job.shape.min_nodes == 1)
    planned("easy", replace(snapshot, queue=(*others, job)), Budget(work=100))


@pytest.mark.parametrize("seed", seeds(100))
def test_pieces_that_end_apart_round_up_apart(seed: int) -> None:
    """Slots of several CPUs: each piece takes whole ones, so that lanes must not share any."""
    rng = random.Random(seed)
    slots = rng.choice([1, 2, 4])
    node = {"slots": slots, "cpus": slots * rng.choice([2, 3, 4]), "memory_mb": 100}
    nodes = [{"name": f"n{i}", "cpus_per_core": rng.choice([1, 2]), **node} for i in range(2)]
    runs = [
        {"id": f"r{i}", "nodes": {f"n{i}": 1}, "start": 0.0, "end": float(rng.randint(1, 15))}
        for i in range(rng.randint(0, 2))
    ]
    jobs = [
        {
            "id": f"d{i}",
            "kind": "divisible",
            "work": float(rng.randint(5, 60)),
            "chunk_s": float(rng.choice([1, 2, 3])),
            "shape": {
                "cpus_per_proc": rng.choice([1, 2]),
                "memory_mb_per_node": rng.choice([0, 9]),
            },
        }
        for i in range(2)
    ]
    planned("easy", case([{"name": "a", "nodes": nodes}], jobs, runs, overrun_s=0.0))
