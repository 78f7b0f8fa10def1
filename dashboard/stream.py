"""Server-sent events: every browser is told that something has changed, and fetches it anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from coalloc.dashboard.answers import Change
from coalloc.dashboard.known import Known

WATCHERS = 500
HEARTBEAT_S = 15.0


class TooManyError(Exception):
    """There are as many watchers as may be."""


class Hub:
    """Tells all watchers of changes; one who is slow is told of the newest alone."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._told: Change | None = None
        self._news = asyncio.Event()
        self._run = object()
        self._watchers = 0

    def tell(self) -> None:
        """Tell that something is to be fetched anew, if it is."""
        change = self._known.change()
        if change != self._told:
            self._told = change
            self._wake()

    def close(self) -> None:
        """End all streams."""
        self._run = object()
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def watch(self) -> AsyncIterator[bytes]:
        """A stream for one watcher.

        Raises
        ------
        TooManyError
        """
        if self._watchers >= WATCHERS:
            raise TooManyError("too many watchers")
        return self._stream()

    async def _stream(self) -> AsyncIterator[bytes]:
        run = self._run
        self._watchers += 1
        try:
            yield b"retry: 2000\n\n"
            while run is self._run:
                news = self._news
                yield b"event: change\ndata: %s\n\n" % msgspec.json.encode(self._known.change())
                while not news.is_set():
                    try:
                        async with asyncio.timeout(HEARTBEAT_S):
                            await news.wait()
                    except TimeoutError:
                        yield b": still here\n\n"
        finally:
            self._watchers -= 1
