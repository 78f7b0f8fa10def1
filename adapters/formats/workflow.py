"""Workflows from files: WfFormat, DAX, Pegasus 5, DOT, and our own JSON.

The form is told by the content. Our own is the workflow object of the snapshot format, in which
``id`` and ``kind`` may be absent, ``name`` may be added, and each task may have a ``command``: a
list of program and arguments, or one text for ``/bin/sh -c``::

    {"name": "two", "tasks": [{"id": "a", "work": 60, "command": ["./prepare", "in"]},
                              {"id": "b", "work": 600, "max_procs": 8, "parallel_fraction": 0.95}],
     "edges": [{"from": "a", "to": "b", "gb": 1.5}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coalloc.adapters.formats.dax import parse_dax
from coalloc.adapters.formats.dot import is_dot, parse_dot
from coalloc.adapters.formats.files import read_bytes
from coalloc.adapters.formats.pegasus import read_pegasus
from coalloc.adapters.formats.task_graph import WorkflowFile, named
from coalloc.adapters.formats.wfformat import read_wfformat
from coalloc.adapters.formats.yaml_events import decode_yaml
from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import array, decode_json, mapping
from coalloc.model.formats.job_json import read_job
from coalloc.model.formats.structs import read_json
from coalloc.model.jobs import Task, WorkflowJob
from coalloc.model.ranges import Name

__all__ = ["WorkflowFile", "is_workflow", "parse_workflow", "read_workflow"]

NO_WORKFLOW = "is no workflow: neither WfFormat, DAX, Pegasus, DOT nor our own JSON"
LARGEST_FILE = 200_000_000


def read_workflow(path: str | Path) -> WorkflowFile:
    """Read a workflow file. Raises `InputError` with the file, the task and the reason."""
    path = Path(path)
    return parse_workflow(read_bytes(path, LARGEST_FILE + 1), path.name, str(path))


def is_workflow(path: str | Path) -> bool:
    """Test by its beginning if a readable file holds a workflow, not a log of jobs."""
    path = Path(path)
    text = read_bytes(path, 4096).decode("utf-8", "replace").lstrip()
    if not text or text.startswith(";"):
        return False
    return (
        text[0] in "<{" or is_dot(text) or path.suffix.lower() in (".yml", ".yaml", ".dot", ".gv")
    )


def parse_workflow(raw: bytes, file_name: str, where: str = "") -> WorkflowFile:
    """Read a workflow from the bytes of a file; `InputError` with the task or the line.

    The file's name without its ending names the workflow, where nothing in it does; `where` is the
    prefix of errors.
    """
    try:
        return _parsed(raw, file_name.rpartition(".")[0] or file_name)
    except InputError as error:
        place = error.where.removeprefix(".")
        raise InputError(f"{where}: {place}".strip(": "), error.what) from error


def _parsed(raw: bytes, name: str) -> WorkflowFile:
    if len(raw) > LARGEST_FILE:
        raise InputError("", f"is larger than {LARGEST_FILE} bytes")
    if raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return parse_dax(raw, name)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("", f"is not UTF-8 at byte {error.start}") from error
    if is_dot(text):
        return parse_dot(text, name)
    if text.lstrip().startswith("{"):
        return _from_json(mapping(decode_json(text), ""), name)
    top = decode_yaml(text)
    if not isinstance(top, dict) or "pegasus" not in top:
        raise InputError("", NO_WORKFLOW)
    return read_pegasus(top, name)


def _from_json(top: Mapping[str, Any], name: str) -> WorkflowFile:
    if "pegasus" in top:
        return read_pegasus(top, name)
    if "schemaVersion" in top or "workflow" in top:
        return read_wfformat(top, name)
    if "tasks" not in top:
        raise InputError("", f"{NO_WORKFLOW}, which has tasks")
    return _own(dict(top), name)


def _own(top: dict[str, Any], name: str) -> WorkflowFile:
    title = read_json(top.pop("name", name), str, "name")
    if top.get("kind", "workflow") != "workflow":
        raise InputError("kind", "is not workflow")
    if top.get("started"):
        raise InputError("started", "a file has no task that has started")
    tasks, commands = [], {}
    for i, value in enumerate(array(top.get("tasks"), "tasks")):
        task = dict(mapping(value, f"tasks[{i}]"))
        command = task.pop("command", None)
        known = read_json(task.get("id"), Name, f"tasks[{i}].id")
        read_json(task, Task, named(known))
        if command is not None:
            commands[known] = _command(command, f"{named(known)}: command")
        tasks.append(task)
    job, warnings = read_job({**top, "id": "1", "kind": "workflow", "tasks": tasks}, "", 0.0)
    assert isinstance(job, WorkflowJob)
    return WorkflowFile(
        name=title or name,
        job=job,
        commands={task.id: commands[task.id] for task in job.tasks if task.id in commands},
        warnings=tuple(warnings),
    )


def _command(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str) and value:
        return "/bin/sh", "-c", read_json(value, str, where)
    words: tuple[str, ...] = read_json(value, tuple[str, ...], where)
    if not words or not words[0]:
        raise InputError(where, "names no program")
    return words
