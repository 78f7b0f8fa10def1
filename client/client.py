"""The Python client: submit jobs, ask about them, watch what happens.

>>> from coalloc import Client
>>> with Client() as client:  # doctest: +SKIP
...     job = client.submit(["./model", "input"], procs=64, time_limit=3600).job
...     print(client.wait(job))

A client belongs to one thread. Its requests are those of docs/PROTOCOL.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import msgspec

from coalloc.client.endpoint import await_listener, configured_endpoints, daemon_endpoint
from coalloc.client.events import followed, never, stored
from coalloc.client.main_guard import refuse_while_importing
from coalloc.client.submission import JobOptions, change, submission
from coalloc.wire import answers, share_answers
from coalloc.wire.answers import Answer, Submitted
from coalloc.wire.client import AnswerFrame, NoAnswerError, RefusedError, RequestConnection
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow

if TYPE_CHECKING:
    from coalloc.client.workflow_submission import WorkflowOptions

__all__ = ["Client", "NoAnswerError", "RefusedError", "submission"]

T = TypeVar("T", bound=Answer)

PATIENCE_S = 1.0
"""How long a daemon that is being restarted may take to listen again, seconds."""
TOO_FAST_FIRST_S, TOO_FAST_LONGEST_S, TOO_FAST_S = 0.05, 1.0, 120.0
"""Pauses after a refusal for asking too fast, and how long to go on trying, seconds."""
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


class Client:
    """A connection to the daemon.

    Parameters
    ----------
    endpoint : str, optional
        Such as ``ipc:///run/coalloc/coalloc.sock``. Default: that of the configuration.
    timeout_s : float
        For one answer, seconds.
    publish_endpoint : str, optional
        Where events are published. Default: that of the configuration.
    config : Path, optional
        The configuration file. Default: ``$COALLOC_CONFIG``, the user's, the system's.
    key : Path, optional
        The file of the key to connect with, where the daemon tells users apart. Default:
        ``$COALLOC_KEY``, or the user's.

    Raises
    ------
    ConfigError
        The configuration is needed and cannot be used.
    NoAnswerError
        A key is needed, and there is none that can be used.
    """

    Refused = RefusedError
    NoAnswer = NoAnswerError

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        publish_endpoint: str | None = None,
        config: Path | None = None,
        key: Path | None = None,
    ) -> None:
        found = daemon_endpoint(endpoint, config, key)
        self._security = found.security
        publish_endpoint = publish_endpoint or found.publish_endpoint
        self.endpoint, self.timeout_s = found.endpoint, timeout_s
        self._publish_endpoint, self._config = publish_endpoint, config
        self._asker: RequestConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    def ask(self, kind: str, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send any request of the protocol and return its answer as it came.

        Raises
        ------
        RefusedError
        NoAnswerError
        """
        return self._answer({**fields, "type": kind}, timeout_s).checked().plain()

    def _asked(
        self, cls: type[T], kind: str, *, timeout_s: float | None = None, **fields: Any
    ) -> T:
        """Send a request and return its answer as one of `coalloc.wire.answers`."""
        return self._answer({**fields, "type": kind}, timeout_s).read(cls)

    def _answer(self, body: Mapping[str, Any], timeout_s: float | None = None) -> AnswerFrame:
        asker = self._connected()
        return self._patiently(asker.answer_to(asker.send(body), timeout_s=timeout_s), body)

    def _patiently(self, answer: AnswerFrame, body: Mapping[str, Any]) -> AnswerFrame:
        """Ask again, ever more slowly, while the daemon says that we ask too fast."""
        pause, end = TOO_FAST_FIRST_S, time.monotonic() + TOO_FAST_S
        asker = self._connected()
        while answer.refusal is not None and answer.refusal.code == "too_fast":
            if time.monotonic() >= end:
                break
            time.sleep(pause)
            pause = min(2.0 * pause, TOO_FAST_LONGEST_S)
            answer = asker.answer_to(asker.send(body))
        return answer

    def submit(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> Submitted:
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
        return self.send_submission(submission(argv, **options))

    def send_submission(self, body: Mapping[str, Any]) -> Submitted:
        """Queue a job described by `submission`."""
        refuse_while_importing("Client.submit")
        try:
            answer = self._answer(body)
        except NoAnswerError:
            answer = self._answer(body)
        return _submitted(answer, body)

    def submit_many(
        self, bodies: Iterable[Mapping[str, Any]]
    ) -> Iterator[Submitted | RefusedError]:
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
        refuse_while_importing("Client.submit_many")
        asker = self._connected()
        under_way: list[tuple[str, Mapping[str, Any]]] = []
        for body in bodies:
            if len(under_way) >= PIPELINED:
                for request, sent in under_way[: PIPELINED // 2]:
                    yield self._outcome(request, sent)
                del under_way[: PIPELINED // 2]
            under_way.append((asker.send(body), body))
        for request, sent in under_way:
            yield self._outcome(request, sent)

    def _outcome(self, request: str, body: Mapping[str, Any]) -> Submitted | RefusedError:
        try:
            try:
                answer = self._patiently(self._connected().answer_to(request), body)
            except NoAnswerError:
                answer = self._answer(body)
            return _submitted(answer, body)
        except RefusedError as error:
            return error

    def submit_workflow(self, file: Path, **options: Unpack[WorkflowOptions]) -> Submitted:
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
        return self.send_submission(workflow_submission(read.job, read.commands, **options))

    def test_submit(self, argv: Sequence[str], **options: Unpack[JobOptions]) -> answers.Estimate:
        """Expected start of a job if it were submitted now; nothing is queued."""
        return self.test_submission(submission(argv, **options))

    def test_submission(self, body: Mapping[str, Any]) -> answers.Estimate:
        """The same for a job described by `submission`."""
        request = {**body, "type": "test_submit"}
        return self._answer(request, max(self.timeout_s, ESTIMATE_S)).read(answers.Estimate)

    def cancel(self, job: str) -> tuple[str, ...]:
        """End a job or an array, waiting or running; returns the jobs concerned."""
        return self._asked(answers.Concerned, "cancel", job=job).jobs

    def hold(self, job: str) -> tuple[str, ...]:
        """Keep a waiting job or array from being planned; returns the jobs concerned."""
        return self._asked(answers.Concerned, "hold", job=job).jobs

    def release(self, job: str) -> tuple[str, ...]:
        """Undo `hold`; returns the jobs concerned."""
        return self._asked(answers.Concerned, "release", job=job).jobs

    def update(self, job: str, **options: Unpack[JobOptions]) -> tuple[str, ...]:
        """Change a waiting job, or an array's waiting members; returns the jobs concerned.

        The options are those of `submit` that a job is planned by, its name and its dependencies.
        """
        return self._answer(change(job, **options)).read(answers.Concerned).jobs

    def set_priority(self, job: str, priority: float) -> tuple[str, ...]:
        """Double the weight of a waiting job or array so many times; for operators."""
        asked = partial(self._asked, answers.Concerned, "set_priority", job=job)
        return asked(priority=priority).jobs

    def priority(self, job: str = "") -> share_answers.PriorityAnswer:
        """The terms of the effective weight of a waiting job or array, or of all of them."""
        return self._asked(share_answers.PriorityAnswer, "priority", job=job)

    def account(
        self,
        *,
        user: str = "",
        project: str = "",
        state: str = "",
        since: float = 0.0,
        until: float | None = None,
    ) -> Iterator[share_answers.AccountRow]:
        """Jobs that have ended, by their end, page after page; times in seconds since 1970."""
        asked = partial(self._asked, share_answers.AccountAnswer, "account", user=user)
        chosen: dict[str, Any] = {"project": project, "state": state}
        chosen |= {"since": since, "until": until}
        answer = asked(**chosen)
        yield from answer.jobs
        while answer.after:
            answer = asked(**chosen, after=answer.after)
            yield from answer.jobs

    def usage(
        self, *, since: float = 0.0, until: float | None = None
    ) -> Iterator[share_answers.UsageRow]:
        """Usage by day of UTC, project, user and cluster, page after page."""
        asked = partial(self._asked, share_answers.UsageAnswer, "usage", since=since, until=until)
        answer = asked()
        yield from answer.rows
        while answer.more and answer.rows:
            last = answer.rows[-1]
            answer = asked(after=(last.day, last.project, last.user, last.cluster))
            yield from answer.rows

    def queue(self, *, user: str = "", everything: bool = False) -> tuple[QueueRow, ...]:
        """Jobs in arrival order: those that have not ended, or all that are remembered."""
        return self.whole_queue(user=user, everything=everything).jobs

    def whole_queue(self, *, user: str = "", everything: bool = False) -> answers.QueueAnswer:
        """The answers to `queue`, page after page, as one that has all rows."""
        asked = partial(self._asked, answers.QueueAnswer, "queue", user=user, all=everything)
        answer = asked()
        rows = list(answer.jobs)
        while answer.more and answer.jobs:
            answer = asked(after=answer.jobs[-1].id)
            rows += answer.jobs
        return msgspec.structs.replace(answer, jobs=tuple(rows))

    def show(self, job: str) -> JobDetails:
        """Everything known of a job, with its history of events."""
        return self.shown(job).job

    def shown(self, job: str) -> answers.ShowAnswer:
        """The whole answer to `show`."""
        return self._asked(answers.ShowAnswer, "show", job=job)

    def why(self, job: str) -> answers.Why:
        """The reason why a job does not start, with an explanation where one was made in time."""
        return self.explained(job).why

    def explained(self, job: str) -> answers.WhyAnswer:
        """The whole answer to `why`."""
        limit_s = max(self.timeout_s, WHY_S)
        return self._asked(answers.WhyAnswer, "why", timeout_s=limit_s, job=job)

    def wait(self, job: str, timeout: float | None = None) -> tuple[answers.EndedJob, ...]:
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
            No daemon has answered for `timeout_s`, or `PATIENCE_S` if nobody listens.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            epoch = self.status().epoch
            request = self._connected().send({"type": "wait", "job": job})
            asked = time.monotonic()
            while time.monotonic() - asked < REPEAT_S:
                left = LOOK_EVERY_S if end is None else end - time.monotonic()
                try:
                    answer = self._connected().answer_to(
                        request, timeout_s=max(0.0, min(left, LOOK_EVERY_S))
                    )
                    return answer.read(answers.EndedAnswer).jobs
                except NoAnswerError:
                    if end is not None and time.monotonic() >= end:
                        message = f"job {job} has not ended within {timeout:g} s"
                        raise TimeoutError(message) from None
                if self.status().epoch != epoch:
                    break

    def nodes(self) -> tuple[ClusterRow, ...]:
        """Clusters with their nodes."""
        return self.known_nodes().clusters

    def known_nodes(self) -> answers.NodesAnswer:
        """The whole answer to `nodes`."""
        return self._asked(answers.NodesAnswer, "nodes")

    def plan(self) -> answers.PlanAnswer:
        """The newest plan, and what runs."""
        return self._asked(answers.PlanAnswer, "plan")

    def events(
        self,
        since: int | None = 0,
        *,
        follow: bool = False,
        job: str = "",
        stopped: Callable[[], bool] = never,
    ) -> Generator[answers.Event]:
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

        Raises
        ------
        NoAnswerError
            Also after the daemon has gone, when following.
        """
        first = self.last_event() if since is None else since
        events = (
            followed(self._page, self._publishing(), first, stopped, self._security)
            if follow
            else stored(partial(self._page, job=job), first)
        )
        for event in events:
            if not job or event.job == job:
                yield event

    def last_event(self) -> int:
        """Number of the newest event; 0 where there is none."""
        return self._asked(answers.EventsAnswer, "events", since=0, limit=0).last

    def _page(self, since: int, limit: int, job: str = "") -> Sequence[answers.Event]:
        asked = self._asked(answers.EventsAnswer, "events", since=since, limit=limit, job=job)
        return asked.events

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
    ) -> answers.Reservation:
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
        return self._asked(
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

    def unreserve(self, name: str) -> None:
        """Undo `reserve`."""
        self.ask("unreserve", name=name)

    def drain(self, target: str, reason: str = "") -> None:
        """Start nothing new on a cluster or a node."""
        self.ask("drain", target=target, reason=reason)

    def resume(self, target: str) -> None:
        """Undo `drain`."""
        self.ask("resume", target=target)

    def pause_rounds(self) -> None:
        """Plan nothing until `resume_rounds`; running jobs go on."""
        self.ask("pause_rounds")

    def resume_rounds(self) -> None:
        """Plan again."""
        self.ask("resume_rounds")

    def round_now(self) -> None:
        """Start a round."""
        self.ask("round_now")

    def snapshot(self) -> dict[str, Any]:
        """Snapshot of a round that began now, in the snapshot format."""
        return self._asked(answers.SnapshotAnswer, "snapshot").snapshot

    def rules(self) -> share_answers.RulesAnswer:
        """The same as a round has it, and what it were without each rule that is in force."""
        return self._asked(share_answers.RulesAnswer, "rules")

    def backup(self, path: Path, timeout_s: float | None = None) -> answers.BackupAnswer:
        """Have a copy of the store written to an absolute path on the daemon's host."""
        asked = partial(self._asked, answers.BackupAnswer, "backup", path=str(path))
        return asked(timeout_s=timeout_s)

    def status(self) -> answers.ServiceStatus:
        """State of the daemon."""
        return self._asked(answers.ServiceStatus, "status")

    def _connected(self) -> RequestConnection:
        if self._asker is None:
            await_listener(self.endpoint, min(PATIENCE_S, self.timeout_s))
            self._asker = RequestConnection(
                self.endpoint, timeout_s=self.timeout_s, security=self._security
            )
        return self._asker

    def _publishing(self) -> str:
        if self._publish_endpoint is None:
            _, self._publish_endpoint = configured_endpoints(self._config)
        return self._publish_endpoint


def _submitted(answer: AnswerFrame, body: Mapping[str, Any]) -> Submitted:
    return msgspec.structs.replace(answer.read(Submitted), token=body["token"])
