"""Tasks and edges of a workflow, read all at once.

A workflow of ten thousand tasks has some thirty thousand objects, and reading each key by key is
most of the work of its submit. Here they are read by types made from the format's own tables
(`coalloc.model.tables`); what these do not take is left to `coalloc.model.job_json`, which reads
key by key and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from coalloc.model import tables
from coalloc.model.fields import LARGEST, Field, Table
from coalloc.model.jobs import Edge, Task

Graph = tuple[tuple[Task, ...], tuple[Edge, ...]]
_KINDS: dict[str, type[float]] = {"number": float, "integer": int}


def read_graph(tasks: Any, edges: Any) -> Graph | None:
    """Return tasks and edges from JSON; None where one of them is not as usual."""
    try:
        rows = msgspec.convert(tasks, _TASKS)
        pairs = msgspec.convert(edges, _EDGES)
        "".join(row.id for row in rows).encode()
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
    if not rows:
        return None
    for row in rows:
        if not row.max_procs:
            row.max_procs = row.min_procs
        elif row.max_procs < row.min_procs:
            return None
    return (
        msgspec.convert(rows, tuple[Task, ...], from_attributes=True),
        msgspec.convert(pairs, tuple[Edge, ...], from_attributes=True),
    )


def _rows(table: Table, names: Mapping[str, str]) -> Any:
    """The type of lists of objects that a table describes.

    Parameters
    ----------
    names : mapping of key to attribute
        Where they differ.
    """
    rows: list[Any] = []
    for key, field in table.items():
        row: tuple[Any, ...] = (names.get(key, key), _type_of(field))
        if not field.needed:
            row = (*row, 0 if field.default is None else field.default)
        rows.append(row)
    keys = {attribute: key for key, attribute in names.items()}
    one = msgspec.defstruct(
        "Row", rows, rename=keys, kw_only=True, forbid_unknown_fields=True, gc=False
    )
    return list[one]  # type: ignore[valid-type]


def _type_of(field: Field) -> Any:
    if field.kind == "text":
        return Annotated[str, msgspec.Meta(min_length=1)]
    low = max(field.low, -LARGEST)
    high = min(field.high, LARGEST)
    kind = _KINDS[field.kind]
    return Annotated[kind, msgspec.Meta(ge=kind(low), le=kind(high))]


_TASKS = _rows(tables.TASK, {})
_EDGES = _rows(tables.EDGE, {"from": "parent", "to": "child"})
