"""Events for the daemon's core."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from coalloc.core.base.messages import Statement
from coalloc.core.base.plan_order import PlanOrder
from coalloc.core.base.requests import Command
from coalloc.model.plan import Plan
from coalloc.model.settings import Config


class SingleEvent(Struct, frozen=True):
    """Something that has happened, for the daemon's core."""


class Caller(Struct, frozen=True, kw_only=True):
    """Authenticated caller of a request."""

    user: str
    uid: int
    gid: int
    operator: bool
    """May see and act on other people's jobs, and on the service."""
    key: str = ""
    """Public; empty in single-user mode."""


class Requested(Caller, SingleEvent, frozen=True, kw_only=True):
    """A client asks for a change."""

    origin: Hashable
    """Handed back with the answer; means nothing to the core."""
    command: Command


class StatementReceived(SingleEvent, frozen=True, kw_only=True):
    """An executor says something."""

    statement: Statement
    peer: Hashable = None
    """The connection that it came from; means nothing to the core but that equal ones are one."""


class Disconnected(SingleEvent, frozen=True, kw_only=True):
    """An executor was not heard of for too long."""

    cluster: str


class TimerFired(SingleEvent, frozen=True, kw_only=True):
    """A timer trigger is due; `trigger` is its index in the configuration."""

    trigger: int


class ClockSet(SingleEvent, frozen=True, kw_only=True):
    """The wall clock was set while the daemon ran."""

    seconds: float
    """Ahead; below 0: back."""


class Ticked(SingleEvent, frozen=True, kw_only=True):
    """Time passed; deadlines may be over."""


class IncumbentFound(SingleEvent, frozen=True, kw_only=True):
    """The running solve has a first plan, already checked."""

    round: int
    plan: Plan


class Solved(SingleEvent, frozen=True, kw_only=True):
    """The solve of a round ended with a plan that passed the checker."""

    round: int
    plan: Plan
    solve_s: float
    order: PlanOrder | None = None
    """Of a plan that came in parts, laid out as they came; the core takes it over."""


class SolveFailed(SingleEvent, frozen=True, kw_only=True):
    """The solve of a round ended without a usable plan."""

    round: int
    policy: str
    why: str
    solve_s: float
    jobs: tuple[str, ...] = ()
    """Those that the plan is wrong about; empty where there is none."""
    late: bool = False
    """The time limit came before a plan: no job is at fault."""


class StorageLost(SingleEvent, frozen=True, kw_only=True):
    """Nothing can be written: no round, until `StorageReturned`."""

    jobs: tuple[str, ...] = ()
    """New ones that could not be written; they were not acknowledged."""


class StorageReturned(SingleEvent, frozen=True, kw_only=True):
    """All that was kept back is written."""


class SolverWarm(SingleEvent, frozen=True, kw_only=True):
    """The solver is ready: what a round without it has left waiting is planned again."""


class CostsWanted(SingleEvent, frozen=True, kw_only=True):
    """The next round in which rules are in force is to say what each of them costs."""


class TokenRecalled(SingleEvent, frozen=True, kw_only=True):
    """The store knows the job of a token; the submit that it came with is the next event."""

    user: str
    token: str
    job: str


class Reconfigured(SingleEvent, frozen=True, kw_only=True):
    """Other settings hold from now on; clusters may come and go."""

    settings: Config


class Together(Struct, frozen=True, kw_only=True):
    """Events of one instant, in order; a round begins after the last of them."""

    events: tuple[SingleEvent, ...]


CoreEvent = SingleEvent | Together
