"""Rounds' solves: in the solver's processes, with the last resort in a thread of this one.

Every plan that comes back has passed the independent checker, which runs where the plan was
made: nothing of ours blocks while it works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from coalloc.core.base.effects import Solve
from coalloc.core.base.events import CoreEvent, IncumbentFound, Solved, SolveFailed
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.solver.rule_costs import RuleCosts
from coalloc.daemon.solver.sent import decode_plan, encode_snapshot
from coalloc.model.history import NO_HISTORY, History
from coalloc.model.plan import Plan
from coalloc.model.settings import RoundsConfig
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import options_of
from coalloc.policies.registry import POLICIES

NODE_ENTRIES = 50_000
"""A larger plan comes without the nodes of later starts: they are estimates, and reading them
would hold the daemon up."""


class RoundPlanner:
    """Solves snapshots and offers what comes of it to the core."""

    def __init__(self, solver: SolverPool, offer: Callable[[CoreEvent], None]) -> None:
        self._solver, self._offer = solver, offer
        self._tasks: set[asyncio.Task[None]] = set()
        self.rounds = RoundsConfig()
        self._previous: tuple[str, ...] = ()
        self.costs = RuleCosts(solver, offer)

    def start(self, effect: Solve) -> None:
        """Begin a round's solve."""
        task = asyncio.get_running_loop().create_task(self._round(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is being solved."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _round(self, effect: Solve) -> None:
        began = time.monotonic()
        jobs: tuple[str, ...] = ()
        late = False
        asked = self.request(effect.policy, effect.history, effect.notes)
        try:
            plan = await self._plan(effect, asked)
        except UnusablePlanError as error:
            why, jobs, late, plan = str(error), error.jobs, error.late, None
        except Exception as error:
            # The round must end in an answer whatever the solver's side did.
            why, plan = f"{type(error).__name__}: {error}", None
        spent = time.monotonic() - began
        if plan is None:
            self._offer(
                SolveFailed(
                    round=effect.round,
                    policy=effect.policy,
                    why=why,
                    solve_s=spent,
                    jobs=jobs,
                    late=late,
                )
            )
        else:
            self._previous = order_of_starts(plan)
            self._offer(Solved(round=effect.round, plan=plan, solve_s=spent))
        if effect.lifted:
            await self.costs.compute(effect, plan, asked, self.rounds.time_limit_s)

    async def _plan(self, effect: Solve, asked: Request) -> Plan:
        waiting = self.rounds.commit_first_incumbent

        def found(body: bytes) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self._offer(IncumbentFound(round=effect.round, plan=decode_plan(body)))

        return await self.solve(effect.snapshot, asked, found)

    def request(
        self,
        policy: str,
        history: History = NO_HISTORY,
        notes: Mapping[str, Any] | None = None,
    ) -> Request:
        """A round's request of a policy, which bounds how often jobs are passed over, or waits."""
        row, guard = POLICIES.get(policy), {"guard_after": self.rounds.passed_over_limit}
        if row is not None and "wait_limit" in options_of(row.options):
            guard = {}
        return Request(
            policy=policy,
            options={**guard, **self.rounds.options},
            previous=self._previous,
            history=history,
            live=True,
            notes=dict(notes or {}),
            checked=True,
            node_entries=NODE_ENTRIES,
        )

    async def solve(
        self,
        snapshot: Snapshot,
        request: Request,
        on_incumbent: Callable[[bytes], None] | None = None,
    ) -> Plan:
        """A plan that passed the checker. Raises `UnusablePlanError` with the reason."""
        if request.policy == "plain" or not self._solver.is_warm:
            return await asyncio.to_thread(plainly, snapshot)
        # Large ones in a thread: the loop has others to serve.
        body = await asyncio.to_thread(encode_snapshot, snapshot)
        outcome = await self._solver.solve(
            body, request, deadline_s=self.rounds.time_limit_s, on_incumbent=on_incumbent
        )
        if outcome.plan is None:
            why = outcome.message or outcome.status
            raise UnusablePlanError(why, outcome.jobs, late=outcome.status == "killed")
        try:
            return decode_plan(outcome.plan)
        except msgspec.DecodeError as error:
            raise UnusablePlanError(f"its plan cannot be read: {error}") from error


def plainly(snapshot: Snapshot) -> Plan:
    """The plan of `plain`, which needs no compiled code, in this process."""
    return POLICIES["plain"].solve(snapshot, {}, Budget(live=True))


def order_of_starts(plan: Plan) -> tuple[str, ...]:
    """Jobs by their first start in a plan: where the next round's search may begin."""
    return tuple(dict.fromkeys(p.job for p in sorted(plan.placements, key=lambda p: p.start)))


class UnusablePlanError(Exception):
    """A solve that gave no plan, or one that must not be used, since it is wrong about `jobs`.

    `late`: the time limit came first.
    """

    def __init__(self, why: str, jobs: tuple[str, ...] = (), *, late: bool = False) -> None:
        super().__init__(why)
        self.jobs, self.late = jobs, late
