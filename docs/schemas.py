"""JSON Schemas (2020-12) of both formats, from the structs that the readers use.

A schema says what one value alone decides: keys, types, bounds, choices. What relates
values (ids that are unique, nodes that exist, edges without a cycle, an end after its
start) is the reader's, and stands in docs/FORMATS.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from coalloc.model.formats.job_json import Times
from coalloc.model.formats.words import field_words
from coalloc.model.jobs import JobFields, MoldableJob, RigidJob, Task
from coalloc.model.plan import PLAN_FORMAT, Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import SNAPSHOT_FORMAT, SnapshotFields

DIALECT = "https://json-schema.org/draft/2020-12/schema"
GIVEN_BY_OTHERS: Mapping[type, tuple[str, ...]] = {
    JobFields: ("submitted", "earliest"),
    RigidJob: ("base_time",),
    MoldableJob: ("speedup", "min_procs", "max_procs"),
    Task: ("max_procs",),
    Node: ("free_at",),
}
"""Keys that a file may leave out; what they are then depends on others."""
NEEDED: Mapping[type, tuple[str, ...]] = {
    SnapshotFields: ("clusters",),
    Cluster: ("nodes",),
    Plan: ("placements",),
}
"""Keys that a file has although the field has a default."""
UNLIMITED: Mapping[type, tuple[str, ...]] = {Cluster: ("link_gbps", "intra_gbps")}
"""Keys that may be null, and are so by default."""


def snapshot_schema() -> dict[str, Any]:
    """The schema of ``coalloc-snapshot/1``."""
    text = "Clusters, queue, running work and reservations at one instant."
    return _document(SNAPSHOT_FORMAT, text, SnapshotFields)


def plan_schema() -> dict[str, Any]:
    """The schema of ``coalloc-plan/1``."""
    return _document(
        PLAN_FORMAT, "Which jobs start when, on which nodes, and how good that is.", Plan
    )


def _document(name: str, text: str, form: type) -> dict[str, Any]:
    _, parts = msgspec.json.schema_components((form,), ref_template="#/$defs/{name}")
    for one in structs_of(inspect.type_info(form)):
        describe(parts[one.__name__], one)
        _complete(parts[one.__name__], one)
    top = {key: item for key, item in parts.pop(form.__name__).items() if key != "title"}
    return {"$schema": DIALECT, "title": name, **top, "description": text, "$defs": parts}


def structs_of(kind: inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """Every struct of a type, each before those in its fields."""
    found: dict[type[msgspec.Struct], None] = {}
    rest = [kind]
    while rest:
        match rest.pop():
            case inspect.StructType(cls=form, fields=fields) if form not in found:
                found[form] = None
                rest += [field.type for field in fields]
            case inspect.Metadata(type=inner) | inspect.VarTupleType(item_type=inner):
                rest.append(inner)
            case inspect.DictType(value_type=inner):
                rest.append(inner)
            case inspect.UnionType(types=types):
                rest += types
    yield from found


def describe(schema: dict[str, Any], form: type[msgspec.Struct]) -> None:
    """Add the words beside the fields to the schema that msgspec made of a struct."""
    words = field_words(form)
    for field in msgspec.structs.fields(form):
        if field.name in words:
            schema["properties"][field.encode_name]["description"] = words[field.name]


def given_by_others(form: type) -> tuple[str, ...]:
    """Keys that a file may leave out, those of base classes too."""
    return tuple(key for one in form.__mro__ for key in GIVEN_BY_OTHERS.get(one, ()))


def _complete(schema: dict[str, Any], form: type[msgspec.Struct]) -> None:
    """Add in what a file differs from the value that is read from it."""
    keys = schema["properties"]
    required = {*schema.get("required", ()), *NEEDED.get(form, ())}
    tag = form.__struct_config__.tag_field
    if tag is not None:
        required.add(tag)
    for key in given_by_others(form):
        required.discard(key)
        keys[key].pop("default", None)
    for key in NEEDED.get(form, ()):
        keys[key].pop("default", None)
    for key in UNLIMITED.get(form, ()):
        words, within = keys[key].pop("description"), keys[key]
        del within["default"]
        keys[key] = {"anyOf": [within, {"type": "null"}], "default": None, "description": words}
    schema["required"] = [key for key in keys if key in required]
    if form is RigidJob:
        limit = {"required": ["time_limit"], "properties": {"time_limit": {"type": "number"}}}
        schema["anyOf"] = [{"required": ["base_time"]}, limit]
    elif form is MoldableJob:
        keys["times"] = msgspec.json.schema(Times)
        schema["oneOf"] = [{"required": ["times"]}, {"required": ["speedup"]}]
        closed = {"properties": {"model": {"enum": ["amdahl", "downey"]}}}
        schema["if"] = {"required": ["speedup"], "properties": {"speedup": closed}}
        schema["then"] = {"required": ["max_procs"]}
