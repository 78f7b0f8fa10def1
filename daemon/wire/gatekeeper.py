"""ZeroMQ's question whether a key may connect, answered in the daemon's loop."""

from __future__ import annotations

from collections.abc import Callable

import zmq
from zmq.auth.asyncio import AsyncioAuthenticator

Admits = Callable[[str, str], bool]
"""Domain, public key -> whether that key may connect there."""


class Gatekeeper:
    """Answers ZeroMQ's question whether a key may connect, for all sockets of a context."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], domains: tuple[str, ...], admits: Admits
    ) -> None:
        self._authenticator = AsyncioAuthenticator(context)
        for domain in domains:
            # One by one: what is configured for '*' does not apply to a domain with a name.
            self._authenticator.configure_curve_callback(domain, _Provider(admits))

    def start(self) -> None:
        """Before anything is bound; the loop must be running."""
        self._authenticator.start()

    def stop(self) -> None:
        """After the sockets are closed."""
        self._authenticator.stop()


class _Provider:
    def __init__(self, admits: Admits) -> None:
        self._admits = admits

    def callback(self, domain: str, key: bytes) -> bool:
        """What pyzmq's authenticator asks."""
        return self._admits(domain, key.decode())
