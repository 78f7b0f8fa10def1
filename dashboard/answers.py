"""Parameters and answers of the REST interface; ``/openapi.json`` is made from these types.

Requests are read by the former. Times are wall-clock seconds since 1970 by the daemon's clock
unless a name says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from coalloc.wire.answers import Event, RuleCostRow, RunningRow, ServiceStatus, Why
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow, NodeRow

MOST_ROWS = 5_000
"""Rows of a time line in one answer."""


class Nothing(Struct, frozen=True, kw_only=True):
    """No parameters."""


class JobAsked(Struct, frozen=True, kw_only=True):
    """One job."""

    job: Annotated[str, Meta(pattern=r"^[0-9A-Za-z_.-]{1,200}$", description="its id")]


class JobsAsked(Struct, frozen=True, kw_only=True):
    """Some of the jobs."""

    q: Annotated[str, Meta(description="beginning of an id, part of a name, a user or a node")] = ""
    state: Annotated[str, Meta(description="a state, or waiting, active or ended")] = ""
    user: Annotated[str, Meta(description="only this user's")] = ""
    cluster: Annotated[str, Meta(description="only those on this cluster")] = ""
    node: Annotated[str, Meta(description="only those that run or ran on this node")] = ""
    reason: Annotated[str, Meta(description="only those that wait for this reason")] = ""
    limit: Annotated[int, Meta(ge=0, le=1_000, description="rows in one answer")] = 100
    offset: Annotated[int, Meta(ge=0, lt=1 << 31, description="rows to leave out")] = 0


class WaitsAsked(Struct, frozen=True, kw_only=True):
    """Groups of jobs."""

    by: Annotated[Literal["cluster", "user", "project"], Meta(description="of what")] = "cluster"


class TimelineAsked(Struct, frozen=True, kw_only=True):
    """A piece of the Gantt chart."""

    since: Annotated[int, Meta(ge=0, le=1 << 53, description="only jobs behind this revision")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="rows in one answer")] = MOST_ROWS
    live: Annotated[int, Meta(ge=0, le=1, description="1: with what runs and is planned")] = 0


class Fault(Struct, frozen=True, kw_only=True):
    """A request that was not answered."""

    error: str


class SiteStatus(Struct, frozen=True, kw_only=True):
    """State of the site as last heard, and whether the daemon answers."""

    instance: str
    """Of this run of the dashboard: revisions of another one mean nothing here."""
    revision: int
    """Rises with every job that ends."""
    reachable: bool
    """The daemon answers. Where it does not, all else is as it was at `heard`."""
    heard: float | None
    """When the daemon last answered; None: never."""
    fault: str
    """Why it does not answer."""
    loaded: bool
    """Jobs have been read once."""
    daemon: ServiceStatus | None
    """Its own words."""
    states: dict[str, int]
    """Jobs that are known here, by state."""
    reasons: dict[str, int]
    """Waiting jobs by their reason."""
    planned_on: dict[str, int]
    """Waiting jobs with a start in the plan, by the clusters whose slots they wait for."""
    viewer: str
    """The user who asks, as the proxy says; empty: not known."""
    sees_all: bool
    """Every job's details are shown."""
    time: float
    """The dashboard's clock."""


class ClusterSummary(Struct, frozen=True, kw_only=True):
    """One cluster in figures."""

    row: ClusterRow
    """As the daemon says, without the nodes."""
    nodes: int
    nodes_up: int
    slots: int
    free: int
    """Free are those that could take a process now."""
    power: float
    """Sum over the slots of nodes that are up, in slots of full speed."""
    waiting: int
    running: int
    """Jobs of ours that are planned there or run there."""


class Clusters(Struct, frozen=True, kw_only=True):
    """All clusters."""

    clusters: tuple[ClusterSummary, ...]
    time: float


class NodeEntry(Struct, frozen=True, kw_only=True):
    """One node and what is on it now."""

    cluster: str
    node: NodeRow
    jobs: tuple[str, ...] = ()


class Nodes(Struct, frozen=True, kw_only=True):
    """All nodes."""

    nodes: tuple[NodeEntry, ...]
    time: float


class Jobs(Struct, frozen=True, kw_only=True):
    """A page of jobs, the newest first."""

    jobs: tuple[QueueRow, ...]
    total: int
    """Jobs that match, on all pages."""
    more: bool
    """There are others behind them: ask again with a larger `offset`."""
    time: float


class Job(Struct, frozen=True, kw_only=True):
    """One job."""

    row: QueueRow | None
    """As in the queue; None: only the daemon's store knows it."""
    details: JobDetails | None
    """What the daemon shows to its owner and to operators."""
    withheld: str
    """Why there are no details."""
    output: str
    """Path of the output file; empty where it is not known or withheld."""
    events: tuple[Event, ...]
    """Its history."""
    time: float


class JobWhy(Struct, frozen=True, kw_only=True):
    """The reason why a job waits."""

    why: Why
    time: float


class Bar(RunningRow, frozen=True, kw_only=True):
    """Work on nodes."""

    kind: str
    """``running``, ``planned``, or ``local``: a batch system's own job."""
    clusters: tuple[str, ...]
    """More than one: it is co-allocated."""
    link_gbps: dict[str, float] = field(default_factory=dict)
    """Load on the link of each cluster."""
    name: str = ""
    user: str = ""


class SitePlan(Struct, frozen=True, kw_only=True):
    """Running jobs, and the newest plan."""

    round: int
    planned: float
    policy: str
    status: str
    bars: tuple[Bar, ...]
    deferred: dict[str, int]
    time: float


class Round(Struct, frozen=True, kw_only=True):
    """One round that ended with a plan."""

    round: int
    heard: float
    """When this was heard."""
    policy: str
    status: str
    objective: str
    value: float
    bound: float | None = None
    gap: float | None = None
    """(value - bound) / bound; None without a bound."""
    placed: int | None = None
    """Placements; None where the plan was replaced before it was read."""
    deferred: dict[str, int] = field(default_factory=dict)
    """Jobs without a placement, by reason."""
    phases_s: dict[str, float] = field(default_factory=dict)
    """Times among the figures of the search, by name."""
    rule_costs: dict[str, RuleCostRow] | None = None
    """By rule; None: not computed for this round."""


class Rounds(Struct, frozen=True, kw_only=True):
    """Rounds since the dashboard was started, the newest first."""

    rounds: tuple[Round, ...]
    time: float


class WaitGroup(Struct, frozen=True, kw_only=True):
    """Waits of the jobs of one group."""

    name: str
    jobs: int
    mean_s: float
    median_s: float
    p95_s: float
    counts: tuple[int, ...]
    """For each bound, jobs that waited at most so long and longer than the one before; last, those
    beyond the last bound."""


class Waits(Struct, frozen=True, kw_only=True):
    """Wait times of jobs that have started."""

    by: str
    bounds_s: tuple[float, ...]
    groups: tuple[WaitGroup, ...]
    time: float


class Timeline(Struct, frozen=True, kw_only=True):
    """Rows of the Gantt chart, made short for the way."""

    instance: str
    revision: int
    """Of the last row of `ended`."""
    more: bool
    """There are others behind them."""
    lanes: list[tuple[str, str, int]]
    """Cluster, node, slots; a row's lanes are indices into this list, which only grows."""
    clusters: list[tuple[str, float | None]]
    """Name, and capacity of its link; a row's loads are indices into this list."""
    ended: list[list[Any]]
    """Jobs that have ended, by rising revision: id, name, user, state, start, end, [lane, slots,
    …], [cluster, Gbit/s, …], project."""
    live: list[list[Any]] | None
    """The same of what runs and is planned; None: ask once more with ``live=1``."""
    reachable: bool
    time: float


class Change(Struct, frozen=True, kw_only=True):
    """Sent to watchers when something is to be fetched anew."""

    revision: int
    """As in the status."""
    live: int
    """Rises with each change of what runs, waits or is planned."""
    reachable: bool
    heard: float | None
    fault: str
