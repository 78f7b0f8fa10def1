"""Requests about shares, accounts and usage."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from coalloc import wire
from coalloc.client.base import BaseClient

if TYPE_CHECKING:
    from coalloc.wire.share_answers import AccountRow, AccuracyAnswer, PriorityAnswer, UsageRow


class AccountingRequests(BaseClient):
    """Weights of waiting jobs, and accounts of what has ended."""

    def priority(self, job: str = "") -> PriorityAnswer:
        """The terms of the effective weight of a waiting job or array, or of all of them."""
        return self._ask(wire.share_answers.PriorityAnswer, "priority", job=job)

    def accuracy(self) -> AccuracyAnswer:
        """Accuracy of expected starts and planned run times on this site."""
        return self._ask(wire.share_answers.AccuracyAnswer, "estimates")

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
        form = wire.share_answers.AccountAnswer
        page = partial(self._ask, form, "account", user=user, project=project, state=state)
        answer = page(since=since, until=until)
        yield from answer.jobs
        while answer.after:
            answer = page(since=since, until=until, after=answer.after)
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
