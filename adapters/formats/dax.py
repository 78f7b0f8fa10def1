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

from coalloc.adapters.formats.safe_xml import parse_xml
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


def parse_dax(raw: bytes, name: str) -> WorkflowFile:
    """Read a DAX; `name` is for a workflow that the file does not name."""
    return _DaxReader(name).read(raw)


class _DaxReader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.graph = TaskGraph()
        self.is_dax = False
        self.draft: Draft | None = None
        self.program: dict[str, str] = {}
        """Name of the program of each task."""
        self.paths: dict[str, str] = {}
        """Where the executables are."""
        self.asked: set[str] = set()
        self.executable = ""
        self.child = ""
        self.profile: tuple[str, str] | None = None
        self.more: dict[str, str] = {}
        """Extension keys of the job."""
        self.words: list[str] = []
        self.listening = False

    def read(self, raw: bytes) -> WorkflowFile:
        parse_xml(raw, self.start, self.end, self.text)
        if not self.is_dax:
            raise InputError("", "is no DAX: there is no <adag>")
        for task, program in self.program.items():
            if task in self.asked or program in self.paths:
                draft = self.graph.drafts[task]
                draft.command = (self.paths.get(program, program), *draft.command)
        return self.graph.finish(self.name)

    def start(self, tag: str, row: Mapping[str, str], line: int) -> None:
        where = f"line {line}"
        match tag:
            case "adag":
                self.is_dax = True
                self.name = row.get("name") or self.name
            case "job":
                self._job(row, where)
            case "dax" | "dag" if self.is_dax:
                what = "is a workflow inside a workflow, which is not read"
                raise InputError(f"{where}: task {shown(row.get('id', ''))}", what)
            case "uses" if self.draft is not None:
                self._uses(self.draft, row)
            case "executable":
                self.executable = row.get("name", "")
            case "pfn" if self.executable:
                url = row.get("url", "").removeprefix("file://")
                self.paths.setdefault(self.executable, url or self.executable)
            case "argument" if self.draft is not None:
                self._listen()
            case "profile" if self.draft is not None:
                self.profile = row.get("namespace", ""), row.get("key", "")
                self._listen()
            case "file" | "filename" if self.listening:
                self.words.append(row.get("name") or row.get("file", ""))
            case "child":
                self.child = self._reference(row, where)
            case "parent":
                self.graph.link(self._reference(row, where), self.child)
            case _:
                pass

    def end(self, tag: str) -> None:
        match tag:
            case "job" if self.draft is not None:
                self.draft.extend(read_extension(self.more, f"{self.draft.where}: profile"))
                self.draft = None
            case "executable":
                self.executable = ""
            case "argument" | "profile" if self.listening and self.draft is not None:
                self.listening = False
                if tag == "argument":
                    self._argument(self.draft)
                else:
                    self._profile(self.draft)
            case _:
                pass

    def text(self, piece: str) -> None:
        if self.listening:
            self.words.append(piece)

    def _listen(self) -> None:
        self.listening, self.words = True, []

    def _job(self, row: Mapping[str, str], where: str) -> None:
        if "id" not in row:
            raise InputError(where, "a <job> has no id")
        self.draft, self.more = self.graph.add(row["id"], where), {}
        self.program[self.draft.id] = row.get("name", "")
        for key in ("runtime", "cores"):
            if key in row:
                self._measure(self.draft, key, row[key])

    @staticmethod
    def _measure(draft: Draft, key: str, text: str) -> None:
        where = f"{draft.where}: {key}"
        if key == "runtime":
            draft.runtime_s = number(text, Seconds, where)
        else:
            draft.measured_on = number(text, Procs, where)

    def _uses(self, draft: Draft, row: Mapping[str, str]) -> None:
        file, link = row.get("file") or row.get("name", ""), row.get("link", "").lower()
        if not file:
            raise InputError(draft.where, "a <uses> names no file")
        if link in ("input", "inout"):
            draft.inputs.add(file)
        if link in ("output", "inout"):
            draft.outputs.add(file)
        if "size" in row and (link != "input" or file not in self.graph.sizes):
            self.graph.size(file, row["size"], f"{draft.where}: size of {shown(file)}")

    def _reference(self, row: Mapping[str, str], where: str) -> str:
        if "ref" not in row:
            raise InputError(where, "a dependency has no ref")
        return row["ref"]

    def _argument(self, draft: Draft) -> None:
        self.asked.add(draft.id)
        try:
            draft.command = tuple(shlex.split("".join(self.words)))
        except ValueError as error:
            raise InputError(f"{draft.where}: argument", str(error)) from error

    def _profile(self, draft: Draft) -> None:
        assert self.profile is not None
        namespace, key = self.profile
        text = "".join(self.words).strip()
        if namespace == "coalloc":
            self.more[key] = text
        elif namespace == "pegasus" and key in ("runtime", "cores"):
            self._measure(draft, key, text)
