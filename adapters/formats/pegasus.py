"""Abstract workflows of Pegasus 5, in YAML or JSON.

Read are ``jobs`` of type ``job`` with ``uses`` (``lfn``, ``type``, ``size`` or ``metadata.size``),
``arguments``, ``runtime`` and ``cores`` of ``profiles.pegasus``, and the keys of
`task_graph.EXTENSION` in ``profiles.coalloc``; ``jobDependencies``; and, where the file carries its
catalogues, the path of a transformation and the size of a replica. Numbers may be texts.

A job has a command where it has ``arguments``. Pegasus keeps run times in its own database, so most
files name none. Workflows inside a workflow are refused.

References
----------
https://pegasus.isi.edu/documentation/reference-guide/api-reference.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalloc.adapters.formats.task_graph import (
    Draft,
    Seconds,
    TaskGraph,
    WorkflowFile,
    number,
    read_extension,
)
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import array, mapping, objects, shown
from coalloc.model.formats.structs import read_json
from coalloc.model.ranges import Procs


def read_pegasus(top: Mapping[str, Any], name: str) -> WorkflowFile:
    """Read decoded Pegasus 5; `name` is for a workflow that the file does not name."""
    graph = TaskGraph()
    paths = _programs(top)
    _replicas(top, graph)
    for where, entry in objects(top.get("jobs"), "jobs"):
        _job(entry, where, graph, paths)
    for where, entry in objects(top.get("jobDependencies"), "jobDependencies"):
        parent = read_json(entry.get("id"), str, f"{where}.id")
        children = array(entry.get("children") or [], f"{where}.children")
        for k, child in enumerate(children):
            graph.link(parent, read_json(child, str, f"{where}.children[{k}]"))
    title = top.get("name")
    return graph.finish(title if isinstance(title, str) and title else name)


def _job(entry: Mapping[str, Any], where: str, graph: TaskGraph, paths: Mapping[str, str]) -> None:
    draft = graph.add(entry.get("id"), f"{where}.id")
    if entry.get("type", "job") != "job":
        what = f"is a {shown(entry['type'])}: only jobs of type job are read"
        raise InputError(draft.where, what)
    for use in array(entry.get("uses") or [], f"{draft.where}: uses"):
        _uses(mapping(use, f"{draft.where}: uses"), draft, graph)
    profiles = mapping(entry.get("profiles") or {}, f"{draft.where}: profiles")
    ours = mapping(profiles.get("pegasus") or {}, f"{draft.where}: profiles.pegasus")
    if ours.get("runtime") is not None:
        draft.runtime_s = number(ours["runtime"], Seconds, f"{draft.where}: runtime")
    if ours.get("cores") is not None:
        draft.measured_on = number(ours["cores"], Procs, f"{draft.where}: cores")
    more = mapping(profiles.get("coalloc") or {}, f"{draft.where}: profiles.coalloc")
    draft.extend(read_extension(more, f"{draft.where}: profiles.coalloc"))
    if entry.get("arguments") is not None:
        words = array(entry["arguments"], f"{draft.where}: arguments")
        program = read_json(entry.get("name"), str, f"{draft.where}: name")
        draft.command = (paths.get(program, program), *(_word(w, draft) for w in words))


def _uses(use: Mapping[str, Any], draft: Draft, graph: TaskGraph) -> None:
    inner = use.get("file")
    source = inner if isinstance(inner, dict) else use
    file = source.get("lfn")
    if not isinstance(file, str) or not file:
        raise InputError(draft.where, "a file it uses has no lfn")
    match use.get("type"):
        case "input" | "checkpoint":
            draft.inputs.add(file)
        case "output":
            draft.outputs.add(file)
        case other:
            raise InputError(draft.where, f"type {shown(other)} of {shown(file)} is unknown")
    _size(source, file, graph, f"{draft.where}: size of {shown(file)}")


def _size(source: Mapping[str, Any], file: str, graph: TaskGraph, where: str) -> None:
    metadata = source.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    size = source.get("size", known.get("size"))
    if size is not None:
        graph.size(file, size, where)


def _word(value: Any, draft: Draft) -> str:
    if isinstance(value, dict) and isinstance(value.get("lfn"), str):
        return str(value["lfn"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return str(read_json(value, str, f"{draft.where}: arguments"))


def _programs(top: Mapping[str, Any]) -> dict[str, str]:
    """Paths of the transformations that the file brings along."""
    out: dict[str, str] = {}
    where = "transformationCatalog"
    catalog = mapping(top.get(where) or {}, where)
    for place, entry in objects(catalog.get("transformations"), f"{where}.transformations"):
        name = entry.get("name")
        for _, site in objects(entry.get("sites"), f"{place}.sites"):
            path = site.get("pfn")
            if isinstance(name, str) and isinstance(path, str) and path:
                out.setdefault(name, path.removeprefix("file://"))
    return out


def _replicas(top: Mapping[str, Any], graph: TaskGraph) -> None:
    """Sizes of the files that the file brings along."""
    where = "replicaCatalog"
    catalog = mapping(top.get(where) or {}, where)
    for _, entry in objects(catalog.get("replicas"), f"{where}.replicas"):
        file = entry.get("lfn")
        if isinstance(file, str):
            _size(entry, file, graph, f"{where}: size of {shown(file)}")
