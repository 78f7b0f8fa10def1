"""Jobs that users submit in a cluster's own batch system, which hands them over."""

from __future__ import annotations

from dataclasses import dataclass, field

from coalloc.model.sites.parts import PartState
from coalloc.model.sites.reading import NativeJob

OVER = frozenset({"completed", "ended", "cancelled", "lost"})


@dataclass
class Guest:
    """A job as its batch system has it.

    Attributes
    ----------
    state : str
        ``waiting``, ``bound`` to nodes, ``running``, or how it is over.
    requeued : int
        How often the batch system has put it back.
    is_unwanted : bool
        Somebody, there or here, has asked for its end.
    """

    id: str
    procs: int
    submitted: float
    state: str = "waiting"
    runs: int = 0
    requeued: int = 0
    is_unwanted: bool = False


@dataclass
class Guests:
    """All that were submitted in one batch system."""

    jobs: dict[str, Guest] = field(default_factory=dict)

    def submit(self, procs: int, now: float) -> None:
        """A user there wants something."""
        name = str(70 + len(self.jobs))
        self.jobs[name] = Guest(id=name, procs=procs, submitted=now)

    def handed(self) -> tuple[NativeJob, ...]:
        """What a reading says of them."""
        return tuple(
            NativeJob(
                id=job.id,
                submitted=job.submitted,
                user="eve",
                procs=job.procs,
                time_limit=5.0,
                claimed=job.state == "bound",
            )
            for job in self.jobs.values()
            if job.state in {"waiting", "bound"}
        )

    def bind(self, name: str) -> bool:
        """Give one its nodes; False if it does not wait any more."""
        job = self.jobs[name]
        if job.state != "waiting":
            return False
        job.state = "bound"
        return True

    def let_go(self, name: str) -> None:
        """It runs.

        Raises
        ------
        AssertionError
            If it has no nodes, or has run before without having been put back.
        """
        job = self.jobs[name]
        assert job.state == "bound", f"guest {name} is let go, and is {job.state}"
        job.state = "running"
        job.runs += 1
        assert job.runs <= 1 + job.requeued, f"guest {name} runs too often"

    def dismiss(self, name: str) -> None:
        """It is not to run."""
        if self.jobs[name].state == "waiting":
            self.jobs[name].state = "cancelled"

    def follow(self, name: str, state: PartState, reason: str) -> None:
        """Its part has ended."""
        job = self.jobs[name]
        if state is PartState.REFUSED and job.state == "bound":
            job.state = "waiting"
        elif state is PartState.LOST:
            job.state = "lost"
        elif state is not PartState.REFUSED and job.state == "running":
            job.state = "ended" if reason == "aborted" else "completed"

    def check(self) -> None:
        """Nobody ends a job that everybody wants.

        Raises
        ------
        AssertionError
        """
        for job in self.jobs.values():
            assert job.is_unwanted or job.state not in {"cancelled", "ended"}, f"{job}"

    def are_over(self) -> bool:
        """None waits or runs."""
        return all(job.state in OVER for job in self.jobs.values())
