"""A thread that is one client of the daemon, and asks it again and again what browsers may want.

The longer the daemon took for its answers, the longer it is left in peace: all that is asked after
a change takes at most one part in `PEACE` of its time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice

from coalloc.client.client import Client
from coalloc.dashboard.known import Known
from coalloc.model.errors import ConfigError
from coalloc.wire.client import NoAnswerError, RefusedError

LOOK_S = 2.0
"""Between two looks, seconds."""
PEACE = 20.0
RETRY_S = 1.0
TIMEOUT_S = 5.0
HISTORY_S = 30 * 86_400.0
"""How far back ended jobs are asked for, seconds."""
OVERLAP_S = 60.0
"""Ends that may become known late, seconds."""
ACCOUNTS_AT_ONCE = 2_000

Post = Callable[..., None]
"""Has a method of what is known called with what follows, in the thread that it belongs to."""


class Polling(threading.Thread):
    """Keeps what is known up to date, over a client that it opens, until it is stopped."""

    def __init__(self, connect: Callable[[], Client], post: Post) -> None:
        super().__init__(name="dashboard-polling", daemon=True)
        self._connect, self._post = connect, post
        self._stopped = threading.Event()
        self._last_event = 0
        self._last_end = time.time() - HISTORY_S

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._connect() as client:
                    self._poll(client)
            except (NoAnswerError, RefusedError, ConfigError, OSError) as error:
                self._post(Known.unanswered, " ".join(str(error).split()))
                self._stopped.wait(RETRY_S)

    def _poll(self, client: Client) -> None:
        """Ask until the daemon does not answer: after every event and round, and at the first."""
        seen: tuple[int, ...] = ()
        peace_until = 0.0
        while not self._stopped.is_set():
            status, nodes = client.status(), client.known_nodes()
            self._post(Known.take_status, status)
            self._post(Known.take_nodes, nodes)
            news = (client.last_event(), status.rounds, status.epoch)
            begin = time.monotonic()
            if news != seen and begin >= peace_until:
                self._ask_of_jobs(client, news[0])
                end = time.monotonic()
                seen, peace_until = news, end + PEACE * (end - begin)
            self._stopped.wait(LOOK_S)

    def _ask_of_jobs(self, client: Client, last_event: int) -> None:
        if last_event < self._last_event:
            # another store: nothing that is known is of this site
            self._post(Known.reset)
            self._last_end = time.time() - HISTORY_S
        self._last_event = last_event
        self._post(Known.take_queue, client.whole_queue())
        accounts = client.account(since=self._last_end - OVERLAP_S)
        while ended := list(islice(accounts, ACCOUNTS_AT_ONCE)):
            self._last_end = max(self._last_end, ended[-1].ended)
            self._post(Known.take_accounts, ended)
        self._post(Known.take_plan, client.plan())
