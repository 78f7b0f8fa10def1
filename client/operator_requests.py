"""Requests of operators, for both clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coalloc.client.steps import Steps, answered, asked, request
from coalloc.wire import answers, share_answers


class OperatorRequests:
    """Requests that are refused to other users, and the input of a round."""

    @request
    def set_priority(self, job: str, priority: float) -> Steps[tuple[str, ...]]:
        """Double the weight of a waiting job or array so many times."""
        return (
            yield from asked(answers.Concerned, "set_priority", job=job, priority=priority)
        ).jobs

    @request
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
    ) -> Steps[answers.Reservation]:
        """Keep nodes for the jobs of some users, or for nobody.

        Parameters
        ----------
        targets : sequence of str
            Nodes, and clusters for all of theirs.
        count : int, optional
            So many of them, those that are free the soonest.
        start, duration_s : float, optional
            Seconds since the epoch, and seconds; from now on, and until `unreserve`.
        """
        return (
            yield from asked(
                answers.Reservation,
                "reserve",
                targets=list(targets),
                count=count,
                start=start,
                duration_s=duration_s,
                users=list(users),
                name=name,
                reason=reason,
            )
        )

    @request
    def unreserve(self, name: str) -> Steps[None]:
        """Undo `reserve`."""
        yield from _done("unreserve", name=name)

    @request
    def drain(self, target: str, reason: str = "") -> Steps[None]:
        """Start nothing new on a cluster or a node."""
        yield from _done("drain", target=target, reason=reason)

    @request
    def resume(self, target: str) -> Steps[None]:
        """Undo `drain`."""
        yield from _done("resume", target=target)

    @request
    def pause_rounds(self) -> Steps[None]:
        """Plan nothing until `resume_rounds`; running jobs go on."""
        yield from _done("pause_rounds")

    @request
    def resume_rounds(self) -> Steps[None]:
        """Plan again."""
        yield from _done("resume_rounds")

    @request
    def round_now(self) -> Steps[None]:
        """Start a round."""
        yield from _done("round_now")

    @request
    def snapshot(self) -> Steps[dict[str, Any]]:
        """Snapshot of a round that began now, in the snapshot format."""
        return (yield from asked(answers.SnapshotAnswer, "snapshot")).snapshot

    @request
    def rules(self) -> Steps[share_answers.RulesAnswer]:
        """The same as a round has it, and what it were without each rule that is in force."""
        return (yield from asked(share_answers.RulesAnswer, "rules"))

    @request
    def backup(self, path: Path, timeout_s: float | None = None) -> Steps[answers.BackupAnswer]:
        """Have a copy of the store written to an absolute path on the daemon's host."""
        return (
            yield from asked(answers.BackupAnswer, "backup", timeout_s=timeout_s, path=str(path))
        )


def _done(kind: str, **fields: Any) -> Steps[None]:
    answer = yield from answered({**fields, "type": kind})
    answer.checked().plain()
