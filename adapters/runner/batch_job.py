"""A batch system as the holder of a part sees it: the job by which its nodes are claimed.

A runner (`runner.batch_part`) makes one `PartJob` for its part. An adapter of another batch system
writes this class, a launcher (`batch.launcher`), and a reader; barrier, wrapper, orders,
leases, restarts and ends are the same for all. Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Protocol, cast

from coalloc.adapters.runner.command import Account
from coalloc.adapters.runner.rank import FaultError
from coalloc.adapters.runner.spec import BatchSpec, NodeSpec


class Turn:
    """State of a job that was to wait in its batch system's queue.

    Attributes
    ----------
    state, reason : str
        In the batch system's words.
    expected : float or None
        When it is expected to start, wall-clock seconds.
    slots : dict of the batch system's node name to slots
        What it was given; empty: nothing yet.
    is_stuck : bool
        It will not start by itself, however long it waits.
    is_next : bool
        No job that waits goes before it.
    """

    def __init__(
        self,
        state: str,
        reason: str = "",
        expected: float | None = None,
        slots: dict[str, int] | None = None,
        *,
        is_stuck: bool = False,
        is_next: bool = False,
    ) -> None:
        self.state, self.reason, self.expected = state, reason, expected
        self.slots, self.is_stuck, self.is_next = slots or {}, is_stuck, is_next


class PartJob(Protocol):
    """The job, or the jobs, by which a part's nodes are claimed in the batch system.

    Attributes
    ----------
    system : str
        The batch system's name, for people.
    is_unsure : bool
        There may be a job, though its number is not known.
    """

    system: str
    is_unsure: bool

    def __init__(self, spec: BatchSpec, folder: str, number: str = "") -> None: ...

    @property
    def number(self) -> str:
        """The batch system's number of it; empty: there is none that is known of."""

    @property
    def has_lost_step(self) -> bool:
        """Whether the wrappers were ours to start, and what started them has ended."""

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Claim the nodes, and bring the wrappers to this port.

        `keep` is called as soon as there is a number. Returns whether the job waits in a queue
        and has to be looked after until every wrapper is here. Raises FaultError.
        """

    def turn(self) -> Turn | None:
        """Ask for the state of the job that waits in the queue; None: out of reach."""

    def hasten(self) -> bool:
        """Let a job that was asked for a later begin start from now on; whether it is known to."""

    def leave_queue(self) -> bool:
        """Cancel the job if it still waits in the queue; whether the batch system has answered."""

    def state(self) -> tuple[str | None, str]:
        """The job's state and its reason; None: not known; empty: there is no such job."""

    def settled_state(self) -> tuple[str | None, str]:
        """The state of a job that is ending, once that is over."""

    def is_alive(self, state: str) -> bool:
        """Whether the processes of a job in this state may run, or will."""

    def is_ending(self, state: str) -> bool:
        """Whether this state stands only until the job's end is known."""

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        """Reason and detail of a part whose job is in this state."""

    def kill(self) -> None:
        """Kill what runs; harmless when it has ended, or the batch system is out of reach."""

    def withdraw(self) -> None:
        """Cancel the job, where the batch system keeps accounts; harmless when it has ended."""

    def release(self, *, has_run: bool) -> bool:
        """Give the nodes back; whether it is known that they are."""

    def last_words(self) -> str:
        """The last that the wrappers' own output said."""


def node_specs(spec: BatchSpec, folder: str) -> dict[str, NodeSpec]:
    """Specifications of what each node of a part runs, by the batch system's name of the node."""
    hosts = node_counts(spec)
    names = spec["site"]["names"]
    own = {key: value for key, value in spec.items() if key not in {"ranks", "site", "key"}}
    own["script_text"] = _read(f"{folder}/user/script")
    if "hostfile_text" not in spec:  # else it is no longer what was planned
        own["hostfile_text"] = _read(f"{folder}/user/hostfile")
    if spec.get("once"):
        own["hosts"] = list(hosts.items())
    return {
        host: cast(
            "NodeSpec", own | {"ranks": [r for r in spec["ranks"] if names[r["node"]] == host]}
        )
        for host in hosts
    }


def _read(path: str) -> str:
    """Text of a file; empty where there is none."""
    with (
        contextlib.suppress(FileNotFoundError),
        open(path, encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        return file.read()
    return ""


def node_counts(spec: BatchSpec) -> dict[str, int]:
    """The batch system's names of a part's nodes, and their processes, in rank order."""
    counts: dict[str, int] = {}
    for rank in spec["ranks"]:
        name = spec["site"]["names"][rank["node"]]
        counts[name] = counts.get(name, 0) + 1
    return counts


def account_of(spec: BatchSpec) -> Account | None:
    """Account of a part's job; None: this process's own user's.

    Raises
    ------
    FaultError
        The user is not known here, or not ours to act for.
    """
    uid = spec["uid"]
    if uid is None:
        return None
    if os.geteuid() not in (0, uid):
        raise FaultError(
            "user_unknown", f"only root may submit jobs of uid {uid}, and this is not root"
        )
    try:
        return Account.of(uid)
    except KeyError:
        raise FaultError("user_unknown", f"there is no user with uid {uid}") from None
