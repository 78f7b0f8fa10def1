"""ZeroMQ contexts that the garbage collector does not end.

pyzmq ends a context when it is collected, and that waits until the last of its sockets is closed.
Where both are part of one cycle, the context may come first, and the wait has no end.
"""

from __future__ import annotations

import os

import zmq

MAX_SOCKETS = 4096
MAX_CLIENT_SOCKETS = 16_384
"""A client's connection takes three."""


class Context(zmq.Context[zmq.Socket[bytes]]):
    """Ended by `term` alone; one that is dropped stays until the process ends."""

    def __del__(self) -> None:
        """Wait for nothing."""


_of_process: dict[int, Context] = {}


def new_context(max_sockets: int = MAX_SOCKETS) -> Context:
    """A context of our own, with room for many clients."""
    context = Context()
    context.set(zmq.MAX_SOCKETS, max_sockets)
    return context


def client_context() -> Context:
    """The context of this process's clients, never ended; a fork's child has one of its own.

    Not `zmq.Context.instance`: the program may end that one, which would wait for our sockets.
    """
    pid = os.getpid()
    if pid not in _of_process:
        # of two threads that come here at once, one uses the context of the other
        _of_process.setdefault(pid, new_context(MAX_CLIENT_SOCKETS))
    return _of_process[pid]
