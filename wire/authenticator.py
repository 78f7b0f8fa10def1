"""ZeroMQ's question whether a key may connect, answered in the daemon's loop.

Not with pyzmq's ``AsyncioAuthenticator``: it takes its descriptor out of the loop only after it is
closed, and with it that of another which has been opened meanwhile under the same number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import zmq
from zmq.auth import Authenticator

Admits = Callable[[str, str], bool]
"""Domain, public key -> whether that key may connect there."""


class ZapAuthenticator:
    """Answers for all sockets of a context."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], domains: tuple[str, ...], admits: Admits
    ) -> None:
        self._authenticator = Authenticator(context)
        provider = SimpleNamespace(callback=lambda domain, key: admits(domain, key.decode()))
        for domain in domains:
            # One by one: what is configured for '*' does not apply to a domain with a name.
            self._authenticator.configure_curve_callback(domain, provider)
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Before anything is bound; the loop must be running."""
        loop = asyncio.get_running_loop()
        self._authenticator.start()
        loop.add_reader(self._authenticator.zap_socket.fileno(), self._asked.set)
        self._task = loop.create_task(self._answer())

    def stop(self) -> None:
        """After the sockets are closed."""
        if self._task is not None:
            self._task.cancel()
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._authenticator.zap_socket.fileno())
        self._authenticator.stop()

    async def _answer(self) -> None:
        socket = self._authenticator.zap_socket
        while True:
            # Cleared first: the descriptor tells of a change, not that something is there.
            self._asked.clear()
            while True:
                try:
                    question = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                await self._authenticator.handle_zap_message(question)
            await self._asked.wait()
