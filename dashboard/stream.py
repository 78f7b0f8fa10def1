"""Server-sent events: every browser is told that something has changed, and fetches it anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from coalloc.dashboard.answers import Change
from coalloc.dashboard.known import Known

HEARTBEAT_S = 15.0


class Hub:
    """Tells all watchers of changes; one who is slow is told of the newest alone."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._told: Change | None = None
        self._news = asyncio.Event()
        self._run = object()

    def tell(self) -> None:
        """Tell that something is to be fetched anew, if it is."""
        change = self._known.change()
        if change != self._told:
            self._told = change
            self._wake()

    def close(self) -> None:
        self._run = object()
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def watch(self) -> AsyncIterator[bytes]:
        """A stream for one watcher."""
        run = self._run
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
