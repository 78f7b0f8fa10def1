"""Streams in the daemon: who may read them, who waits, and whose client is gone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.events import Caller
from coalloc.core.base.messages import Stream, Streamed
from coalloc.core.base.requests import Refused, RequestError, Submit
from coalloc.daemon import streams as module
from coalloc.daemon.streams import Streams
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.parts import Launch
from coalloc.model.values import replace
from coalloc.wire.answers import StreamAnswer
from coalloc.wire.questions import StreamQuestion
from coalloc.wire.server import Origin
from tests.support.core_site import Site

ADA = Caller(user="ada", uid=1000, gid=1000, operator=False)
ROOT = Caller(user="root", uid=0, gid=0, operator=True)
ONE = {"kind": "rigid", "procs": 1}


class Desk:
    """Streams of one cluster's jobs, and what they say to whom."""

    def __init__(self) -> None:
        self.site = Site({"a": 2})
        self.answers: list[StreamAnswer] = []
        self.wishes: list[Stream] = []
        self.offered: list[Any] = []
        self.streams = self.made()

    def made(self) -> Streams:
        given: Any = self
        return Streams(self.site.job, self.site.core.state, given.tell, given, given, given.answer)

    def tell(self, cluster: str, wish: Stream) -> bool:
        self.wishes.append(wish)
        return True

    def answer(self, origin: Origin, answer: StreamAnswer) -> None:
        self.answers.append(answer)

    def offer(self, event: Any) -> None:
        self.offered.append(event)

    def later(self, delay_s: float, call: Any) -> None: ...

    def charge(self, origin: Origin, began: float) -> None: ...

    def ask(self, job: str, caller: Caller = ADA, **fields: Any) -> None:
        question = StreamQuestion(job=job, **({"at": {}} | fields))
        self.streams.ask(Origin(peer=b"p", request="r"), caller, question)

    def happened(self, kind: EventKind, job: str) -> None:
        event = AppendEvent(seq=1, time=0.0, kind=kind, job=job, fields={})
        self.streams.recorded(event, self.site.job(job))


def test_a_question_waits_for_the_start_and_the_last_of_two_is_answered() -> None:
    desk = Desk()
    job = desk.site.submit(2, user="ada", stream="pipes")
    with pytest.raises(RequestError, match="ada's"):
        desk.ask(job, ROOT)
    desk.ask(job)
    assert not desk.wishes
    desk.site.run(job)
    desk.happened(EventKind.JOB_STARTED, job)
    desk.ask(job)
    first, second = (wish.number for wish in desk.wishes)
    desk.streams.told(Streamed(cluster="b", number=second))
    for number in (first, second, second):
        desk.streams.told(Streamed(cluster="a", number=number, chunks=(("o", 0, "YQ=="),)))
    assert [answer.chunks for answer in desk.answers] == [(("o", 0, "YQ=="),)]
    desk.ask(job, attempt=7)
    assert desk.answers[-1].attempt == desk.site.job(job).attempt, "its places are of another"
    desk.ask(job)
    desk.streams.told(Streamed(cluster="a", number=desk.wishes[-1].number, gone=True))
    assert len(desk.answers) == 2
    desk.site.finish(job)
    desk.happened(EventKind.JOB_ENDED, job)
    assert desk.answers[-1].state == "completed"


def test_streams_are_pipes_or_a_terminal() -> None:
    site = Site({"a": 1})
    command = Submit(token="x", job=ONE, launch=Launch(argv=("x",)))
    for wrong in ("tty", "pty"):
        answer = site.ask(replace(command, stream=wrong, token=wrong))
        assert isinstance(answer, Refused)
        assert answer.message.startswith("stream: is neither pipes, nor pty of a command")


def test_a_job_whose_client_is_gone_is_cancelled_also_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    job, other = desk.site.submit(1, user="ada", stream="pipes"), desk.site.submit(1, user="ada")
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    desk.streams = desk.made()
    now[0] += module.GONE_S
    desk.ask(job)
    now[0] += module.GONE_S
    desk.streams.tick()
    assert not desk.offered
    now[0] += 1.0
    desk.streams.tick()
    (event,) = desk.offered
    assert (event.command.job, event.user) == (job, "ada")
    assert "not heard of for 60 s" in event.command.reason
    assert other != job
