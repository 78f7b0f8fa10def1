"""Requests about shares, accounts and usage, for both clients."""

from __future__ import annotations

from functools import partial

from coalloc.client.steps import Found, Steps, Stream, asked, request, stream
from coalloc.wire import share_answers
from coalloc.wire.estimate_answers import AccuracyAnswer
from coalloc.wire.share_answers import AccountAnswer, AccountRow, UsageAnswer, UsageRow


class AccountingRequests:
    """Weights of waiting jobs, and accounts of what has ended."""

    @request
    def priority(self, job: str = "") -> Steps[share_answers.PriorityAnswer]:
        """The terms of the effective weight of a waiting job or array, or of all of them."""
        return (yield from asked(share_answers.PriorityAnswer, "priority", job=job))

    @request
    def accuracy(self) -> Steps[AccuracyAnswer]:
        """Accuracy of expected starts and planned run times on this site."""
        return (yield from asked(AccuracyAnswer, "estimates"))

    @stream
    def account(
        self,
        *,
        user: str = "",
        project: str = "",
        state: str = "",
        since: float = 0.0,
        until: float | None = None,
    ) -> Stream[AccountRow]:
        """Jobs that have ended, by their end, page after page; times in seconds since 1970."""
        page = partial(asked, AccountAnswer, "account", user=user, project=project, state=state)
        answer = yield from page(since=since, until=until)
        yield Found(answer.jobs)
        while answer.after:
            answer = yield from page(since=since, until=until, after=answer.after)
            yield Found(answer.jobs)

    @stream
    def usage(self, *, since: float = 0.0, until: float | None = None) -> Stream[UsageRow]:
        """Usage by day of UTC, project, user and cluster, page after page."""
        page = partial(asked, UsageAnswer, "usage", since=since, until=until)
        answer = yield from page()
        yield Found(answer.rows)
        while answer.more and answer.rows:
            last = answer.rows[-1]
            answer = yield from page(after=(last.day, last.project, last.user, last.cluster))
            yield Found(answer.rows)
