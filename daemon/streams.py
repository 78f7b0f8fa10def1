"""Streams of running jobs, between their clients and the executors of their parts.

A client asks for what it has not read, and is answered once there is something: nothing is kept
here but who has asked, and after a restart it asks again. Each answer holds a chunk of each stream
at most, so that no client's output holds up the loop; the time it takes is charged to its user.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.events import Caller, Requested
from coalloc.core.base.messages import Stream, Streamed
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Cancel, RequestError
from coalloc.core.base.state import State
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.replies import Replies
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.streams import StreamWish
from coalloc.model.values import fields_of, replace
from coalloc.wire.answers import StreamAnswer
from coalloc.wire.questions import StreamQuestion
from coalloc.wire.server import Origin

GONE_S, LOOK_S = 60.0, 5.0
"""A job whose client was not heard of for so long is cancelled; between looks for such; seconds."""
MOST_ASKED = 10_000
GONE = f"its client was not heard of for {GONE_S:g} s"


class _Asked(Struct, frozen=True, kw_only=True):
    origin: Origin
    question: StreamQuestion
    cluster: str = ""


class Streams:
    """Questions about streams that are under way, and the clients of interactive jobs."""

    def __init__(
        self,
        find: Callable[[str], JobRecord],
        state: State,
        tell: Callable[[str, Stream], bool],
        loop: CoreLoop,
        replies: Replies,
        answer: Callable[[Origin, StreamAnswer], None],
    ) -> None:
        self._find, self._state, self._tell, self._loop = find, state, tell, loop
        self._replies, self._answer = replies, answer
        self._numbers = itertools.count(1)
        self._asked: dict[int, _Asked] = {}
        self._newest: dict[tuple[bytes, str, int], int] = {}
        """The number of the question that a connection waits with for a part's output."""
        self._waiting: dict[str, dict[tuple[bytes, int], _Asked]] = {}
        """Questions about jobs that do not run yet, or are about to end, by job."""
        now = time.monotonic()
        self._heard = {
            job: now for job, each in state.jobs.items() if each.stream and not each.is_ended
        }
        """When the client of each interactive job was last heard of."""

    def ask(self, origin: Origin, caller: Caller, question: StreamQuestion) -> None:
        """Answer a question of a job's owner, or pass it on. Raises `RequestError`."""
        record = self._find(question.job)
        if record.user != caller.user:
            raise RequestError("not_allowed", f"job {record.id} is {record.user}'s")
        if record.id in self._heard:
            self._heard[record.id] = time.monotonic()
        self._serve(_Asked(origin=origin, question=question), record)

    def told(self, said: Streamed) -> None:
        asked = self._asked.get(said.number)
        if asked is None or asked.cluster != said.cluster:
            return
        began = time.perf_counter()
        self._drop(said.number)
        record = self._state.jobs.get(asked.question.job)
        if said.gone and record is not None and not record.is_ended:
            self._wait(asked)
        elif record is not None:
            self._say(asked, record, said)
        self._replies.charge(asked.origin, began)

    def recorded(self, event: AppendEvent, record: JobRecord | None) -> None:
        """A job was submitted, has started or has ended: those who wait for that are served."""
        if record is None or event.kind not in SEEN:
            return
        if record.is_ended:
            self._heard.pop(record.id, None)
        elif record.stream:
            self._heard.setdefault(record.id, time.monotonic())
        for asked in self._waiting.pop(record.id, {}).values():
            self._serve(asked, record)

    def tick(self) -> None:
        """Cancel the jobs whose clients are gone; again and again."""
        now = time.monotonic()
        for job in [job for job, at in self._heard.items() if now - at > GONE_S]:
            del self._heard[job]
            record = self._state.jobs.get(job)
            if record is not None and not record.is_ended:
                whose: dict[str, Any] = {"user": record.user, "uid": record.uid, "gid": record.gid}
                cancel = Cancel(job=job, reason=GONE)
                self._loop.offer(Requested(origin=None, operator=False, command=cancel, **whose))
        self._loop.later(LOOK_S, self.tick)

    def _serve(self, asked: _Asked, record: JobRecord) -> None:
        question = asked.question
        is_other = bool(question.attempt) and question.attempt != record.attempt
        if record.is_ended or (record.state is JobState.RUNNING and is_other):
            self._say(asked, record)
        elif record.state is not JobState.RUNNING or question.part >= len(record.parts):
            self._wait(asked)
        else:
            self._pass_on(asked, record)

    def _wait(self, asked: _Asked) -> None:
        """Answer when the job starts or ends; what is no reading, at once."""
        question = asked.question
        if question.at is None:
            self._say(asked, self._find(question.job))
            return
        waiting = self._waiting.setdefault(question.job, {})
        waiting[asked.origin.peer, question.part] = asked

    def _pass_on(self, asked: _Asked, record: JobRecord) -> None:
        question, part = asked.question, record.parts[asked.question.part]
        if len(self._asked) >= MOST_ASKED:
            self._drop(next(iter(self._asked)))
        number = next(self._numbers)
        if question.at is not None:
            place = asked.origin.peer, question.job, question.part
            self._drop(self._newest.get(place, 0))
            self._newest[place] = number
        key: dict[str, Any] = {"job": record.id, "attempt": record.attempt, "part": part.index}
        self._asked[number] = replace(asked, cluster=part.cluster)
        if not self._tell(
            part.cluster, Stream(number=number, **key, **fields_of(question, StreamWish))
        ):
            self._drop(number)
            self._wait(asked)

    def _drop(self, number: int) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            place = asked.origin.peer, asked.question.job, asked.question.part
            if self._newest.get(place) == number:
                del self._newest[place]

    def _say(self, asked: _Asked, record: JobRecord, said: Streamed | None = None) -> None:
        read = {} if said is None else {n: getattr(said, n) for n in ("chunks", "taken", "ended")}
        answer = StreamAnswer(
            state=str(record.state),
            exit_code=record.exit_code,
            detail=record.detail,
            attempt=record.attempt,
            parts=len(record.parts),
            stream=record.stream,
            **read,
        )
        self._answer(asked.origin, answer)


SEEN = frozenset({EventKind.JOB_SUBMITTED, EventKind.JOB_STARTED, EventKind.JOB_ENDED})
