"""What the readers refuse, word for word."""

from __future__ import annotations

import copy
from math import inf, nan
from typing import Any

import pytest

from coalloc.model.errors import InputError
from coalloc.model.formats.plan_json import read_plan
from coalloc.model.formats.snapshot_json import read_snapshot
from tests.unit.policies.check.check_case import PLAN, SNAPSHOT

Path = tuple[str | int, ...]


class Absent:
    """Stands for a key that is left out; its name is the same in every process."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()
"""In place of a value: take the key away."""
TABLE = {"model": "table", "procs": [1, 2], "times": [2.0, 1.0]}
TASK = {"id": "t1", "work": 1.0}


def altered(base: Any, path: Path, value: Any) -> Any:
    """A copy of JSON with one value replaced, added, or taken away."""
    out = copy.deepcopy(dict(base))
    inner: Any = out
    for key in path[:-1]:
        inner = inner[key]
    if value is ABSENT:
        del inner[path[-1]]
    elif isinstance(inner, list) and path[-1] == len(inner):
        inner.append(value)
    else:
        inner[path[-1]] = value
    return out


# Queue: 0 r, 1 m (table), 2 w, 3 after, 4 res, 5 late, 6 heavy, 7 held, 8 huge, 9 div.
SNAPSHOT_ROWS: list[tuple[Path, Any, str]] = [
    # The two that the issue quotes.
    (("queue", 3, "sigma"), 1.7, "queue[3].sigma: 1.7 is outside 0..1"),
    (("queue", 3, "sigmma"), 1.0, "queue[3].sigmma: unknown key; did you mean sigma?"),
    # Numbers.
    (("queue", 3, "sigma"), -0.25, "queue[3].sigma: -0.25 is outside 0..1"),
    (("queue", 3, "sigma"), 1.00000001, "queue[3].sigma: 1.00000001 is outside 0..1"),
    (("queue", 3, "sigma"), nan, "queue[3].sigma: nan is not a finite number"),
    (("queue", 3, "base_time"), inf, "queue[3].base_time: inf is not a finite number"),
    (("queue", 3, "base_time"), 0, "queue[3].base_time: 0 is outside 1e-06..1e+09"),
    (("queue", 3, "base_time"), -5.0, "queue[3].base_time: -5 is outside 1e-06..1e+09"),
    (("queue", 3, "base_time"), 1e19, "queue[3].base_time: 1e+19 is outside 1e-06..1e+09"),
    (("queue", 3, "weight"), -1, "queue[3].weight: -1 is outside 0..1e+09"),
    (("queue", 3, "weight"), "1", "queue[3].weight: '1' is not a number"),
    (("queue", 3, "weight"), True, "queue[3].weight: true is not a number"),
    (("queue", 3, "procs"), 1.5, "queue[3].procs: 1.5 is not a whole number"),
    (("queue", 3, "procs"), True, "queue[3].procs: true is not a whole number"),
    (("queue", 3, "procs"), 0, "queue[3].procs: 0 is outside 1..1e+09"),
    (("queue", 3, "proc_gbps"), -0.5, "queue[3].proc_gbps: -0.5 is outside 0..1e+09"),
    (("queue", 3, "time_limit"), 0.0, "queue[3].time_limit: 0 is outside 1e-06..1e+09"),
    (
        ("queue", 3, "memory_mb_per_proc"),
        10**400,
        f"queue[3].memory_mb_per_proc: 1{'0' * 36}... is outside 0..1e+12",
    ),
    (("time",), None, "time: null is not a number"),
    (("overrun_s",), -1.0, "overrun_s: -1 is outside 0..1e+09"),
    # Texts, flags, lists, objects.
    (("queue", 3, "id"), 7, "queue[3].id: 7 is not a text"),
    (("queue", 3, "id"), "", "queue[3].id: is empty"),
    (("queue", 3, "id"), "\ud800", "queue[3].id: '\\ud800' is not valid Unicode"),
    (("queue", 3, "held"), 1, "queue[3].held: 1 is not true or false"),
    (("queue", 3, "after"), "r", "queue[3].after: 'r' is not a list"),
    (("queue", 3, "after", 1), 5, "queue[3].after[1]: 5 is not a text"),
    (("queue", 3), [], "queue[3]: [] is not an object"),
    (("queue",), {}, "queue: {} is not a list"),
    (("clusters",), None, "clusters: null is not a list"),
    # Missing.
    (("format",), ABSENT, "format: is missing"),
    (("clusters",), ABSENT, "clusters: is missing"),
    (("queue", 3, "id"), ABSENT, "queue[3].id: is missing"),
    (("queue", 3, "procs"), ABSENT, "queue[3].procs: is missing"),
    (
        ("queue", 3, "base_time"),
        ABSENT,
        "queue[3].base_time: is missing, and there is no time_limit to stand in",
    ),
    (("clusters", 0, "nodes", 0, "name"), ABSENT, "clusters[0].nodes[0].name: is missing"),
    # Choices.
    (
        ("format",),
        "coalloc-snapshot/2",
        "format: 'coalloc-snapshot/2' is not one of coalloc-snapshot/1; did you mean "
        "coalloc-snapshot/1?",
    ),
    (("queue", 3, "kind"), ABSENT, "queue[3].kind: is missing"),
    (
        ("queue", 3, "kind"),
        "rigidd",
        "queue[3].kind: 'rigidd' is not one of rigid, moldable, workflow, divisible; did you mean "
        "rigid?",
    ),
    (
        ("queue", 3, "kind"),
        ["rigid"],
        "queue[3].kind: ['rigid'] is not one of rigid, moldable, workflow, divisible",
    ),
    (
        ("clusters", 0, "nodes", 0, "state"),
        "drained",
        "clusters[0].nodes[0].state: 'drained' is not one of up, draining, down; did you mean "
        "draining?",
    ),
    # Clusters and nodes.
    (("clusters", 1, "name"), "alpha", "clusters[1]: 'alpha' is used twice"),
    (
        ("clusters", 1, "link_gbps"),
        -1,
        "clusters[1].link_gbps: -1 is outside 0..1e+09",
    ),
    (("clusters", 1, "intra_gbps"), 0, "clusters[1].intra_gbps: 0 is outside 1e-09..1e+09"),
    (("clusters", 0, "nodes", 0, "power"), 0, "clusters[0].nodes[0].power: 0 is outside 0.001..1"),
    (
        ("clusters", 0, "nodes", 0, "power"),
        1.5,
        "clusters[0].nodes[0].power: 1.5 is outside 0.001..1",
    ),
    (("clusters", 0, "nodes", 0, "slots"), 0, "clusters[0].nodes[0].slots: 0 is outside 1..1e+06"),
    (
        ("clusters", 1, "nodes", 0, "name"),
        "a[2-9]",
        "clusters[1].nodes[0].name: node 'a2' is named twice",
    ),
    (
        ("clusters", 0, "nodes", 0, "name"),
        "a[2-1]",
        "clusters[0].nodes[0].name: 'a[2-1]' is not a node set: bad range: "
        '"invalid values in range : "2-1""',
    ),
    # Jobs.
    (("queue", 3, "id"), "m", "queue[3].id: 'm' is used twice"),
    (("queue", 3, "clusters"), ["nowhere"], "queue[3].clusters[0]: there is no cluster 'nowhere'"),
    (("queue", 1, "speedup"), ABSENT, "queue[1]: needs either times or speedup"),
    (("queue", 1, "times"), [1.0], "queue[1]: needs either times or speedup"),
    (("queue", 1, "min_procs"), 5, "queue[1].min_procs: 5 is above max_procs 4"),
    (
        ("queue", 1, "speedup", "model"),
        "log",
        "queue[1].speedup.model: 'log' is not one of amdahl, downey, table",
    ),
    (("queue", 1, "speedup", "times"), [1.0], "queue[1].speedup: 3 procs but 1 times"),
    (("queue", 1, "speedup", "procs"), [1, 1, 2], "queue[1].speedup.procs: must rise"),
    (
        ("queue", 1, "speedup", "times", 1),
        nan,
        "queue[1].speedup.times[1]: nan is not a finite number",
    ),
    (
        ("queue", 1, "speedup", "times", 1),
        0.0,
        "queue[1].speedup.times[1]: 0 is outside 1e-06..1e+09",
    ),
    (
        ("queue", 1),
        {"id": "m", "kind": "moldable", "speedup": TABLE, "min_procs": 3, "max_procs": 5},
        "queue[1].min_procs: no listed process count lies in 3..5",
    ),
    (
        ("queue", 1),
        {"id": "m", "kind": "moldable", "times": []},
        "queue[1].times: is empty",
    ),
    (
        ("queue", 1),
        {
            "id": "m",
            "kind": "moldable",
            "speedup": {"model": "amdahl", "time": 1.0, "parallel_fraction": 0.5},
        },
        "queue[1].max_procs: is missing",
    ),
    # Workflows.
    (("queue", 2, "tasks"), [], "queue[2].tasks: is empty"),
    (("queue", 2, "tasks", 1, "id"), "t1", "queue[2].tasks[1].id: 't1' is used twice"),
    (
        ("queue", 2, "tasks", 1, "min_procs"),
        3,
        "queue[2].tasks[1].max_procs: 2 is below min_procs 3",
    ),
    (
        ("queue", 2, "tasks", 1, "work"),
        -1,
        "queue[2].tasks[1].work: -1 is outside 0..1e+12",
    ),
    (("queue", 2, "edges", 0, "to"), "t9", "queue[2].edges[0].to: there is no task 't9'"),
    (("queue", 2, "edges", 0, "from"), "t9", "queue[2].edges[0].from: there is no task 't9'"),
    (
        ("queue", 2, "edges", 1),
        {"from": "t2", "to": "t1"},
        "queue[2].edges: task 't1' lies on or behind a cycle",
    ),
    (
        ("queue", 2, "edges", 0, "from"),
        "t2",
        "queue[2].edges: task 't2' lies on or behind a cycle",
    ),
    (
        ("queue", 2, "started"),
        [{"task": "t1", "clusters": ["alpha"], "end": 0}],
        "queue[2].started[0].task: 't1' is among the tasks",
    ),
    (
        ("queue", 2, "started"),
        [{"task": "t0", "clusters": ["alpha"], "end": 0}] * 2,
        "queue[2].started[1].task: 't0' is named twice",
    ),
    (
        ("queue", 2, "started"),
        [{"task": "t0", "clusters": ["alpha", "omega"], "end": 0}],
        "queue[2].started[0].clusters[1]: there is no cluster 'omega'",
    ),
    (
        ("queue", 2, "started"),
        [{"task": "t0", "clusters": [], "end": 0}],
        "queue[2].started[0].clusters: is empty",
    ),
    (
        ("queue", 2),
        {
            "id": "half",
            "kind": "workflow",
            "tasks": [{"id": "t1", "work": 1}],
            "edges": [{"from": "t1", "to": "t0"}],
            "started": [{"task": "t0", "clusters": ["alpha"], "end": 0}],
        },
        "queue[2].edges[0].to: task 't0' has started",
    ),
    (
        ("queue", 2, "started"),
        [{"task": "t0", "clusters": ["alpha"]}],
        "queue[2].started[0].end: is missing",
    ),
    (("queue", 9, "chunk_s"), 0, "queue[9].chunk_s: 0 is outside 1e-06..1e+09"),
    # Shapes, and what nodes have.
    (
        ("queue", 0, "shape"),
        {"min_nodes": 3, "max_nodes": 2},
        "queue[0].shape.min_nodes: 3 is above max_nodes 2",
    ),
    (
        ("queue", 0, "shape"),
        {"min_nodes": 5},
        "queue[0].shape.min_nodes: 5 nodes are more than 4 processes",
    ),
    (
        ("queue", 0, "shape"),
        {"max_nodes": 1, "procs_per_node": 3},
        "queue[0].shape.max_nodes: 1 nodes of 3 processes hold fewer than 4",
    ),
    (
        ("queue", 0, "shape"),
        {"all_memory": True, "memory_mb_per_node": 1},
        "queue[0].shape.all_memory: excludes memory_mb_per_node",
    ),
    (
        ("queue", 3, "shape"),
        {"all_memory": True},
        "queue[3].shape.all_memory: excludes memory_mb_per_proc",
    ),
    (
        ("queue", 1, "shape"),
        {"min_nodes": 5},
        "queue[1].shape.min_nodes: 5 nodes are more than 4 processes",
    ),
    (
        ("queue", 2, "shape"),
        {"min_nodes": 2},
        "queue[2].shape.min_nodes: 2 nodes are more than 1 processes",
    ),
    (
        ("queue", 2, "tasks", 1, "shape"),
        {"min_nodes": 3},
        "queue[2].tasks[1].shape.min_nodes: 3 nodes are more than 2 processes",
    ),
    (
        ("queue", 9, "shape"),
        {"exclusive": True},
        "queue[9].shape.exclusive: is not for divisible jobs",
    ),
    (
        ("queue", 9, "shape"),
        {"per_node": {"gpu": 1}},
        "queue[9].shape.per_node: is not for divisible jobs",
    ),
    (
        ("queue", 3, "shape"),
        {"cpus_per_proc": -1},
        "queue[3].shape.cpus_per_proc: -1 is outside 0..1e+06",
    ),
    (
        ("queue", 3, "shape"),
        {"cpu_per_proc": 1},
        "queue[3].shape.cpu_per_proc: unknown key; did you mean cpus_per_proc?",
    ),
    (
        ("queue", 3, "shape"),
        {"per_node": {"gpu": 0}},
        "queue[3].shape.per_node.gpu: 0 is outside 1..1e+09",
    ),
    (("queue", 3, "shape"), {"per_job": {"": 1}}, "queue[3].shape.per_job: is empty"),
    (("queue", 3, "shape"), [], "queue[3].shape: [] is not an object"),
    (("resources",), {"lic": 0.5}, "resources.lic: 0.5 is not a whole number"),
    # Running work and reservations.
    (("running", 0, "memory_mb"), {"a2": 1}, "running[0].memory_mb.a2: 'a2' is not in nodes"),
    (
        ("running", 0, "resources"),
        {"a1": {"gpu": -1}},
        "running[0].resources.a1.gpu: -1 is outside 1..1e+09",
    ),
    (("running", 0, "nodes"), {"x1": 1}, "running[0].nodes.x1: there is no node 'x1'"),
    (
        ("running", 0, "nodes"),
        {"a[1": 1},
        "running[0].nodes.a[1: 'a[1' is not a node set: missing bracket: \"a[1\"",
    ),
    (("running", 0, "nodes"), {"a1": 3}, "running[0].nodes.a1: 3 slots of a node that has 2"),
    (("running", 0, "nodes"), {"a1": 0}, "running[0].nodes.a1: 0 is outside 1..1e+06"),
    (
        ("running", 0, "nodes"),
        {"a1": 1, "a[1-2]": 1},
        "running[0].nodes.a[1-2]: node 'a1' is named twice",
    ),
    (("running", 0, "end"), -11.0, "running[0].end: -11 is before start -10"),
    (("running", 0, "link_gbps"), {"x": 1}, "running[0].link_gbps.x: there is no cluster 'x'"),
    (
        ("running", 0, "link_gbps"),
        {"alpha": -1},
        "running[0].link_gbps.alpha: -1 is outside 0..1e+12",
    ),
    (("running", 1, "id"), "run", "running[1]: 'run' is used twice"),
    (("reservations", 0, "nodes", 0), "x", "reservations[0].nodes[0]: there is no node 'x'"),
    (("reservations", 0, "end"), 100.0, "reservations[0].end: 100 is not after start 100"),
]

PLAN_ROWS: list[tuple[Path, Any, str]] = [
    (("format",), "coalloc-plan/2", "format: 'coalloc-plan/2' is not one of coalloc-plan/1; "
     "did you mean coalloc-plan/1?"),
    (("colour",), 1, "colour: unknown key"),
    (("status",), "done", "status: 'done' is not one of optimal, feasible, time_limit, heuristic, "
     "infeasible"),
    (("objective",), 5, "objective: 5 is not an object"),
    (("objective", "name"), "beauty", "objective.name: 'beauty' is not one of makespan, "
     "total_execution, weighted_completion"),
    (("objective", "value"), ABSENT, "objective.value: is missing"),
    (("objective", "deferred"), -1, "objective.deferred: -1 is below 0"),
    (("placements", 0, "start"), nan, "placements[0].start: nan is not a finite number"),
    (("placements", 0, "nodes", "a2"), 0, "placements[0].nodes.a2: 0 is outside 1..1e+06"),
    (("placements", 0, "sc"), 0.5, "placements[0].sc: 0.5 is below 1"),
    (("placements", 0, "node"), {}, "placements[0].node: unknown key; did you mean nodes?"),
    (
        ("placements", 0, "nodes"),
        {"a[1-2]": 1, "a2": 1},
        "placements[0].nodes.a2: node 'a2' is named twice",
    ),
    (("deferred", 0, "reason"), "lazy", "deferred[0].reason: 'lazy' is not one of infeasible, "
     "insufficient, held, dependency, begin_time, unsupported, not_selected, out_of_time, "
     "superseded, backing_off, unknown"),
    (("chosen",), 0, "chosen: 0 is not an index into front"),
    (("stats",), [], "stats: [] is not an object"),
    (("stats",), {"a": [1, {"b": nan}]}, "stats.a[1].b: nan is not a finite number"),
    (("options",), {"a": {1, 2}}, "options.a: set is not JSON"),
    (("certificates",), [1], "certificates[0]: 1 is not an object"),
    (("front",), [{"cmax": 1.0}], "front[0].weighted_completion: is missing"),
]  # fmt: skip


def test_the_bases_read() -> None:
    read_snapshot(dict(SNAPSHOT))
    read_plan(dict(PLAN))


@pytest.mark.parametrize(("path", "value", "message"), SNAPSHOT_ROWS, ids=lambda row: str(row)[:60])
def test_a_bad_snapshot_is_refused(path: Path, value: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_snapshot(altered(SNAPSHOT, path, value))
    assert str(error.value) == message


@pytest.mark.parametrize(("path", "value", "message"), PLAN_ROWS, ids=lambda row: str(row)[:60])
def test_a_bad_plan_is_refused(path: Path, value: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_plan(altered(PLAN, path, value))
    assert str(error.value) == message


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_a_file_that_is_no_object_is_refused(value: Any) -> None:
    for read in (read_snapshot, read_plan):
        with pytest.raises(InputError, match=r"is not an object$"):
            read(value)


def test_an_error_says_where_and_what() -> None:
    error = InputError("queue[3].sigma", "1.7 is outside 0..1")
    assert (error.where, error.what) == ("queue[3].sigma", "1.7 is outside 0..1")
    assert str(InputError("", "only what")) == "only what"


def test_a_repair_is_a_warning() -> None:
    job = {"id": "m", "kind": "moldable", "times": [10.0, 6.0, 7.0, 8.0, 9.0, 9.0, 9.0, 9.0]}
    read = read_snapshot(altered(SNAPSHOT, ("queue", 1), job))
    assert read.warnings == (
        "job m: time rises or work falls at 3, 4, 5, 6, 7, ... processes; "
        "the nearest smaller allotment is used",
    )
