"""The feed: a thread that is one client of the daemon and keeps the cache up to date.

Publications wake it, and then it asks: events first, so that none is missed, and after them the
queue, the nodes and the plan. The longer the daemon took for an answer, the longer it is left in
peace: each kind of question takes at most one part in `PEACE` of its time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coalloc.client.client import Client
from coalloc.client.endpoint import daemon_endpoint
from coalloc.dashboard.cache import Cache
from coalloc.model.errors import ConfigError
from coalloc.wire.answers import Event, EventsAnswer, QueueAnswer
from coalloc.wire.client import EventSubscriber, NoAnswerError, RefusedError

T = TypeVar("T")

TICK_S = 0.25
STATUS_EVERY_S = 2.0
NODES_EVERY_S = 3.0
QUIET_S = 5.0
"""After a silence, events are asked for: the end of the stream may have been lost."""
PAUSE_S = 0.5
"""Between two questions of one kind, at least."""
PEACE = 20.0
RETRY_S = 1.0
TIMEOUT_S = 5.0
EVENTS_AT_ONCE = 5_000

Post = Callable[[Callable[[Cache], None]], None]
"""Has a change of the cache made in the thread it belongs to."""


@dataclass(slots=True)
class Pace:
    """Time at which a question may be asked again.

    Parameters
    ----------
    every_s : float
        Ask after this long though nothing has happened.
    """

    every_s: float
    is_wanted: bool = True
    _after: float = 0.0
    _before: float = field(default=0.0)

    def is_due(self, now: float) -> bool:
        """Whether to ask now."""
        return now >= self._after and (self.is_wanted or now >= self._before)

    def asked(self, begin: float, end: float) -> None:
        """It was asked and answered."""
        self.is_wanted = False
        self._after = end + max(PAUSE_S, PEACE * (end - begin))
        self._before = end + self.every_s


class Feed(threading.Thread):
    """Keeps the cache up to date until it is stopped.

    Parameters
    ----------
    connect : callable
        Opens a client and a subscriber to ``event.`` and ``round``.
    post : callable
    last_seq : callable
        Number of the newest event that the cache has.
    """

    def __init__(
        self,
        connect: Callable[[], tuple[Client, EventSubscriber]],
        post: Post,
        last_seq: Callable[[], int],
    ) -> None:
        super().__init__(name="dashboard-feed", daemon=True)
        self._connect, self._post = connect, post
        self._seq = last_seq()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End soon."""
        self._stopped.set()

    def run(self) -> None:
        """Follow one daemon after the other."""
        while not self._stopped.is_set():
            try:
                client, watcher = self._connect()
                try:
                    self._follow(client, watcher)
                finally:
                    watcher.close()
                    client.close()
            except (NoAnswerError, RefusedError, ConfigError, OSError) as error:
                fault = " ".join(str(error).split())
                self._post(lambda cache, fault=fault: cache.unanswered(fault))  # type: ignore[misc]
                self._stopped.wait(RETRY_S)

    def _follow(self, client: Client, watcher: EventSubscriber) -> None:
        """Follow one run of the daemon; returns when it is another, raises when it has gone."""
        epoch = client.status().epoch
        self._read_events(client)
        self._read_queue(client, everything=True)
        status, nodes = Pace(STATUS_EVERY_S), Pace(NODES_EVERY_S)
        queue, plan, events = Pace(60.0), Pace(30.0), Pace(QUIET_S)
        while not self._stopped.is_set():
            if self._heard(watcher):
                for pace in (queue, plan, events, nodes):
                    pace.is_wanted = True
            if _asked(events, lambda: self._read_events(client)):
                queue.is_wanted = plan.is_wanted = True
            _asked(queue, lambda: self._read_queue(client, everything=False))
            _asked(nodes, lambda: self._tell(Cache.read_nodes, client.known_nodes()))
            _asked(plan, lambda: self._tell(Cache.planned, client.plan()))
            answer = _asked(status, client.status)
            if answer is not None:
                self._tell(Cache.answered, answer)
                if answer.epoch != epoch:
                    return

    def _heard(self, watcher: EventSubscriber) -> bool:
        """Listen for a moment; whether anything was published."""
        is_any = False
        end = time.monotonic() + TICK_S
        for topic, body in watcher.messages(TICK_S):
            is_any = True
            if topic == "round":
                self._post(lambda cache, body=body: cache.round_ended(body, time.time()))  # type: ignore[misc]
            elif topic == "rule_costs":
                self._post(lambda cache, body=body: cache.costed(body))  # type: ignore[misc]
            if time.monotonic() >= end or self._stopped.is_set():
                break
        return is_any

    def _read_events(self, client: Client) -> bool | None:
        """Read what has happened since; True: something has."""
        is_any = None
        while not self._stopped.is_set():
            body = client.ask("events", since=self._seq, limit=EVENTS_AT_ONCE)
            answer = msgspec.convert({**body, "type": "events"}, EventsAnswer)
            if answer.last < self._seq:
                self._seq = 0  # another store: nothing that is known is of this site
                self._post(Cache.reset)
                continue
            if not answer.events:
                break
            is_any = True
            self._seq = answer.events[-1].seq
            self._tell(_happened, answer.events)
            if len(answer.events) < EVENTS_AT_ONCE:
                break
        return is_any

    def _read_queue(self, client: Client, *, everything: bool) -> None:
        answer: QueueAnswer = client.whole_queue(everything=everything)
        self._post(lambda cache: cache.queued(answer.jobs, everything=everything))

    def _tell(self, change: Callable[[Cache, T], Any], value: T) -> None:
        self._post(lambda cache: change(cache, value))


def _happened(cache: Cache, events: tuple[Event, ...]) -> None:
    cache.happened(events)


def _asked(pace: Pace, ask: Callable[[], T]) -> T | None:
    """Ask if it is time to."""
    begin = time.monotonic()
    if not pace.is_due(begin):
        return None
    answer = ask()
    pace.asked(begin, time.monotonic())
    return answer


def connected(
    endpoint: str | None, config: Path | None, timeout_s: float = TIMEOUT_S
) -> tuple[Client, EventSubscriber]:
    """A client, and a subscriber that wakes it.

    Raises
    ------
    ConfigError
    NoAnswerError
    """
    found = daemon_endpoint(endpoint, config, None)
    client = Client(endpoint, timeout_s, config=config)
    publishing = found.publish_endpoint or daemon_endpoint(None, config, None).publish_endpoint
    assert publishing is not None
    return client, EventSubscriber(publishing, ("event.", "round", "rule_costs"), found.security)
