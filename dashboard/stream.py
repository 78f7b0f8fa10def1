"""Server-sent events: what happens, told to every browser from one feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from coalloc.dashboard.answers import Change
from coalloc.dashboard.cache import Cache
from coalloc.wire.answers import Event

WATCHERS = 500
BEHIND = 1_000
"""Messages that a watcher may be behind; then it is told to come again."""
HEARTBEAT_S = 15.0


class TooManyError(Exception):
    """There are as many watchers as may be."""


class Hub:
    """Hands what happens to all watchers.

    Parameters
    ----------
    cache : Cache
        For those who say which event they have last seen.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._watchers: set[asyncio.Queue[bytes | None]] = set()
        self._told: Change | None = None

    def tell(self, events: list[Event]) -> None:
        """Tell what has happened, and that something is to be fetched anew if it is."""
        messages = [_event_message(event) for event in events]
        change = self._cache.change()
        if change != self._told:
            self._told = change
            messages.append(_message("change", msgspec.json.encode(change)))
        for message in messages:
            self._send(message)

    def _send(self, message: bytes) -> None:
        for queue in list(self._watchers):
            if queue.qsize() >= BEHIND:
                self._watchers.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(message)

    def close(self) -> None:
        """End all streams."""
        for queue in self._watchers:
            queue.put_nowait(None)
        self._watchers.clear()

    def watch(self, since: int | None) -> AsyncIterator[bytes]:
        """A stream for one watcher.

        Parameters
        ----------
        since : int or None
            Number of the last event it has; None: only those to come.

        Raises
        ------
        TooManyError
        """
        if len(self._watchers) >= WATCHERS:
            raise TooManyError
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._watchers.add(queue)
        begin = [b"retry: 2000\n\n", _message("change", msgspec.json.encode(self._cache.change()))]
        if since is not None:
            begin += [_event_message(e) for e in self._cache.events if e.seq > since]
        return self._stream(queue, begin)

    async def _stream(
        self, queue: asyncio.Queue[bytes | None], begin: list[bytes]
    ) -> AsyncIterator[bytes]:
        try:
            yield b"".join(begin)
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        message = await queue.get()
                except TimeoutError:
                    message = b": still here\n\n"
                if message is None:
                    return
                yield message
        finally:
            self._watchers.discard(queue)


def _event_message(event: Event) -> bytes:
    return b"id: %d\n" % event.seq + _message("event", msgspec.json.encode(event))


def _message(kind: str, body: bytes) -> bytes:
    """JSON has no line breaks outside of texts, and within them they are escaped."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)
