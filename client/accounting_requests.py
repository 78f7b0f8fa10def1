"""Requests about shares, accounts and usage."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from coalloc.client.base import BaseClient

if TYPE_CHECKING:
    from coalloc.wire.share_answers import AccountRow, AccuracyAnswer, PriorityAnswer, UsageRow


class AccountingRequests(BaseClient):
    """Weights of waiting jobs, and accounts of what has ended."""

    def priority(self, job: str = "") -> PriorityAnswer:
        """The terms of the effective weight of a waiting job or array, or of all of them."""
        from coalloc.wire.share_answers import PriorityAnswer

        return self._ask(PriorityAnswer, "priority", job=job)

    def accuracy(self) -> AccuracyAnswer:
        """Accuracy of expected starts and planned run times on this site."""
        from coalloc.wire.share_answers import AccuracyAnswer

        return self._ask(AccuracyAnswer, "estimates")

    def account(
        self,
        *,
        user: str = "",
        project: str = "",
        state: str = "",
        since: float = 0.0,
        until: float | None = None,
    ) -> Generator[AccountRow]:
        """Jobs that have ended, by their end, page after page; times in seconds since 1970."""
        from coalloc.wire.share_answers import AccountAnswer

        page = partial(self._ask, AccountAnswer, "account", user=user, project=project, state=state)
        answer = page(since=since, until=until)
        yield from answer.jobs
        while answer.after:
            answer = page(since=since, until=until, after=answer.after)
            yield from answer.jobs

    def usage(self, *, since: float = 0.0, until: float | None = None) -> Generator[UsageRow]:
        """Usage by day of UTC, project, user and cluster, page after page."""
        from coalloc.wire.share_answers import UsageAnswer

        page = partial(self._ask, UsageAnswer, "usage", since=since, until=until)
        answer = page()
        yield from answer.rows
        while answer.more and answer.rows:
            last = answer.rows[-1]
            answer = page(after=(last.day, last.project, last.user, last.cluster))
            yield from answer.rows
