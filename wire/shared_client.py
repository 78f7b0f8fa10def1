"""One connection to the daemon for many threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import zmq

from coalloc.wire.client import AnswerFrame, NoAnswerError, RequestConnection
from coalloc.wire.curve import CurveClient

LOOK_S = 60.0
"""Between two looks of the thread that talks to the daemon when nothing wakes it, seconds."""


class SharedConnection:
    """A `RequestConnection` in a thread of its own, which ends when this is closed or dropped."""

    def __init__(
        self, endpoint: str, *, timeout_s: float, security: CurveClient | None, max_bytes: int
    ) -> None:
        self.timeout_s = timeout_s
        connection = RequestConnection(
            endpoint, timeout_s=timeout_s, security=security, max_bytes=max_bytes
        )
        woken, self._waker = os.pipe()
        self._talk = _Talk(connection, woken)
        self._hang_up = weakref.finalize(self, _hung_up, self._talk, self._waker, os.getpid())
        self._hang_up.atexit = False
        self._thread = threading.Thread(target=self._talk.run, name="coalloc-requests", daemon=True)
        self._thread.start()

    def send(self, body: Mapping[str, Any]) -> str:
        talk = self._talk
        request, frame = talk.connection.frame_of(body)
        with talk.lock:
            if talk.is_closed:
                raise talk.closed()
            talk.answers[request] = Future()
            if not talk.to_send:
                os.write(self._waker, b"\0")
            talk.to_send.append(frame)
        return request

    def answer_to(self, request: str, *, timeout_s: float | None = None) -> AnswerFrame:
        limit, talk = self.timeout_s if timeout_s is None else timeout_s, self._talk
        with talk.lock:
            answer = talk.answers.get(request)
        if answer is None:
            raise talk.closed()
        try:
            return answer.result(limit)
        except TimeoutError:
            raise talk.connection.silence.error(limit) from None
        finally:
            if answer.done():
                with talk.lock:
                    talk.answers.pop(request, None)

    def forget(self, requests: Iterable[str]) -> None:
        """Expect no answers to these any more; who still waits for one gets an error."""
        error = NoAnswerError("the request was given up")
        with self._talk.lock:
            for request in requests:
                answer = self._talk.answers.pop(request, None)
                if answer is not None and not answer.done():
                    answer.set_exception(error)

    def close(self) -> None:
        """Close the connection; what still waits for an answer gets none."""
        with self._talk.lock:
            self._hang_up()
        self._thread.join()


class _Talk:
    """The thread's part: it does not keep the `SharedConnection` from being dropped."""

    def __init__(self, connection: RequestConnection, woken: int) -> None:
        self.connection, self._woken = connection, woken
        self.lock = threading.Lock()
        self.to_send: deque[bytes] = deque()
        self.answers: dict[str, Future[AnswerFrame]] = {}
        self.is_closed = False
        connection.poller.register(woken, zmq.POLLIN)

    def closed(self) -> NoAnswerError:
        """The error of what is asked too late."""
        return NoAnswerError(f"the connection to {self.connection.endpoint} was closed")

    def run(self) -> None:
        """Send what is to be sent, and hand out what comes, until the connection is closed."""
        try:
            while not self.is_closed:
                try:
                    self._send_all()
                    answer = self.connection.next_answer(LOOK_S)
                except NoAnswerError as error:
                    # whose answer it was cannot be known
                    self._fail_all(error)
                else:
                    self._hand_out(answer)
        finally:
            self.is_closed = True
            self._fail_all(self.closed())
            self.connection.close()
            os.close(self._woken)

    def _send_all(self) -> None:
        with self.lock:
            frames = list(self.to_send)
            self.to_send.clear()
            if frames:
                os.read(self._woken, 1)
        for frame in frames:
            self.connection.send_frame(frame)

    def _hand_out(self, answer: AnswerFrame | None) -> None:
        with self.lock:
            waiting = self.answers.get(answer.id) if answer is not None else None
            if answer is not None and waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def _fail_all(self, error: NoAnswerError) -> None:
        with self.lock:
            for answer in self.answers.values():
                if not answer.done():
                    answer.set_exception(error)


def _hung_up(talk: _Talk, waker: int, pid: int) -> None:
    """End the thread, without its lock: the collector may come while this thread holds it."""
    if os.getpid() == pid:
        talk.is_closed = True
        with suppress(BrokenPipeError):
            os.write(waker, b"\0")
    os.close(waker)
