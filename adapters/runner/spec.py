"""The specification of a part, as its launcher writes it and its runners read it: one JSON object.

Imports the standard library only. What is sent to nodes names these types in annotations alone, so
that this module need not be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class OwnPlace(TypedDict, total=False):
    """CPUs and GPUs that a process has of its node for itself."""

    cpus: Sequence[int] | None
    """CPUs that it is pinned to; None: any."""
    gpus: Sequence[int | str]
    """Those that it sees; absent: as its environment says."""
    holds: bool
    """It only waits for the end of a command that is started once."""


class RankPlace(OwnPlace):
    """The place of one process."""

    rank: int
    node: str
    """Name as the service knows it."""
    local_rank: int
    local_size: int


class RunnerHome(TypedDict, total=False):
    """Facts of the executor's own machine, where the runner is there."""

    cgroup: str
    """Folder of the part's cgroup, which the runner makes; empty: none."""
    members: Sequence[dict[str, Any]]
    """Members that run behind it, one after the other (`coalloc.model.sites.parts.Member`)."""


class RunnerSpec(RunnerHome):
    """A part as any runner takes it (`coalloc.model.sites.parts.PartSpec`)."""

    job: str
    attempt: int
    part: int
    cluster: str
    epoch: int
    name: str
    claim: str
    """A random word, by which the part's processes and jobs are known."""
    argv: Sequence[str]
    script: str
    """Path of the private copy; empty: `argv` is a command."""
    env: dict[str, str]
    cwd: str
    stdout: str
    stderr: str
    uid: int | None
    shape: dict[str, Any]
    """`coalloc.model.shape.Shape`, without what is not said."""
    memory_mb_per_proc: int
    ranks: list[RankPlace]
    size: int
    nodelist: str
    hostfile: str
    """Path of the file with all nodes of the job."""
    rendezvous: str
    time_limit_s: float | None
    grace_s: float
    lease_s: float
    chunks: Sequence[int] | None
    once: bool
    stream: str
    """``pipes`` or ``pty``: its processes talk to its client; empty: to files."""
    queue: dict[str, Any] | None
    """Terms of a claim that may wait (`coalloc.model.sites.parts.QueueTerms`)."""


class NodeSpec(RunnerSpec, total=False):
    """A part as the wrapper of one of its nodes takes it."""

    script_text: str
    hostfile_text: str
    hosts: list[tuple[str, int]]
    """Of a command that is started once: the part's nodes, as the batch system names them, and
    their processes in rank order."""
    is_open: bool
    """The part has been started before."""
    asked_s: float | None
    """The time limit that the batch system was asked for; null: none."""
    dropped: dict[str, str]
    """Members that are not to run, by their places, and why."""


class BatchSite(TypedDict):
    """Facts of a batch system for a runner; each has more."""

    bin: str
    """Folder of its commands; empty: where the shell finds them."""
    limit_s: float
    """For one command."""
    prefix: str
    """Of the batch system's names of nodes, in the service's."""
    names: dict[str, str]
    """The batch system's names of the part's nodes, by the service's."""
    options: list[str]
    """Further words for the command that submits."""
    address: str
    """By which nodes reach the runner; empty: this machine's name."""
    ports: Sequence[int]
    """The first and the last on which it may listen; 0: any."""
    gate: int
    """Port of the executor's gate, where claims that wait in the queue do so without a runner; 0:
    they do not."""
    python: str
    ssh: str
    """As of `runner.command.Commands`; this and `relay` older claims do not have."""
    relay: str
    """Addresses of the login node, with commas, and the port of the relay there, by which nodes
    reach the runner; empty: they reach it without."""
    files: str
    """Folder in the home of the login's user, by whose files nodes that reach nobody are told and
    read; empty: they call. This, too, older claims do not have."""


class BatchTerms(TypedDict):
    """Further fields of a part on a batch system."""

    site: BatchSite
    key: str
    """The secret by which wrappers prove that they are this part's."""
    token: dict[str, str]
    """Marks by which the part's jobs are found in the batch system: ``name`` and ``comment``."""


class BatchSpec(RunnerSpec, BatchTerms, total=False):
    """A part as the supervisor of a batch system's part takes it."""

    hostfile_text: str
    """Where the nodes are no longer those that were planned."""
