"""Shapes and counted resources: every kind of overload is caught, and nothing else is one."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from coalloc.model.formats.plan_json import read_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Objective, Plan, Status
from coalloc.policies.checking import sheet
from coalloc.policies.checking.check import CheckResult, check, occupation_violations
from coalloc.policies.checking.pool import pool_of
from coalloc.policies.checking.proofs import proofs_of
from coalloc.policies.checking.sheet import node_columns
from tests.support.planned import planned
from tests.unit.policies.check import shape_case

CASES = 500


@pytest.mark.parametrize(
    "chunk",
    [
        *range(2),
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 20)),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(20, 200)),
    ],
)
def test_the_checker_agrees_with_dicts(chunk: int) -> None:
    rng, kinds = random.Random(chunk), set()
    for n in range(CASES):
        snapshot, placements = shape_case.drawn(rng)
        expected = set(shape_case.naive(snapshot, placements))
        found = shape_case.told(occupation_violations(snapshot, placements))
        assert found == expected, (chunk, n)
        kinds |= {(fault[0], len(fault) > 1 and fault[1][:4]) for fault in expected}
    assert {kind for kind, _ in kinds} == {"nodes", "procs", "nowhere", "exclusive", "over"}
    assert {("over", "node"), ("over", "clus"), ("over", "site")} <= kinds


def test_the_checker_counts_by_itself() -> None:
    """Nothing of `model.shape` but what a shape says."""
    for path in Path(sheet.__file__).parent.glob("*.py"):
        for names in re.findall(r"from coalloc\.model\.shape import (.*)", path.read_text()):
            assert set(names.split(", ")) <= {"ONE_SLOT", "Shape"}, path


SNAPSHOT: dict[str, Any] = {
    "format": "coalloc-snapshot/1",
    "overrun_s": 0.0,
    "resources": {"ansys": 2},
    "clusters": [
        {
            "name": "a",
            "resources": {"matlab": 2},
            "nodes": [
                # Two threads a core, a slot for four CPUs; then a node as Slurm's are by default.
                {"name": "n[1-2]", "slots": 4, "cpus": 16, "cpus_per_core": 2, "memory_mb": 1000,
                 "resources": {"gpu:a100": 2, "gpu:v100": 2}},
                {"name": "n3", "slots": 1, "cpus": 8, "memory_mb": 1000},
            ],
        },
        {"name": "b", "nodes": [{"name": "m1", "slots": 8, "memory_mb": 1000}]},
    ],
    "running": [
        {"id": "old", "nodes": {"n1": 1}, "start": -9.0, "end": 5.0, "memory_mb": {"n1": 400},
         "resources": {"n[1]": {"gpu:a100": 1}}, "per_job": {"matlab": 1, "ansys": 1}},
    ],
}  # fmt: skip
GPUS = {"gpu:a100": 1}


def judged(
    shape: dict[str, Any], nodes: dict[str, int], start: float = 0.0, **fields: Any
) -> tuple[str, ...]:
    """What is wrong with a job of this shape on these nodes, beside two that are right."""
    jobs = {
        "j": {"procs": sum(nodes.values()), "shape": shape, **fields},
        "k": {"procs": 2, "shape": {"cpus_per_proc": 2, "per_node": {"gpu": 1}}},
        "l": {"procs": 8, "shape": {"cpus_per_proc": 1}},
    }
    queue = [{"id": name, "kind": "rigid", "base_time": 10.0, **job} for name, job in jobs.items()]
    places = {"j": (start, nodes), "k": (0.0, {"n2": 2}), "l": (100.0, {"n3": 8})}
    plan = {
        "format": "coalloc-plan/1",
        "policy": "by hand",
        "status": "heuristic",
        "objective": {"name": "makespan", "value": 110.0},
        "placements": [
            {"job": name, "start": at, "end": at + 10.0, "nodes": on}
            for name, (at, on) in places.items()
        ],
    }
    return check(read_snapshot({**SNAPSHOT, "queue": queue}), read_plan(plan)).violations


FITS: list[tuple[str, dict[str, Any], dict[str, int], float, dict[str, Any]]] = [
    # 12 CPUs are three slots, beside the one that runs; so are 11, in whole cores, and 10.
    ("CPUs", {"cpus_per_proc": 4}, {"n1": 3}, 0, {}),
    ("cores", {"cpus_per_proc": 1}, {"n1": 11}, 0, {}),
    ("a node of one slot", {"cpus_per_proc": 1}, {"n3": 8}, 0, {}),
    ("slots", {"per_node": GPUS}, {"n1": 3}, 0, {}),
    # 400 MiB run: 600 are left, though three slots' share is 750.
    ("memory", {"memory_mb_per_node": 300}, {"n1": 1}, 0, {"memory_mb_per_proc": 300}),
    ("all memory", {"all_memory": True}, {"m1": 1}, 0, {}),
    ("all memory, later", {"all_memory": True}, {"n1": 1}, 5, {}),
    ("types", {"per_node": {"gpu:a100": 1, "gpu:v100": 2}}, {"n1": 1}, 0, {}),
    ("a family", {"per_proc": {"gpu": 1}}, {"n1": 3}, 0, {}),
    ("exclusive", {"exclusive": True}, {"n1": 1}, 5, {}),
    ("nodes", {"min_nodes": 2, "max_nodes": 2}, {"n1": 1, "m1": 3}, 0, {}),
    ("licences", {"per_job": {"matlab": 1, "ansys": 1}}, {"n1": 1}, 0, {}),
    ("licences, later", {"per_job": {"matlab": 2, "ansys": 2}}, {"n1": 1}, 5, {}),
    ("the site's", {"per_job": {"ansys": 1}}, {"n3": 1, "m1": 1}, 0, {}),
]
MISSES: list[tuple[str, dict[str, Any], dict[str, int], dict[str, Any], str]] = [
    ("CPUs", {"cpus_per_proc": 13}, {"n1": 1}, {},
     "node n1: 5 slots of 4 slots at 0 s (job j, running old)"),
    ("cores", {"cpus_per_proc": 1}, {"n2": 13}, {},
     "node n2: 5 slots of 4 slots at 0 s (job j, job k)"),
    ("a node of one slot", {"cpus_per_proc": 1}, {"n3": 9}, {},
     "node n3: 2 slots of 1 slots at 0 s (job j)"),
    ("slots", {"per_node": GPUS}, {"n1": 4}, {},
     "node n1: 5 slots of 4 slots at 0 s (job j, running old)"),
    ("memory", {"memory_mb_per_node": 301}, {"n1": 1}, {"memory_mb_per_proc": 300},
     "node n1: 1001 MiB of 1000 MiB at 0 s (job j, running old)"),
    ("all memory", {"all_memory": True}, {"n1": 1}, {},
     "node n1: 1400 MiB of 1000 MiB at 0 s (job j, running old)"),
    ("a type", {"per_node": {"gpu:a100": 2}}, {"n1": 1}, {},
     "node n1: 3 gpu:a100 of 2 gpu:a100 at 0 s (job j, running old)"),
    ("a family", {"per_node": {"gpu": 1}, "per_proc": {"gpu": 1}}, {"n1": 3}, {},
     "node n1: 5 gpu of 4 gpu at 0 s (job j, running old)"),
    ("a family of types", {"per_node": {"gpu:a100": 2, "gpu:v100": 2}}, {"n2": 1}, {},
     "node n2: 5 gpu of 4 gpu at 0 s (job j, job k)"),
    ("no such thing", {"per_node": {"nvme": 1}}, {"m1": 1}, {},
     "node m1: 1 nvme of 0 nvme at 0 s (job j)"),
    ("beside running work", {"exclusive": True}, {"n1": 1}, {},
     "node n1: is not left to its exclusive job at 0 s (job j, running old)"),
    ("beside a job", {"exclusive": True}, {"n2": 1}, {},
     "node n2: is not left to its exclusive job at 0 s (job j, job k)"),
    ("too few nodes", {"min_nodes": 2}, {"m1": 3}, {},
     "job j: is on 1 nodes, needs at least 2"),
    ("too many nodes", {"max_nodes": 1}, {"m1": 3, "n1": 1}, {},
     "job j: is on 2 nodes, needs 1"),
    ("too many on a node", {"procs_per_node": 2}, {"m1": 3, "n1": 1}, {},
     "job j: has 3 processes on a node, at most 2 may be there"),
    ("of a cluster", {"per_job": {"matlab": 2}}, {"n3": 1}, {},
     "cluster a: 3 matlab of 2 matlab at 0 s (job j, running old)"),
    ("of the site", {"per_job": {"ansys": 2}}, {"m1": 1}, {},
     "the site: 3 ansys of 2 ansys at 0 s (job j, running old)"),
    ("nowhere", {"per_job": {"matlab": 1}}, {"n3": 1, "m1": 1}, {},
     "job j: matlab is nowhere on b, nor at the site"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "nodes", "start", "fields"), [row[1:] for row in FITS])
def test_what_fits_is_allowed(
    shape: dict[str, Any], nodes: dict[str, int], start: float, fields: dict[str, Any]
) -> None:
    assert judged(shape, nodes, start, **fields) == ()


@pytest.mark.parametrize(("shape", "nodes", "fields", "line"), [row[1:] for row in MISSES])
def test_each_kind_of_overload_is_caught(
    shape: dict[str, Any], nodes: dict[str, int], fields: dict[str, Any], line: str
) -> None:
    assert judged(shape, nodes, **fields) == (line,)


def judged_alone(job: dict[str, Any], nodes: dict[str, int] | None) -> CheckResult:
    """A job alone on the snapshot, on these nodes for 10 s, or deferred as infeasible."""
    queue = [{"id": "j", **job}]
    snapshot = read_snapshot({**SNAPSHOT, "running": [], "queue": queue})
    plan: dict[str, Any] = {
        "format": "coalloc-plan/1",
        "policy": "by hand",
        "status": "heuristic",
        "objective": {"name": "makespan", "value": 0.0, "deferred": 1},
        "placements": [],
        "deferred": [
            {"job": "j", "reason": "infeasible", **({"task": task["id"]} if task else {})}
            for task in job.get("tasks", [None])
        ],
    }
    if nodes is not None:
        plan |= {
            "objective": {"name": "makespan", "value": 10.0},
            "placements": [{"job": "j", "start": 0.0, "end": 10.0, "nodes": nodes}],
            "deferred": [],
        }
    return check(snapshot, read_plan(plan))


@pytest.mark.parametrize(
    ("shape", "nodes", "slots"),
    [
        ({}, {"n1": 3}, 3),
        ({"cpus_per_proc": 1}, {"n1": 3}, 1),  # four CPUs in whole cores, of sixteen
        ({"cpus_per_proc": 4}, {"n1": 3, "m1": 1}, 7),
        ({"cpus_per_proc": 1}, {"n3": 8}, 1),
        ({"exclusive": True}, {"n1": 1, "m1": 1}, 12),
    ],
)
def test_compaction_counts_slots(shape: dict[str, Any], nodes: dict[str, int], slots: int) -> None:
    job = {"kind": "rigid", "procs": sum(nodes.values()), "base_time": 10.0, "shape": shape}
    found = judged_alone(job, nodes)
    assert found.ok
    assert found.metrics["compaction"] == slots / 17


@pytest.mark.parametrize(
    ("procs", "shape", "fields", "fits"),
    [
        (8, {"cpus_per_proc": 1}, {"clusters": ["b"]}, True),
        (9, {"cpus_per_proc": 1}, {"clusters": ["b"]}, False),
        (40, {"cpus_per_proc": 1}, {}, True),
        (41, {"cpus_per_proc": 1}, {}, False),
        (9, {}, {}, True),  # 4 + 4 + 1 slots
        (10, {}, {}, False),
        (6, {"memory_mb_per_node": 400}, {"memory_mb_per_proc": 300, "clusters": ["a"]}, False),
        (5, {"memory_mb_per_node": 400}, {"memory_mb_per_proc": 300, "clusters": ["a"]}, True),
        (2, {"memory_mb_per_node": 1000}, {"clusters": ["b"]}, True),
        (1, {"memory_mb_per_node": 1001}, {}, False),
        (4, {"per_proc": {"gpu:a100": 1}}, {}, True),
        (5, {"per_proc": {"gpu:a100": 1}}, {}, False),
        (8, {"per_proc": {"gpu": 1}}, {}, True),
        (2, {"per_node": {"gpu": 4}, "min_nodes": 2}, {}, True),
        (1, {"per_node": {"gpu": 5}}, {}, False),
        (3, {"min_nodes": 3}, {}, True),
        (4, {"min_nodes": 4}, {}, False),
        (8, {"max_nodes": 2}, {"clusters": ["a"]}, True),
        (9, {"max_nodes": 2}, {"clusters": ["a"]}, False),
        (3, {"procs_per_node": 1}, {}, True),
        (4, {"procs_per_node": 1}, {}, False),
        (1, {"per_job": {"matlab": 9}}, {}, False),
    ],
)
@pytest.mark.parametrize("kind", ["rigid", "moldable", "workflow"])
def test_what_fits_an_empty_cluster_is_not_infeasible(
    kind: str, procs: int, shape: dict[str, Any], fields: dict[str, Any], fits: bool
) -> None:
    job: dict[str, Any] = {"kind": kind, "shape": shape, **fields}
    if kind == "rigid":
        job |= {"procs": procs, "base_time": 10.0}
    if kind == "moldable":
        job["speedup"] = {"model": "table", "procs": [procs, 2 * procs], "times": [10.0, 9.0]}
    if kind == "workflow":
        job["tasks"] = [{"id": "s", "work": 1.0}, {"id": "t", "work": 1.0, "min_procs": procs}]
        job["tasks"][0]["shape"] = {}
    line = "job j" + (" task s" if kind == "workflow" else "")
    found = judged_alone(job, None).violations
    assert bool(found) == fits
    assert not found or found[0] == f"{line}: is deferred as infeasible, and fits an empty cluster"


@pytest.mark.parametrize(
    ("shapes", "running", "expected"),
    [
        # slots of 4, 4, 1 and 8, of 16, 16, 8 and 8 CPUs
        ([{}], {}, {0.0: 17}),
        ([{"cpus_per_proc": 1}], {}, {0.0: 48}),
        ([{"cpus_per_proc": 4}], {}, {0.0: 12}),
        ([{"cpus_per_proc": 4}, {}], {}, {0.0: 4 + 4 + 2 + 8}),
        ([{"cpus_per_proc": 1, "per_node": {"gpu": 1}}], {}, {0.0: 32}),
        # one slot of n1 runs, and with it 4 CPUs
        ([{"cpus_per_proc": 1}], {"n1": 1}, {0.0: 44, 5.0: 48}),
    ],
)
def test_the_pool_has_room_for_every_process(
    shapes: list[dict[str, Any]], running: dict[str, int], expected: dict[float, int]
) -> None:
    queue = [
        {"id": str(i), "kind": "rigid", "procs": 1, "base_time": 9.0, "shape": shape}
        for i, shape in enumerate(shapes)
    ]
    runs = [{"id": "r", "nodes": running, "start": 0.0, "end": 5.0}] if running else []
    snapshot = read_snapshot({**SNAPSHOT, "running": runs, "queue": queue})
    objective = Objective(name="makespan", value=0.0)
    plan = Plan(policy="none", status=Status.HEURISTIC, objective=objective)
    times, level = pool_of(snapshot, plan, node_columns(snapshot)).steps
    assert dict(zip(times.tolist(), level.tolist(), strict=True)) == expected


@pytest.mark.parametrize("procs", [2, 8])
def test_proofs_know_that_the_processes_of_a_job_share_a_slot(procs: int) -> None:
    """Four jobs on two nodes of one slot and eight CPUs; by processes they would be four times."""
    node = {"slots": 1, "cpus": 8}
    job = {"kind": "rigid", "procs": procs, "base_time": 100.0, "shape": {"cpus_per_proc": 1}}
    snapshot = read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "clusters": [{"name": "a", "nodes": [{"name": "n", **node}, {"name": "m", **node}]}],
            "queue": [{"id": str(n), **job} for n in range(4)],
        }
    )
    makespan, completion = proofs_of(snapshot, planned("easy", snapshot))
    assert makespan.value == 200.0
    assert makespan.bound.value == pytest.approx(100.0 if procs < 8 else 200.0)
    assert completion.bound.value <= completion.value
