"""Requests of operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalloc import wire
from coalloc.client.base import BaseClient

if TYPE_CHECKING:
    from coalloc.wire.answers import BackupAnswer, ReserveAnswer
    from coalloc.wire.share_answers import RulesAnswer


class OperatorRequests(BaseClient):
    """Requests that are refused to other users, and the input of a round."""

    def set_priority(self, job: str, priority: float) -> tuple[str, ...]:
        """Double the weight of a waiting job or array so many times."""
        return self._ask(wire.answers.Concerned, "set_priority", job=job, priority=priority).jobs

    def reserve(
        self,
        targets: Sequence[str],
        *,
        count: int | None = None,
        start: float | None = None,
        duration_s: float | None = None,
        users: Sequence[str] = (),
        name: str = "",
        reason: str = "",
    ) -> ReserveAnswer:
        """Keep nodes, and those of whole clusters, for the jobs of some users, or for nobody.

        A `count`: so many of them, those that are free the soonest. From `start`, seconds since the
        epoch, or now on, for so many seconds, or until `unreserve`.
        """
        return self._ask(
            wire.answers.ReserveAnswer,
            "reserve",
            targets=list(targets),
            count=count,
            start=start,
            duration_s=duration_s,
            users=list(users),
            name=name,
            reason=reason,
        )

    def unreserve(self, name: str) -> None:
        """Undo `reserve`."""
        self._do("unreserve", name=name)

    def drain(self, target: str, reason: str = "") -> None:
        """Start nothing new on a cluster or a node."""
        self._do("drain", target=target, reason=reason)

    def resume(self, target: str) -> None:
        """Undo `drain`."""
        self._do("resume", target=target)

    def pause_rounds(self) -> None:
        """Plan nothing until `resume_rounds`; running jobs go on."""
        self._do("pause_rounds")

    def resume_rounds(self) -> None:
        """Plan again."""
        self._do("resume_rounds")

    def round_now(self) -> None:
        """Start a round."""
        self._do("round_now")

    def snapshot(self) -> dict[str, Any]:
        """Snapshot of a round that began now, in the snapshot format."""
        return self._ask(wire.answers.SnapshotAnswer, "snapshot").snapshot

    def rules(self) -> RulesAnswer:
        """The same as a round has it, and what it were without each rule that is in force."""
        return self._ask(wire.share_answers.RulesAnswer, "rules")

    def backup(self, path: Path, timeout_s: float | None = None) -> BackupAnswer:
        """Have a copy of the store written to an absolute path on the daemon's host."""
        return self._ask(wire.answers.BackupAnswer, "backup", timeout_s=timeout_s, path=str(path))
