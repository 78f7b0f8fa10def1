"""The gate: one port of the executor's, called by the wrappers of claims that have been granted.

A claim that waits in the batch system's queue is a folder and a batch job, and no process. Its
wrappers say here which claim was granted, and are told where its runner listens, which the launcher
forks for that (`runner.talk` has the words). The gate knows no secret and starts nothing: a caller
who holds no key gets no further than to the runner's port. The port is kept in the state folder,
and taken again after a restart; wrappers try again meanwhile.
"""

from __future__ import annotations

import contextlib
import select
import time
from pathlib import Path

from coalloc.adapters.runner.batch.barrier import MOST_UNAUTHENTICATED, listening
from coalloc.adapters.runner.talk import LineConnection, TalkError

CALL_LIMIT_S = 10.0
LONGEST_CALL = 200


class Gate:
    """Listens for wrappers, on the port kept by an earlier gate, or one of `ports`, inclusive.

    (0, 0) stands for any. `fileno` is readable for `news_fd`, too. Raises `OSError` where no port
    is free, or it cannot be kept.
    """

    def __init__(self, kept: Path, ports: tuple[int, int], news_fd: int, host: str = "") -> None:
        self._callers: dict[LineConnection, tuple[float, str]] = {}
        """Until when each may stay, monotonic seconds, and the claim that it has named."""
        try:
            port = int(kept.read_text(encoding="ascii"))
            self._sock = listening((port, port), host)
        except (OSError, ValueError, OverflowError):
            self._sock = listening(ports, host)
        self._sock.setblocking(False)
        self.port = int(self._sock.getsockname()[1])
        new = kept.with_suffix(".new")
        new.write_text(str(self.port), encoding="ascii")
        new.replace(kept)
        self._epoll = select.epoll()
        for fd in (self._sock.fileno(), news_fd):
            self._epoll.register(fd, select.EPOLLIN)

    def fileno(self) -> int:
        """A descriptor that is readable when somebody calls, or there are news."""
        return self._epoll.fileno()

    @property
    def calls(self) -> set[str]:
        """The claims whose wrappers wait for an answer."""
        return {claim for _, claim in self._callers.values() if claim}

    def listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._sock.accept()
                if len(self._callers) >= MOST_UNAUTHENTICATED:
                    sock.close()
                    continue
                caller = LineConnection(sock)
                self._callers[caller] = time.monotonic() + CALL_LIMIT_S, ""
                self._epoll.register(caller, select.EPOLLIN)
        for caller, (until, claim) in list(self._callers.items()):
            if not claim:
                self._hear(caller, until)
            if time.monotonic() > until:
                self._drop(caller)

    def answer(self, claim: str, *words: str) -> None:
        for caller, (_, asked) in list(self._callers.items()):
            if asked == claim:
                with contextlib.suppress(OSError):
                    caller.say(*words)
                self._drop(caller)

    def close(self) -> None:
        for caller in list(self._callers):
            self._drop(caller)
        self._epoll.close()
        self._sock.close()

    def _hear(self, caller: LineConnection, until: float) -> None:
        try:
            lines = caller.heard()
        except TalkError:
            self._drop(caller)
            return
        words = lines[0].split(" ") if lines else []
        if len(words) == 2 and words[0] == "granted" and words[1]:
            self._callers[caller] = until, words[1]
            self._epoll.unregister(caller)  # nothing more is said before the answer
        elif words or len(caller.unread) > LONGEST_CALL:
            self._drop(caller)

    def _drop(self, caller: LineConnection) -> None:
        if self._callers.pop(caller, None) is None:
            return
        with contextlib.suppress(OSError):
            self._epoll.unregister(caller)
        caller.close()
