"""Notes of `bicriteria-batch` between rounds: the jobs of the batch that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.modes import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A job of a batch, or a task of a workflow."""

    job: str
    task: str | None
    procs: int
    """The allotment chosen when the batch began."""
    shelf_s: float
    """Length of its shelf, seconds; 0 where it has none."""

    @property
    def running_as(self) -> tuple[str, str | None]:
        """The job's id, and "" where its tasks run as the id, a point, and a number."""
        return self.job, None if self.task is None else ""

    @classmethod
    def of(cls, item: Item, procs: int, shelf_s: float) -> Member:
        """Name an item of a planner."""
        return cls(job=item.job.id, task=item.task_id, procs=procs, shelf_s=shelf_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The jobs that started, or are to start, before anything that arrived later."""

    number: int = 0
    """1 is the first."""
    begun: float = 0.0
    """When it began, on the snapshots' axis, seconds."""
    members: tuple[Member, ...] = ()
    """In the order in which they are listed."""

    @classmethod
    def read(cls, notes: Mapping[str, Any]) -> Batch:
        """Read notes; what are no notes of ours is as none."""
        try:
            members = tuple(
                Member(job=str(job), task=task, procs=int(procs), shelf_s=float(shelf))
                for job, task, procs, shelf in notes.get("members", ())
            )
            return cls(
                number=int(notes.get("number", 0)),
                begun=float(notes.get("begun", 0.0)),
                members=members,
            )
        except (TypeError, ValueError):
            return cls()

    def write(self) -> dict[str, Any]:
        """The notes to read in the next round."""
        rows = [[m.job, m.task, m.procs, m.shelf_s] for m in self.members]
        return {"number": self.number, "begun": self.begun, "members": rows}

    def still_there(self, planner: Planner) -> Batch:
        """Without the members that have ended, are gone, or cannot run any more."""
        waiting = {(item.job.id, item.task_id) for item in planner.items}
        running: set[tuple[str, str | None]] = {(run.id, None) for run in planner.snapshot.running}
        running |= {(run.id.rpartition(".")[0], "") for run in planner.snapshot.running}
        kept = [
            member
            for member in self.members
            if (member.job, member.task) in waiting or member.running_as in running
        ]
        return replace(self, members=tuple(kept))

    def runs(self, running: str) -> bool:
        """Whether this running job, or task of a workflow, is of the batch."""
        names = {(running, None), (running.rpartition(".")[0], "")}
        return any(member.running_as in names for member in self.members)

    def shelves(self) -> list[float]:
        """Lengths of the shelves whose jobs have not all ended, seconds, by rising length."""
        return sorted({member.shelf_s for member in self.members} - {0.0})
