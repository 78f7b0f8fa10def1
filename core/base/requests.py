"""Commands of clients, and the common shape of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from coalloc.core.base.records import SubmitOptions
from coalloc.model.sites.parts import Launch


class Submit(SubmitOptions, frozen=True, kw_only=True):
    """Queue a job; the same token from the same user is the same job."""

    token: str
    """Made by the client; the same token of the same user is the same job."""
    job: Mapping[str, Any]
    """A job of the snapshot format (docs/FORMATS.md), without ``id``, ``submitted``, ``held``,
    ``after``, ``passed_over`` and ``priority``, which the daemon sets."""
    launch: Launch
    """What is executed."""
    array: tuple[int, ...] | str = ()
    """Indices, different and not negative; a job for each. Or as a text: ``0-9,12,20-30:2``."""
    hold: bool = False
    """Queue it held."""
    hold_infeasible: bool = False
    """Keep, held, a job that can never run; otherwise it is refused."""

    def ids(self, number: str) -> list[str]:
        """The jobs that it makes; an array that is a text counts as one."""
        members = () if isinstance(self.array, str) else self.array
        return [f"{number}_{index}" for index in members] or [number]


class SubmitWorkflow(Submit, frozen=True, kw_only=True):
    """Queue a workflow: `job` is of that kind, `array` stays empty.

    `launch` is what the tasks have in common. With a command, every task runs it, each of its
    words with ``{task}``, ``{name}``, ``{id}`` and ``{procs}`` filled in; without one, `commands`
    says what each runs.
    """

    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What each task runs where ``launch`` has no ``argv``."""


class OfJob(Struct, frozen=True, kw_only=True):
    """A command about one job, or all members of an array."""

    job: str
    """Its id."""


class Cancel(OfJob, frozen=True, kw_only=True):
    """End a job, waiting or running; also a task of a workflow or a piece, ``17.3``."""

    reason: str = ""
    """Kept with the job: one line of at most 500 characters."""


class Hold(OfJob, frozen=True, kw_only=True):
    """Keep a waiting job from being planned."""


class Release(OfJob, frozen=True, kw_only=True):
    """Undo `Hold`."""


class Update(Struct, frozen=True, kw_only=True):
    """Change a waiting job, or the waiting members of an array."""

    job: str
    """Its id, or an array's."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``job`` of ``submit`` to set; null takes one away, and run times that the user has
    not named are estimated again."""
    name: str | None = None
    """Its new name."""
    needs: tuple[tuple[str, str], ...] | None = None
    """Instead of its dependencies: kind and id."""
    batch: Mapping[str, str] = field(default_factory=dict)
    """Options of `BatchOptions` that change; an empty text takes one away."""
    throttle: int | None = None
    """As in ``submit``, of a whole array, for those of its members that run, too; 0: none."""
    finish_by: float | None = None
    """As of `Submit`; 0 takes it away."""


class SetPriority(OfJob, frozen=True, kw_only=True):
    """Double the weight of a waiting job so many times; below 0 it is halved."""

    priority: float
    """Doublings, -30 to 30; 0 as before."""


class Drain(Struct, frozen=True, kw_only=True):
    """Start nothing new on a cluster or a node."""

    target: str
    """Cluster or node."""
    reason: str = ""
    """For the record."""


class Resume(Struct, frozen=True, kw_only=True):
    """Undo `Drain`."""

    target: str
    """Cluster or node."""


class Reserve(Struct, frozen=True, kw_only=True):
    """Keep nodes for the jobs of some users, or for nobody."""

    targets: tuple[str, ...]
    """Nodes, and clusters for all of theirs."""
    count: int | None = None
    """So many of them, those that are free the soonest; otherwise all."""
    start: float | None = None
    """Seconds since the epoch; otherwise now."""
    duration_s: float | None = None
    """Otherwise until it is taken back."""
    users: tuple[str, ...] = ()
    """Whose jobs may run there."""
    name: str = ""
    """"": ``r1``, ``r2``, …."""
    reason: str = ""
    """For the record."""


class Unreserve(Struct, frozen=True, kw_only=True):
    """Take a reservation back."""

    name: str
    """Of the reservation."""


class PauseRounds(Struct, frozen=True, kw_only=True):
    """Plan nothing until `ResumeRounds`."""


class ResumeRounds(Struct, frozen=True, kw_only=True):
    """Plan again."""


class RoundNow(Struct, frozen=True, kw_only=True):
    """Start a round."""


Command = (
    Submit
    | SubmitWorkflow
    | Cancel
    | Hold
    | Release
    | Update
    | SetPriority
    | Drain
    | Resume
    | Reserve
    | Unreserve
    | PauseRounds
    | ResumeRounds
    | RoundNow
)


class Done(Struct, frozen=True, kw_only=True):
    """The request was carried out, and is on disk."""

    body: Mapping[str, Any] = field(default_factory=dict)


class Refused(Struct, frozen=True, kw_only=True):
    """The request was not carried out."""

    code: str
    """``bad_request``, ``not_found``, ``not_allowed``, ``infeasible``, ``too_many``,
    ``wrong_state``, ``storage`` or ``busy``."""
    message: str


class RequestError(Exception):
    """Refuses a command or a question."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.refused = Refused(code=code, message=message)


CommandAnswer = Done | Refused
