"""Users of a third of all worlds: arrays of which few members run at once, and deadlines."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coalloc.core.base.effects import Effect, SaveJob
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Command, Submit, Update
from coalloc.model.values import replace
from tests.simulation.disk import Disk

TOLERANCE_S = 0.01


@dataclass
class Bounded:
    """Wishes about throttles and deadlines, drawn apart from all others.

    Attributes
    ----------
    now : float
        By the daemon's clock, which users take for right.
    arrays : set of tokens
    throttles : dict of array to the last acknowledged throttle
    """

    seed: int
    now: float = 0.0
    arrays: set[str] = field(default_factory=set)
    throttles: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._dice = random.Random(f"throttles and deadlines {self.seed}")

    def bound(self, token: str, command: Submit) -> Submit:
        """The submit with what they add to it."""
        dice = self._dice
        if command.array:
            self.arrays.add(token)
            command = replace(command, throttle=dice.choice([0, 1, 1]))
        if command.job.get("kind") != "rigid":
            return command
        job = {**command.job, "time_limit": dice.choice([None, None, 40.0, 90.0])}
        wanted = dice.choice([None, None, 35.0, 60.0, 100.0, 400.0])
        if wanted is None:
            return command
        return replace(command, job=job, finish_by=self.now + wanted)

    def think(self, known: Mapping[str, str]) -> Update | None:
        """A change of an array's throttle or of a job's deadline; None: of nothing."""
        dice = self._dice
        arrays = [known[token] for token in sorted(self.arrays) if token in known]
        match dice.randrange(6):
            case 0 if arrays:
                return Update(job=dice.choice(arrays), throttle=dice.choice([0, 1, 2]))
            case 1 if known:
                by = dice.choice([0.0, self.now + 50.0, self.now + 200.0])
                return Update(job=dice.choice(list(known.values())), finish_by=by)
            case _:
                return None

    def asked(self, command: Command) -> None:
        """What was acknowledged before stands only until the next change, heard of or not."""
        if isinstance(command, Update) and command.throttle is not None:
            self.throttles.pop(command.job, None)

    def granted(self, command: Command, body: Mapping[str, Any]) -> None:
        """A request was answered with yes."""
        if isinstance(command, Update) and command.throttle is not None:
            self.throttles[command.job] = command.throttle

    def at_step(self, disk: Disk) -> None:
        """What was acknowledged of throttles is on disk.

        Raises
        ------
        AssertionError
        """
        for number, throttle in self.throttles.items():
            for member in (f"{number}_1", f"{number}_2"):
                record = disk.jobs.get(member)
                assert record is None or record.is_ended or record.throttle == throttle, (
                    f"{number} was throttled to {throttle}, and {member} has {record.throttle}"
                )


class BoundsKept:
    """Follows arrays and deadlines in the order of the daemon's decisions."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobRecord] = {}

    def begin(self, disk: Disk) -> None:
        """A daemon has started on this disk."""
        self._jobs = dict(disk.jobs)

    def look(self, effects: Iterable[Effect], now: float) -> None:
        """No more members are placed than the throttle says, no job starts too late.

        Parameters
        ----------
        now : float
            By the daemon's clock.

        Raises
        ------
        AssertionError
        """
        for effect in effects:
            if not isinstance(effect, SaveJob):
                continue
            record = effect.record
            before = self._jobs.get(record.id)
            self._jobs[record.id] = record
            was_placed = before is not None and before.is_placed
            if record.is_placed and not was_placed and record.throttle:
                self._count(record)
            is_decided = record.state is JobState.STARTING and (
                before is None or before.state is not JobState.STARTING
            )
            if is_decided and record.finish_by is not None:
                limit = record.job.time_limit
                end = now + (record.planned if limit is None else limit)
                assert end <= record.finish_by + TOLERANCE_S, (
                    f"job {record.id} starts {end - record.finish_by:g} s too late"
                )

    def _count(self, record: JobRecord) -> None:
        number = record.id.partition("_")[0]
        placed = [
            job
            for job, other in self._jobs.items()
            if job.startswith(f"{number}_") and other.is_placed
        ]
        assert len(placed) <= record.throttle, (
            f"{', '.join(placed)} are placed, and only {record.throttle} of them may be"
        )
