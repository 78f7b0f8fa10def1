"""Events for the daemon's core."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from coalloc.core.base.messages import Statement
from coalloc.core.base.requests import Command
from coalloc.core.base.settings import Settings
from coalloc.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A client asks for a change.

    Attributes
    ----------
    origin : hashable
        Handed back with the answer; means nothing to the core.
    user : str
    uid, gid : int
    operator : bool
        May act on other people's jobs and on the service.
    """

    origin: Hashable
    user: str
    uid: int
    gid: int
    operator: bool
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementReceived:
    """An executor says something.

    Attributes
    ----------
    peer : hashable
        The connection that it came from; means nothing to the core but that equal ones are one.
    """

    statement: Statement
    peer: Hashable = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """An executor was not heard of for too long."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer trigger is due; `trigger` is its index in the configuration."""

    trigger: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed; deadlines may be over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncumbentFound:
    """The running solve has a first plan, already checked."""

    round: int
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The solve of a round ended with a plan that passed the checker."""

    round: int
    plan: Plan
    solve_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveFailed:
    """The solve of a round ended without a usable plan.

    Attributes
    ----------
    jobs : tuple of str
        Those that the plan is wrong about; empty where there is none.
    """

    round: int
    policy: str
    why: str
    solve_s: float
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLost:
    """Nothing can be written: no round, until `StorageReturned`.

    Attributes
    ----------
    jobs : tuple of str
        New ones that could not be written; they were not acknowledged.
    """

    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReturned:
    """All that was kept back is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverWarm:
    """The solver is ready: what a round without it has left waiting is planned again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsWanted:
    """The next round in which rules are in force is to say what each of them costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecalled:
    """The store knows the job of a token; the submit that it came with is the next event."""

    user: str
    token: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigured:
    """Other settings hold from now on; clusters may come and go."""

    settings: Settings


SingleEvent = (
    Requested
    | StatementReceived
    | Disconnected
    | TimerFired
    | Ticked
    | IncumbentFound
    | Solved
    | SolveFailed
    | StorageLost
    | StorageReturned
    | SolverWarm
    | CostsWanted
    | TokenRecalled
    | Reconfigured
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Events of one instant, in order; a round begins after the last of them."""

    events: tuple[SingleEvent, ...]


Event = SingleEvent | Together
