"""One connection to the daemon for many threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import zmq

from coalloc.wire.client import AnswerFrame, NoAnswerError, RequestConnection
from coalloc.wire.curve import CurveClient

LOOK_S = 60.0
"""Between two looks of the thread that talks to the daemon when nothing wakes it, seconds."""


class SharedConnection:
    """A `RequestConnection` in a thread of its own, which alone touches the socket.

    Parameters
    ----------
    endpoint : str
        Such as ``ipc:///run/coalloc/coalloc.sock``.
    timeout_s : float
        For one answer, seconds.
    security : CurveClient, optional
        The key to connect with, and the daemon's.
    """

    def __init__(self, endpoint: str, *, timeout_s: float, security: CurveClient | None) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self._connection = RequestConnection(endpoint, timeout_s=timeout_s, security=security)
        self._lock = threading.Lock()
        self._to_send: deque[bytes] = deque()
        self._answers: dict[str, Future[AnswerFrame]] = {}
        self._is_closed = False
        self._woken, self._waker = os.pipe()
        self._connection.poller.register(self._woken, zmq.POLLIN)
        self._thread = threading.Thread(target=self._talk, name="coalloc-requests", daemon=True)
        self._thread.start()

    def send(self, body: Mapping[str, Any]) -> str:
        """Send a request; returns its id for `answer_to`."""
        request, frame = self._connection.frame_of(body)
        with self._lock:
            if self._is_closed:
                raise self._closed()
            self._answers[request] = Future()
            if not self._to_send:
                os.write(self._waker, b"\0")
            self._to_send.append(frame)
        return request

    def answer_to(self, request: str, *, timeout_s: float | None = None) -> AnswerFrame:
        """Wait for the answer to a request that was sent.

        Raises
        ------
        NoAnswerError
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        with self._lock:
            answer = self._answers.get(request)
        if answer is None:
            raise self._closed()
        try:
            return answer.result(limit)
        except TimeoutError:
            raise self._connection.silence.error(limit) from None
        finally:
            if answer.done():
                with self._lock:
                    self._answers.pop(request, None)

    def forget(self, requests: Iterable[str]) -> None:
        """Expect no answers to these any more; who still waits for one gets an error."""
        error = NoAnswerError("the request was given up")
        with self._lock:
            for request in requests:
                answer = self._answers.pop(request, None)
                if answer is not None and not answer.done():
                    answer.set_exception(error)

    def close(self) -> None:
        """Close the connection; what still waits for an answer gets none."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            if is_first:
                os.write(self._waker, b"\0")
        self._thread.join()

    def _closed(self) -> NoAnswerError:
        return NoAnswerError(f"the connection to {self.endpoint} was closed")

    def _talk(self) -> None:
        """Send what is to be sent, and hand out what comes, until the connection is closed."""
        try:
            while not self._is_closed:
                try:
                    self._send_all()
                    answer = self._connection.next_answer(LOOK_S)
                except NoAnswerError as error:
                    # whose answer it was cannot be known
                    self._fail_all(error)
                else:
                    self._hand_out(answer)
        finally:
            self._fail_all(self._closed())
            self._connection.close()
            os.close(self._woken)
            os.close(self._waker)

    def _send_all(self) -> None:
        with self._lock:
            frames = list(self._to_send)
            self._to_send.clear()
            if frames:
                os.read(self._woken, 1)
        for frame in frames:
            self._connection.send_frame(frame)

    def _hand_out(self, answer: AnswerFrame | None) -> None:
        with self._lock:
            waiting = self._answers.get(answer.id) if answer is not None else None
            if answer is not None and waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def _fail_all(self, error: NoAnswerError) -> None:
        with self._lock:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(error)
