"""Costs of the site's rules in a round, computed beside the rounds.

A round for which they are wanted brings its snapshot without each rule along. When its plan has
been handed in, these are planned in the same way, one after the other, in processes that yield to
all others. Then the next round is asked for its costs, after a pause that keeps this to `SHARE` of
the time. Nothing of it is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from coalloc.core.base.effects import Solve
from coalloc.core.base.events import CoreEvent, CostsWanted
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.solver.sent import decode_plan, encode_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.policies.explain.rule_cost import GUARD, NO_GUARD, RuleCost, plain_weights, rule_cost
from coalloc.policies.options import options_of
from coalloc.policies.registry import POLICIES
from coalloc.runtime.logs import get_logger
from coalloc.wire.answers import RuleCostRow, RuleCostsRow

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
        plan = outcome.plan
        if plan is None:
            return RuleCostRow(why=f"not computed: {outcome.message or outcome.status}")

        def cost() -> RuleCost:
            return rule_cost(rule, kept, decode_plan(plan), without, weights)

        try:
            found = await asyncio.to_thread(cost)
        except msgspec.DecodeError as error:
            return RuleCostRow(why=f"not computed: its plan cannot be read: {error}")
        figures = (name for name in RuleCostRow.__struct_fields__ if name != "why")
        return RuleCostRow(**{name: getattr(found, name) for name in figures})


def _tell(found: RuleCostsRow) -> None:
    """One line of the log: of each rule its cost and the most it can be, or why not."""
    fields: dict[str, Any] = {}
    for rule, row in found.rules.items():
        if row.why:
            fields[rule] = row.why
            continue
        fields[rule] = {
            "cost": _short(row.cost),
            "at_most": _short(row.at_most),
            "of": _short(row.with_rule),
            "held": row.held,
        }
    log.info("rule_costs_computed", round=found.round, spent_s=found.spent_s, **fields)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
