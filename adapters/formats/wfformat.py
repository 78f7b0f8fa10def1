"""WfFormat, the JSON of WfCommons, versions 1.5 and 1.6.

Read are ``workflow.specification`` (``tasks`` with ``parents`` and ``children``, ``inputFiles`` and
``outputFiles``; ``files`` with their sizes) and ``workflow.execution.tasks`` (``runtimeInSeconds``,
``coreCount``, ``command``, ``machines``). The format says nothing of how a task scales: the
extension field ``coalloc`` of a task of the specification does::

    "coalloc": {"parallelFraction": 0.9, "minCores": 1, "maxCores": 64, "commInBytes": 5e9}

All its keys are optional; without it a task is rigid on its ``coreCount`` (1 if absent). An
extension field ``{"power": 0.8}`` of a machine gives its speed relative to a node of full speed,
and run times measured there count as much less. ``cpu.speedInMHz`` is not used for that: recorded
files hold the clock of the moment (1200 and 2600 MHz on nodes of one kind).

A command is the program and its arguments. Where one of these holds blanks or what a shell would
act on, all are joined and given to ``/bin/sh -c``: WfCommons itself runs them so.

References
----------
https://github.com/wfcommons/WfFormat
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from coalloc.adapters.formats.task_graph import (
    BYTES_PER_GB,
    Bytes,
    Draft,
    Fraction,
    Seconds,
    TaskGraph,
    WorkflowFile,
    named,
)
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import array, mapping, objects, shown
from coalloc.model.formats.structs import read_json
from coalloc.model.ranges import Procs

VERSIONS = ("1.5", "1.6")


class Extension(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Keys of ours in a task."""

    parallel_fraction: Fraction = 0.0
    min_cores: Procs | None = None
    max_cores: Procs | None = None
    comm_in_bytes: Bytes = 0.0


class Machine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of ours in a machine."""

    power: Annotated[float, Meta(gt=0, le=1)]
    """Speed, relative."""


def read_wfformat(top: Mapping[str, Any], name: str) -> WorkflowFile:
    """Read decoded WfFormat; `name` is for a workflow that the file does not name."""
    version = top.get("schemaVersion")
    if version not in VERSIONS:
        raise InputError("schemaVersion", f"{shown(version)} is not one of {', '.join(VERSIONS)}")
    workflow = mapping(top.get("workflow"), "workflow")
    place = "workflow.specification"
    specification = mapping(workflow.get("specification"), place)
    graph = TaskGraph()
    for where, entry in objects(specification.get("files"), f"{place}.files"):
        file = read_json(entry.get("id"), str, f"{where}.id")
        graph.size(file, entry.get("sizeInBytes"), f"{where}.sizeInBytes")
    extensions: list[tuple[Draft, Mapping[str, Any]]] = []
    for i, value in enumerate(array(specification.get("tasks"), f"{place}.tasks")):
        entry = mapping(value, f"{place}.tasks[{i}]")
        draft = _specified(entry, f"{place}.tasks[{i}]", graph)
        extensions.append((draft, entry))
    _execution(workflow, graph)
    for draft, entry in extensions:
        _extend(draft, entry)
    title = top.get("name")
    return graph.finish(title if isinstance(title, str) and title else name)


def _specified(entry: Mapping[str, Any], where: str, graph: TaskGraph) -> Draft:
    draft = graph.add(entry.get("id"), f"{where}.id")
    for key, files in (("inputFiles", draft.inputs), ("outputFiles", draft.outputs)):
        files.update(_texts(entry, key, draft.where))
    for parent in _texts(entry, "parents", draft.where):
        graph.link(parent, draft.id)
    for child in _texts(entry, "children", draft.where):
        graph.link(draft.id, child)
    return draft


def _texts(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = array(entry.get(key) or (), f"{where}: {key}")
    return tuple(read_json(value, str, f"{where}: {key}") for value in values)


def _extend(draft: Draft, entry: Mapping[str, Any]) -> None:
    if entry.get("coalloc") is None:
        return
    more: Extension = read_json(entry["coalloc"], Extension, f"{draft.where}: coalloc")
    draft.extend(
        {
            "parallel_fraction": more.parallel_fraction,
            "comm_gb": more.comm_in_bytes / BYTES_PER_GB,
            "min_procs": more.min_cores,
            "max_procs": more.max_cores,
        }
    )


def _execution(workflow: Mapping[str, Any], graph: TaskGraph) -> None:
    place = "workflow.execution"
    execution = mapping(workflow.get("execution") or {}, place)
    powers = _powers(execution, graph)
    seen: set[str] = set()
    for where, entry in objects(execution.get("tasks"), f"{place}.tasks"):
        name = read_json(entry.get("id"), str, f"{where}.id")
        draft = graph.drafts.get(name)
        if draft is None:
            raise InputError(named(name), "was executed, but is not in the specification")
        if name in seen:
            raise InputError(named(name), "was executed twice")
        seen.add(name)
        _measured(draft, entry, powers)


def _measured(draft: Draft, entry: Mapping[str, Any], powers: Mapping[str, float]) -> None:
    if entry.get("coreCount") is not None:
        draft.measured_on = read_json(entry["coreCount"], Procs, f"{draft.where}: coreCount")
    if entry.get("runtimeInSeconds") is not None:
        seconds = read_json(entry["runtimeInSeconds"], Seconds, f"{draft.where}: runtimeInSeconds")
        used = [powers.get(machine, 1.0) for machine in _texts(entry, "machines", draft.where)]
        draft.runtime_s = seconds * min(used, default=1.0)
    if entry.get("command") is not None:
        draft.command = _command(mapping(entry["command"], f"{draft.where}: command"), draft)


def _command(entry: Mapping[str, Any], draft: Draft) -> tuple[str, ...]:
    program = entry.get("program")
    if program is None:
        return ()
    words = (
        read_json(program, str, f"{draft.where}: program"),
        *_texts(entry, "arguments", draft.where),
    )
    if all(word == shlex.quote(word) for word in words):
        return words
    return "/bin/sh", "-c", " ".join(words)


def _powers(execution: Mapping[str, Any], graph: TaskGraph) -> dict[str, float]:
    """Speeds of the machines that have one, relative to a node of full speed."""
    powers: dict[str, float] = {}
    clocks: set[float] = set()
    for where, entry in objects(execution.get("machines"), "workflow.execution.machines"):
        if entry.get("coalloc") is not None:
            ours: Machine = read_json(entry["coalloc"], Machine, f"{where}.coalloc")
            powers[read_json(entry.get("nodeName"), str, f"{where}.nodeName")] = ours.power
        cpu = entry.get("cpu")
        clock = cpu.get("speedInMHz") if isinstance(cpu, dict) else None
        if isinstance(clock, int | float):
            clocks.add(clock)
    if len(clocks) > 1 and not powers:
        what = f"machines of {min(clocks):g} to {max(clocks):g} MHz are taken to be equally fast"
        graph.warnings.append(what)
    return powers
