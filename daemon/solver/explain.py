"""A solver process explains why a job waits; the daemon only passes the answer on."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from coalloc.daemon.solver.frames import Request
from coalloc.model.plan import Deferred, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.policies.options import read_known
from coalloc.policies.registry import lookup
from coalloc.runtime.texts import clock


class AskedRule(msgspec.Struct, frozen=True, kw_only=True):
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


def explained(snapshot: Snapshot, body: bytes, request: Request) -> bytes:
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
