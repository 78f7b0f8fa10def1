"""The Python client: submit jobs, ask about them, watch what happens.

>>> from coalloc import Client
>>> with Client() as client:  # doctest: +SKIP
...     job = client.submit(["./model", "input"], procs=64, time_limit=3600).job
...     print(client.wait(job))

A client belongs to one thread. Its requests are those of docs/PROTOCOL.md; those about jobs,
clusters and the plan are in `coalloc.client.job_requests`. `coalloc.client.async_client` awaits the
same.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coalloc import wire
from coalloc.client.job_requests import JobRequests
from coalloc.wire.client import NoAnswerError, RefusedError

if TYPE_CHECKING:
    from coalloc.wire.answers import BackupAnswer, ReserveAnswer
    from coalloc.wire.share_answers import (
        AccountRow,
        AccuracyAnswer,
        PriorityAnswer,
        RulesAnswer,
        UsageRow,
    )

__all__ = ["Client", "NoAnswerError", "RefusedError"]


class Client(JobRequests):
    """One thread's connection to the daemon; see `BaseClient` for its parameters."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Weights of waiting jobs, and accounts of what has ended

    def priority(self, job: str = "") -> PriorityAnswer:
        """The terms of the effective weight of a waiting job or array, or of all of them."""
        return self._ask(wire.share_answers.PriorityAnswer, "priority", job=job)

    def accuracy(self) -> AccuracyAnswer:
        """Accuracy of expected starts and planned run times on this site."""
        return self._ask(wire.share_answers.AccuracyAnswer, "estimates")

    def account(
        self,
        *,
        job: str = "",
        user: str = "",
        project: str = "",
        state: str = "",
        since: float = 0.0,
        until: float | None = None,
    ) -> Generator[AccountRow]:
        """Jobs that have ended, by their end, page after page; times in seconds since 1970.

        `job`: one, and the members, tasks or pieces of it; empty: all.
        """
        kind = wire.share_answers.AccountAnswer
        page = partial(self._ask, kind, "account", job=job, user=user, project=project)
        page = partial(page, state=state, since=since, until=until)
        answer = page()
        yield from answer.jobs
        while answer.after:
            answer = page(after=answer.after)
            yield from answer.jobs

    def usage(self, *, since: float = 0.0, until: float | None = None) -> Generator[UsageRow]:
        """Usage by day of UTC, project, user and cluster, page after page."""
        form = wire.share_answers.UsageAnswer
        page = partial(self._ask, form, "usage", since=since, until=until)
        answer = page()
        yield from answer.rows
        while answer.more and answer.rows:
            last = answer.rows[-1]
            answer = page(after=(last.day, last.project, last.user, last.cluster))
            yield from answer.rows

    # What is refused to others than operators, and the input of a round

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
