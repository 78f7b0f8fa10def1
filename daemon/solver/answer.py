"""One request in a solver process: read, solve or explain, write."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from coalloc.daemon.solver import frames
from coalloc.daemon.solver.sent import decode_snapshot, parted
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.plan import Deferred, Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction, never
from coalloc.policies.checking.check import check, jobs_named
from coalloc.policies.options import read_known
from coalloc.policies.registry import lookup
from coalloc.runtime.texts import clock

LATE_S = 1.0
"""A process that nobody killed at its hard limit is killed by the kernel after this, seconds."""
MARGIN, MOST_MARGIN = 1.5, 0.25
"""A search is stopped so many times as long before its limit as its last plan took it to be made,
checked and sent, and at most this share of its time before."""
SENDING_SHARE = 0.1
"""Of the time of a search, what may go into checking and sending incumbents."""
SHOWN_VIOLATIONS = 3


class AskedRule(Struct, frozen=True, kw_only=True):
    """The rule of the daemon's rounds, and the last round's answer for the job."""

    policy: str
    options: dict[str, Any] = {}
    """Of these, the policy gets those that it knows."""
    won: str = "easy"
    """The order that won in ``auto``."""
    order: list[str] = []
    """Jobs by planned start, of a policy that searches."""
    reason: str = ""
    """Why the last plan gave the job no start; empty where it gave one."""
    detail: str = ""


def explained(snapshot: Snapshot, body: bytes, request: frames.Request) -> bytes:
    """The explanation of a job of this snapshot: ``explanation`` and ``lines`` as JSON."""
    from coalloc.policies.explain.explain import explain
    from coalloc.policies.explain.explanation import write_explanation
    from coalloc.policies.explain.rule import rule_of
    from coalloc.policies.explain.words import lines

    asked = msgspec.json.decode(body, type=AskedRule)
    options = read_known(asked.options, lookup(asked.policy).options)
    rule = rule_of(asked.policy, options, {"order": asked.won}, asked.order)
    deferred = None
    if asked.reason:
        reason = Reason(asked.reason)
        deferred = Deferred(job=request.explain, reason=reason, detail=asked.detail)
    made = explain(
        snapshot,
        rule,
        request.explain,
        deferred=deferred,
        stop=lambda: time.monotonic() >= request.soft_at,
    )
    words = lines(made, snapshot, lambda at: clock(at, snapshot.time))
    answer = {"explanation": write_explanation(made), "lines": words}
    return msgspec.json.encode(answer, enc_hook=lambda value: value.item())


class CheckFailedError(Exception):
    """A policy's plan breaks a rule; the violations name `jobs`."""

    def __init__(self, violations: Iterable[str], jobs: tuple[str, ...] = ()) -> None:
        self.jobs = jobs
        listed = list(violations)
        more = len(listed) - SHOWN_VIOLATIONS
        text = "; ".join(listed[:SHOWN_VIOLATIONS]) + (f"; {more} more" if more > 0 else "")
        super().__init__(f"its plan fails the check: {text}")


def answer(stream: socket.socket, extra: Mapping[str, SolveFunction]) -> None:
    """Read a request from a stream and answer it there."""
    request = msgspec.json.decode(_body(stream, frames.REQUEST), type=frames.Request)
    stream.sendall(frames.frame(frames.BEGUN, b"%d" % os.getpid()))
    # The last resort, should the daemon be too busy to kill: the kernel does it.
    left = request.hard_at + LATE_S - time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))
    if request.nice:
        os.nice(request.nice)
    snapshot = decode_snapshot(_body(stream, frames.SNAPSHOT))
    if request.explain:
        body = explained(snapshot, _body(stream, frames.PLAN), request)
        stream.sendall(frames.frame(frames.EXPLANATION, body))
        return
    solve = extra.get(request.policy) or lookup(request.policy).solve
    sender = _Sender(stream, snapshot, request)
    sender.send(frames.DONE, solved(snapshot, solve, request, sender.stop, sender.offer))


def solved(
    snapshot: Snapshot,
    solve: SolveFunction,
    request: frames.Request,
    stop: Callable[[], bool] = never,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """Call a policy; of the options, it gets those that it knows."""
    options: Mapping[str, Any] = request.options
    with suppress(ValueError):  # not in the registry: a test's own
        options = read_known(options, lookup(request.policy).options)
    budget = Budget(
        work=request.work,
        seed=request.seed,
        stop=stop,
        previous=request.previous,
        history=request.history,
        live=request.live,
        notes=request.notes,
        node_entries=request.node_entries if request.checked else None,
    )
    return solve(snapshot, options, budget, on_incumbent)


class _Sender:
    """Sends plans; where that is costly, not every incumbent, yet the newest in the end."""

    def __init__(self, stream: socket.socket, snapshot: Snapshot, request: frames.Request) -> None:
        self._stream, self._snapshot, self._request = stream, snapshot, request
        self._waiting: Plan | None = None
        self._not_before = 0.0
        self._polled = time.monotonic()
        self._most_s = MOST_MARGIN * (request.soft_at - self._polled)
        self._made_s = self._tail_s = 0.0

    def stop(self) -> bool:
        """Whether a search is to end now, to have its plan made, checked and sent in time."""
        self.flush()
        self._polled = time.monotonic()
        return self._polled >= self._request.soft_at - min(MARGIN * self._tail_s, self._most_s)

    def offer(self, plan: Plan) -> None:
        self._waiting = plan
        self._made_s = time.monotonic() - self._polled
        self.flush()

    def flush(self) -> None:
        """Send the waiting incumbent, unless too much time went into the ones before."""
        began = time.monotonic()
        if self._waiting is None or began < self._not_before:
            return
        plan, self._waiting = self._waiting, None
        try:
            self.send(frames.INCUMBENT, plan)
        except CheckFailedError as error:
            sys.stderr.write(f"incumbent dropped: {error}\n")
        spent = time.monotonic() - began
        self._not_before = began + spent / SENDING_SHARE
        self._tail_s = self._made_s + spent

    def send(self, kind: bytes, plan: Plan) -> None:
        if self._request.checked:
            violations = check(self._snapshot, plan, estimates=True).violations
            if violations:
                raise CheckFailedError(violations, jobs_named(self._snapshot, violations))
        if self._request.node_entries is not None:
            plan = trimmed(plan, self._request.node_entries)
        plan, parts = parted(plan, self._snapshot.time)
        for part in parts:
            self._stream.sendall(frames.frame(frames.PART, msgspec.json.encode(part)))
        self._stream.sendall(frames.frame(kind, encoded(plan)))


def trimmed(plan: Plan, entries: int) -> Plan:
    """The plan with at most so many nodes named, those of the placements that start first.

    Later ones have none, and ``stats.placements_without_nodes`` says how many, nor has the front of
    a plan that names more.
    """
    placed = chain(plan.placements, *(point.placements for point in plan.front))
    if sum(len(p.nodes) for p in placed) <= entries and all(p.nodes for p in plan.placements):
        return plan
    order = sorted(range(len(plan.placements)), key=lambda i: plan.placements[i].start)
    placements = list(plan.placements)
    left = entries
    for i in order:
        left -= len(placements[i].nodes)
        if left < 0:
            placements[i] = replace(placements[i], nodes={})
    without = sum(not p.nodes for p in placements)
    front = tuple(
        replace(point, placements=tuple(replace(p, nodes={}) for p in point.placements))
        for point in plan.front
    )
    stats = {**plan.stats, "placements_without_nodes": without}
    return replace(plan, placements=tuple(placements), front=front, stats=stats)


def encoded(plan: Plan) -> bytes:
    """The plan as JSON; numpy's numbers in its stats become plain ones."""
    return msgspec.json.encode(write_plan(plan), enc_hook=lambda value: value.item())


def failure(error: BaseException) -> bytes:
    """An error as the body of a frame."""
    jobs = error.jobs if isinstance(error, CheckFailedError) else ()
    message = told(error).encode(errors="replace").decode()
    return msgspec.json.encode(frames.Failure(message=message, jobs=jobs))


def told(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _body(stream: socket.socket, expected: bytes) -> bytes:
    kind, body = frames.receive_frame(stream)
    if kind != expected:
        raise frames.FrameError(f"{kind!r} where {expected!r} was expected")
    return body
