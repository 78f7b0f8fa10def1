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
    job: Mapping[str, Any]
    """Fields of a job as in the snapshot format, without ``id`` and ``submitted``."""
    launch: Launch
    array: tuple[int, ...] = ()
    """Indices; one job for each."""
    hold: bool = False
    hold_infeasible: bool = False
    """Keep, held, a job that can never run; otherwise it is refused."""


class SubmitWorkflow(Submit, frozen=True, kw_only=True):
    """Queue a workflow: `job` is of that kind, `array` stays empty.

    `launch` is what the tasks have in common. With a command, every task runs it, each of its
    words with ``{task}``, ``{name}``, ``{id}`` and ``{procs}`` filled in; without one, `commands`
    says what each runs.
    """

    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The command of each task."""


class Cancel(Struct, frozen=True, kw_only=True):
    """End a job, waiting or running; also a task of a workflow or a piece, ``17.3``."""

    job: str
    reason: str = ""
    """For the record; empty: none was given."""


class Hold(Struct, frozen=True, kw_only=True):
    """Keep a waiting job from being planned."""

    job: str


class Release(Struct, frozen=True, kw_only=True):
    """Undo `Hold`."""

    job: str


class Update(Struct, frozen=True, kw_only=True):
    """Change a waiting job, or the waiting members of an array."""

    job: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the job as `Submit` has them; None takes one away."""
    name: str | None = None
    needs: tuple[tuple[str, str], ...] | None = None
    """Instead of its dependencies: kind and id."""
    batch: Mapping[str, str] = field(default_factory=dict)
    """Options of `BatchOptions` that change; an empty text takes one away."""
    throttle: int | None = None
    """Of a whole array, as of `Submit`."""
    finish_by: float | None = None
    """As of `Submit`; 0 takes it away."""


class SetPriority(Struct, frozen=True, kw_only=True):
    """Double the weight of a waiting job so many times; below 0 it is halved."""

    job: str
    priority: float


class Drain(Struct, frozen=True, kw_only=True):
    """Start nothing new on a cluster or a node."""

    target: str
    reason: str = ""


class Resume(Struct, frozen=True, kw_only=True):
    """Undo `Drain`."""

    target: str


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
    name: str = ""
    reason: str = ""


class Unreserve(Struct, frozen=True, kw_only=True):
    """Take a reservation back."""

    name: str


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


CommandAnswer = Done | Refused
