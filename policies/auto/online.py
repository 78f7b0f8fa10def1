"""A round on line: nine orders of the queue, rolled forward by predicted run times.

Each order is EASY backfilling under a key that mixes run time, processes and the time waited:

    log r + b log n - c log((wait + max(r, 60 s)) / max(r, 60 s)) - log weight,

r the predicted run time, n the processes, b one of 0, 1/2, 1 and c one of 1/4, 1/2, 1: from
shortest first (b = 0) to smallest area first (b = 1), the faster overtaken by those who wait the
larger c is. Each is decoded to the end of the queue as if jobs took as long as predicted, beside
what runs until its planned end; so a job may start beside the reservation of the order's head if by
its prediction it is over in time. The order with the least weighted completion of the jobs decides
what starts. No rule is best on every queue, and to see which one serves this queue costs nine
decodings, fewer where orders are the same, and one where nothing has room now.

Where jobs may be split over clusters, the chosen order is rolled forward once more with jobs split
only where no cluster can hold them; if by prediction the queue is done sooner so, nothing else is
split in this round.

The plan then holds by the planned run times. On one cluster what starts now in the chosen order
starts; of the others the next one has a reservation, and what ends before it by planned run times
may start, too. Over several clusters the chosen order is EASY's by planned run times from the
start: its first that does not fit has the reservation, and no job starts beside that by its
prediction. What starts next is there mostly a small job on another cluster than the one that the
first waits for, which would be overtaken again and again. Where no job of the queue may be split,
all others that do not fit have a reservation, too, in this order: several wide jobs wait for one
large cluster there, and those behind the first would be overtaken.

A workflow is one job of an order (`workflow.ranking`): r is the longest path of what is left of it,
n its area by r, and its tasks stand together, those first that have most behind them. It counts
once, at the end of its last task. A task that waits for others keeps nothing waiting.

A job that has waited too long is `overdue`. The one that was so first (where a site shares out its
clusters, by `priority` before that) is first in every order, so that the reservation is its own.
Others have one only where all have, and then laid beside it.

Notes
-----
*Bound on waiting.* From the first round in which a job is the first overdue one, it is reserved its
earliest fit beside running work alone, by planned run times. That is not after the last end of what
runs, at most the longest planned run time L. Running work ends no later than planned, and nothing
starts whose planned run time delays the reservation (where others have one, theirs are laid after
it), so from round to round that does not become later, unless nodes fail or work outside this queue
takes them. A job that becomes overdue behind k others is thus started within (k + 1) L from then.
The same holds of a task.

*A wrong prediction* lets, on one cluster, a job start that goes on after the reservation of a head
that is not overdue: that head waits longer, each time for at most the planned run time of what was
believed to be shorter. When it is the first overdue job, nothing that is predicted can delay it any
more, and the bound above holds as it is.

Deviations
----------
To put all overdue jobs first, or to reserve room for all, bounds their waits more closely, but
users of a machine with more work than it can do wait longer in the mean (docs/policies/auto.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from coalloc.model.history import History
from coalloc.model.plan import NOTES, OVERDUE, Plan, Reason, Status
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.auto.overdue import Waits, sooner
from coalloc.policies.base import Budget, OnIncumbent, never
from coalloc.policies.bounds import lower_bound
from coalloc.policies.incumbent import Incumbent
from coalloc.policies.kernel.instance.arrays import any_mode, held, make_outcome, make_profile
from coalloc.policies.kernel.instance.decoding import NO_PLACE, WEIGHTED, Planner, Schedule
from coalloc.policies.kernel.profiles.decoders import decode
from coalloc.policies.kernel.state import (
    EASY,
    RESERVE,
    Base,
    Outcome,
    Problem,
    Profile,
    ProfileState,
    Scratch,
)
from coalloc.policies.orders.queue_orders import Traits
from coalloc.policies.orders.run_times import expected_shares, predicted, ratios
from coalloc.policies.workflow.ranking import Ranks, has_tasks, ranked

WIDTHS = (0.5, 0.0, 1.0)
"""Exponents b of the processes."""
AGEINGS = (0.5, 0.25, 1.0)
"""Exponents c of the slowdown so far."""
SHORT_S = 60.0
"""Shorter jobs age as if they took so long."""
SHORTEST_S = 1.0
SAME_TIME_S = 1e-6
MANY = 1_000
"""Of a longer queue so many items are planned and told first, the others having no start yet; then
each order as soon as it is better."""
NOT_YET = (Reason.OUT_OF_TIME, "the search had not come to it")
NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineQueue:
    """Waiting jobs, as the kernel sees them, at time 0."""

    problem: Problem
    """By planned run times."""
    base: Base
    profile: Profile
    """Working memory."""
    scratch: Scratch
    jobs: Traits
    weights: Floats
    """Of items: weights, and predicted by planned run times."""
    shares: Floats
    first: Ints
    """The item that goes first, where a job is overdue; else empty."""
    ranks: Ranks | None = None
    """Where there are tasks of workflows; `jobs` then has of each item what its whole job is."""

    def roll(self, problem: Problem, order: Ints, decoder: int = EASY) -> Outcome:
        """The queue in this order; EASY reserves for the first that waits, RESERVE for all."""
        out, mode = make_outcome(problem), any_mode(problem.item_group.size)
        state = ProfileState(problem, self.profile, self.scratch, out, mode)
        decode(state, self.base, NONE, order, decoder, NONE)
        return out

    def sort(self, keys: Floats) -> Ints:
        """Items by rising keys, ties by arrival."""
        if self.ranks is None:
            return np.argsort(keys, kind="stable")
        return self.ranks.sort(keys)

    def completion(self, ends: Floats) -> float:
        """Weighted completion, each job counted once."""
        if self.ranks is None:
            return float((self.weights * ends).sum())
        return self.ranks.completion(ends, self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The order that was chosen."""

    problem: Problem
    """By planned run times; what it may split is what the order splits."""
    order: Ints
    believed: Outcome
    """What it comes to by predicted run times."""
    unplaced: int
    completion: float
    """Sum of weight x predicted end."""
    name: str
    rolled: int = 1
    """Orders that were rolled forward."""
    stopped: bool = False
    """The caller wanted the plan before all were."""

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.unplaced, self.completion

    @property
    def starts_all(self) -> bool:
        """Whether everything starts now."""
        return bool((self.believed.start <= SAME_TIME_S).all())


def solve_round(
    planner: Planner,
    budget: Budget,
    on_incumbent: OnIncumbent | None,
    *,
    waits: Waits,
    bound_of: Planner,
    arrivals: Mapping[str, Any],
) -> Plan:
    """Plan a round; there are items.

    `planner`: its guarded items are those that are overdue.
    `bound_of`: the queue with all its allotments: `planner` may have only some of them.
    `arrivals`: notes on them for the next round.
    """
    queue = _queue(planner, waits.jobs, budget.history)

    def written(
        choice: Choice, out: Outcome, status: Status, bound: float | None = None, left: Ints = NONE
    ) -> Plan:
        due = waits.known
        if left.size and not choice.stopped:
            due = waits.expected(left, _by_arrival(planner, queue, budget.history))
        notes = {**arrivals, OVERDUE: due} if due else arrivals
        return planner.plan(
            planner.measure(out, 0),
            "auto",
            budget.seed,
            {
                "work": choice.rolled * len(planner.items),
                "order": choice.name,
                "tried": choice.rolled,
                "predicted_completion": choice.completion,
                **({NOTES: notes} if notes else {}),
            },
            bound=bound,
            status=status,
            unplaced=NO_PLACE if choice.order.size == len(planner.items) else NOT_YET,
        )

    def tell(choice: Choice) -> None:
        if on_incumbent is not None and len(planner.items) > MANY:
            on_incumbent(written(choice, promised(queue, choice), Status.HEURISTIC))

    if len(planner.items) > MANY:
        tell(head(queue))
    tolerance = float(planner.options.get("order_tolerance") or 0.0)
    choice = choose(queue, tolerance, budget.stop, tell)
    bound = None
    if budget.bounds and not choice.stopped:
        bound = lower_bound(bound_of, WEIGHTED, budget.stop).value
    out = promised(queue, choice)
    starts = out.start[waits.new] - planner.snapshot.time
    status = Status.TIME_LIMIT if choice.stopped else Status.FEASIBLE
    plan = written(choice, out, status, bound, waits.new[~(starts <= SAME_TIME_S)])
    if on_incumbent is not None:
        on_incumbent(plan)
    return plan


def offer_round(planner: Planner, incumbent: Incumbent[Schedule], jobs: Traits) -> None:
    """Offer a search what a round on line would plan; there are items.

    `planner`: the search's own, or the same queue with some of its allotments.
    `jobs`: of the items.
    """
    queue = _queue(planner, jobs, incumbent.budget.history)
    choice = choose(queue, stop=lambda: incumbent.spent)
    incumbent.work += choice.rolled * len(planner.items)
    incumbent.tried += choice.rolled
    incumbent.offer(planner.measure(promised(queue, choice), 0), choice.name)


def _queue(planner: Planner, jobs: Traits, history: History) -> OnlineQueue:
    """The items; the first guarded one goes first."""
    ranks = None
    if has_tasks(planner):
        jobs, ranks = ranked(planner, jobs)
    return OnlineQueue(
        problem=planner.compiled.problem,
        base=planner.compiled.base,
        profile=planner.profile,
        scratch=planner.scratch,
        jobs=jobs,
        weights=planner.weights,
        shares=ratios(history, (item.job.id for item in planner.items)),
        first=planner.guarded[:1],
        ranks=ranks,
    )


def _by_arrival(planner: Planner, queue: OnlineQueue, history: History) -> Floats:
    """Starts under EASY by arrival, by predicted run times of all work."""
    base = sooner(planner, history)
    queue = replace(queue, base=base, profile=make_profile(queue.problem, base))
    out = queue.roll(
        predicted(queue.problem, expected_shares(queue.shares)), np.arange(queue.weights.size)
    )
    return out.start


def choose(
    queue: OnlineQueue,
    tolerance: float = 0.0,
    stop: Callable[[], bool] = never,
    tell: Callable[[Choice], None] = lambda _: None,
) -> Choice:
    """Roll the orders forward; the one with the least weighted completion.

    `tolerance`: share that another order must gain before it replaces the first.
    `stop`: True once the best so far will do.
    `tell`: gets each order that is better than those before.
    """
    planned = queue.problem
    problem = predicted(planned, queue.shares)
    full = not has_room(queue)
    best: Choice | None = None
    seen: set[bytes] = set()
    for name, order in orders(queue):
        if order.tobytes() in seen:
            continue
        seen.add(order.tobytes())
        found = _rolled(queue, planned, problem, name, order)
        stopped = stop()
        if best is None or found.rank < (best.unplaced, (1.0 - tolerance) * best.completion):
            best = replace(found, rolled=len(seen), stopped=stopped)
            tell(best)
        # Where everything starts now, or nothing can, it is the same in any other order.
        if stopped or best.starts_all or full:
            break
    assert best is not None
    whole = None if stopped or best.starts_all or full else unsplit(queue)
    if whole is not None:
        problem = predicted(whole, queue.shares)
        found = _rolled(queue, whole, problem, f"{best.name}, whole", best.order)
        best = found if found.rank < best.rank else best
    return replace(best, rolled=len(seen), stopped=stopped)


def head(queue: OnlineQueue) -> Choice:
    """The first `MANY` items of the first order, alone: what a long queue starts with."""
    name, order = next(orders(queue))
    problem = predicted(queue.problem, queue.shares)
    return _rolled(queue, queue.problem, problem, f"{name}, head", order[:MANY])


def _rolled(
    queue: OnlineQueue, planned: Problem, problem: Problem, name: str, order: Ints
) -> Choice:
    """An order, rolled forward."""
    out = queue.roll(problem, order)
    placed = ~np.isnan(out.end)
    ends = np.where(placed, out.end, 0.0)
    return Choice(
        problem=planned,
        order=order,
        believed=out,
        unplaced=order.size - int(placed.sum()),
        completion=queue.completion(ends),
        name=name,
    )


def unsplit(queue: OnlineQueue) -> Problem | None:
    """The problem whose jobs are split only where no cluster can hold them; None if it is the same.

    What a cluster can hold is what is free of it once all that runs has ended.
    """
    problem = queue.problem
    fits = held(problem, queue.base.free[-1])
    splits = problem.item_splits & (_least(problem) > fits.max(axis=1)[problem.item_group])
    if np.array_equal(splits, problem.item_splits):
        return None
    return problem._replace(item_splits=splits)


def has_room(queue: OnlineQueue) -> bool:
    """Whether what is free now would do for any job; links and reservations are not looked at."""
    problem = queue.problem
    fits = held(problem, queue.base.free[0]).sum(axis=1)
    return bool((_least(problem) <= fits[problem.item_group]).any())


def _least(problem: Problem) -> Ints:
    """Processes of the smallest mode of each item."""
    return problem.mode_procs[problem.mode_first[:-1]]


def orders(queue: OnlineQueue) -> Iterator[tuple[str, Ints]]:
    """The orders with their names; equal jobs are in arrival order in all."""
    jobs = queue.jobs
    seconds = jobs.seconds * queue.shares
    length = np.maximum(seconds, SHORT_S)
    ageing = np.log1p(np.maximum(jobs.waited, 0.0) / length)
    key = np.log(np.maximum(seconds, SHORTEST_S)) - np.log(np.maximum(queue.weights, 1e-12))
    procs = np.log(np.maximum(jobs.procs, 1.0))
    for c in AGEINGS:
        for b in WIDTHS:
            keys = key + b * procs - c * ageing
            keys[queue.first] = -inf
            yield f"width {b:g}, ageing {c:g}", queue.sort(keys)


def promised(queue: OnlineQueue, choice: Choice) -> Outcome:
    """By planned run times: what is believed to start now goes first, then what starts next.

    Over several clusters, the order as it is; where no job may be split, each has a reservation.
    """
    problem = choice.problem
    if problem.link_gbps.size > 1:
        decoder = EASY if problem.item_splits.any() else RESERVE
        return queue.roll(problem, choice.order, decoder)
    starts = np.where(np.isnan(choice.believed.start), inf, choice.believed.start)
    starts[queue.first] = -inf
    place = np.full(starts.size, starts.size)
    place[choice.order] = np.arange(choice.order.size)
    return queue.roll(problem, np.lexsort((place, starts))[: choice.order.size])
