"""``why``, with an explanation from a solver process where one can be had in time.

What is known without it is answered in any case: while the solver is cold, busy with other
explanations, slow or gone, the answer says so and holds the reason and the figures of the state.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.rounds import snapshots
from coalloc.daemon.queries import job_views
from coalloc.daemon.solver.planner import RoundPlanner, order_of_starts
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.solver.sent import encode_snapshot
from coalloc.model.jobs import DivisibleJob
from coalloc.model.plan import Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.wire.answers import Why
from coalloc.wire.frames import encode

DEADLINE_S = 6.0
"""Then no further change is tried, seconds."""
GRACE_S = 4.0
"""For the change that is being tried then: over a long queue one takes seconds."""
TURN_S = 2.0
"""For explanations that were asked for earlier: one is made at a time, seconds."""
COLD = "the solver is still warming up, or being started again"
BY_PLAN = frozenset({Reason.NOT_SELECTED, Reason.OUT_OF_TIME, Reason.UNSUPPORTED})
"""Reasons that only the plan itself knows."""


class _Said(msgspec.Struct):
    explanation: dict[str, Any]
    lines: tuple[str, ...]


class Explainer:
    """Answers ``why``."""

    def __init__(self, solver: SolverPool, planner: RoundPlanner) -> None:
        self._solver, self._planner = solver, planner
        self._turn = asyncio.Lock()

    async def why(self, record: JobRecord, state: State, policy: str, now: float) -> Why:
        """The answer's ``why``; never raises for what a solver does."""
        answer = job_views.why(record, state, now)
        if record.id not in state.waiting or isinstance(record.job, DivisibleJob):
            return answer
        if record.id in state.findings.aside or record.id in state.findings.limited:
            return answer
        why_not = "" if self._solver.is_warm else COLD
        if not why_not:
            try:
                async with asyncio.timeout(TURN_S):
                    await self._turn.acquire()
            except TimeoutError:
                why_not = "other explanations are being made; ask again"
        if why_not:
            return replace(answer, unexplained=why_not)
        try:
            return await self._explained(answer, record, state, policy, now)
        except Exception as error:
            # Whatever the solver's side did, what is known is answered.
            return replace(answer, unexplained=f"{type(error).__name__}: {error}")
        finally:
            self._turn.release()

    async def _explained(
        self, answer: Why, record: JobRecord, state: State, policy: str, now: float
    ) -> Why:
        if record.id not in state.waiting:
            return replace(answer, unexplained="it has left the queue meanwhile")
        snapshot = snapshots.snapshot(
            state, now, without={*state.findings.aside, *state.findings.limited}
        )
        plan, asked = state.schedule.plan, self._rule(state.schedule.plan, policy, record.id)
        # Of a long queue both texts take a while to write, and the loop has other things to do.
        body, rule = await asyncio.to_thread(_texts, snapshot, plan, asked)
        outcome = await self._solver.explain(
            body, rule, record.id, deadline_s=DEADLINE_S, grace_s=GRACE_S
        )
        if outcome.plan is None:
            slow = outcome.status == "killed"
            why_not = f"it took longer than {DEADLINE_S + GRACE_S:g} s" if slow else outcome.message
            return replace(answer, unexplained=why_not)
        said = msgspec.json.decode(outcome.plan, type=_Said)
        return replace(answer, explanation=said.explanation, lines=said.lines)

    def _rule(self, plan: Plan | None, policy: str, job: str) -> dict[str, Any]:
        """Policy of rounds: that of the last plan, unless that only stood in."""
        if plan is None or (plan.policy == "plain" and policy != "plain"):
            return {"policy": policy, "options": self._planner.request(policy).options}
        asked: dict[str, Any] = {"policy": plan.policy, "options": dict(plan.options)}
        won = plan.stats.get("order")
        if isinstance(won, str):
            asked["won"] = won
        deferred = next((d for d in plan.deferred if d.job == job and d.reason in BY_PLAN), None)
        if deferred is not None:
            asked |= {"reason": str(deferred.reason), "detail": deferred.detail}
        return asked


def _texts(snapshot: Snapshot, plan: Plan | None, asked: dict[str, Any]) -> tuple[bytes, bytes]:
    if plan is not None and asked["policy"] == plan.policy:
        asked = {**asked, "order": order_of_starts(plan)}
    return encode_snapshot(snapshot), encode(asked)
