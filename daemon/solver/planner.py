"""Rounds' solves: in the solver's processes; by `plain` in a thread of this one while none is warm.

Every plan that comes back has passed the independent checker, which runs where the plan was
made: nothing of ours blocks while it works.

A round for which the costs of the site's rules are wanted brings its snapshot without each rule
along. When its plan has been handed in, these are planned in the same way, one after the other, in
processes that yield to all others. Then the next round is asked for its costs, after a pause that
keeps this to `SHARE` of the time. Nothing of it is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from coalloc.core.base.effects import Solve
from coalloc.core.base.events import CoreEvent, CostsWanted, IncumbentFound, Solved, SolveFailed
from coalloc.core.base.plan_order import PlanOrder, start_of
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.solver.sent import decode_part, decode_plan, encode_snapshot
from coalloc.model.history import NO_HISTORY, History
from coalloc.model.plan import Plan
from coalloc.model.settings import RoundsConfig
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.explain.rule_cost import GUARD, NO_GUARD, plain_weights, rule_cost
from coalloc.policies.options import options_of
from coalloc.policies.registry import POLICIES
from coalloc.runtime.logs import get_logger
from coalloc.wire.answers import RuleCostRow, RuleCostsRow

NODE_ENTRIES = 50_000
"""A larger plan comes without the nodes of later starts: they are estimates, and reading them
would hold the daemon up."""
LAST = "plain"
"""The last resort, which needs nothing compiled."""
IN_THREAD = 500
"""Jobs that `plain` plans here at once, sooner than a solver would have read them."""
Taken = tuple[Plan, PlanOrder | None]
"""A plan, and the order of one that came in parts."""
PATIENCE = 60.0
"""The last resort has so many times the time limit, since nothing comes after it."""


class RoundPlanner:
    """Solves snapshots and offers what comes of it to the core."""

    def __init__(self, solver: SolverPool, offer: Callable[[CoreEvent], None]) -> None:
        self._solver, self._offer = solver, offer
        self._tasks: set[asyncio.Task[None]] = set()
        self.rounds = RoundsConfig()
        self._previous: tuple[str, ...] = ()
        self.costs = RuleCosts(solver, offer)

    def start(self, effect: Solve) -> None:
        task = asyncio.get_running_loop().create_task(self._round(effect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _round(self, effect: Solve) -> None:
        began = time.monotonic()
        jobs: tuple[str, ...] = ()
        late = False
        asked = self.request(effect.policy, effect.history, effect.notes)
        try:
            plan, order = await self._plan(effect, asked)
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
            self._offer(Solved(round=effect.round, plan=plan, solve_s=spent, order=order))
        if effect.lifted:
            await self.costs.compute(effect, plan, asked, self.rounds.time_limit_s)

    async def _plan(self, effect: Solve, asked: Request) -> Taken:
        waiting = self.rounds.commit_first_incumbent

        def found(body: bytes) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self._offer(IncumbentFound(round=effect.round, plan=decode_plan(body)))

        return await self._solution(effect.snapshot, asked, found)

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

    async def solve(self, snapshot: Snapshot, request: Request) -> Plan:
        """A plan that passed the checker. Raises `UnusablePlanError` with the reason."""
        return (await self._solution(snapshot, request))[0]

    async def _solution(
        self,
        snapshot: Snapshot,
        request: Request,
        on_incumbent: Callable[[bytes], None] | None = None,
    ) -> Taken:
        """The same with its order."""
        is_last = request.policy == LAST
        if not self._solver.is_warm or (is_last and len(snapshot.queue) <= IN_THREAD):
            return await asyncio.to_thread(plainly, snapshot), None
        # Large ones in a thread: the loop has others to serve.
        body = await asyncio.to_thread(encode_snapshot, snapshot)
        limit_s = self.rounds.time_limit_s * (PATIENCE if is_last else 1.0)
        outcome = await self._solver.solve(
            body, request, deadline_s=limit_s, on_incumbent=on_incumbent
        )
        if is_last and outcome.plan is None and outcome.status != "error":
            return await asyncio.to_thread(plainly, snapshot), None
        if outcome.plan is None:
            why = outcome.message or outcome.status
            raise UnusablePlanError(why, outcome.jobs, late=outcome.status == "killed")
        try:
            return await _taken_in(outcome.plan, outcome.parts)
        except msgspec.DecodeError as error:
            raise UnusablePlanError(f"its plan cannot be read: {error}") from error


async def _taken_in(head: bytes, parts: Sequence[bytes]) -> Taken:
    """Read a plan, a long one part by part, between which the loop serves others."""
    plan = decode_plan(head)
    if not parts:
        return plan, None
    order, deferred = PlanOrder.of(plan), list(plan.deferred)
    for part in parts:
        await asyncio.sleep(0)
        placements, left = decode_part(part)
        order.go_on(placements, left)
        deferred += left
    return replace(plan, placements=tuple(order.planned), deferred=tuple(deferred)), order


def plainly(snapshot: Snapshot) -> Plan:
    """The plan of `plain`, which needs no compiled code, in this process."""
    return POLICIES[LAST].solve(snapshot, {}, Budget(live=True))


def order_of_starts(plan: Plan) -> tuple[str, ...]:
    """Jobs by their first start in a plan: where the next round's search may begin."""
    return tuple(dict.fromkeys([p.job for p in sorted(plan.placements, key=start_of)]))


class UnusablePlanError(Exception):
    """A solve that gave no plan, or one that must not be used, since it is wrong about `jobs`.

    `late`: the time limit came first.
    """

    def __init__(self, why: str, jobs: tuple[str, ...] = (), *, late: bool = False) -> None:
        super().__init__(why)
        self.jobs, self.late = jobs, late


SHARE = 0.1
"""Of the time, the most that goes into plans without rules."""
RETRY_S = 30.0
"""After a round that had nothing to compare with, seconds."""
NICE = 10
"""Of their processes, beyond that of the rounds' own."""

log = get_logger()


class RuleCosts:
    """Computes what rules cost, as often as it may."""

    def __init__(self, solver: SolverPool, offer: Callable[[CoreEvent], None]) -> None:
        self._solver, self._offer = solver, offer
        self.newest: RuleCostsRow | None = None
        """Of the newest round for which they were computed."""
        self.on_found: Callable[[RuleCostsRow], None] = lambda found: None

    def want(self) -> None:
        """Ask for the costs of the next round in which rules are in force."""
        self._offer(CostsWanted())

    async def compute(
        self, effect: Solve, kept: Plan | None, asked: Request, limit_s: float
    ) -> None:
        """Compare a round's plan with those without its rules, and ask for more after a pause.

        `kept` is the plan that it was `asked` for; None: none was made. Each has `limit_s`.
        """
        if kept is None or kept.policy != effect.policy or not self._solver.is_warm:
            # It failed, or was made while nothing was compiled: nothing to compare with.
            if self._solver.is_warm or not await self._solver.wait_warm(RETRY_S):
                await asyncio.sleep(RETRY_S)
            self.want()
            return
        began = time.monotonic()
        asked = replace(asked, node_entries=0, nice=NICE)
        weights = plain_weights(effect.snapshot, effect.lifted)
        rows: dict[str, RuleCostRow] = {}
        for rule, without in effect.lifted.items():
            rows[rule] = await self._compared(rule, kept, without, weights, asked, limit_s)
        row = POLICIES.get(effect.policy)
        if row is not None and NO_GUARD.keys() & options_of(row.options).keys():
            free = replace(asked, options={**asked.options, **NO_GUARD})
            rows[GUARD] = await self._compared(GUARD, kept, effect.snapshot, weights, free, limit_s)
        spent = time.monotonic() - began
        self.newest = RuleCostsRow(
            round=effect.round,
            time=effect.snapshot.time,
            policy=effect.policy,
            spent_s=round(spent, 4),
            rules=rows,
        )
        _tell(self.newest)
        self.on_found(self.newest)
        await asyncio.sleep(spent / SHARE - spent)
        self.want()

    async def _compared(
        self,
        rule: str,
        kept: Plan,
        without: Snapshot,
        weights: Mapping[str, float],
        asked: Request,
        limit_s: float,
    ) -> RuleCostRow:
        """The cost of a rule; where there is no plan without it, why."""
        # Large ones in a thread: the loop has others to serve.
        body = await asyncio.to_thread(encode_snapshot, without)
        outcome = await self._solver.solve(body, asked, deadline_s=limit_s)
        if outcome.plan is None:
            return RuleCostRow(why=f"not computed: {outcome.message or outcome.status}")
        try:
            made, _ = await _taken_in(outcome.plan, outcome.parts)
        except msgspec.DecodeError as error:
            return RuleCostRow(why=f"not computed: its plan cannot be read: {error}")
        found = await asyncio.to_thread(rule_cost, rule, kept, made, without, weights)
        figures = (name for name in RuleCostRow.__struct_fields__ if name != "why")
        return RuleCostRow(**{name: getattr(found, name) for name in figures})


def _tell(found: RuleCostsRow) -> None:
    """One line of the log: of each rule its cost and the most it can be, or why not."""
    figures = {"cost": "cost", "at_most": "at_most", "of": "with_rule"}
    fields: dict[str, Any] = {
        rule: row.why
        or {name: _short(getattr(row, key)) for name, key in figures.items()} | {"held": row.held}
        for rule, row in found.rules.items()
    }
    log.info("rule_costs_computed", round=found.round, spent_s=found.spent_s, **fields)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
