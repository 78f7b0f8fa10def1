"""Searches beside each other, each in a process with a seed of its own: the best plan of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from coalloc.model.plan import Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import SAME, Budget, OnIncumbent, at_most, never
from coalloc.policies.registry import lookup
from coalloc.workers import CONTEXT, interrupts_held, workers

LOOK_S = 0.1
"""Between two looks at the caller's wish to stop, while chains end."""
_is_ended: Callable[[], bool] = never
"""In a chain's process: whether the caller, or the proof of another chain, has ended all."""


class Search(NamedTuple):
    """A policy, its queue and its limits, the same for all chains."""

    policy: str
    snapshot: Snapshot
    options: Mapping[str, Any]
    work: int | None
    deadline: float
    """By the machine's monotonic clock, which all processes share."""

    def run(
        self, seed: int, stop: Callable[[], bool], on_incumbent: OnIncumbent | None = None
    ) -> Plan:
        """One chain, in this process."""

        def is_over() -> bool:
            return time.monotonic() >= self.deadline or stop()

        budget = Budget(work=self.work, seed=seed, stop=is_over)
        return lookup(self.policy).solve(self.snapshot, self.options, budget, on_incumbent)


def chained(
    search: Search,
    seed: int,
    chains: int,
    stop: Callable[[], bool],
    on_incumbent: OnIncumbent | None,
) -> Plan:
    """The best plan of chains from so many seeds; the first is this process's.

    Under a limit of work all go on to their end, so that the same plan comes again. Else the proof
    of one ends the others.
    """
    over = CONTEXT.Event()

    def is_over() -> bool:
        if stop():
            over.set()
        return over.is_set()

    def is_proof(plan: Plan) -> bool:
        return search.work is None and plan.status is Status.OPTIMAL

    def look(future: Future[Plan]) -> None:
        if future.exception() or is_proof(future.result()):
            over.set()

    with workers(chains - 1, "chains", _begin, over.is_set) as pool:
        with interrupts_held():
            others = [pool.submit(_chain, search, seed + n) for n in range(1, chains)]
        for other in others:
            other.add_done_callback(look)
        first = search.run(seed, is_over, on_incumbent)
        if is_proof(first):
            over.set()
        while wait(others, LOOK_S).not_done:
            is_over()
        return best_of([first, *(other.result() for other in others)])


def best_of(plans: Sequence[Plan]) -> Plan:
    """The best of plans by the same policy for the same queue, with the best bound of all."""
    found = [plan.objective for plan in plans]
    chosen = min(range(len(plans)), key=lambda n: (found[n].deferred, found[n].value))
    plan, best = plans[chosen], found[chosen]
    # The proofs of a front belong together.
    others = () if plan.front else plans
    bounds = [
        (each.objective.bound, each.certificates)
        for each in (plan, *others)
        if each.objective.bound is not None and each.objective.deferred == best.deferred
    ]
    if bounds:
        bound, certificates = max(bounds, key=lambda each: each[0] or 0.0)
        status = plan.status
        if best.value <= (bound or 0.0) * (1.0 + SAME):
            status = Status.OPTIMAL
        objective = replace(best, bound=at_most(bound, best.value))
        plan = replace(plan, status=status, objective=objective, certificates=certificates)
    return replace(plan, stats={**plan.stats, "chain": chosen, "chains": len(plans)})


def _begin(is_ended: Callable[[], bool]) -> None:
    global _is_ended
    _is_ended = is_ended


def _chain(search: Search, seed: int) -> Plan:
    return search.run(seed, _is_ended)
