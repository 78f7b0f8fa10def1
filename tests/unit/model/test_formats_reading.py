"""Both formats: the examples of the design read exactly, with their defaults."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import msgspec
import pytest

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import decode_json
from coalloc.model.formats.nodeset import LARGEST_SET, expand, fold
from coalloc.model.formats.plan_json import MOST_KEPT, plan_to_keep, read_plan, write_plan
from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.jobs import DivisibleJob, Edge, MoldableJob, RigidJob, Task, WorkflowJob
from coalloc.model.plan import Deferred, FrontPoint, Objective, Placement, Plan, Reason, Status
from coalloc.model.platform import Cluster, Node, NodeState
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup, TableSpeedup

SNAPSHOT = """
{"format": "coalloc-snapshot/1", "time": 0.0,
 "clusters": [{"name": "alpha", "link_gbps": 1.0, "intra_gbps": 10.0, "stale": false,
   "nodes": [{"name": "a[1-4]", "power": 1.0, "slots": 1, "features": [], "memory_mb": null, "free_at": 0.0, "state": "up"}]}],
 "queue": [
  {"id": "1", "kind": "rigid", "procs": 4, "base_time": 3600.0, "sigma": 0.7, "proc_gbps": 0.05, "weight": 1.0, "submitted": 0.0},
  {"id": "2", "kind": "moldable", "times": [10.0, 6.0, 4.5], "weight": 3.2},
  {"id": "3", "kind": "moldable", "speedup": {"model": "amdahl", "time": 100.0, "parallel_fraction": 0.95}, "min_procs": 1, "max_procs": 200},
  {"id": "4", "kind": "workflow", "tasks": [
     {"id": "t1", "work": 100.0, "parallel_fraction": 0.9, "min_procs": 1, "max_procs": 64, "comm_gb": 5.0},
     {"id": "t2", "work": 50.0, "parallel_fraction": 0.0, "min_procs": 1, "max_procs": 1, "comm_gb": 0.0}],
   "edges": [{"from": "t1", "to": "t2", "gb": 1.5}]},
  {"id": "5", "kind": "divisible", "work": 36000.0, "chunk_s": 60.0}],
 "running": [{"id": "9", "nodes": {"a1": 1}, "start": -100.0, "end": 200.0, "link_gbps": {}, "ours": true}],
 "reservations": [{"id": "r1", "nodes": ["a2"], "start": 500.0, "end": 3600.0, "jobs": []}]}
"""  # noqa: E501

PLAN = """
{"format": "coalloc-plan/1", "policy": "oas", "options": {"saturation_threshold": 1.0}, "status": "optimal",
 "objective": {"name": "makespan", "value": 7200.0, "bound": 7200.0, "deferred": 1},
 "placements": [{"job": "1", "start": 0.0, "end": 3600.0, "nodes": {"a1": 1, "a2": 1, "b1": 2}},
                {"job": "4", "task": "t1", "start": 0.0, "end": 12.5, "nodes": {"a3": 1}}],
 "deferred": [{"job": "7", "reason": "infeasible", "detail": "needs 300 processes; 192 slots exist"}],
 "stats": {"elapsed_s": 0.08, "work": 15231, "seed": 0}}
"""  # noqa: E501


def test_the_snapshot_of_the_design() -> None:
    read = read_snapshot(json.loads(SNAPSHOT))
    nodes = tuple(Node(name=f"a{i}", free_at=0.0) for i in (1, 2, 3, 4))
    tasks = (
        Task(id="t1", work=100.0, parallel_fraction=0.9, max_procs=64, comm_gb=5.0),
        Task(id="t2", work=50.0),
    )
    assert read == Snapshot(
        clusters=(Cluster(name="alpha", nodes=nodes, link_gbps=1.0, intra_gbps=10.0),),
        queue=(
            RigidJob(id="1", procs=4, base_time=3600.0, sigma=0.7, proc_gbps=0.05),
            MoldableJob(
                id="2",
                speedup=TableSpeedup(procs=(1, 2, 3), times=(10.0, 6.0, 4.5)),
                min_procs=1,
                max_procs=3,
                weight=3.2,
            ),
            MoldableJob(
                id="3",
                speedup=AmdahlSpeedup(time_1=100.0, parallel_fraction=0.95),
                min_procs=1,
                max_procs=200,
            ),
            WorkflowJob(id="4", tasks=tasks, edges=(Edge(parent="t1", child="t2", gb=1.5),)),
            DivisibleJob(id="5", work=36000.0, chunk_s=60.0),
        ),
        running=(Running(id="9", nodes={"a1": 1}, start=-100.0, end=200.0),),
        reservations=(Reservation(id="r1", nodes=("a2",), start=500.0, end=3600.0),),
    )
    assert read_snapshot(write_snapshot(read)) == read


def test_the_plan_of_the_design() -> None:
    read = read_plan(json.loads(PLAN))
    detail = "needs 300 processes; 192 slots exist"
    assert read == Plan(
        policy="oas",
        options={"saturation_threshold": 1.0},
        status=Status.OPTIMAL,
        objective=Objective(name="makespan", value=7200.0, bound=7200.0, deferred=1),
        placements=(
            Placement(job="1", start=0.0, end=3600.0, nodes={"a1": 1, "a2": 1, "b1": 2}),
            Placement(job="4", task="t1", start=0.0, end=12.5, nodes={"a3": 1}),
        ),
        deferred=(Deferred(job="7", reason=Reason.INFEASIBLE, detail=detail),),
        stats={"elapsed_s": 0.08, "work": 15231, "seed": 0},
    )
    assert list(read.placements[0].nodes) == ["a1", "a2", "b1"]
    assert read_plan(write_plan(read)) == read


def test_the_defaults_of_a_snapshot() -> None:
    read = read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "time": 50.0,
            "clusters": [{"name": "k", "link_gbps": None, "nodes": [{"name": "n"}]}],
            "queue": [
                {"id": "1", "kind": "rigid", "procs": 1, "time_limit": 60},
                {"id": "2", "kind": "rigid", "procs": 1, "base_time": 1, "submitted": 40.0},
            ],
            "running": [{"id": "9", "nodes": {"n": 1}, "start": 0, "end": 10}],
        }
    )
    node = Node(name="n", power=1.0, slots=1, memory_mb=None, free_at=-inf, state=NodeState.UP)
    assert read.clusters == (Cluster(name="k", nodes=(node,), link_gbps=inf, intra_gbps=inf),)
    assert read.clusters[0].stale is False
    first, second = read.queue
    assert first == RigidJob(
        id="1",
        procs=1,
        base_time=60.0,
        time_limit=60.0,
        weight=1.0,
        submitted=50.0,
        earliest=50.0,
        sigma=1.0,
        proc_gbps=0.0,
        clusters=None,
        features=(),
        memory_mb_per_proc=0,
        after=(),
        held=False,
        passed_over=0,
    )
    assert second.earliest == 40.0
    assert read.overrun_s == 60.0
    assert read.running[0].busy_until(read.time, read.overrun_s) == 110.0
    assert read.running[0].ours


def test_the_smallest_files() -> None:
    empty = read_snapshot({"format": "coalloc-snapshot/1", "clusters": []})
    assert empty == Snapshot()
    objective = {"name": "makespan", "value": 0}
    plan = {"policy": "p", "status": "heuristic", "objective": objective, "placements": []}
    read = read_plan({"format": "coalloc-plan/1", **plan})
    assert (read.deferred, read.front, read.chosen, read.objective.bound) == ((), (), None, None)


def test_a_front_reads_back() -> None:
    at = Placement(job="1", start=0.0, end=1.0, nodes={"n": 1}, sc=1.5)
    points = tuple(
        FrontPoint(
            cmax=cmax,
            weighted_completion=9.0 / cmax,
            cmax_bound=0.5,
            weighted_completion_bound=None,
            pareto_gap=gap,
            placements=(at,),
        )
        for cmax, gap in ((1.0, 0.1), (3.0, None))
    )
    plan = Plan(
        policy="bicriteria",
        status=Status.FEASIBLE,
        objective=Objective(name="makespan", value=1.0, bound=0.5),
        placements=(at,),
        front=points,
        chosen=0,
        pareto_gap=0.1,
        certificates=({"kind": "prices", "v": [0.5, 0.0]},),
    )
    assert read_plan(json.loads(json.dumps(write_plan(plan)))) == plan


def test_node_sets_in_plans_and_running_work_count_per_node() -> None:
    value = json.loads(SNAPSHOT)
    value["running"][0]["nodes"] = {"a[1,3]": 1}
    assert read_snapshot(value).running[0].nodes == {"a1": 1, "a3": 1}
    plan = json.loads(PLAN)
    plan["placements"][0]["nodes"] = {"a[1-2]": 1, "b1": 2}
    assert read_plan(plan) == read_plan(json.loads(PLAN))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a1", ["a1"]),
        ("cluster/a1", ["cluster/a1"]),
        ("a[1-3,7]", ["a1", "a2", "a3", "a7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("a1,b2", ["a1", "b2"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[0-8/4]", ["n0", "n4", "n8"]),
        ("a[1-5000],b[1-5000]", [*(f"{k}{i}" for k in "ab" for i in range(1, 5001))]),
    ],
)
def test_node_sets(text: str, names: list[str]) -> None:
    assert sorted(expand(text)) == sorted(names)
    assert sorted(expand(fold(names))) == sorted(names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "w: '' names no node"),
        ("a[1-", "w: 'a[1-' is not a node set: missing bracket: \"a[1-\""),
        ("a[]", "w: 'a[]' is not a node set: brackets hold 1-4,7 or 0-8/2"),
        ("a[x-y]", "w: 'a[x-y]' is not a node set: brackets hold 1-4,7 or 0-8/2"),
        ("a[-1-5]", "w: 'a[-1-5]' is not a node set: brackets hold 1-4,7 or 0-8/2"),
        (
            "a[1-99999999999]",
            f"w: 'a[1-99999999999]' names 99999999999 nodes, more than {LARGEST_SET}",
        ),
        (
            "a[1-2000]b[1-2000]",
            f"w: 'a[1-2000]b[1-2000]' names 4000000 nodes, more than {LARGEST_SET}",
        ),
        ("a&b", "w: 'a&b' names no node"),
    ],
)
def test_bad_node_sets(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        expand(text, "w")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,}', "f: line 1, column 9: "),
        (b"", "f: line 1, column 1: "),
        (b'{"a": "\xff"}', "f: byte 7 is not UTF-8"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "f: key 'c' appears twice in an object"),
        (b"[" * 100_000, "f: is nested too deeply"),
        (b"[" + b"1" * 5000 + b"]", "f: holds a number with too many digits"),
    ],
)
def test_text_that_is_not_json(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        decode_json(data, "f")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_json_text_is_read_with_and_without_a_byte_order_mark() -> None:
    value: Any = {"a": [1, 2.5, None, True, "é"]}
    text = json.dumps(value, ensure_ascii=False)
    assert decode_json(text) == value
    assert decode_json(b"\xef\xbb\xbf" + text.encode()) == value


def test_of_a_long_plan_the_first_placements_and_reasons_are_kept() -> None:
    placed = [
        Placement(job=f"{i}", start=0.0, end=1.0, nodes={"a": 1}) for i in range(2 * MOST_KEPT)
    ]
    left = [Deferred(job=f"d{i}", reason=Reason.HELD) for i in range(MOST_KEPT + 1)]
    plan = Plan(
        policy="p",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=1.0, deferred=len(left)),
        placements=tuple(placed),
        deferred=tuple(left),
    )
    kept = read_plan(decode_json(msgspec.json.encode(plan_to_keep(plan))))
    assert kept.placements == tuple(placed[:MOST_KEPT])
    assert kept.deferred == tuple(left[:MOST_KEPT])
    assert kept.stats == {"not_kept": MOST_KEPT + 1}
    short = read_plan(json.loads(PLAN))
    assert read_plan(decode_json(msgspec.json.encode(plan_to_keep(short)))) == short
