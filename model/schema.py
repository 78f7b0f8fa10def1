"""JSON Schemas (2020-12) of both formats, from the tables that the readers use.

A schema says what one value alone decides: keys, types, bounds, choices. What relates
values (ids that are unique, nodes that exist, edges without a cycle, an end after its
start) is the reader's, and stands in docs/FORMATS.md.
"""

from __future__ import annotations

from typing import Any

from coalloc.model import tables
from coalloc.model.fields import Table, object_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
JOBS: dict[str, Table] = {
    "rigid": tables.RIGID,
    "moldable": tables.MOLDABLE,
    "workflow": tables.WORKFLOW,
    "divisible": tables.DIVISIBLE,
}


def snapshot_schema() -> dict[str, Any]:
    """The schema of ``coalloc-snapshot/1``."""
    jobs = {kind: _object(table, kind=kind) for kind, table in JOBS.items()}
    speedups = {name: _object(table, model=name) for name, table in tables.SPEEDUPS.items()}
    for key in ("procs", "times"):
        speedups["table"]["properties"][key]["minItems"] = 1
    _complete(jobs)
    top = _object(tables.SNAPSHOT)
    _items(top, "clusters", "cluster")
    _items(top, "running", "running")
    _items(top, "reservations", "reservation")
    top["properties"]["queue"] |= {"type": "array", "items": _one_of(JOBS)}
    cluster = _object(tables.CLUSTER)
    _items(cluster, "nodes", "node")
    return _document(
        tables.SNAPSHOT_FORMAT,
        "Clusters, queue, running work and reservations at one instant.",
        top,
        {
            "cluster": cluster,
            "node": _object(tables.NODE),
            **jobs,
            "speedup": _one_of(speedups),
            **speedups,
            "task": _object(tables.TASK),
            "edge": _object(tables.EDGE),
            "started": _started(),
            "running": _object(tables.RUNNING),
            "reservation": _object(tables.RESERVATION),
        },
    )


def plan_schema() -> dict[str, Any]:
    """The schema of ``coalloc-plan/1``."""
    top = _object(tables.PLAN)
    for key in ("options", "stats"):
        top["properties"][key]["type"] = "object"
    top["properties"]["objective"] |= _ref("objective")
    _items(top, "placements", "placement")
    _items(top, "deferred", "deferred")
    _items(top, "front", "front_point")
    top["properties"]["certificates"] |= {"type": "array", "items": {"type": "object"}}
    point = _object(tables.FRONT_POINT)
    _items(point, "placements", "placement")
    return _document(
        tables.PLAN_FORMAT,
        "Which jobs start when, on which nodes, and how good that is.",
        top,
        {
            "objective": _object(tables.OBJECTIVE),
            "placement": _object(tables.PLACEMENT),
            "deferred": _object(tables.DEFERRED),
            "front_point": point,
        },
    )


def _complete(jobs: dict[str, dict[str, Any]]) -> None:
    """Add what a table of fields cannot say: keys that need or exclude each other."""
    limit = {"required": ["time_limit"], "properties": {"time_limit": {"type": "number"}}}
    jobs["rigid"]["anyOf"] = [{"required": ["base_time"]}, limit]
    moldable = jobs["moldable"]
    moldable["oneOf"] = [{"required": ["times"]}, {"required": ["speedup"]}]
    moldable["properties"]["times"]["minItems"] = 1
    moldable["properties"]["speedup"] |= _ref("speedup")
    closed = {"properties": {"model": {"enum": ["amdahl", "downey"]}}}
    moldable["if"] = {"required": ["speedup"], "properties": {"speedup": closed}}
    moldable["then"] = {"required": ["max_procs"]}
    _items(jobs["workflow"], "tasks", "task")
    jobs["workflow"]["properties"]["tasks"]["minItems"] = 1
    _items(jobs["workflow"], "edges", "edge")
    _items(jobs["workflow"], "started", "started")


def _started() -> dict[str, Any]:
    schema = _object(tables.STARTED)
    schema["properties"]["clusters"]["minItems"] = 1
    return schema


def _document(name: str, text: str, top: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "title": name, "description": text, **top, "$defs": parts}


def _object(table: Table, **constants: str) -> dict[str, Any]:
    schema = object_schema(table)
    for key, value in constants.items():
        schema["properties"][key] = {"const": value}
    return schema


def _items(schema: dict[str, Any], key: str, part: str) -> None:
    schema["properties"][key] |= {"type": "array", "items": _ref(part)}


def _one_of(names: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [_ref(name) for name in names]}


def _ref(part: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{part}"}
