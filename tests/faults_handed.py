"""The seeded world of `tests.faults`, with jobs that users submit in the batch systems.

A user may cancel such a job there at any time, and the batch system may requeue one that runs.
Readings are late, lost and doubled like every other statement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coalloc.core.events import Requested
from coalloc.core.executor import DismissJob, ExecutorEffect
from coalloc.core.messages import Prepare, Read
from coalloc.core.records import PART_ENDED, JobState, PartState
from coalloc.core.requests import Cancel
from coalloc.model.reading import HandedJob
from tests.faults import NODES, Part, World
from tests.site import reading

MOST = 6
"""Handed jobs of each cluster."""
OVER = frozenset({"completed", "ended", "cancelled"})


@dataclass
class Foreign:
    """A job as its batch system has it."""

    id: str
    procs: int
    submitted: float
    state: str = "waiting"
    runs: int = 0
    requeued: int = 0
    unwanted: bool = False
    """Somebody, there or here, asked for its end."""


class HandedWorld(World):
    """Daemon, executors and client, and users of the batch systems."""

    def __init__(self, seed: int, faults: float = 0.15) -> None:
        self.foreign: dict[str, dict[str, Foreign]] = {name: {} for name in NODES}
        super().__init__(seed, faults)

    def step(self) -> None:
        self.users_act()
        super().step()

    def users_act(self) -> None:
        name = self.dice.choice(list(NODES))
        there = self.foreign[name]
        if len(there) < MOST and self.dice.random() < 0.05:
            job = Foreign(
                id=str(70 + len(there)), procs=self.dice.choice([1, 2]), submitted=self.now
            )
            there[job.id] = job
        if not there or self.faults == 0.0:
            return
        job = self.dice.choice(list(there.values()))
        if self.chance(0.01) and job.state not in OVER:
            self.end_there(name, job, "cancelled", "cancelled_there")
            job.unwanted = True
        elif self.chance(0.01) and job.state == "running":
            job.requeued += 1
            job.submitted = self.now
            self.end_there(name, job, "waiting", "requeued")
        elif self.chance(0.01):
            self.cancel_here(name, job)

    def end_there(self, name: str, job: Foreign, state: str, reason: str) -> None:
        job.state = state
        for part in self.parts[name].values():
            if part.order.foreign == job.id and part.state not in PART_ENDED:
                ran = part.state is PartState.RUNNING
                part.state = PartState.FINISHED if ran else PartState.REFUSED
                part.reason, part.code, part.ends = reason, 143 if ran else None, self.now
                if reason == "requeued":
                    del self.starts[part.order.job, part.order.part]

    def cancel_here(self, name: str, job: Foreign) -> None:
        for record in self.disk.jobs.values():
            if (record.origin, record.foreign) == (name, job.id) and not record.is_ended:
                job.unwanted = True
                command = Cancel(job=record.id)
                asked = Requested(
                    origin="", user="op", uid=1, gid=1, operator=True, command=command
                )
                self.tell(asked)
                return

    def read(self, name: str) -> Read:
        handed = tuple(
            HandedJob(
                id=job.id,
                submitted=job.submitted,
                user="eve",
                procs=job.procs,
                time_limit=5.0,
                claimed=job.state == "bound",
            )
            for job in self.foreign[name].values()
            if job.state in {"waiting", "bound"}
        )
        seen = replace(reading(name, NODES[name]), handed=handed)
        return Read(cluster=name, reading=seen, at=self.now)

    def claimed(self, name: str, order: Prepare) -> Part:
        part = super().claimed(name, order)
        if order.foreign:
            job = self.foreign[name][order.foreign]
            if job.state == "waiting":
                job.state = "bound"
            else:
                part.state, part.reason = PartState.REFUSED, "cancelled_there"
        return part

    def start(self, name: str, part: Part) -> None:
        before = part.state
        super().start(name, part)
        if part.order.foreign and before is not part.state:
            job = self.foreign[name][part.order.foreign]
            assert job.state == "bound", f"{job} was let go"
            job.state = "running"
            job.runs += 1

    def launchers_move(self) -> None:
        super().launchers_move()
        for name, parts in self.parts.items():
            for part in parts.values():
                if part.order.foreign and part.state in PART_ENDED:
                    self.follow(self.foreign[name][part.order.foreign], part)

    def carry_out(self, name: str, effects: list[ExecutorEffect]) -> None:
        super().carry_out(name, effects)
        for effect in effects:
            if isinstance(effect, DismissJob):
                job = self.foreign[name][effect.foreign]
                if job.state == "waiting":
                    job.state = "cancelled"
        for part in self.parts[name].values():
            if part.order.foreign and part.state in PART_ENDED:
                self.follow(self.foreign[name][part.order.foreign], part)

    def follow(self, job: Foreign, part: Part) -> None:
        """What the launcher does with the job when its part has ended."""
        if part.reason in {"cancelled_there", "requeued"} or part.settled:
            return
        part.settled = True
        if part.state is PartState.REFUSED and job.state == "bound":
            job.state = "waiting"
        elif part.state is PartState.FINISHED and job.state == "running":
            job.state = "ended" if part.reason == "aborted" else "completed"

    def check(self) -> None:
        super().check()
        records: dict[tuple[str, str], str] = {}
        for record in self.disk.jobs.values():
            if record.origin:
                key = (record.origin, record.foreign)
                assert key not in records, f"{key} is job {records[key]} and job {record.id}"
                records[key] = record.id
        for there in self.foreign.values():
            for job in there.values():
                assert job.runs <= 1 + job.requeued, f"{job} ran too often"
                assert job.unwanted or job.state not in {"cancelled", "ended"}, f"{job}"

    def is_over(self) -> bool:
        jobs = [(name, job) for name, there in self.foreign.items() for job in there.values()]
        if len(jobs) < MOST * len(NODES) or not all(job.state in OVER for _, job in jobs):
            return False
        if not super().is_over():
            return False
        for record in self.disk.jobs.values():
            if record.origin:
                job = self.foreign[record.origin][record.foreign]
                here, there = record.state is JobState.COMPLETED, job.state == "completed"
                # Whoever asks for its end may be too late for it.
                assert here <= there <= (here or job.unwanted), f"{record.state} here, {job}"
        return True
