"""Parts of jobs, as core, executor and launchers name them: key, state, specification, report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct, field, structs

from coalloc.model.shape import ONE_SLOT, Shape
from coalloc.model.sites.batch_options import PLAIN, BatchOptions


class PartState(StrEnum):
    """Stage of a part."""

    WAITING = "waiting"
    """Its claim is in the batch system's queue, behind other jobs; it holds nothing yet."""
    PREPARING = "preparing"
    READY = "ready"
    """At the barrier: every process exists and waits."""
    RUNNING = "running"
    FINISHED = "finished"
    """Its processes ran and ended."""
    REFUSED = "refused"
    """Nothing of it was started, nothing ever will be."""
    LOST = "lost"
    """Started, and its end cannot be known; what was left of it has been killed."""


PART_ENDED = frozenset({PartState.FINISHED, PartState.REFUSED, PartState.LOST})


class PartKey(Struct, frozen=True, kw_only=True, order=True):
    """Permanent name of a part: a job, the attempt to start it, the part's index."""

    job: str
    attempt: int
    part: int

    @property
    def start(self) -> tuple[str, int]:
        """Job and attempt: what its other parts have in common with it."""
        return self.job, self.attempt

    @property
    def pack(self) -> str:
        """Name of the pack whose first member this is."""
        return f"{self.job}:{self.attempt}"

    @property
    def folder(self) -> str:
        """A file name that stands for this key, and for no other."""
        return f"part+{quote(self.job, safe='')}+{self.attempt}+{self.part}"

    def report(self, state: PartState, **fields: Any) -> PartReport:
        return PartReport(**structs.asdict(self), state=state, **fields)

    @classmethod
    def of_folder(cls, name: str) -> PartKey | None:
        """The key a folder stands for; None where it stands for none."""
        pieces = name.split("+")
        if len(pieces) != 4 or pieces[0] != "part":
            return None
        if not (pieces[2].isdecimal() and pieces[3].isdecimal()):
            return None
        return cls(job=unquote(pieces[1]), attempt=int(pieces[2]), part=int(pieces[3]))


class QueueTerms(Struct, frozen=True, kw_only=True):
    """Terms on which a claim waits in a batch system's queue, for nodes of the shape asked for."""

    at_once: bool = True
    """Nothing is known to go first: exactly the nodes named are tried before."""
    begin_s: float = 0.0
    """It is not to be started within so many seconds, unless it is hastened."""
    hold_s: float = 0.0
    """Once granted, it may hold its nodes for so long before it starts, seconds."""
    avoid: tuple[str, ...] = ()
    """Nodes that are not to be given to it."""
    nice: int = 0
    """Points of priority by which it is behind our best one in that queue."""


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's command; the core passes it on without looking inside."""

    argv: tuple[str, ...]
    """Command and arguments; where `script` is given, ``argv[0]`` is only its name. What no program
    can be started with is refused (`launch_limits`)."""
    script: str = ""
    """Text of a batch script, executed from a private copy; empty: `argv` is a command."""
    script_bytes: bool = False
    """Each letter of `script` is one byte (Latin-1), since the script is not UTF-8."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment; the executor adds ``COALLOC_*`` and the rank variables."""
    cwd: str = "/"
    """Working folder."""
    stdout: str = ""
    """Pattern of the output file, relative to `cwd`; it is appended to. Empty: ``coalloc-%j.out``.

    ``%j`` is the job, ``%r`` the rank (``%3r``: of three digits), ``%N`` the node and ``%%`` a per
    cent sign; the other marks of `output_names` are filled in by the executor.
    """
    stderr: str = ""
    """The same of the errors; empty: the file of `stdout`."""


class Member(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A further member of an array, which is to run behind another one on the same slot."""

    job: str
    attempt: int
    array_index: int
    stdout: str = ""
    stderr: str = ""
    """Patterns of its output files, which the executor fills in."""


class JobPart(Struct, frozen=True, kw_only=True):
    """A part of a job, as daemon and launcher both know it."""

    job: str
    """Id."""
    attempt: int
    part: int
    """Index of this part."""
    nodes: Mapping[str, int]
    """Processes on each of this part's nodes, in rank order."""
    all_nodes: Mapping[str, int]
    """Processes on each of the whole job's nodes, in rank order."""
    first_rank: int
    """Rank of this part's first process."""
    size: int
    """Processes of the whole job."""
    lease_s: float
    """The claim lapses when it is not renewed for so long, seconds."""
    name: str = ""
    """The job's, for people."""
    time_limit: float | None = None
    """Run time after which the processes are ended, seconds."""
    memory_mb_per_proc: int = 0
    """As its user asked, MiB; 0: not said."""
    shape: Shape = ONE_SLOT
    """What the job asks of its nodes besides; its processes on each are in `nodes`."""
    rendezvous: str = ""
    """Host:port for the ranks to meet: rank 0's node, and a port of 20000..29999 that no other job
    of ours has."""
    foreign: str = ""
    """A job of the batch system's own, handed over by its user, which is to be let go on these
    nodes; empty: ``launch`` is what runs."""
    queue: QueueTerms | None = None
    """How the claim may wait in the batch system's queue, below; null: it is granted at once on
    exactly ``nodes``, or refused."""
    batch: BatchOptions = PLAIN
    """What the batch system is told, as in ``submit``; ``account`` is this cluster's."""
    launch: Launch | None = None
    """What is executed."""
    once: bool = False
    """The command is started once, in the place of the job's first process; the others are slots
    that it may use."""
    stream: str = ""
    """As in ``submit``."""
    members: tuple[Member, ...] = ()
    """Of a member of an array: those that run behind it, one after the other. They are prepared,
    started and released with it; from the start on each is a part of its own."""

    @property
    def key(self) -> PartKey:
        return PartKey(job=self.job, attempt=self.attempt, part=self.part)

    @property
    def keys(self) -> tuple[PartKey, ...]:
        """Names of this part and of those behind it."""
        behind = (PartKey(job=m.job, attempt=m.attempt, part=0) for m in self.members)
        return (self.key, *behind)

    @property
    def procs(self) -> int:
        return sum(self.nodes.values())


class PartSpec(JobPart, frozen=True, kw_only=True):
    """A part of a job, ready to be launched."""

    cluster: str
    epoch: int = 0
    """Of the daemon that decided it; kept for the record."""
    uid: int | None = None
    """Whose processes they are, with the account's own groups; None: the executor's own user."""
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL, seconds."""
    chunks: tuple[int, int, int] | None = None
    """Of a piece of a divisible job: its first chunk, how many it has, and how many the job has.

    Its processes share them, each some in a row.
    """


class PartStatus(Struct, frozen=True, kw_only=True):
    """State of a part, or its end."""

    state: PartState
    """``waiting`` (in the batch system's queue), ``preparing``, ``ready``, ``running`` (without
    ``started``: it begins when those of its pack before it have ended), ``finished`` (ran and
    ended), ``refused`` (never started), ``lost`` (started; its end cannot be known)."""
    exit_code: int | None = None
    """Highest of the processes' codes; 128 + signal where one was killed."""
    started: float | None = None
    """Wall-clock seconds of the first process's exec."""
    ended: float | None = None
    """Wall-clock seconds of the end of the last."""
    reason: str = ""
    """Why it ended, in one word; ``not_found``, ``not_executable``, ``user_unknown``,
    ``output_unwritable``, ``cwd_missing``, ``bad_script`` and ``impossible`` are not tried again;
    ``cancelled_there``: ended in the batch system by its user; ``ended_by_admin``: by another;
    ``requeued``: a handed job that the batch system has put back into its queue; ``others_first``:
    refused, since other jobs go first, or waits behind them; ``held_by_owner``,
    ``held_by_admin``: waits, and is held in the batch system."""
    detail: str = ""
    """The reason in words; of one that waits, what it waits for."""
    expected: float | None = None
    """Of one that waits: when the batch system expects to start it, wall-clock seconds."""
    is_next: bool = False
    """Of one that waits: no job that waits goes before it."""
    time_limit: float | None = None
    """Its limit, where that was changed in the batch system since the daemon set it, seconds."""
    cpu_s: float | None = None
    """CPU time of all its processes; None: not known."""
    max_rss_mb: float | None = None
    """Memory of the largest of them, MiB; null: not known."""


class PartReport(PartStatus, frozen=True, kw_only=True):
    """The state of a part now, as its launcher or its executor knows it."""

    job: str
    attempt: int
    part: int
    codes: tuple[int | None, ...] = ()
    """Of each process in rank order: exit code, minus the number of the signal that killed it, or
    None where it never ran or its end is not known. Empty before the end. They stay with the
    executor (`OF_THE_EXECUTOR`)."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Of a claim that might wait: what it was granted, in rank order; empty: nothing yet."""
    limit_refused: str = ""
    """Why the batch system keeps that limit, though the daemon has ordered another."""
    lead_s: float = 0.0
    """Its nodes have to be told so long before its job's parts start together, seconds."""
    pack: str = ""
    """Of a member of an array that shares a runner: which one. Stays with the executor."""

    @property
    def key(self) -> PartKey:
        return PartKey(job=self.job, attempt=self.attempt, part=self.part)

    @property
    def is_behind(self) -> bool:
        """It was to start behind another member of its pack, and has not begun yet."""
        is_first = not self.pack or self.pack == self.key.pack
        return not is_first and self.started is None and self.state not in PART_ENDED

    @property
    def is_ended(self) -> bool:
        return self.state in PART_ENDED


PERMANENT = frozenset(
    {
        "bad_script",
        "cwd_missing",
        "impossible",
        "not_executable",
        "not_found",
        "output_unwritable",
        "user_unknown",
    }
)
"""Reasons of a refusal that another attempt cannot mend: the job ends as failed."""

CANCELLED_THERE = "cancelled_there"
"""Its user ended it in the batch system; of what runs, or was handed over, whoever did."""
ENDED_BY_ADMIN, HELD_BY_ADMIN, HELD_BY_OWNER = "ended_by_admin", "held_by_admin", "held_by_owner"
"""A claim that another than its user has cancelled, or holds, in the batch system; or its user."""
ADMIN = frozenset({ENDED_BY_ADMIN, HELD_BY_ADMIN})
"""The administrator's will: not on this cluster."""
LASTING = frozenset({"bad_time_limit", "no_such_nodes", "not_permitted"})
"""What another attempt on the same cluster cannot mend; another cluster may take the job."""
NOT_BEGUN = "not_begun"
"""A member that was taken ahead, and will not begin there: it is placed anew at once."""
OVER_LIMIT = "over_limit"
"""Over a limit of the batch system's accounts or of a partition, for the moment."""
OF_THE_EXECUTOR = frozenset({"codes", "pack"})
"""Fields of a report that are not sent: one value per process is too much for large parts."""


def worst_exit_code(codes: Iterable[int | None]) -> int | None:
    """Return the highest of the processes' codes; 128 + signal where one was killed."""
    ended = (code if code >= 0 else 128 - code for code in codes if code is not None)
    return max(ended, default=None)
