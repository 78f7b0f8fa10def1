"""A batch system as the holder of a part sees it: the job by which its nodes are claimed.

A runner (`runner.batch.part`) makes one `PartJob` for its part. An adapter of another batch system
writes one, a launcher (`batch.launcher`), and a reader; barrier, wrapper, orders,
leases, restarts and ends are the same for all. Imports the standard library only.
"""

from __future__ import annotations

import pwd
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from coalloc.adapters.runner.command import (
    BatchError,
    CommandRefusedError,
    UnreachableError,
)
from coalloc.adapters.runner.grant import text_of
from coalloc.adapters.runner.payload import VARIABLE, payload
from coalloc.adapters.runner.rank import FaultError, account_of
from coalloc.adapters.runner.spec import BatchSpec, NodeSpec

BEHIND_S = 60.0
"""A part with members to run behind its own asks for so much more than the limit of one."""
UNDO_S = 60.0
"""A submission that was never answered is looked for so long, seconds."""


@dataclass(frozen=True, slots=True)
class Turn:
    """State of a job that was to wait in its batch system's queue."""

    state: str
    reason: str = ""
    """In the batch system's words, as the state."""
    expected: float | None = None
    """When it is expected to start, wall-clock seconds."""
    slots: dict[str, int] = field(default_factory=dict)
    """Slots that it was given, by the batch system's names of nodes; empty: nothing yet."""
    is_stuck: bool = False
    """It will not start by itself, however long it waits."""
    is_next: bool = False
    """No job that waits goes before it."""


class PartJob:
    """The job, or the jobs, by which a part's nodes are claimed in the batch system.

    A batch system in whose queue no claim waits has no need of `turn` and `hasten`. `number` is of
    the job that an earlier runner has made; empty: none that is known of. Raises `FaultError` where
    the user is not known here, or not ours to act for.
    """

    system: str
    """The batch system's name, for people."""
    alive: frozenset[str]
    """States of a job whose processes may run, or will."""
    asked_s: float | None = None
    """The time limit that the batch system was asked for, seconds."""
    wake = ""
    """Command, without the job's number, that has its script look at its files."""
    ending: frozenset[str] = frozenset()
    """States that stand only until a job's end is known."""

    def __init__(self, spec: BatchSpec, folder: str, number: str = "") -> None:
        self._spec, self._folder = spec, folder
        self._account = submitter_of(spec)
        self.number = number
        """The batch system's number of it, or several with commas; empty: none that is known of."""
        self.is_unsure = False
        """There may be a job, though its number is not known."""
        self.is_parked = False
        """It waits in the queue, and its wrappers call the gate: no runner has to stay."""
        self._undo_until = 0.0

    @property
    def _numbers(self) -> list[str]:
        return [each for each in self.number.split(",") if each]

    def take_along(self, claims: dict[str, BatchSpec]) -> None:
        """Give up other claims with this one; by the numbers of their jobs."""
        self.number = ",".join([self.number, *claims])

    @property
    def has_lost_step(self) -> bool:
        """Whether the wrappers were ours to start, and what started them has ended."""
        return False

    def attend(self, port: int) -> None:
        """Stand for wrappers that cannot call, at the barrier that listens there."""

    def shell(self, script: str) -> str:
        """Run a script of ``sh`` where the commands are; its output. Raises `BatchError`."""
        raise NotImplementedError

    def cancel(self, *options: str) -> None:
        """Signal the job, or end it. Raises `BatchError`."""
        raise NotImplementedError

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Claim the nodes, and bring the wrappers to this port.

        `keep` is called as soon as there is a number. Returns whether the job waits in a queue
        and has to be looked after until every wrapper is here. Raises FaultError.
        """
        raise NotImplementedError

    def turn(self) -> Turn | None:
        """Ask for the state of the job that waits in the queue; None: out of reach."""
        return None

    def hasten(self) -> bool:
        """Let a job that was asked for a later begin start from now on; whether it is known to."""
        try:
            self._begin_now()
        except UnreachableError:
            return False
        except CommandRefusedError:
            return True  # it has started, or ended
        return True

    def _begin_now(self) -> None:
        """Take back that the job was asked for a later begin; raises BatchError."""

    def state(self) -> tuple[str | None, str]:
        """The job's state and its reason; None: not known; empty: there is no such job."""
        raise NotImplementedError

    def settled_state(self) -> tuple[str | None, str]:
        """The state of a job that is ending, once that is over."""
        return self.state()

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        """Reason and detail of a part whose job is in this state."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill what runs; harmless when it has ended, or the batch system is out of reach."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Cancel the job, where the batch system keeps accounts; harmless when it has ended."""

    def release(self, *, has_run: bool) -> bool:
        """Give the nodes back; whether it is known that they are. Wrappers that have run end."""
        raise NotImplementedError

    def last_words(self) -> str:
        """The last that the wrappers' own output said."""
        return ""

    def _at_gate(self) -> dict[str, str]:
        """The environment of a wrapper that asks the gate first."""
        spec = self._spec
        return self._place(spec["site"]["gate"]) | {
            "COALLOC_GATE": f"{spec['claim']} {spec['lease_s']:g}"
        }

    def _place(self, port: int, node: str = "") -> dict[str, str]:
        """A wrapper's environment: where to come, and as which node, if the system does not say."""
        host = self._spec["site"]["address"] or socket.getfqdn()
        named = {"COALLOC_BARRIER_NODE": node} if node else {}
        if relay := self._spec["site"].get("relay"):
            named |= {"COALLOC_RELAY": relay, "COALLOC_GATE": f" {self._spec['lease_s']:g}"}
            host = "relay"
        return {
            "COALLOC_BARRIER": f"{host}:{port}",
            "COALLOC_BARRIER_KEY": self._spec["key"],
            VARIABLE: payload(),
            **named,
        }

    def _refused(self, error: BatchError, reason: str) -> FaultError:
        """The fault of a submission that has failed, and may have come through nevertheless."""
        self.is_unsure = isinstance(error, UnreachableError)
        return FaultError(reason, str(error))

    def _undo(self) -> bool:
        """Cancel what may or may not have been submitted; whether that is done with.

        It may come into being later than it is looked for, so an answer that there is none
        counts only after a while; until then the caller asks again.
        """
        self._undo_until = self._undo_until or time.monotonic() + UNDO_S
        return self._is_cancelled_by_mark() or time.monotonic() >= self._undo_until

    def _is_cancelled_by_mark(self) -> bool:
        """Cancel a job with the part's mark that was not known of; tells if there was one."""
        return False


def node_specs(spec: BatchSpec, folder: str) -> dict[str, NodeSpec]:
    """Specifications of what each node of a part runs, by the batch system's name of the node."""
    hosts = node_counts(spec)
    names = spec["site"]["names"]
    own = {key: value for key, value in spec.items() if key not in {"ranks", "site", "key"}}
    own["script_text"] = text_of(folder, "user/script") or ""
    if "hostfile_text" not in spec:  # else it is no longer what was planned
        own["hostfile_text"] = text_of(folder, "user/hostfile") or ""
    if spec.get("once"):
        own["hosts"] = list(hosts.items())
    return {
        host: cast(
            "NodeSpec", own | {"ranks": [r for r in spec["ranks"] if names[r["node"]] == host]}
        )
        for host in hosts
    }


def behind_s(spec: BatchSpec) -> float:
    """Time for the members that run behind a part's own, seconds."""
    return BEHIND_S if spec.get("members") else 0.0


def node_counts(spec: BatchSpec) -> dict[str, int]:
    """The batch system's names of a part's nodes, and their processes, in rank order."""
    names = spec["site"]["names"]
    return dict(Counter(names[rank["node"]] for rank in spec["ranks"]))


def submitter_of(spec: BatchSpec) -> pwd.struct_passwd | None:
    """Account of a part's job; None: this process's own user's. Raises `FaultError`."""
    uid = spec["uid"]
    if uid is None or spec["site"].get("ssh"):  # there it is the login's user
        return None
    return account_of(uid, "submit jobs")
