"""Messages between the daemon and an executor (docs/PROTOCOL.md outranks this file).

Messages to an executor are numbered, kept until acknowledged, and replayed; every one may
be repeated harmlessly, by (job, attempt). Messages from an executor are statements of the
present, repeated until the daemon says `Forget`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from coalloc.model.sites.parts import JobPart, PartReport
from coalloc.model.sites.reading import ClusterReading
from coalloc.model.sites.staging import Stage
from coalloc.model.sites.streams import StreamChunks, StreamWish

SHAPES = "shapes"
"""Ability of an executor: it takes what a job's shape asks for; another one gets no such part."""
MEMBERS = "members"
"""Ability of an executor: a part of its may run further members of an array; another one is sent
each by itself."""
STAGES = "stages"
"""Ability of an executor: it is its user's own, and copies data for jobs with that user's files."""
SLOW_CLAIMS = "slow_claims"
"""Said with the abilities: each claim there is a job of a batch system, and costs seconds."""
WHOLE_JOBS = "whole_jobs"
"""Said with the abilities: parts of jobs that run on other clusters, too, are refused there."""
ABILITIES = (SHAPES, MEMBERS)
"""Abilities of an executor of this version: what it knows of orders and earlier ones do not."""
ROOT_REFUSED = "jobs of root are not started here (access.root_jobs)"
"""Said by the daemon at a submission, and by an executor before a start."""


class Prepare(JobPart, frozen=True, kw_only=True):
    """Claim nodes for one part and hold its processes at the barrier."""

    uid: int
    """Whose processes they are; -1: the executor's own user."""
    gid: int
    """Primary group at enrolment, for the record: the executor looks groups up when the part
    starts."""
    user: str = ""
    """The account that ``uid`` stands for: an executor where that uid is another's refuses; empty:
    not compared."""
    array_index: int | None = None
    task: str = ""
    """Of a workflow's task: its name there, for its environment; ``job`` begins with the workflow's
    id."""
    chunk_first: int = 0
    """The first chunk of a piece of a divisible job, of which `job` begins with the id."""
    chunks: int = 0
    """How many it has, which its processes share, each some in a row; 0: it is no piece."""
    chunks_total: int = 0
    """Chunks of the divisible job."""
    folder: str = ""
    """With its data, in place of the launch's working folder; empty: it has none there."""


class OfAttempt(Struct, frozen=True, kw_only=True):
    """An order about all parts of one attempt to start a job."""

    job: str
    attempt: int


class Arrange(OfAttempt, frozen=True, kw_only=True):
    """Every part has been granted nodes: these are the job's, in rank order, and it meets there."""

    all_nodes: Mapping[str, int]
    """The whole job's processes by node, in rank order."""
    rendezvous: str = ""
    """Host:port for the ranks to meet, in place of that of ``prepare``."""


class Hasten(OfAttempt, frozen=True, kw_only=True):
    """The other parts are about to have their nodes: a part that was put off may have its own."""


class Limit(OfAttempt, frozen=True, kw_only=True):
    """The part may run so long from its start, and no longer."""

    time_limit: float
    """Seconds."""
    instead_of: float | None = None
    """What it was, which a refusal says again; null: it had none."""


class Start(OfAttempt, frozen=True, kw_only=True):
    """Every part is ready: let the processes go."""

    at: float = 0.0
    """When, wall-clock seconds, where a part's nodes have to be told ahead; 0, or past: at once."""


class Abort(OfAttempt, frozen=True, kw_only=True):
    """Release the claim; if its processes run already, end them."""

    reason: str = ""
    """For the record."""
    claim_only: bool = False
    """What was told to start, by whichever daemon, goes on."""


class Forget(OfAttempt, frozen=True, kw_only=True):
    """The end of this part is on the daemon's disk."""

    others: tuple[tuple[str, int], ...] = ()
    """Jobs and attempts of which the same is true; where the executor knows ``members`` alone."""


class Dismiss(Struct, frozen=True, kw_only=True):
    """A job of the batch system's own, which was handed over, is not to run: cancel it there."""

    job: str
    attempt: int
    """The last one."""
    foreign: str
    """Its id in the batch system."""


Order = Prepare | Arrange | Hasten | Limit | Start | Abort | Forget | Dismiss


class Welcome(Struct, frozen=True, kw_only=True):
    """Answer to `Hello`: who speaks, and the number the replay begins with."""

    store: str
    """Name of the daemon's database."""
    epoch: int
    base_seq: int
    """The replay begins here: everything before counts as carried out."""
    lease_s: float
    recall: bool = False
    """The store is an older copy: the executor is to say what it has started (``started``)."""


class Ping(Struct, frozen=True, kw_only=True):
    """The daemon is there; renews every lease."""

    epoch: int
    known: bool = True
    """False to an executor that counts as disconnected: it says hello, and is back."""
    wanted: int = 0
    """Slots of the cluster that waiting jobs could fill, at most those that it has."""
    stages: tuple[Stage, ...] = ()
    """The jobs' data that are to be there, or no longer; answered by ``staged``."""
    read: bool = False
    """Another executor reads the same machine for this one, too: it need not, while it is idle."""


class TurnedAway(Struct, frozen=True, kw_only=True):
    """Another executor speaks for this cluster: nothing else will be said to this one."""

    why: str
    """For the log."""


class Stream(StreamWish, frozen=True, kw_only=True):
    """A client reads a running part's output, or gives it input; answered by `Streamed`."""

    number: int
    """Of the answer."""
    job: str
    attempt: int
    part: int


class Numbered(Struct, frozen=True, kw_only=True):
    """An order with its place in the cluster's sequence."""

    epoch: int
    seq: int
    order: Order


class Hello(Struct, frozen=True, kw_only=True):
    """An executor begins or resumes; `last_seq` is the last order it has carried out."""

    cluster: str
    identity: str = ""
    """Of the executor's state: made with it, and the same for as long as it is kept; empty: not
    said."""
    store: str = ""
    """The database it knows; empty: none."""
    last_seq: int = 0
    """Last order carried out; counts only where ``store`` is the daemon's."""
    parts: tuple[PartReport, ...] = ()
    """All parts that were not forgotten."""
    version: str = ""
    """Of the executor; empty: not said."""
    abilities: tuple[str, ...] = ()
    """What it can do that earlier ones could not: ``shapes``, ``members``, ``stages``;
    ``slow_claims``: its claims are jobs of a batch system; ``whole_jobs``: it takes no parts of
    jobs that run on other clusters, too."""


class Report(Struct, frozen=True, kw_only=True):
    """Progress of parts, and the orders carried out so far."""

    cluster: str
    last_seq: int
    """Last order carried out."""
    parts: tuple[PartReport, ...] = ()
    """All, or those of the job just dealt with."""


class Read(Struct, frozen=True, kw_only=True):
    """A reading of the cluster, or why there is none."""

    cluster: str
    reading: ClusterReading | None = None
    """Null: it could not be read."""
    error: str = ""
    """Why not."""
    at: float = 0.0
    """When the executor began to read, by its own clock, which does not step back while it runs; 0:
    not said. A reading that is older than the one before, or the same, is dropped."""
    run: str = ""
    """Which run of the executor that clock belongs to; empty: not said. Another run's clock may be
    behind."""
    epoch: int = 0
    """Of the daemon that the executor followed then; 0: not said. What it read before it followed
    this daemon may be older than what the daemon knows."""
    sent: float = 0.0
    """The executor's wall clock when this was sent, seconds; 0: not said."""


class Goodbye(Struct, frozen=True, kw_only=True):
    """An executor stops in good order; its parts go on."""

    cluster: str


class Started(Struct, frozen=True, kw_only=True):
    """Starts that an executor remembers, and has forgotten otherwise."""

    cluster: str
    starts: tuple[tuple[str, int, str], ...] = ()
    """Job, attempt, and how it ended, in words."""
    is_last: bool = False
    """Nothing follows."""


class Staged(Struct, frozen=True, kw_only=True):
    """Progress with the data of jobs, of which the latest ping has spoken."""

    cluster: str
    stages: tuple[Stage, ...] = ()


class Streamed(StreamChunks, frozen=True, kw_only=True):
    """Answer to a wish of the daemon's."""

    cluster: str
    number: int
    """Of what it answers."""
    gone: bool = False
    """The part has no streams now: it is about to begin, or to end."""


Statement = Hello | Report | Read | Goodbye | Started | Staged
