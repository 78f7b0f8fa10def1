"""Requests about jobs, clusters and the plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from coalloc import wire
from coalloc.client.base import BaseClient
from coalloc.client.main_guard import refuse_while_importing
from coalloc.wire.client import AnswerFrame, NoAnswerError, RefusedError

if TYPE_CHECKING:
    from coalloc.client.submission import JobOptions, WorkflowOptions
    from coalloc.wire.answers import (
        EndedJob,
        Estimate,
        Event,
        NodesAnswer,
        PlanAnswer,
        QueueAnswer,
        ServiceStatus,
        ShowAnswer,
        Submitted,
        Why,
        WhyAnswer,
    )
    from coalloc.wire.job_rows import JobDetails, QueueRow
    from coalloc.wire.node_rows import ClusterRow

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
AWAY_S = 60.0
"""While following, how long the daemon may be away unless the caller says otherwise, seconds."""


def never() -> bool:
    """Go on for ever."""
    return False


class JobRequests(BaseClient):
    """Requests of users; see docs/PROTOCOL.md.

    Each raises `RefusedError` where the daemon does not do it, and `NoAnswerError` where it gives
    no answer in time.
    """

    def ask(self, kind: str, /, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send any request of the protocol and return its answer as it came."""
        return self._answered({**fields, "type": kind}, timeout_s).checked().plain()

    def submit(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> Submitted:
        """Queue a command with arguments as a job; on return it is on the daemon's disk.

        Sent again where no answer comes in time: the token makes that the same job. After a
        `NoAnswerError` it is not known whether the job was queued; a later submit with the same
        `token` tells. The options are those of `coalloc.client.submission.JobOptions`.
        """
        from coalloc.client.submission import submission

        return self.send_submission(submission(argv, **options))

    def send_submission(self, body: Mapping[str, Any]) -> Submitted:
        """Queue a job described by `submission`."""
        refuse_while_importing("Client.submit")
        try:
            answer = self._answered(body)
        except NoAnswerError:
            answer = self._answered(body)
        return _submitted(answer, body)

    def submit_many(
        self, bodies: Iterable[Mapping[str, Any]]
    ) -> Generator[Submitted | RefusedError]:
        """Queue many jobs without waiting for each answer; yields the outcomes in order.

        The `bodies`, each from `submission`, are taken as there is room. A refusal is yielded, not
        raised, so that one bad job does not hide the others.
        """
        refuse_while_importing("Client.submit_many")
        under_way: list[tuple[str | RefusedError, Mapping[str, Any]]] = []
        for body in bodies:
            if len(under_way) >= PIPELINED:
                for sent, waiting in under_way[: PIPELINED // 2]:
                    yield self._outcome(sent, waiting)
                del under_way[: PIPELINED // 2]
            try:
                under_way.append((self._connected().send(body), body))
            except RefusedError as error:  # it is too long to be sent
                under_way.append((error, body))
        for sent, waiting in under_way:
            yield self._outcome(sent, waiting)

    def _outcome(
        self, sent: str | RefusedError, body: Mapping[str, Any]
    ) -> Submitted | RefusedError:
        if isinstance(sent, RefusedError):
            return sent
        try:
            try:
                answer = self._patiently(sent, body)
            except NoAnswerError:
                answer = self._answered(body)
            return _submitted(answer, body)
        except RefusedError as error:
            return error

    def submit_workflow(self, file: Path, **options: Unpack[WorkflowOptions]) -> Submitted:
        """Queue the workflow of a file as one job; see `WorkflowOptions`.

        `InputError`: the file cannot be read, or a task has no command.
        """
        from coalloc.adapters.formats.workflow import read_workflow
        from coalloc.client.submission import workflow_submission

        read = read_workflow(file)
        options = {"name": read.name, **options}
        return self.send_submission(workflow_submission(read.job, read.commands, **options))

    def test_submit(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> Estimate:
        """Expected start of a job if it were submitted now; nothing is queued."""
        from coalloc.client.submission import submission

        return self.test_submission(submission(argv, **options))

    def test_submission(self, body: Mapping[str, Any]) -> Estimate:
        """The same for a job described by `submission`."""
        limit_s = max(self.timeout_s, ESTIMATE_S)
        return self._answered({**body, "type": "test_submit"}, limit_s).read(wire.answers.Estimate)

    def cancel(self, job: str, reason: str = "") -> tuple[str, ...]:
        """End a job or an array, waiting or running; returns the jobs concerned.

        The reason, one line, is kept with the job.
        """
        return self._concerned({"type": "cancel", "job": job, "reason": reason})

    def hold(self, job: str) -> tuple[str, ...]:
        """Keep a waiting job or array from being planned; returns the jobs concerned."""
        return self._concerned({"type": "hold", "job": job})

    def release(self, job: str) -> tuple[str, ...]:
        """Undo `hold`; returns the jobs concerned."""
        return self._concerned({"type": "release", "job": job})

    def update(self, job: str, **options: Unpack[JobOptions]) -> tuple[str, ...]:
        """Change a waiting job, or an array's waiting members; returns the jobs concerned.

        The options are those of `submit` that a job is planned by, its name and its dependencies.
        """
        from coalloc.client.submission import change

        return self._concerned(change(job, **options))

    def _concerned(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        return self._answered(body).read(wire.answers.Concerned).jobs

    def queue(self, *, user: str = "", everything: bool = False) -> tuple[QueueRow, ...]:
        """Jobs in arrival order: those that have not ended, or all that are remembered."""
        return self.whole_queue(user=user, everything=everything).jobs

    def whole_queue(self, *, user: str = "", everything: bool = False) -> QueueAnswer:
        """The answers to `queue`, page after page, as one that has all rows."""
        page = partial(self._ask, wire.answers.QueueAnswer, "queue", user=user, all=everything)
        answer = page()
        rows = list(answer.jobs)
        while answer.more and answer.jobs:
            answer = page(after=answer.jobs[-1].id)
            rows += answer.jobs
        return msgspec.structs.replace(answer, jobs=tuple(rows))

    def show(self, job: str) -> JobDetails:
        """Everything known of a job, with its history of events."""
        return self.shown(job).job

    def shown(self, job: str) -> ShowAnswer:
        """The whole answer to `show`."""
        return self._ask(wire.answers.ShowAnswer, "show", job=job)

    def why(self, job: str) -> Why:
        """The reason why a job does not start, with an explanation where one was made in time."""
        return self.explained(job).why

    def explained(self, job: str) -> WhyAnswer:
        """The whole answer to `why`."""
        return self._ask(
            wire.answers.WhyAnswer, "why", timeout_s=max(self.timeout_s, WHY_S), job=job
        )

    def wait(self, job: str, timeout: float | None = None) -> tuple[EndedJob, ...]:
        """Wait until a job, or all of an array, has ended; it goes on after a `TimeoutError`.

        The `timeout` is in seconds; None waits for ever. A restart of the daemon does not end the
        wait, but with `NoAnswerError` one that does not answer for `timeout_s`, or at once if
        nobody listens.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            epoch = self.status().epoch
            sent = self._connected().send({"type": "wait", "job": job})
            since = time.monotonic()
            while time.monotonic() - since < REPEAT_S:
                left = LOOK_EVERY_S if end is None else end - time.monotonic()
                try:
                    limit_s = max(0.0, min(left, LOOK_EVERY_S))
                    answer = self._connected().answer_to(sent, timeout_s=limit_s)
                    return answer.read(wire.answers.EndedAnswer).jobs
                except NoAnswerError:
                    if end is not None and time.monotonic() >= end:
                        message = f"job {job} has not ended within {timeout:g} s"
                        raise TimeoutError(message) from None
                if self.status().epoch != epoch:
                    break

    def nodes(self) -> tuple[ClusterRow, ...]:
        """Clusters with their nodes."""
        return self.known_nodes().clusters

    def known_nodes(self) -> NodesAnswer:
        """The whole answer to `nodes`."""
        return self._ask(wire.answers.NodesAnswer, "nodes")

    def plan(self) -> PlanAnswer:
        """The newest plan, and what runs."""
        return self._ask(wire.answers.PlanAnswer, "plan")

    def status(self) -> ServiceStatus:
        """State of the daemon."""
        return self._ask(wire.answers.ServiceStatus, "status")

    def last_event(self) -> int:
        """Number of the newest event; 0 where there is none."""
        return self._ask(wire.answers.EventsAnswer, "events", since=0, limit=0).last

    def events(
        self,
        since: int | None = 0,
        *,
        follow: bool = False,
        job: str = "",
        stopped: Callable[[], bool] = never,
        away_s: float = AWAY_S,
    ) -> Generator[Event]:
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
        """
        from coalloc.client.events import Follower, stored

        first = self.last_event() if since is None else since
        if not follow:
            yield from stored(partial(self._events, job), first)
            return

        def is_over() -> bool:
            return stopped() or self._given_up.is_set()

        follower = Follower(self._events, first, job, is_over, self._pause, away_s)
        if self.security is not None:
            # what is published goes to operators alone where users are told apart
            yield from follower.polled()
        else:
            yield from follower.published(self.publish_endpoint)

    def _events(self, job: str, since: int, limit: int) -> Sequence[Event]:
        fields: dict[str, Any] = {"since": since, "limit": limit, "job": job}
        return self._ask(wire.answers.EventsAnswer, "events", **fields).events


def _submitted(answer: AnswerFrame, body: Mapping[str, Any]) -> Submitted:
    return msgspec.structs.replace(answer.read(wire.answers.Submitted), token=body["token"])
