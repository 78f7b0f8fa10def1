"""The numbered event stream as a client reads it: what is stored, then what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec

from coalloc.wire.answers import Event
from coalloc.wire.client import EventSubscriber, KeyRefusedError, NoAnswerError

LISTEN_S = 0.25
"""While following, between looks whether to go on, seconds."""
POLL_S = 0.5
"""Between questions for new events where they are not published to us, seconds."""
QUIET_S = 5.0
"""While following, a silence after which the daemon is asked, seconds."""
AGAIN_S = 0.2
"""While the daemon is away, between questions, seconds."""
PAGE = 1000


def stored(page: Callable[[int, int], Sequence[Event]], since: int) -> Iterator[Event]:
    """Stored events with a larger number, page after page; each page has at most so many."""
    while True:
        events = page(since, PAGE)
        yield from events
        if len(events) < PAGE:
            return
        since = events[-1].seq


@dataclass(slots=True)
class Follower:
    """Reads stored events, and then those that happen, in order and without gaps."""

    page: Callable[[str, int, int], Sequence[Event]]
    """Stored events of a job (empty: of all) behind a number, at most so many."""
    last: int
    """Number of the last event that was seen."""
    job: str
    """Only this job's; empty: all."""
    is_over: Callable[[], bool]
    """Asked while nothing happens; True ends the stream."""
    pause: Callable[[float], None]
    """Waits for so many seconds."""
    away_s: float
    """How long the daemon may be away, seconds."""

    def polled(self) -> Iterator[Event]:
        while not self.is_over():
            yield from self._missed(self.job)
            self.pause(POLL_S)

    def published(self, endpoint: str) -> Iterator[Event]:
        """Listen where events are published.

        Subscribes first and reads what is stored next, so that nothing falls in between.
        """
        silent_s = 0.0
        with closing(EventSubscriber(endpoint, ("event.",))) as watcher:
            while not self.is_over():
                _, body = next(watcher.messages(LISTEN_S), (None, None))
                silent_s = silent_s + LISTEN_S if body is None else 0.0
                if body is None:
                    if silent_s >= QUIET_S:
                        # the end of the stream may have been lost
                        silent_s = 0.0
                        yield from self._missed()
                elif body.get("seq") == self.last + 1:
                    self.last += 1
                    if self.job in {"", body.get("job", "")}:
                        yield _event(body)
                elif body.get("welcome") or int(body.get("seq", 0)) > self.last:
                    # subscribed anew, or something was lost: the store has what is missing
                    yield from self._missed()
                    self.last = max(self.last, int(body.get("seq", 0)))

    def _missed(self, job: str = "") -> Iterator[Event]:
        """Events of the store behind the last one."""
        while True:
            events = self._patient(job)
            if events:
                self.last = events[-1].seq
                yield from (event for event in events if self.job in {"", event.job})
            if len(events) < PAGE:
                return

    def _patient(self, job: str) -> Sequence[Event]:
        """A page of the store, asked for again while the daemon may be being restarted."""
        end = time.monotonic() + self.away_s
        while True:
            try:
                return self.page(job, self.last, PAGE)
            except KeyRefusedError:
                raise
            except NoAnswerError:
                if time.monotonic() >= end or self.is_over():
                    raise
            self.pause(AGAIN_S)


def _event(body: Mapping[str, Any]) -> Event:
    try:
        return msgspec.convert(body, Event)
    except msgspec.ValidationError as error:
        raise NoAnswerError(f"unreadable publication: {error}") from error
