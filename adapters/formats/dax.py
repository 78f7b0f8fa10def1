"""Pegasus DAX, the XML of Pegasus up to version 4 (schemas 2.1 to 3.6).

Read are ``<job>`` with its ``runtime`` and ``cores``, its ``<uses>`` (``file`` or ``name``,
``link``, ``size``), its ``<argument>``, its ``<profile>`` in the namespaces ``pegasus``
(``runtime``, ``cores``) and ``coalloc`` (the keys of `task_graph.EXTENSION`); ``<child>`` with its
``<parent>``; and the first ``<pfn>`` of a ``<executable>`` as the program of jobs of its name.

A job with an ``<argument>``, or with a known executable, has a command: the program, and the
argument cut up as a shell would. Workflows inside a workflow (``<dax>``, ``<dag>``) are refused.

References
----------
https://pegasus.isi.edu/schema/DAX
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from coalloc.adapters.formats.safe_xml import PLACE, read_xml
from coalloc.adapters.formats.task_graph import (
    Draft,
    Seconds,
    TaskGraph,
    WorkflowFile,
    number,
    read_extension,
)
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.ranges import Procs

MEASURES = {"runtime": Seconds, "cores": Procs}


def parse_dax(raw: bytes, name: str) -> WorkflowFile:
    """Read a DAX; `name` is for a workflow that the file does not name."""
    top, graph = read_xml(raw), TaskGraph()
    if top.tag != "adag":
        raise InputError("", "is no DAX: there is no <adag>")
    paths = {
        executable.get("name", ""): pfn.get("url", "").removeprefix("file://")
        for executable in reversed(list(top.iter("executable")))
        for pfn in [*executable.iter("pfn")][:1]
    }
    for item in top.iter():
        match item.tag:
            case "job":
                _job(item, graph, paths)
            case "dax" | "dag":
                what = "is a workflow inside a workflow, which is not read"
                raise InputError(f"{item.get(PLACE)}: task {shown(item.get('id', ''))}", what)
            case "child":
                for parent in item.iter("parent"):
                    graph.link(_reference(parent), _reference(item))
            case _:
                pass
    return graph.finish(top.get("name") or name)


def _job(item: Element, graph: TaskGraph, paths: Mapping[str, str]) -> None:
    where = item.get(PLACE, "")
    if "id" not in item.attrib:
        raise InputError(where, "a <job> has no id")
    draft, program = graph.add(item.get("id"), where), item.get("name", "")
    _measure(draft, item.attrib)
    for use in item.iter("uses"):
        _uses(draft, use, graph)
    more = {}
    for profile in item.iter("profile"):
        key, text = profile.get("key", ""), _text(profile).strip()
        if profile.get("namespace") == "coalloc":
            more[key] = text
        elif profile.get("namespace") == "pegasus":
            _measure(draft, {key: text})
    draft.extend(read_extension(more, f"{draft.where}: profile"))
    arguments = [*item.iter("argument")]
    try:
        words = [word for each in arguments[-1:] for word in shlex.split(_text(each))]
    except ValueError as error:
        raise InputError(f"{draft.where}: argument", str(error)) from error
    if arguments or program in paths:
        draft.command = (paths.get(program) or program, *words)


def _measure(draft: Draft, fields: Mapping[str, str]) -> None:
    read = {
        key: number(fields[key], kind, f"{draft.where}: {key}")
        for key, kind in MEASURES.items()
        if key in fields
    }
    draft.runtime_s = read.get("runtime", draft.runtime_s)
    draft.measured_on = read.get("cores", draft.measured_on)


def _uses(draft: Draft, use: Element, graph: TaskGraph) -> None:
    file, link = use.get("file") or use.get("name", ""), use.get("link", "").lower()
    if not file:
        raise InputError(draft.where, "a <uses> names no file")
    if link in ("input", "inout"):
        draft.inputs.add(file)
    if link in ("output", "inout"):
        draft.outputs.add(file)
    if "size" in use.attrib and (link != "input" or file not in graph.sizes):
        graph.size(file, use.get("size"), f"{draft.where}: size of {shown(file)}")


def _reference(item: Element) -> str:
    if "ref" not in item.attrib:
        raise InputError(item.get(PLACE, ""), "a dependency has no ref")
    return item.attrib["ref"]


def _text(item: Element) -> str:
    """Text of an element, the names of files in it in their places."""
    parts = [item.text or ""]
    for file in item:
        parts += [file.get("name") or file.get("file") or "", file.tail or ""]
    return "".join(parts)
