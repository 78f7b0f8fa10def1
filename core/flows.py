"""Where the tasks of a living workflow are, from the records of those that were ever placed.

A workflow is one job. A task gets a record of its own when it is first placed, so that a queue
of many large workflows stays light; what is said of the others follows from these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from coalloc.core.pieces import Pool, span
from coalloc.core.records import JobRecord, JobState
from coalloc.model.jobs import Edge, Job, Task, WorkflowJob


@dataclass(slots=True)
class Flow:
    """The tasks of one workflow.

    Attributes
    ----------
    numbers : dict of task to int
        Its place in the workflow, from 1 on; with the workflow's id, the id of its record.
    parents, children : dict of task to tuple of Edge
    unmet : dict of task to int
        Parents that have not completed.
    open : dict of task to None
        Those that wait for their parents, for nodes, or to be tried again.
    placed : dict of task to None
        Those that occupy nodes.
    completed : dict of task to None
    failed : dict of task to None
        Those that ended otherwise, in that order, and will not be tried again.
    dropped : set of task
        Those that will never run, because they stand behind one that failed.
    resting : dict of task to float
        Of those that are tried again: not before this time, seconds.
    """

    id: str
    tasks: dict[str, Task]
    numbers: dict[str, int]
    parents: dict[str, tuple[Edge, ...]]
    children: dict[str, tuple[Edge, ...]]
    unmet: dict[str, int]
    open: dict[str, None]
    placed: dict[str, None] = field(default_factory=dict)
    completed: dict[str, None] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    resting: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, id: str, job: WorkflowJob) -> Flow:
        """The workflow before any of its tasks was placed."""
        parents: dict[str, list[Edge]] = {task.id: [] for task in job.tasks}
        children: dict[str, list[Edge]] = {task.id: [] for task in job.tasks}
        for edge in job.edges:
            parents[edge.child].append(edge)
            children[edge.parent].append(edge)
        return cls(
            id=id,
            tasks={task.id: task for task in job.tasks},
            numbers={task.id: n for n, task in enumerate(job.tasks, 1)},
            parents={name: tuple(edges) for name, edges in parents.items()},
            children={name: tuple(edges) for name, edges in children.items()},
            unmet={name: len(edges) for name, edges in parents.items()},
            open=dict.fromkeys(task.id for task in job.tasks),
        )

    def job_of(self, task: str) -> str:
        """Id of a task's record."""
        return f"{self.id}.{self.numbers[task]}"

    def jobs(self) -> Iterator[str]:
        """Ids of the records that tasks have, or would have."""
        return map(self.job_of, self.tasks)

    def is_ready(self, task: str) -> bool:
        """It waits for none of its parents, and has not been placed."""
        return task in self.open and not self.unmet[task]

    def take(self, record: JobRecord) -> Iterator[str]:
        """Follow the record of a task; yields the tasks that have become ready."""
        task = record.task
        if task not in self.tasks:
            return
        self.placed.pop(task, None)
        self.resting.pop(task, None)
        self.open.pop(task, None)
        if record.is_placed:
            self.placed[task] = None
        elif record.is_waiting:
            self.open[task] = None
            self.resting[task] = record.not_before
        elif record.state is not JobState.COMPLETED:
            self._fail(task)
        elif task not in self.completed:
            self.completed[task] = None
            for edge in self.children[task]:
                self.unmet[edge.child] -= 1
                if self.is_ready(edge.child):
                    yield edge.child

    def _fail(self, task: str) -> None:
        self.failed[task] = None
        behind = self.behind([task])
        self.dropped |= behind
        for other in behind:
            self.open.pop(other, None)

    def behind(self, tasks: Iterable[str]) -> set[str]:
        """All that need one of these tasks, directly or not."""
        out: set[str] = set()
        todo = list(tasks)
        while todo:
            for edge in self.children[todo.pop()]:
                if edge.child not in out:
                    out.add(edge.child)
                    todo.append(edge.child)
        return out

    def plannable(self, now: float) -> Collection[str]:
        """Open tasks but those that rest, and those behind them; in the order of the file."""
        resting = [task for task, until in self.resting.items() if until > now]
        if not resting:
            return self.open
        left_out = self.behind(resting).union(resting)
        return [task for task in self.open if task not in left_out]


def are_in_order(tasks: Collection[Task], edges: Iterable[Edge]) -> bool:
    """Every task comes once, and after its parents: so there is no cycle, and no end is missing.

    True of most files; where it is not, `coalloc.model.job_json.check_graph` says what there is.
    """
    place = {task.id: n for n, task in enumerate(tasks)}
    if len(place) < len(tasks):
        return False
    missing = len(place)
    return all(place.get(e.parent, missing) < place.get(e.child, -1) for e in edges)


def is_stopping(record: JobRecord, flow: Flow | Pool) -> bool:
    """No further task of this workflow, or piece of this job, is started."""
    return bool(record.cancelled_by) or (bool(flow.failed) and not record.keep_going)


def part_fields(record: JobRecord) -> dict[str, str]:
    """Fields of a task or a piece in log lines and events."""
    if record.chunks:
        return {"chunks": span(record.chunk_first, record.chunks)}
    return {"task": record.task} if record.task else {}


def flow_of(job: str) -> tuple[str, str]:
    """The id of a job and what names one of its tasks or pieces; two empty texts for other ids."""
    number, dot, task = job.partition(".")
    return (number, task) if dot else ("", "")


def named(job: Job, text: str) -> tuple[int, str] | None:
    """Number and name of the task of this number or this name; a number comes first."""
    if not isinstance(job, WorkflowJob):
        return None
    if text.isdecimal() and text.isascii() and 1 <= int(text) <= len(job.tasks):
        return int(text), job.tasks[int(text) - 1].id
    return next(((n, task.id) for n, task in enumerate(job.tasks, 1) if task.id == text), None)
