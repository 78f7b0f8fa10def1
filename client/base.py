"""One connection to the daemon, and how a request goes over it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coalloc.client.endpoint import (
    PATIENCE_S,
    await_listener,
    configured_endpoints,
    daemon_endpoint,
)
from coalloc.wire.client import AnswerFrame, NoAnswerError, RefusedError, RequestConnection

if TYPE_CHECKING:
    from coalloc.client.async_client import CallConnection

A = TypeVar("A")

TOO_FAST_FIRST_S, TOO_FAST_LONGEST_S, TOO_FAST_S = 0.05, 1.0, 120.0
"""Pauses after a refusal for asking too fast, and how long to go on trying, seconds."""


class BaseClient:
    """A connection to the daemon.

    Parameters
    ----------
    endpoint : str, optional
        Such as ``ipc:///run/coalloc/coalloc.sock``. Default: that of the configuration.
    timeout_s : float
        For one answer, seconds.
    publish_endpoint : str, optional
        Where events are published. Default: that of the configuration.
    config : Path, optional
        The configuration file. Default: ``$COALLOC_CONFIG``, the user's, the system's.
    key : Path, optional
        The file of the key to connect with, where the daemon tells users apart. Default:
        ``$COALLOC_KEY``, or the user's.

    Raises
    ------
    ConfigError
        The configuration is needed and cannot be used.
    NoAnswerError
        A key is needed, and there is none that can be used.
    """

    Refused = RefusedError
    NoAnswer = NoAnswerError

    _connection: RequestConnection | CallConnection | None = None

    def __init__(
        self,
        endpoint: str | None = None,
        timeout_s: float = 10.0,
        *,
        publish_endpoint: str | None = None,
        config: Path | None = None,
        key: Path | None = None,
    ) -> None:
        found = daemon_endpoint(endpoint, config, key)
        self.security, self.max_request_bytes = found.security, found.max_request_bytes
        self.endpoint, self.timeout_s = found.endpoint, timeout_s
        self._publish_endpoint = publish_endpoint or found.publish_endpoint
        self._config = config
        self._given_up = threading.Event()
        self._pid = os.getpid()
        """Of the connection, which the child of a fork cannot use."""

    @property
    def publish_endpoint(self) -> str:
        """Address of the events."""
        if self._publish_endpoint is None:
            _, self._publish_endpoint = configured_endpoints(self._config)
        return self._publish_endpoint

    def close(self) -> None:
        """Close the connection; a later request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def over(self, connection: CallConnection) -> Self:
        """A client like this one, for one call, that asks over a connection which others have."""
        client = copy(self)
        client._connection, client._given_up = connection, threading.Event()
        client._pid = os.getpid()
        return client

    def give_up(self) -> None:
        """End what another thread asks with this client: nobody waits for it any more."""
        self._given_up.set()
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> RequestConnection | CallConnection:
        if self._connection is None or self._pid != os.getpid():
            self._connection, self._pid = None, os.getpid()
            await_listener(self.endpoint, min(PATIENCE_S, self.timeout_s))
            self._connection = new_connection(self, RequestConnection)
        return self._connection

    def _ask(self, cls: type[A], kind: str, *, timeout_s: float | None = None, **fields: Any) -> A:
        """Send a request; its answer as one of `coalloc.wire.answers`."""
        return self._answered({**fields, "type": kind}, timeout_s).read(cls)

    def _do(self, kind: str, **fields: Any) -> None:
        """Send a request whose answer says no more than that it is done."""
        self._answered({**fields, "type": kind}).checked().plain()

    def _answered(self, body: Mapping[str, Any], timeout_s: float | None = None) -> AnswerFrame:
        return self._patiently(self._connected().send(body), body, timeout_s)

    def _patiently(
        self, sent: str, body: Mapping[str, Any], timeout_s: float | None = None
    ) -> AnswerFrame:
        """Wait for an answer; ask again, ever more slowly, while we are told to ask less fast."""
        pause, end = TOO_FAST_FIRST_S, time.monotonic() + TOO_FAST_S
        answer = self._connected().answer_to(sent, timeout_s=timeout_s)
        while answer.refusal is not None and answer.refusal.code == "too_fast":
            if time.monotonic() >= end:
                break
            self._pause(pause)
            pause = min(2.0 * pause, TOO_FAST_LONGEST_S)
            sent = self._connected().send(body)
            answer = self._connected().answer_to(sent, timeout_s=timeout_s)
        return answer

    def _pause(self, seconds: float) -> None:
        """Do nothing for so long, unless this client is given up meanwhile."""
        self._given_up.wait(seconds)


def new_connection(client: BaseClient, kind: Callable[..., A]) -> A:
    """A connection of this kind to a client's daemon."""
    return kind(
        client.endpoint,
        timeout_s=client.timeout_s,
        security=client.security,
        max_bytes=client.max_request_bytes,
    )
