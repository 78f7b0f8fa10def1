"""The client's end of the wire: a DEALER that asks and waits, and a subscriber.

A rejected or unheard client would wait for ever, so every request has a time limit.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import msgspec
import zmq

from coalloc.wire.contexts import client_context
from coalloc.wire.curve import REFUSED, SUCCEEDED, CurveClient, Handshakes
from coalloc.wire.frames import (
    MAX_REQUEST_BYTES,
    PROTOCOL,
    WireError,
    decode_any,
    decode_object,
    encode,
)

T = TypeVar("T")

MAX_BYTES = 256 << 20


class RefusedError(Exception):
    """The daemon did not do what was asked.

    Its `code` is ``bad_request``, ``not_found``, ``not_allowed``, ``infeasible``, ``too_many``,
    ``wrong_state``, ``storage``, ``busy``, ``too_fast`` or ``internal``. Only after ``storage``,
    ``busy``, ``too_fast`` and ``too_many`` may the same request succeed later.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class NoAnswerError(ConnectionError):
    """The daemon did not answer in time."""


class KeyRefusedError(NoAnswerError):
    """The daemon does not take this key."""


class _AnswerHead(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    code: str = ""
    message: str = ""
    protocol: int = PROTOCOL


_head_decoder = msgspec.json.Decoder(_AnswerHead)


class AnswerFrame(msgspec.Struct, frozen=True):
    """An answer as it came, of which only the head is read."""

    id: str
    """Of its request."""
    refusal: RefusedError | None
    frame: bytes

    def checked(self) -> Self:
        """The answer, unless it is a refusal, which is raised."""
        if self.refusal is not None:
            raise self.refusal
        return self

    def read(self, cls: type[T]) -> T:
        """The answer as one of `coalloc.wire.answers`; a refusal is raised.

        `NoAnswerError`: it is another, or lacks what this one needs.
        """
        try:
            return msgspec.json.decode(self.checked().frame, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NoAnswerError(f"the daemon's answer cannot be understood: {error}") from error

    def plain(self) -> dict[str, Any]:
        """The answer as plain values, a refusal too."""
        return decode_object(self.frame)


class Silence:
    """Reason of a daemon's silence to us, with a key or without, as far as handshakes tell."""

    def __init__(self, endpoint: str, *, is_keyed: bool) -> None:
        self.endpoint = endpoint
        self._is_keyed = is_keyed
        self._failed = ""

    def handshaken(self, outcome: str) -> None:
        """Take note of how a handshake has ended; raises as `check_key`."""
        self._failed = "" if outcome == SUCCEEDED else outcome
        self.check_key()

    def check_key(self) -> None:
        """Raise the daemon's refusal of our key, if that is how the last handshake ended."""
        if self._failed == REFUSED:
            raise KeyRefusedError(
                f"the daemon at {self.endpoint} refuses this key; is it enrolled, and not "
                "revoked? (see coalloc keys --help)"
            )

    def error(self, limit_s: float) -> NoAnswerError:
        """The error of a request that was not answered within so many seconds."""
        if not self._failed:
            return NoAnswerError(f"no answer from {self.endpoint} within {limit_s:g} s")
        key = "another daemon's key" if self._is_keyed else "no key"
        return NoAnswerError(
            f"the daemon at {self.endpoint} ends the connection: we have {key}, "
            "or it is not a coalloc daemon (see coalloc keys --help)"
        )


class RequestConnection:
    """One connection to the daemon; requests may be pipelined.

    One that is longer than `max_bytes` is refused here: the daemon would end the connection, and
    say nothing.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float = 10.0,
        security: CurveClient | None = None,
        max_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self._socket = client_context().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 100_000)
        self._socket.setsockopt(zmq.RCVHWM, 100_000)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_BYTES)
        if security is not None:
            security.apply(self._socket)
        self._handshakes = Handshakes(self._socket)
        self._end = _ends(self, self._handshakes, self._socket)
        self.silence = Silence(endpoint, is_keyed=security is not None)
        self.poller = zmq.Poller()
        self.poller.register(self._socket, zmq.POLLIN)
        self.poller.register(self._handshakes.monitor, zmq.POLLIN)
        self._socket.connect(endpoint)
        self._numbers = itertools.count(1)
        self._early: dict[str, AnswerFrame] = {}

    def ask(self, body: Mapping[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """Send one request and wait for its answer, in plain values."""
        return self.answer_to(self.send(body), timeout_s=timeout_s).plain()

    def send(self, body: Mapping[str, Any]) -> str:
        """Send a request; returns its id for `answer_to`."""
        request, frame = self.frame_of(body)
        self.send_frame(frame)
        return request

    def frame_of(self, body: Mapping[str, Any]) -> tuple[str, bytes]:
        """The id of a new request, and its frame; refused if longer than the daemon reads."""
        request = f"{os.getpid()}-{next(self._numbers)}"
        frame = encode({**body, "id": request, "protocol": PROTOCOL})
        if len(frame) > self._max_bytes:
            most = f"a message holds at most {self._max_bytes:,}"
            what = f"the request {body.get('type')} is {len(frame):,} bytes"
            raise RefusedError("bad_request", f"{what}; {most}")
        return request, frame

    def send_frame(self, frame: bytes) -> None:
        """Send a request.

        `NoAnswerError`: there is no connection; after a refused handshake none is made again.
        """
        self.silence.check_key()
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again as error:
            self._read_handshakes()
            self.silence.check_key()
            raise NoAnswerError(f"no daemon at {self.endpoint}") from error

    def answer_to(self, request: str, *, timeout_s: float | None = None) -> AnswerFrame:
        limit = self.timeout_s if timeout_s is None else timeout_s
        end = time.monotonic() + limit
        while request not in self._early:
            left = end - time.monotonic()
            answer = self.next_answer(left)
            if answer is not None:
                self._early[answer.id] = answer
            elif time.monotonic() >= end:
                raise self.silence.error(limit)
        return self._early.pop(request)

    def next_answer(self, timeout_s: float) -> AnswerFrame | None:
        """Wait for any answer; None: there is none yet, or another of the poller's sockets woke us.

        `NoAnswerError`: it cannot be read, or the daemon refuses our key.
        """
        ready = dict(self.poller.poll(max(1, int(timeout_s * 1000)))) if timeout_s > 0.0 else {}
        self._read_handshakes()
        if self._socket not in ready:
            return None
        return read_answer(self._socket.recv_multipart(), self.endpoint)

    def _read_handshakes(self) -> None:
        for outcome in self._handshakes.outcomes():
            self.silence.handshaken(outcome)

    def close(self) -> None:
        self._end()


class EventSubscriber:
    """Subscribes to publications by prefixes, such as ``event`` or ``decision.alpha``."""

    def __init__(
        self,
        endpoint: str,
        topics: tuple[str, ...] = ("",),
        security: CurveClient | None = None,
    ) -> None:
        self._socket = client_context().socket(zmq.SUB)
        self._end = _ends(self, self._socket)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, 100_000)
        for topic in topics:
            self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        if security is not None:
            security.apply(self._socket)
        self._socket.connect(endpoint)

    def messages(self, timeout_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Publications as they come; ends when none came for `timeout_s`."""
        while self._socket.poll(int(timeout_s * 1000)):
            frames = self._socket.recv_multipart()
            yield read_publication(frames)

    def close(self) -> None:
        self._end()


def _ends(owner: object, *parts: Handshakes | zmq.Socket[bytes]) -> weakref.finalize[..., object]:
    """Closes sockets when called, or when their owner is dropped, whichever is first."""
    ends = weakref.finalize(owner, _closed, os.getpid(), parts)
    # at the exit of the program other threads may still be using them
    ends.atexit = False
    return ends


def _closed(pid: int, parts: tuple[Handshakes | zmq.Socket[bytes], ...]) -> None:
    if os.getpid() == pid:  # the sockets of a fork's parent are not ours
        for part in parts:
            part.close()


def read_answer(frames: Sequence[bytes], endpoint: str) -> AnswerFrame:
    """Read the head of an answer; `NoAnswerError`: it is none."""
    try:
        if len(frames) != 1:
            raise WireError("bad_frames", f"expected 1 frame, got {len(frames)}")
        return _read_head(frames[0])
    except WireError as error:
        raise NoAnswerError(f"unreadable answer from {endpoint}: {error}") from error


def read_publication(frames: Sequence[bytes]) -> tuple[str, dict[str, Any]]:
    """Read topic and body of a publication; `NoAnswerError`: it is none."""
    try:
        topic, frame = frames
        return topic.decode(), decode_any(frame)
    except ValueError as error:
        raise NoAnswerError(f"unreadable publication: {error}") from error


def _read_head(frame: bytes) -> AnswerFrame:
    """Read of an answer only which request it is for, and whether that was refused."""
    try:
        head = _head_decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        decode_object(frame)  # says what is wrong with it, in most cases
        raise WireError("bad_shape", str(error)) from error
    if head.protocol != PROTOCOL:
        decode_object(frame)
    refused = head.type == "refused"
    refusal = RefusedError(head.code, head.message) if refused else None
    return AnswerFrame(head.id, refusal, frame)
