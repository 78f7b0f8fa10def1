"""Workflows of other systems, put together: what the readers of all formats have in common.

A reader adds tasks, files and edges in any order; `TaskGraph.finish` checks them and makes a
workflow job. Errors name the task.

Notes
-----
*Files become edge data*: an edge carries the sum of the sizes of the files that its parent writes
and its child reads, in GB of 10^9 bytes; the size that the writer states counts. A file that passes
between tasks without an edge moves nothing in our model, and is counted in a warning.

*Run times become work*: a run time was measured on n processes, so that by the cost model
work = run time / (1 - pf + pf / n). A task of n > 1 processes of which nothing else is known is
rigid, with pf = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown
from coalloc.model.formats.job_json import check_graph
from coalloc.model.formats.structs import read_json
from coalloc.model.jobs import Edge, Task, WorkflowJob
from coalloc.model.ranges import LARGEST, Name, Procs

BYTES_PER_GB = 1e9
ASSUMED_RUNTIME_S = 60.0
"""Of tasks whose file does not say how long they run."""
LARGEST_ALLOTMENT = 10_000
"""Processes of a task that may use any number."""

Seconds = Annotated[float, Meta(ge=0, le=LARGEST)]
Bytes = Annotated[float, Meta(ge=0, le=LARGEST)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
"""Share of the work that scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    """A workflow as a file describes it."""

    name: str
    job: WorkflowJob
    """Its id is "1"."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Program and arguments; a task for which the file names none is absent."""
    warnings: tuple[str, ...] = ()
    """What was assumed or left out, one line each."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """One task while its file is read."""

    id: str
    runtime_s: float | None = None
    """Measured on `measured_on` processes of a node of full speed; None is unknown."""
    measured_on: int = 1
    min_procs: int | None = None
    """None is `measured_on`: a rigid task."""
    max_procs: int | None = None
    parallel_fraction: float = 0.0
    comm_gb: float = 0.0
    inputs: set[str] = field(default_factory=set)
    """Files."""
    outputs: set[str] = field(default_factory=set)
    """Files."""
    command: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Its name in errors."""
        return named(self.id)

    def extend(self, fields: Mapping[str, Any]) -> None:
        """Take over what an extension field, read by one of `EXTENSION`'s tables, says."""
        self.parallel_fraction = fields.get("parallel_fraction", self.parallel_fraction)
        self.comm_gb = fields.get("comm_gb", self.comm_gb)
        low, high = fields.get("min_procs"), fields.get("max_procs")
        if low is None and high is None:
            return
        self.min_procs = 1 if low is None else low
        self.max_procs = max(self.min_procs, self.measured_on) if high is None else high
        if self.max_procs < self.min_procs:
            raise InputError(
                self.where, f"its range of processes is empty: {self.min_procs}..{self.max_procs}"
            )

    def task(self) -> Task:
        n, fraction = self.measured_on, self.parallel_fraction
        runtime = ASSUMED_RUNTIME_S if self.runtime_s is None else self.runtime_s
        return Task(
            id=self.id,
            work=runtime / (1.0 - fraction + fraction / n),
            parallel_fraction=fraction,
            min_procs=n if self.min_procs is None else self.min_procs,
            max_procs=n if self.max_procs is None else self.max_procs,
            comm_gb=self.comm_gb,
        )


class TaskGraph:
    """The tasks and edges that a reader has found so far."""

    def __init__(self) -> None:
        self.drafts: dict[str, Draft] = {}
        self.edges: dict[tuple[str, str], float] = {}
        self.sizes: dict[str, float] = {}
        """GB of each file."""
        self.warnings: list[str] = []

    def add(self, name: Any, where: str) -> Draft:
        """Begin a task; its id may not be known yet."""
        text = read_json(name, Name, where)
        if text in self.drafts:
            raise InputError(named(text), "is there twice")
        draft = self.drafts[text] = Draft(id=text)
        return draft

    def link(self, parent: str, child: str) -> None:
        """Let a child wait for its parent; both may follow later in the file."""
        self.edges.setdefault((parent, child), 0.0)

    def size(self, file: str, size: Any, where: str) -> None:
        """Note the bytes of a file."""
        self.sizes[file] = number(size, Bytes, where) / BYTES_PER_GB

    def finish(self, name: str) -> WorkflowFile:
        """Make the job; `InputError` without a task, with an edge to nowhere, or with a cycle."""
        if not self.drafts:
            raise InputError("", "there is no task")
        for parent, child in self.edges:
            if parent not in self.drafts:
                raise InputError(named(child), f"its parent {shown(parent)} does not exist")
            if child not in self.drafts:
                raise InputError(named(parent), f"its child {shown(child)} does not exist")
        self._carry()
        unknown = sum(draft.runtime_s is None for draft in self.drafts.values())
        if unknown:
            what = f"{unknown} of {len(self.drafts)} tasks name no run time"
            self.warnings.append(f"{what}; {ASSUMED_RUNTIME_S:g} s are assumed")
        tasks = tuple(draft.task() for draft in self.drafts.values())
        edges = tuple(Edge(parent=p, child=c, gb=gb) for (p, c), gb in self.edges.items())
        check_graph(tasks, edges, "")
        return WorkflowFile(
            name=name,
            job=WorkflowJob(id="1", tasks=tasks, edges=edges),
            commands={d.id: d.command for d in self.drafts.values() if d.command},
            warnings=tuple(self.warnings),
        )

    def _carry(self) -> None:
        """Load the edges with the files that pass along them."""
        writers: dict[str, list[str]] = {}
        for draft in self.drafts.values():
            for file in draft.outputs:
                writers.setdefault(file, []).append(draft.id)
        loose: set[str] = set()
        for draft in self.drafts.values():
            for file in draft.inputs - draft.outputs:
                for writer in writers.get(file, ()):
                    if (writer, draft.id) in self.edges:
                        self.edges[writer, draft.id] += self.sizes.get(file, 0.0)
                    else:
                        loose.add(file)
        if loose:
            gb = sum(self.sizes.get(file, 0.0) for file in loose)
            what = f"{len(loose)} files ({gb:.3g} GB) pass between tasks without an edge"
            self.warnings.append(f"{what}; they are not counted as data")


def named(task: str) -> str:
    """A task's name in an error."""
    return f"task {shown(task)}"


def number(value: Any, kind: Any, where: str) -> Any:
    """Read a number, or a text that is one, as an attribute of XML or a plain word of YAML is."""
    if isinstance(value, str):
        try:
            value = int(value) if kind is Procs else float(value)
        except ValueError:
            raise InputError(where, f"{shown(value)} is not a number") from None
    return read_json(value, kind, where)


EXTENSION: Mapping[str, Any] = {
    "parallel_fraction": Fraction,
    "min_procs": Procs,
    "max_procs": Procs,
    "comm_gb": Annotated[float, Meta(ge=0, le=LARGEST)],
}
"""Keys of ours in files of other systems, and what their values are."""


def read_extension(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read the keys of `EXTENSION`, whose values may be texts."""
    out = {}
    for key, value in fields.items():
        if key not in EXTENSION:
            raise InputError(where, f"{shown(key)} is not one of {', '.join(EXTENSION)}")
        out[key] = number(value, EXTENSION[key], f"{where}: {key}")
    return out
