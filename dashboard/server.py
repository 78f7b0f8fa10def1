"""The dashboard as a process: a thread asks the daemon, the web server is in the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from coalloc.client.client import Client
from coalloc.dashboard.access import Gate, Settings
from coalloc.dashboard.api import DashboardSite, application
from coalloc.dashboard.connections import ACCEPTED_AT_ONCE, Connection
from coalloc.dashboard.known import Known
from coalloc.dashboard.polling import TIMEOUT_S, Polling, Post
from coalloc.dashboard.questions import Questions
from coalloc.dashboard.stream import Hub
from coalloc.runtime import systemd

STOP_S = 2
"""Until connections that are still open are cut, seconds."""
KEEP_ALIVE_S = 30
SENT_TO_NOBODY = "socket.send() raised exception."


class WebServer(uvicorn.Server):
    """Leaves signals to this module."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


Start = Callable[[Post], Polling | None]


class DashboardServer:
    """Serves one site; `start_polling` starts what asks the daemon.

    One that returns None is for tests that say themselves what is known.
    """

    def __init__(self, settings: Settings, start_polling: Start, questions: Questions) -> None:
        self.settings = settings
        self.known = Known(settings.keep_jobs)
        self.hub = Hub(self.known)
        self.run_token = secrets.token_urlsafe(24) if settings.is_open else ""
        self._start_polling, self._questions = start_polling, questions
        gate = Gate(settings, self.run_token)
        site = DashboardSite(known=self.known, hub=self.hub, questions=questions, gate=gate)
        self._listener = _listener(settings.host, settings.port)
        self.port: int = self._listener.getsockname()[1]
        self._web = WebServer(
            uvicorn.Config(
                application(site),
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                http=Connection,
                backlog=ACCEPTED_AT_ONCE,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
            )
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """Address for a browser on this machine."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.port}/"

    def post(self, change: Callable[..., None], *heard: Any) -> None:
        """Have what is known changed by the event loop, and watchers told; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed, change, heard)

    def _changed(self, change: Callable[..., None], heard: tuple[Any, ...]) -> None:
        change(self.known, *heard)
        self.hub.tell()

    async def serve(self, *, on_signals: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        # a browser that left while it was written to is no news
        logging.getLogger("asyncio").addFilter(lambda record: record.msg != SENT_TO_NOBODY)
        if on_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self.stop)
        polling = self._start_polling(self.post)
        systemd.notify(systemd.READY, systemd.status(f"serving {self.url}"))
        try:
            await self._web.serve([self._listener])
        finally:
            systemd.notify(systemd.STOPPING)
            self._questions.close()
            if polling is not None:
                polling.stop()
            self._listener.close()

    def stop(self) -> None:
        """End; from the event loop's thread."""
        self.hub.close()
        self._web.should_exit = True


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from error
    listener.setblocking(False)
    return listener


def run(settings: Settings, endpoint: str | None, config: Path | None, timeout_s: float) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""

    def start_polling(post: Post) -> Polling:
        polling = Polling(lambda: Client(endpoint, TIMEOUT_S, config=config), post)
        polling.start()
        return polling

    questions = Questions(lambda: Client(endpoint, max(timeout_s, TIMEOUT_S), config=config))
    server = DashboardServer(settings, start_polling, questions)
    print(f"coalloc: dashboard at {server.url}", flush=True)
    if server.run_token and sys.stdout.isatty():
        print(f"coalloc: with all jobs' details: {server.url}login?token={server.run_token}")
    asyncio.run(server.serve())
    return 0
