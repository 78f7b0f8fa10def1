"""The two faces of a batch system: one is read, the other launches.

A `Reader` says what a cluster's nodes are worth now. A `Launcher` claims nodes for one part
of a job, holds its processes at a barrier, and reports until the part is forgotten. Both may
block for a while and are called from threads; neither is re-entrant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol
from urllib.parse import quote, unquote

from coalloc.model.reading import ClusterReading, NodeReading

__all__ = [
    "Adapter",
    "AdapterError",
    "Claim",
    "ClaimRefusedError",
    "ClusterReading",
    "Handover",
    "Launcher",
    "NodeReading",
    "PartKey",
    "PartReport",
    "PartSpec",
    "PartState",
    "Reader",
]


class AdapterError(Exception):
    """The batch system cannot be reached or does not answer; nothing is known of it."""


class ClaimRefusedError(AdapterError):
    """The nodes cannot be claimed; nothing was left behind.

    Parameters
    ----------
    reason : str
        ``nodes_taken``, ``unknown_node``, ``bad_spec`` or ``state_unwritable``.
    detail : str
        The reason in words.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class PartState(StrEnum):
    """Where a part is."""

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


ENDED = frozenset({PartState.FINISHED, PartState.REFUSED, PartState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PartKey:
    """What names a part for ever: a job, the attempt to start it, the part's index."""

    job: str
    attempt: int
    part: int

    @property
    def folder(self) -> str:
        """A file name that stands for this key, and for no other."""
        return f"part+{quote(self.job, safe='')}+{self.attempt}+{self.part}"

    @classmethod
    def of_folder(cls, name: str) -> PartKey | None:
        """The key a folder stands for; None where it stands for none."""
        pieces = name.split("+")
        if len(pieces) != 4 or pieces[0] != "part":
            return None
        if not (pieces[2].isdecimal() and pieces[3].isdecimal()):
            return None
        return cls(job=unquote(pieces[1]), attempt=int(pieces[2]), part=int(pieces[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpec:
    """One part of a job, ready to be launched.

    Attributes
    ----------
    job, attempt, part : str, int, int
        The key.
    epoch : int
        Of the daemon that decided it; kept for the record.
    cluster : str
    argv : tuple of str
        Command and arguments; where `script` is given, ``argv[0]`` is only its name.
    script : str
        Text of a batch script, executed from a private copy; empty: `argv` is a command.
    env : mapping of str
        The user's variables; ours are added to them.
    cwd : str
    stdout, stderr : str
        Patterns of output files, relative to `cwd`: ``%j`` job, ``%r`` rank, ``%%`` a per cent
        sign. Output is appended. An empty `stdout` is ``coalloc-%j.out``, an empty `stderr`
        the same file as `stdout`.
    uid, gid : int or None
        Whose processes they are; None is the executor's own user, and the user's own group.
    nodes : tuple of (node name, processes)
        In rank order.
    first_rank : int
        Rank of this part's first process.
    size : int
        Processes of the whole job.
    nodelist : str
        Node set of the whole job.
    hosts : tuple of (host, slots)
        Lines of the host file; empty: `nodes`.
    rendezvous : str
        host:port.
    time_limit_s : float or None
        Run time after which the processes are ended, seconds.
    grace_s : float
        Between SIGTERM and SIGKILL, seconds.
    lease_s : float
        The claim lapses when it is not renewed for this long, seconds.
    foreign : str
        A job of the batch system's own, which is to be let go on these nodes; empty: `argv` or
        `script` is what runs.
    chunks : (int, int, int) or None
        Of a piece of a divisible job: its first chunk, how many it has, and how many the job has.
        Its processes share them, each some in a row.
    """

    job: str
    attempt: int
    part: int
    cluster: str
    argv: tuple[str, ...]
    nodes: tuple[tuple[str, int], ...]
    first_rank: int = 0
    size: int = 0
    epoch: int = 0
    script: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdout: str = ""
    stderr: str = ""
    uid: int | None = None
    gid: int | None = None
    nodelist: str = ""
    hosts: tuple[tuple[str, int], ...] = ()
    rendezvous: str = ""
    time_limit_s: float | None = None
    grace_s: float = 10.0
    lease_s: float = 60.0
    foreign: str = ""
    chunks: tuple[int, int, int] | None = None

    @property
    def key(self) -> PartKey:
        """What names this part."""
        return PartKey(job=self.job, attempt=self.attempt, part=self.part)

    @property
    def procs(self) -> int:
        """Processes of this part."""
        return sum(count for _, count in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    """What a launcher knows of a part now.

    Attributes
    ----------
    codes : tuple of int or None
        Per process in rank order: exit code, minus the number of the signal that killed it,
        or None where it never ran or its end is not known. Empty before the end.
    started, ended : float or None
        Wall-clock seconds: the first process's exec, the end of the last.
    started_mono : float or None
        The start on the machine's monotonic clock, seconds; for skews within a machine.
    reason : str
        Why it ended: ``exited``, ``signalled``, ``time_limit``, ``cancelled``, ``aborted``,
        ``expired``, ``runner_died``, ``restarted``, ``nodes_taken``, ... or one of
        `coalloc.model.refusals.PERMANENT`.
    detail : str
        The reason in words.
    cpu_s, max_rss_mb : float
        CPU time of all its processes, memory of the largest.
    """

    key: PartKey
    state: PartState
    codes: tuple[int | None, ...] = ()
    started: float | None = None
    started_mono: float | None = None
    ended: float | None = None
    reason: str = ""
    detail: str = ""
    cpu_s: float = 0.0
    max_rss_mb: float = 0.0

    @property
    def exit_code(self) -> int | None:
        """Highest of the processes' codes; 128 + signal where one was killed."""
        codes = [code if code >= 0 else 128 - code for code in self.codes if code is not None]
        return max(codes, default=None)

    @property
    def is_ended(self) -> bool:
        """Finished, refused or lost."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Nodes are ours for this part.

    Attributes
    ----------
    is_new : bool
        False where the key had been claimed before; then nothing was done.
    """

    key: PartKey
    is_new: bool = True


class Reader(Protocol):
    """Reads one cluster."""

    def read(self) -> ClusterReading:
        """Return what the cluster is now; blocks no longer than its own time limit.

        Raises
        ------
        AdapterError
            The cluster could not be read. It is unknown then, not empty.
        """


class Launcher(Protocol):
    """Launches parts on one cluster. Every call may be repeated harmlessly."""

    def claim(self, part: PartSpec) -> Claim:
        """Claim the nodes, and bring the processes to the barrier; does not wait for that.

        Raises
        ------
        ClaimRefusedError
            The nodes are taken or do not exist.
        AdapterError
        """

    def go(self, key: PartKey) -> None:
        """Open the barrier."""

    def abort(self, key: PartKey, reason: str = "") -> None:
        """Give the claim up; where the processes run already, end them."""

    def cancel(self, key: PartKey, *, signal: int = 15, grace_s: float | None = None) -> None:
        """End the processes: this signal, and SIGKILL after the grace period, seconds."""

    def renew(self, key: PartKey | None = None) -> None:
        """Let the claim, or every claim, stand for another lease."""

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is that was not forgotten."""

    def adopt(self) -> tuple[PartReport, ...]:
        """Find every part an earlier launcher left, and return how it is."""

    def forget(self, key: PartKey) -> None:
        """Remove what is kept of an ended part; one that has not ended is left alone."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `poll` has news, where there is one."""

    def close(self) -> None:
        """Let go of the launcher's own resources; the parts live on."""


class Handover(Protocol):
    """Of a batch system whose own jobs may be ordered by us."""

    def dismiss(self, foreign: str) -> None:
        """Cancel a job that waits there for our order; one that is gone is no error.

        Raises
        ------
        AdapterError
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The faces of one cluster; one that only reads has no launcher, most hand nothing over."""

    reader: Reader
    launcher: Launcher | None = None
    handover: Handover | None = None
