"""Users of half of all worlds: projects with limits, changes of jobs, reservations, priorities."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coalloc.core.base.effects import Effect, SaveJob, SaveMeta
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import (
    Command,
    Reserve,
    SetPriority,
    Submit,
    SubmitWorkflow,
    Unreserve,
    Update,
)
from coalloc.core.base.state_tables import Reserved
from coalloc.core.commands.reservations import META, read_reserved
from coalloc.model.settings import LimitsConfig, PriorityConfig, ProjectConfig
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.values import replace
from tests.simulation.disk import Disk

PROJECTS = {
    "red": ProjectConfig(
        share=3.0,
        users=("u", "v"),
        max_procs=5,
        each_user=LimitsConfig(max_running_jobs=2),
        guarantees={"a": 1},
    ),
    "blue": ProjectConfig(users=("v", "w"), max_procs=6, max_running_jobs=1),
}
PRIORITY = PriorityConfig(shares=8.0, age=2.0, size=-1.0, half_life_s=600.0)
USERS = ("u", "v", "w", "x")
"""The last is in no project."""
FIELDS: dict[str, tuple[object, ...]] = {
    "time_limit": (40.0, 60.0, 90.0),
    "procs": (1, 2, 3),
    "weight": (0.5, 4.0),
}
"""Fields of jobs that users change, with what they change them to."""


@dataclass
class Wider:
    """Wishes beside the plain ones, drawn apart from them.

    Attributes
    ----------
    owners : dict of token to user
    named : dict of token to its job's name
    changed : dict of job to its fields as the last acknowledged changes have left them
    priorities : dict of job to the last acknowledged priority
    reserved : set of names of reservations
        Those that were asked for and not taken back.
    redirected : set of job
        Those whose dependencies somebody has asked to change.
    """

    seed: int
    clusters: tuple[str, ...]
    owners: dict[str, str] = field(default_factory=dict)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    priorities: dict[str, float] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)
    redirected: set[str] = field(default_factory=set)
    made: int = 0
    arrays: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._dice = random.Random(f"wider wishes {self.seed}")

    def think(self, jobs: list[str]) -> Command | None:
        """A command, or None for one of the plain ones."""
        dice = self._dice
        if dice.random() < 0.3:
            return None
        match dice.randrange(5):
            case 0 | 1 if jobs:
                return self._change(dice.choice(jobs), jobs)
            case 2 if jobs:
                return SetPriority(job=dice.choice(jobs), priority=dice.choice([-3.0, 2.0, 5.0]))
            case 3 if len(self.reserved) < 2:
                self.made += 1
                name = f"kept{self.made}"
                self.reserved.add(name)
                return Reserve(
                    targets=(dice.choice(self.clusters),),
                    count=1,
                    duration_s=dice.choice([None, 30.0, 300.0]),
                    users=dice.choice([(), ("u",), ("v", "w")]),
                    name=name,
                )
            case 4 if self.reserved:
                return self._taken_back(dice.choice(sorted(self.reserved)))
            case _:
                return None

    def _change(self, job: str, jobs: list[str]) -> Update:
        dice = self._dice
        kind = dice.randrange(5)
        if kind == 0:
            return Update(job=job, batch={"account": dice.choice(["", "red", "blue"])})
        if kind == 1:
            self.redirected.add(job)
            needs = (("afterany", dice.choice(jobs)),) if dice.random() < 0.5 else ()
            return Update(job=job, needs=needs)
        name = dice.choice(list(FIELDS))
        return Update(job=job, fields={name: dice.choice(FIELDS[name])})

    def _taken_back(self, name: str) -> Unreserve:
        self.reserved.discard(name)
        return Unreserve(name=name)

    def undo(self) -> list[Command]:
        """Take all reservations back."""
        return [self._taken_back(name) for name in sorted(self.reserved)]

    def widened(self, token: str, command: Submit, known: Mapping[str, str]) -> tuple[str, Submit]:
        """The user who submits it, and the submit with what he adds to it."""
        dice = self._dice
        user = self.owners[token] = dice.choice(USERS)
        if user == "v" and dice.random() < 0.5:
            command = replace(command, batch=BatchOptions(account="blue"))
        if command.array:
            self.arrays.add(token)
        if (
            command.needs
            or command.job.get("kind") != "rigid"
            or isinstance(command, SubmitWorkflow)
        ):
            return user, command
        command = replace(
            command, requeue=dice.random() < 0.5, name=dice.choice(["work", "one", "two"])
        )
        arrays = [known[one] for one in sorted(self.arrays) if one in known]
        match dice.randrange(6):
            case 0 if known:
                command = replace(command, needs=(("after", dice.choice(list(known.values()))),))
            case 1 if command.array and arrays:
                command = replace(command, needs=(("aftercorr", dice.choice(arrays)),))
            case 2 if not command.array:
                command = replace(command, needs=(("singleton", ""),))
            case _:
                pass
        return user, command

    def asked(self, command: Command) -> None:
        """What was acknowledged before stands only until the next change, heard of or not."""
        match command:
            case Update(job=asked, fields=fields):
                for job in self.changed:
                    if asked in {job, job.partition("_")[0]}:
                        for name in fields:
                            self.changed[job].pop(name, None)
            case SetPriority(job=asked):
                for job in list(self.priorities):
                    if asked in {job, job.partition("_")[0]}:
                        del self.priorities[job]
            case _:
                pass

    def granted(self, command: Command, body: Mapping[str, Any]) -> None:
        """A request was answered with yes."""
        match command:
            case Update(fields=fields) if fields:
                for job in body["jobs"]:
                    self.changed.setdefault(job, {}).update(fields)
            case SetPriority(priority=priority):
                self.priorities |= dict.fromkeys(body["jobs"], priority)
            case _:
                pass

    def restored(self, disk: Disk) -> None:
        """The store is an older copy: what was changed since may be as it was."""
        self.changed.clear()
        self.priorities.clear()
        self.reserved = set(read_reserved(disk.meta.get(META, "")))


class KeptNodes:
    """Follows the reservations in the order of the daemon's decisions."""

    def __init__(self) -> None:
        self._reserved: dict[str, Reserved] = {}
        self._attempts: dict[str, int] = {}

    def begin(self, disk: Disk) -> None:
        """A daemon has started on this disk."""
        self._reserved = read_reserved(disk.meta.get(META, ""))
        self._attempts = {job: record.attempt for job, record in disk.jobs.items()}

    def look(self, effects: Iterable[Effect], now: float) -> None:
        """No start is decided on nodes that are kept for others.

        Parameters
        ----------
        now : float
            By the daemon's clock.

        Raises
        ------
        AssertionError
        """
        for effect in effects:
            match effect:
                case SaveMeta(key=key, value=value) if key == META:
                    self._reserved = read_reserved(value)
                case SaveJob(record=record):
                    is_new = self._attempts.get(record.id, 0) < record.attempt
                    self._attempts[record.id] = record.attempt
                    if not is_new or record.state is not JobState.PREPARING or record.queued:
                        continue
                    nodes = {node for part in record.parts for node in part.nodes}
                    for kept in self._reserved.values():
                        is_kept = record.user not in kept.users and nodes & set(kept.nodes)
                        in_time = kept.start < now < kept.end
                        assert not (is_kept and in_time), (
                            f"job {record.id} of {record.user} is to start on nodes of {kept}"
                        )
                case _:
                    pass
