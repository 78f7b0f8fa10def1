"""Requests about jobs, clusters and the plan, for both clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from coalloc.client.events import AWAY_S, followed, never, stored
from coalloc.client.main_guard import refuse_while_importing
from coalloc.client.steps import (
    Found,
    Receive,
    Send,
    Steps,
    Stream,
    answered,
    asked,
    patiently,
    request,
    stream,
)
from coalloc.client.submission import JobOptions, change, submission
from coalloc.wire import answers
from coalloc.wire.answers import Submitted
from coalloc.wire.client import AnswerFrame, NoAnswerError, RefusedError
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow

if TYPE_CHECKING:
    from coalloc.client.workflow_submission import WorkflowOptions

PIPELINED = 1000
"""Submits under way at a time."""
WHY_S = 20.0
"""For an answer to ``why``, which may need several solves, seconds."""
ESTIMATE_S = 60.0
"""For an answer that needs a whole solve, seconds."""
LOOK_EVERY_S = 10.0
"""While waiting for a job, between looks whether the daemon is still the same, seconds."""
REPEAT_S = 300.0
"""A wait is asked again after this long, in case our connection was replaced, seconds."""


class JobRequests:
    """Requests of users; see docs/PROTOCOL.md."""

    timeout_s: float

    @request
    def ask(
        self, kind: str, /, *, timeout_s: float | None = None, **fields: Any
    ) -> Steps[dict[str, Any]]:
        """Send any request of the protocol and return its answer as it came.

        Raises
        ------
        RefusedError
        NoAnswerError
        """
        answer = yield from answered({**fields, "type": kind}, timeout_s)
        return answer.checked().plain()

    @request
    def submit(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> Steps[Submitted]:
        """Queue a job; on return it is on the daemon's disk.

        Sent again where no answer comes in time: the token makes that the same job.

        Parameters
        ----------
        argv : sequence of str
            Command and arguments.
        **options
            See `coalloc.client.submission.JobOptions`.

        Raises
        ------
        RefusedError
        NoAnswerError
            Whether the job was queued is not known; a later submit with the same `token` tells.
        """
        return (yield from _queued(self, "submit", submission(argv, **options)))

    @request
    def send_submission(self, body: Mapping[str, Any]) -> Steps[Submitted]:
        """Queue a job described by `submission`."""
        return (yield from _queued(self, "send_submission", body))

    @stream
    def submit_many(self, bodies: Iterable[Mapping[str, Any]]) -> Stream[Submitted | RefusedError]:
        """Queue many jobs without waiting for each answer; yields the outcomes in order.

        A refusal is yielded, not raised, so that one bad job does not hide the others.

        Parameters
        ----------
        bodies : iterable of mapping
            Each from `submission`; taken as there is room.

        Raises
        ------
        NoAnswerError
        """
        refuse_while_importing(f"{type(self).__name__}.submit_many")
        under_way: list[tuple[str, Mapping[str, Any]]] = []
        for body in bodies:
            if len(under_way) >= PIPELINED:
                for sent, waiting in under_way[: PIPELINED // 2]:
                    yield Found([(yield from _outcome(sent, waiting))])
                del under_way[: PIPELINED // 2]
            under_way.append(((yield Send(body)), body))
        for sent, waiting in under_way:
            yield Found([(yield from _outcome(sent, waiting))])

    @request
    def submit_workflow(self, file: Path, **options: Unpack[WorkflowOptions]) -> Steps[Submitted]:
        """Queue the workflow of a file as one job; see `WorkflowOptions`.

        Raises
        ------
        InputError
            The file cannot be read, or a task has no command.
        RefusedError
        NoAnswerError
        """
        from coalloc.adapters.formats.workflow import read_workflow
        from coalloc.client.workflow_submission import workflow_submission

        read = read_workflow(file)
        options = {"name": read.name, **options}
        body = workflow_submission(read.job, read.commands, **options)
        return (yield from _queued(self, "submit_workflow", body))

    @request
    def test_submit(
        self, argv: Sequence[str], **options: Unpack[JobOptions]
    ) -> Steps[answers.Estimate]:
        """Expected start of a job if it were submitted now; nothing is queued."""
        return (yield from _estimated(submission(argv, **options), self.timeout_s))

    @request
    def test_submission(self, body: Mapping[str, Any]) -> Steps[answers.Estimate]:
        """The same for a job described by `submission`."""
        return (yield from _estimated(body, self.timeout_s))

    @request
    def cancel(self, job: str, reason: str = "") -> Steps[tuple[str, ...]]:
        """End a job or an array, waiting or running; returns the jobs concerned.

        Parameters
        ----------
        reason : str
            One line, kept with the job.
        """
        return (yield from asked(answers.Concerned, "cancel", job=job, reason=reason)).jobs

    @request
    def hold(self, job: str) -> Steps[tuple[str, ...]]:
        """Keep a waiting job or array from being planned; returns the jobs concerned."""
        return (yield from asked(answers.Concerned, "hold", job=job)).jobs

    @request
    def release(self, job: str) -> Steps[tuple[str, ...]]:
        """Undo `hold`; returns the jobs concerned."""
        return (yield from asked(answers.Concerned, "release", job=job)).jobs

    @request
    def update(self, job: str, **options: Unpack[JobOptions]) -> Steps[tuple[str, ...]]:
        """Change a waiting job, or an array's waiting members; returns the jobs concerned.

        The options are those of `submit` that a job is planned by, its name and its dependencies.
        """
        answer = yield from answered(change(job, **options))
        return answer.read(answers.Concerned).jobs

    @request
    def queue(self, *, user: str = "", everything: bool = False) -> Steps[tuple[QueueRow, ...]]:
        """Jobs in arrival order: those that have not ended, or all that are remembered."""
        return (yield from _whole_queue(user, everything)).jobs

    @request
    def whole_queue(
        self, *, user: str = "", everything: bool = False
    ) -> Steps[answers.QueueAnswer]:
        """The answers to `queue`, page after page, as one that has all rows."""
        return (yield from _whole_queue(user, everything))

    @request
    def show(self, job: str) -> Steps[JobDetails]:
        """Everything known of a job, with its history of events."""
        return (yield from asked(answers.ShowAnswer, "show", job=job)).job

    @request
    def shown(self, job: str) -> Steps[answers.ShowAnswer]:
        """The whole answer to `show`."""
        return (yield from asked(answers.ShowAnswer, "show", job=job))

    @request
    def why(self, job: str) -> Steps[answers.Why]:
        """The reason why a job does not start, with an explanation where one was made in time."""
        return (yield from _explained(job, self.timeout_s)).why

    @request
    def explained(self, job: str) -> Steps[answers.WhyAnswer]:
        """The whole answer to `why`."""
        return (yield from _explained(job, self.timeout_s))

    @request
    def wait(self, job: str, timeout: float | None = None) -> Steps[tuple[answers.EndedJob, ...]]:
        """Wait until a job, or every member of an array, has ended.

        A restart of the daemon does not end the wait.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        TimeoutError
            It has not ended in time; it goes on.
        NoAnswerError
            No daemon has answered for `timeout_s`, or at once if nobody listens.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            epoch = (yield from _status()).epoch
            sent: str = yield Send({"type": "wait", "job": job})
            since = time.monotonic()
            while time.monotonic() - since < REPEAT_S:
                left = LOOK_EVERY_S if end is None else end - time.monotonic()
                try:
                    answer: AnswerFrame = yield Receive(sent, max(0.0, min(left, LOOK_EVERY_S)))
                    return answer.read(answers.EndedAnswer).jobs
                except NoAnswerError:
                    if end is not None and time.monotonic() >= end:
                        message = f"job {job} has not ended within {timeout:g} s"
                        raise TimeoutError(message) from None
                if (yield from _status()).epoch != epoch:
                    break

    @request
    def nodes(self) -> Steps[tuple[ClusterRow, ...]]:
        """Clusters with their nodes."""
        return (yield from asked(answers.NodesAnswer, "nodes")).clusters

    @request
    def known_nodes(self) -> Steps[answers.NodesAnswer]:
        """The whole answer to `nodes`."""
        return (yield from asked(answers.NodesAnswer, "nodes"))

    @request
    def plan(self) -> Steps[answers.PlanAnswer]:
        """The newest plan, and what runs."""
        return (yield from asked(answers.PlanAnswer, "plan"))

    @request
    def status(self) -> Steps[answers.ServiceStatus]:
        """State of the daemon."""
        return (yield from _status())

    @request
    def last_event(self) -> Steps[int]:
        """Number of the newest event; 0 where there is none."""
        return (yield from _last_event())

    @stream
    def events(
        self,
        since: int | None = 0,
        *,
        follow: bool = False,
        job: str = "",
        stopped: Callable[[], bool] = never,
        away_s: float = AWAY_S,
    ) -> Stream[answers.Event]:
        """The numbered event stream, in order and without gaps.

        Parameters
        ----------
        since : int or None
            Events with a larger number; None: those to come.
        follow : bool
            Go on with new events as they happen, for ever.
        job : str
            Only this job's.
        stopped : callable
            When following, asked several times a second: True ends the stream.
        away_s : float
            When following, how long the daemon may be away, as while it is restarted, seconds.

        Raises
        ------
        NoAnswerError
            There is no daemon; when following, for longer than `away_s`.
        """
        first = (yield from _last_event()) if since is None else since
        if follow:
            yield from followed(_page, first, job, stopped, away_s)
        else:
            yield from stored(partial(_page, job=job), first)


def _queued(client: JobRequests, method: str, body: Mapping[str, Any]) -> Steps[Submitted]:
    refuse_while_importing(f"{type(client).__name__}.{method}")
    try:
        answer = yield from answered(body)
    except NoAnswerError:
        answer = yield from answered(body)
    return _submitted(answer, body)


def _outcome(sent: str, body: Mapping[str, Any]) -> Steps[Submitted | RefusedError]:
    try:
        try:
            answer = yield from patiently(sent, body)
        except NoAnswerError:
            answer = yield from answered(body)
        return _submitted(answer, body)
    except RefusedError as error:
        return error


def _submitted(answer: AnswerFrame, body: Mapping[str, Any]) -> Submitted:
    return msgspec.structs.replace(answer.read(Submitted), token=body["token"])


def _estimated(body: Mapping[str, Any], timeout_s: float) -> Steps[answers.Estimate]:
    answer = yield from answered({**body, "type": "test_submit"}, max(timeout_s, ESTIMATE_S))
    return answer.read(answers.Estimate)


def _explained(job: str, timeout_s: float) -> Steps[answers.WhyAnswer]:
    return asked(answers.WhyAnswer, "why", timeout_s=max(timeout_s, WHY_S), job=job)


def _whole_queue(user: str, everything: bool) -> Steps[answers.QueueAnswer]:
    page = partial(asked, answers.QueueAnswer, "queue", user=user, all=everything)
    answer = yield from page()
    rows = list(answer.jobs)
    while answer.more and answer.jobs:
        answer = yield from page(after=answer.jobs[-1].id)
        rows += answer.jobs
    return msgspec.structs.replace(answer, jobs=tuple(rows))


def _status() -> Steps[answers.ServiceStatus]:
    return asked(answers.ServiceStatus, "status")


def _last_event() -> Steps[int]:
    return (yield from asked(answers.EventsAnswer, "events", since=0, limit=0)).last


def _page(since: int, limit: int, job: str = "") -> Steps[Sequence[answers.Event]]:
    page = yield from asked(answers.EventsAnswer, "events", since=since, limit=limit, job=job)
    return page.events
