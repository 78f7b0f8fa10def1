"""Jobs of many parts while they live: workflows, and the chunk pools of divisible jobs.

A workflow is one job. A task gets a record of its own when it is first placed, so that a queue
of many large workflows stays light; what is said of the others follows from these.

A divisible job is one job. What runs are its pieces, records of their own with chunks in a row
each, numbered from 1 on. Chunks go to pieces from the lowest on, and stay: a piece that failed is
tried again with its chunks, and where it gets room for fewer, a new piece has the rest. So no chunk
is ever in two pieces, and what a restart finds says all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from coalloc.core.base.records import JobRecord, JobState
from coalloc.model.jobs import DivisibleJob, Edge, Job, Task, WorkflowJob, span
from coalloc.model.plan import Placement

ALMOST = 1.0 + 1e-9
NEAR_S = 1e-3
"""Later by less than this is not late."""
REST = ""
"""Stands for the chunks that no piece has had yet."""


@dataclass(slots=True, kw_only=True)
class Flow:
    """A workflow or divisible job that lives: its tasks by name, or its pieces by number."""

    id: str
    open: dict[str, None] = field(default_factory=dict)
    """Those that wait for their parents, for nodes, or to be tried again."""
    placed: dict[str, None] = field(default_factory=dict)
    """Those that occupy nodes."""
    completed: dict[str, None] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)
    """Those that ended otherwise, in that order, and will not be tried again."""
    resting: dict[str, float] = field(default_factory=dict)
    """By task or piece that is tried again: not before this time, seconds."""

    def job_of(self, part: str) -> str:
        """Id of a task's or a piece's record."""
        return f"{self.id}.{part}"

    def jobs(self) -> Iterator[str]:
        """Ids of the records that tasks or pieces have, or would have."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class WorkflowState(Flow):
    """The tasks of one workflow."""

    tasks: dict[str, Task]
    numbers: dict[str, int]
    """By task: its place in the workflow, from 1 on; with the workflow's id, the id of its
    record."""
    parents: dict[str, tuple[Edge, ...]]
    """By task: the edges to it."""
    children: dict[str, tuple[Edge, ...]]
    """By task: the edges from it."""
    unmet: dict[str, int]
    """By task: parents that have not completed."""
    dropped: set[str] = field(default_factory=set)
    """Those that will never run, because they stand behind one that failed."""

    @classmethod
    def of(cls, id: str, job: WorkflowJob) -> WorkflowState:
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

    def job_of(self, part: str) -> str:
        """Id of a task's record."""
        return f"{self.id}.{self.numbers[part]}"

    def jobs(self) -> Iterator[str]:
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
            self.failed[task] = None
            behind = self.behind([task])
            self.dropped |= behind
            for other in behind:
                self.open.pop(other, None)
        elif task not in self.completed:
            self.completed[task] = None
            for edge in self.children[task]:
                self.unmet[edge.child] -= 1
                if self.is_ready(edge.child):
                    yield edge.child

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


def is_stopping(record: JobRecord, flow: Flow) -> bool:
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


@dataclass(slots=True, kw_only=True)
class ChunkPool(Flow):
    """The chunks of one divisible job; `REST` is open while there are some in no piece."""

    total: int
    given: int = 0
    """Those below this one are in pieces."""
    last: int = 0
    """Number of the newest piece."""
    done: int = 0
    """Chunks of completed pieces."""
    chunks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By piece, named by its number: its first chunk, and how many it has."""

    @classmethod
    def of(cls, id: str, job: DivisibleJob) -> ChunkPool:
        """The job before any of its chunks was placed."""
        return cls(id=id, total=job.chunks, open={REST: None})

    def jobs(self) -> Iterator[str]:
        return map(self.job_of, self.chunks)

    def take(self, record: JobRecord) -> Iterable[str]:
        """Follow the record of a piece; none becomes ready by another's end."""
        piece = record.id.partition(".")[2]
        self.last = max(self.last, int(piece))
        for table in (self.open, self.placed, self.failed, self.resting):
            table.pop(piece, None)
        self.chunks[piece] = record.chunk_first, record.chunks
        self.given = max(self.given, record.chunk_first + record.chunks)
        if self.given >= self.total:
            self.open.pop(REST, None)
        if not record.chunks:
            pass  # Only its number is taken.
        elif record.is_placed:
            self.placed[piece] = None
        elif record.is_waiting:
            self.open[piece] = None
            self.resting[piece] = record.not_before
        elif record.state is not JobState.COMPLETED:
            self.failed[piece] = None
        elif piece not in self.completed:
            self.completed[piece] = None
            self.done += record.chunks
        return ()

    def free(self, now: float) -> list[tuple[str, int, int]]:
        """Piece, first chunk and count of what may be placed now, from the lowest chunk on."""
        again = [
            (piece, *self.chunks[piece])
            for piece in self.open
            if piece != REST and self.resting[piece] <= now
        ]
        again.sort(key=lambda entry: entry[1])
        rest = [(REST, self.given, self.total - self.given)] if REST in self.open else []
        return again + rest

    def left(self, now: float) -> int:
        """Chunks that may be placed now."""
        return sum(count for _, _, count in self.free(now))

    def running(self) -> int:
        """Chunks of the pieces that occupy nodes."""
        return sum(self.chunks[piece][1] for piece in self.placed)

    def lost(self) -> int:
        """Chunks of the pieces that will not be tried again."""
        return sum(self.chunks[piece][1] for piece in self.failed)


class PieceShare(Struct, frozen=True, kw_only=True):
    """One piece's share of a placement."""

    piece: str
    """The one that is tried again; `REST`: a new one."""
    first: int
    chunks: int
    nodes: dict[str, int]
    """By node name: processes."""
    seconds: float


def shares(
    pool: ChunkPool, placement: Placement, longest_s: float, followers: Iterable[float], now: float
) -> list[PieceShare]:
    """Deal free chunks to the processes of a placement, the lowest first.

    The placement's length and chunks say how long one chunk runs there. A piece gets fewer chunks
    than planned rather than run for longer than `longest_s`, but one per process. The plan is older
    than `now`: where one of the `followers`, planned to start on its nodes, would be delayed by
    that, the piece gets what ends in time, which may be nothing.
    """
    assert placement.chunks is not None
    procs = sum(placement.nodes.values())
    each = -(-placement.chunks // procs)
    chunk_s = (placement.end - placement.start) / each
    if longest_s < each * chunk_s:
        each = max(1, int(longest_s / chunk_s * ALMOST))
    end = now + each * chunk_s
    if any(placement.end - NEAR_S <= start < end - NEAR_S for start in followers):
        each = min(each, int((placement.end - now) / chunk_s * ALMOST))
    left = min(placement.chunks, each * procs)
    nodes = [name for name, count in placement.nodes.items() for _ in range(count)]
    out = []
    for piece, first, count in pool.free(now) if each > 0 else ():
        taken = min(count, left, each * len(nodes))
        if not taken:
            break
        used = -(-taken // each)
        mine, nodes = nodes[:used], nodes[used:]
        left -= taken
        out.append(
            PieceShare(
                piece=piece,
                first=first,
                chunks=taken,
                nodes=dict(Counter(mine)),
                seconds=-(-taken // used) * chunk_s,
            )
        )
    return out


def spans(pool: ChunkPool, pieces: Iterable[str]) -> str:
    """The chunks of some pieces, neighbours together."""
    rows: list[list[int]] = []
    for first, count in sorted(pool.chunks[piece] for piece in pieces):
        if rows and rows[-1][0] + rows[-1][1] == first:
            rows[-1][1] += count
        else:
            rows.append([first, count])
    return ", ".join(span(first, count) for first, count in rows)
