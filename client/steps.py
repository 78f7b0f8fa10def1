"""Requests apart from their transport: each is written once, for `Client` and `AsyncClient`.

A request is a generator. It yields steps, such as sending a frame, and is resumed with what each
step came to, or with its error; what it returns is the caller's answer. `BlockingTransport` and
`AsyncTransport` carry out the same steps, the one by waiting, the other by awaiting.

>>> class JobRequests:
...     @request
...     def cancel(self, job: str) -> Steps[tuple[str, ...]]:
...         answer = yield from asked(answers.Concerned, "cancel", job=job)
...         return answer.jobs
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from coalloc.wire.answers import Answer
from coalloc.wire.client import AnswerFrame

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound=Answer)

TOO_FAST_FIRST_S, TOO_FAST_LONGEST_S, TOO_FAST_S = 0.05, 1.0, 120.0
"""Pauses after a refusal for asking too fast, and how long to go on trying, seconds."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; comes to its id, a text."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the answer to a request that was sent; comes to an `AnswerFrame`.

    Attributes
    ----------
    timeout_s : float or None
        None: as long as the client waits for any answer.
    """

    id: str
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for so many seconds; comes to None."""

    seconds: float


class Subscription(Protocol):
    """A connection over which publications come."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Connect to the publications with these prefixes; comes to a `Subscription`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hear:
    """Wait for the next publication, at most so long; comes to its body, or to None."""

    subscription: Subscription
    seconds: float


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """Values for whom iterates; comes to None."""

    values: Sequence[T]


Step: TypeAlias = Send | Receive | Sleep | Subscribe | Hear
Steps: TypeAlias = Generator[Step, Any, T]
Stream: TypeAlias = Generator[Step | Found[T], Any, None]


class BlockingTransport:
    """Carries out requests in the thread that makes them."""

    def perform(self, step: Step) -> Any:
        """Carry out one step."""
        raise NotImplementedError

    def run(self, steps: Steps[T]) -> T:
        """Carry out a request; returns its answer."""
        advance = partial(next, steps)
        try:
            while True:
                advance = self._performed(steps, advance())
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    def iterate(self, steps: Stream[T]) -> Generator[T]:
        """Carry out a request whose values come one by one."""
        advance = partial(next, steps)
        try:
            while (step := advance_to(advance)) is not None:
                if isinstance(step, Found):
                    yield from step.values
                    advance = partial(next, steps)
                else:
                    advance = self._performed(steps, step)
        finally:
            steps.close()

    def _performed(self, steps: Generator[Any, Any, Any], step: Step) -> partial[Any]:
        """Perform a step; returns how the request goes on."""
        try:
            return partial(steps.send, self.perform(step))
        except Exception as error:
            return partial(steps.throw, error)


class AsyncTransport:
    """Carries out requests in an event loop."""

    async def perform(self, step: Step) -> Any:
        """Carry out one step."""
        raise NotImplementedError

    async def run(self, steps: Steps[T]) -> T:
        """Carry out a request; returns its answer."""
        advance = partial(next, steps)
        try:
            while True:
                advance = await self._performed(steps, advance())
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    async def iterate(self, steps: Stream[T]) -> AsyncGenerator[T]:
        """Carry out a request whose values come one by one."""
        advance = partial(next, steps)
        try:
            while (step := advance_to(advance)) is not None:
                if isinstance(step, Found):
                    for value in step.values:
                        yield value
                    advance = partial(next, steps)
                else:
                    advance = await self._performed(steps, step)
        finally:
            steps.close()

    async def _performed(self, steps: Generator[Any, Any, Any], step: Step) -> partial[Any]:
        try:
            return partial(steps.send, await self.perform(step))
        except Exception as error:
            return partial(steps.throw, error)


def advance_to(advance: Callable[[], T]) -> T | None:
    """The next step of a request; None: it is over."""
    try:
        return advance()
    except StopIteration:
        return None


class request(Generic[P, T]):  # noqa: N801 - a decorator
    """Makes a method of the steps of a request: a `Client` waits, and an `AsyncClient` awaits."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.__doc__ = steps.__doc__

        @wraps(steps)
        def run(transport: Any, *args: P.args, **fields: P.kwargs) -> Any:
            return transport.run(steps(transport, *args, **fields))

        self._run = run

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: BlockingTransport, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: AsyncTransport, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: object, owner: type) -> Callable[..., Any]:
        return self._run if client is None else MethodType(self._run, client)


class stream(Generic[P, T]):  # noqa: N801 - a decorator
    """The same of a request whose values come one by one: an iterator, or an asynchronous one."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Stream[T]]) -> None:
        self.__doc__ = steps.__doc__

        @wraps(steps)
        def iterate(transport: Any, *args: P.args, **fields: P.kwargs) -> Any:
            return transport.iterate(steps(transport, *args, **fields))

        self._iterate = iterate

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: BlockingTransport, owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: AsyncTransport, owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: object, owner: type) -> Callable[..., Any]:
        return self._iterate if client is None else MethodType(self._iterate, client)


def asked(cls: type[A], kind: str, *, timeout_s: float | None = None, **fields: Any) -> Steps[A]:
    """Send a request; its answer as one of `coalloc.wire.answers`."""
    answer = yield from answered({**fields, "type": kind}, timeout_s)
    return answer.read(cls)


def answered(body: Mapping[str, Any], timeout_s: float | None = None) -> Steps[AnswerFrame]:
    """Send a request; its answer as it came."""
    sent: str = yield Send(body)
    return (yield from patiently(sent, body, timeout_s))


def patiently(
    sent: str, body: Mapping[str, Any], timeout_s: float | None = None
) -> Steps[AnswerFrame]:
    """Wait for an answer; ask again, ever more slowly, while we are told that we ask too fast."""
    pause, end = TOO_FAST_FIRST_S, time.monotonic() + TOO_FAST_S
    answer: AnswerFrame = yield Receive(sent, timeout_s)
    while answer.refusal is not None and answer.refusal.code == "too_fast":
        if time.monotonic() >= end:
            break
        yield Sleep(pause)
        pause = min(2.0 * pause, TOO_FAST_LONGEST_S)
        sent = yield Send(body)
        answer = yield Receive(sent, timeout_s)
    return answer
