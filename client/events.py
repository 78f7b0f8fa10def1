"""The numbered event stream as a client reads it: what is stored, then what happens."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from coalloc.wire.answers import Event
from coalloc.wire.client import EventSubscriber, NoAnswerError
from coalloc.wire.curve import CurveClient

LISTEN_S = 0.25
"""While following, between looks whether to go on, seconds."""
QUIET_S = 5.0
"""While following, a silence after which the daemon is asked, seconds."""
PAGE = 1000

Page = Callable[[int, int], Sequence[Event]]
"""Stored events behind a number, at most so many."""


def never() -> bool:
    """Go on for ever."""
    return False


def stored(page: Page, since: int) -> Iterator[Event]:
    """Stored events with a larger number, page after page."""
    while True:
        events = page(since, PAGE)
        yield from events
        if len(events) < PAGE:
            return
        since = events[-1].seq


def followed(
    page: Page,
    endpoint: str,
    since: int,
    stopped: Callable[[], bool],
    security: CurveClient | None = None,
) -> Generator[Event]:
    """Stored events, and then those that happen, in order and without gaps.

    Subscribes first and reads what is stored next, so that nothing falls in between.

    Parameters
    ----------
    endpoint : str
        Where the daemon publishes.
    stopped : callable
        Polled while nothing happens; True ends the stream.
    """
    watcher = EventSubscriber(endpoint, ("event.",), security)
    last, silent_s = since, 0.0
    try:
        while not stopped():
            for _, body in watcher.messages(LISTEN_S):
                silent_s = 0.0
                if body.get("seq") == last + 1:
                    last += 1
                    yield _event(body)
                elif body.get("welcome") or int(body.get("seq", 0)) > last:
                    # subscribed anew, or something was lost: the store has what is missing
                    for event in stored(page, last):
                        last = event.seq
                        yield event
                    last = max(last, int(body.get("seq", 0)))
                if stopped():
                    return
            silent_s += LISTEN_S
            if silent_s >= QUIET_S:
                # the end of the stream may have been lost
                silent_s = 0.0
                for event in stored(page, last):
                    last = event.seq
                    yield event
    finally:
        watcher.close()


def _event(body: Mapping[str, Any]) -> Event:
    try:
        return msgspec.convert(body, Event)
    except msgspec.ValidationError as error:
        raise NoAnswerError(f"unreadable publication: {error}") from error
