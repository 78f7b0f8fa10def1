"""The numbered event stream as a client reads it: what is stored, then what happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from coalloc.client.steps import Found, Hear, Sleep, Steps, Stream, Subscribe, Subscription
from coalloc.wire.answers import Event
from coalloc.wire.client import KeyRefusedError, NoAnswerError

LISTEN_S = 0.25
"""While following, between looks whether to go on, seconds."""
QUIET_S = 5.0
"""While following, a silence after which the daemon is asked, seconds."""
AWAY_S = 60.0
"""While following, how long the daemon may be away unless the caller says otherwise, seconds."""
AGAIN_S = 0.2
"""While it is away, between questions, seconds."""
PAGE = 1000

Page = Callable[[int, int], Steps[Sequence[Event]]]
"""Stored events behind a number, at most so many."""


def never() -> bool:
    """Go on for ever."""
    return False


def stored(page: Page, since: int) -> Stream[Event]:
    """Stored events with a larger number, page after page."""
    while True:
        events = yield from page(since, PAGE)
        yield Found(events)
        if len(events) < PAGE:
            return
        since = events[-1].seq


def followed(
    page: Page, since: int, job: str, stopped: Callable[[], bool], away_s: float
) -> Stream[Event]:
    """Stored events, and then those that happen, in order and without gaps.

    Subscribes first and reads what is stored next, so that nothing falls in between.

    Parameters
    ----------
    job : str
        Only this job's; empty: all.
    stopped : callable
        Polled while nothing happens; True ends the stream.
    away_s : float
        How long the daemon may be away, seconds.
    """
    last, silent_s = since, 0.0

    def missed() -> Stream[Event]:
        """Events of the store behind the last one."""
        nonlocal last
        while True:
            events = yield from _patient(page, last, stopped, away_s)
            if events:
                last = events[-1].seq
                yield Found([event for event in events if job in {"", event.job}])
            if len(events) < PAGE:
                return

    watcher: Subscription = yield Subscribe(("event.",))
    try:
        while not stopped():
            body: Mapping[str, Any] | None = yield Hear(watcher, LISTEN_S)
            silent_s = silent_s + LISTEN_S if body is None else 0.0
            if body is None:
                if silent_s >= QUIET_S:
                    # the end of the stream may have been lost
                    silent_s = 0.0
                    yield from missed()
            elif body.get("seq") == last + 1:
                last += 1
                if job in {"", body.get("job", "")}:
                    yield Found([_event(body)])
            elif body.get("welcome") or int(body.get("seq", 0)) > last:
                # subscribed anew, or something was lost: the store has what is missing
                yield from missed()
                last = max(last, int(body.get("seq", 0)))
    finally:
        watcher.close()


def _patient(
    page: Page, since: int, stopped: Callable[[], bool], away_s: float
) -> Steps[Sequence[Event]]:
    """A page of the store, asked for again while the daemon may be being restarted."""
    end = time.monotonic() + away_s
    while True:
        try:
            return (yield from page(since, PAGE))
        except KeyRefusedError:
            raise
        except NoAnswerError:
            if time.monotonic() >= end or stopped():
                raise
        yield Sleep(AGAIN_S)


def _event(body: Mapping[str, Any]) -> Event:
    try:
        return msgspec.convert(body, Event)
    except msgspec.ValidationError as error:
        raise NoAnswerError(f"unreadable publication: {error}") from error
