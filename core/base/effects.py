"""Effects of the daemon's core, for its shell to carry out.

The shell carries out a step like this: every effect that is persistent goes into one
transaction; only when that is on disk, messages, answers and publications go out, in
order; planning, wake-ups and log lines need no disk.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from msgspec import Struct, field

from coalloc.core.base.messages import Order
from coalloc.core.base.projects import DayUsage
from coalloc.core.base.records import JobRecord
from coalloc.core.base.requests import CommandAnswer
from coalloc.core.base.speedup_fit import SizedRun
from coalloc.core.base.start_intervals import Promise, StartError
from coalloc.model.event_kinds import EventKind
from coalloc.model.history import NO_HISTORY, History
from coalloc.model.sites.parts import Launch
from coalloc.model.snapshot import Snapshot


class Effect(Struct, frozen=True):
    """Something for the shell to carry out."""


class SaveJob(Effect, frozen=True, kw_only=True):
    """Write the record of a job."""

    record: JobRecord


class SaveLaunch(Effect, frozen=True, kw_only=True):
    """Write what a new job executes; it is never read back by the core."""

    job: str
    launch: Launch


class SaveToken(Effect, frozen=True, kw_only=True):
    """Remember that this user's token made this job."""

    user: str
    token: str
    job: str


class SaveMeta(Effect, frozen=True, kw_only=True):
    """Write a named value."""

    key: str
    value: str


class SaveHistory(Effect, frozen=True, kw_only=True):
    """Write the run-time history of a user's command."""

    key: str
    values: tuple[float, ...]
    """Base times, seconds."""
    ratios: tuple[float, ...] = ()
    """Real by planned times."""
    runs: tuple[SizedRun, ...] = ()
    """Base times by size."""


class DropHistory(Effect, frozen=True, kw_only=True):
    """Forget the run-time history of a user's command."""

    key: str


class SavePromises(Effect, frozen=True, kw_only=True):
    """Write the expected starts that a waiting job was given."""

    job: str
    promises: tuple[Promise, ...]


class DropPromises(Effect, frozen=True, kw_only=True):
    """Forget the expected starts that a job was given."""

    job: str


class SaveStartError(Effect, frozen=True, kw_only=True):
    """Write how wrong an expected start was."""

    error: StartError


class DropStartError(Effect, frozen=True, kw_only=True):
    """Forget how wrong an expected start was."""

    number: int


class SaveUsage(Effect, frozen=True, kw_only=True):
    """Write the decayed usage of a user in a project, processor-seconds at a time."""

    project: str
    user: str
    proc_s: float
    at: float


class AddUsage(DayUsage, Effect, frozen=True, kw_only=True):
    """Add to the usage of a day."""

    day: int


class SaveAccount(Effect, frozen=True, kw_only=True):
    """Write the account of a job that has ended."""

    record: JobRecord
    project: str
    """To which it is charged."""
    proc_s: float
    """Of its last attempt."""


class SavePlan(Effect, frozen=True, kw_only=True):
    """Keep the plan of a round; older rounds beyond a number are forgotten."""

    round: int
    time: float
    body: Mapping[str, Any]


class SaveNotes(Effect, frozen=True, kw_only=True):
    """Keep what a policy is to be handed in its next round."""

    policy: str
    notes: Mapping[str, Any]


class SendOrder(Effect, frozen=True, kw_only=True):
    """Put an order into a cluster's outbox, then send it."""

    cluster: str
    seq: int
    order: Order


class ResendOrders(Effect, frozen=True, kw_only=True):
    """Send orders of a cluster's outbox again.

    From a number on, or the newest that was sent: an executor that lacks one before it asks.
    """

    cluster: str
    from_seq: int | None = None


class DropOrders(Effect, frozen=True, kw_only=True):
    """The cluster has carried out its orders up to this number."""

    cluster: str
    through_seq: int


class SendWelcome(Effect, frozen=True, kw_only=True):
    """Answer an executor's hello."""

    cluster: str
    base_seq: int


class AskHello(Effect, frozen=True, kw_only=True):
    """Have a connection say hello before it is believed."""

    cluster: str
    peer: Hashable


class TurnAway(Effect, frozen=True, kw_only=True):
    """Refuse an executor's hello: another one speaks for its cluster."""

    cluster: str
    peer: Hashable
    why: str


class AppendEvent(Effect, frozen=True, kw_only=True):
    """Append to the event stream, then publish it."""

    seq: int
    time: float
    kind: EventKind
    job: str
    fields: Mapping[str, Any]


class Reply(Effect, frozen=True, kw_only=True):
    """Answer a client, after the commit."""

    origin: Hashable
    answer: CommandAnswer


class Publish(Effect, frozen=True, kw_only=True):
    """Tell the watchers, after the commit."""

    topic: str
    body: Mapping[str, Any]


class Solve(Effect, frozen=True, kw_only=True):
    """Plan this snapshot."""

    round: int
    snapshot: Snapshot
    policy: str
    history: History = NO_HISTORY
    """There where the policy's options ask for it."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the policy noted for itself in an earlier round."""
    lifted: Mapping[str, Snapshot] = field(default_factory=dict)
    """By rule: the snapshot of the same instant without that rule, in rounds whose rules' costs are
    wanted; these are planned after the round."""


class RoundFinished(Effect, frozen=True, kw_only=True):
    """Count a round that ended with a plan."""

    policy: str
    status: str
    solve_s: float
    gap: float | None
    """(objective - bound) / bound; None without a bound."""
    stale: int
    """Clusters that were not planned on."""


class Wake(Effect, frozen=True, kw_only=True):
    """Hand in `Ticked` at this time."""

    at: float


class LogLine(Effect, frozen=True, kw_only=True):
    """Write a log line."""

    event: str
    fields: Mapping[str, Any]
    level: str = "info"
