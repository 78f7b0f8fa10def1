"""The compiled search: chronological branch and bound with a dominance memo.

A *state* is an instant, what waits, what runs (with its pattern and end) and what is done. The
search goes through the events in time order; at each it starts a set of waiting jobs, those of a
set by rising number, and then goes on to the next event.

Why it is complete
------------------
*Events.* In a plan of least value (for a regular objective) that also has the least sum of starts,
no job can be shifted left. So each start is the present, a release, the end of a job, or an
instant at which running work, ``free_at`` or a reservation ends; these are the events, and any
subset of the jobs that fit may start at each (waiting although something fits is a branch).

*Left shift*. A job is not started where it fitted, in the same pattern, all the time since the
event before (`allowed`). Nor does the search leave an event if a waiting job has fitted since some
event and would have ended by the next one (`wasteful`). Starting that job there keeps all else and
ends it sooner.

*Dominance* (`remembered`). Two states with the same jobs waiting and done, and the same ones
running in the same patterns: if one is no later, each of its running jobs ends no later, and it
has cost no more, then whatever follows the other can follow it at the same instants.

*Both together.* The two rules point from a pruned branch to another that is as good, and they
cannot do so in a circle: write the ends of a plan in falling order. The shift lowers the first
entry in which it changes this list, which belongs to a job not yet done at that state. Dominance
changes no entry of a job not yet done for the worse, and those are the first of the list. Along a
circle take the first entry that ever changes: it can rise only by dominance at a state where its
job is done; from there on, until a shift, fewer jobs are left, whose entries come before it and so
never change, but a shift changes one of them. So there is no shift, and the search runs on to
the end of a plan. (All run times are positive.)

*Equal jobs* start in their order.

*Saturated links* (in slots of time only). A pattern has a slowdown of its own, and a link takes its
capacity times the least slowdown of what loads it. The room of a link counts up to the threshold;
each pattern that loads it leaves ``spare`` of that unused. What may run together is still closed
under leaving jobs out, which is all that the above asks for.

Bounds
------
*Prices.* For each of V price vectors a pattern asks the share ``price`` of the machine while it
runs; of what runs together, the shares never sum to more than 1 (`exact_prices`). So energy that
was used, wasted by idling, and is still needed at least, must fit before the deadline.
*Tails.* What waits starts at the next event or later, and not before enough units are free.
*Weighted completion.* For each vector, the mean busy times in Smith's order of the energies of
what waits, on the capacity that what runs leaves.

References
----------
Eastman, Even, Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", Management
Science 11(2), 1964 (the bound on weighted completion).
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.search.branch_bounds import (
    hopeless,
    least_cost,
    line_up,
    supplies,
    too_late,
)
from coalloc.policies.kernel.search.branch_memo import remembered
from coalloc.policies.kernel.search.branch_state import (
    AFTER,
    BEFORE,
    BEST_CHOSEN,
    BEST_END,
    BEST_START,
    CHOSEN,
    COST,
    COST_LIMIT,
    DEADLINE,
    DEPTH,
    END,
    ENERGY,
    EVENT,
    FIRST,
    FOUND,
    JOB,
    KEY,
    LATE,
    LEAST,
    MARGIN,
    MOVED,
    PATTERN,
    PRUNED,
    RELATIVE,
    RELEASE,
    ROW,
    RUNNING,
    START,
    TAIL,
    TIME,
    TWIN,
    WAITING,
    WEIGHT,
    WEIGHTED,
    WORD,
    WORK,
    WORTH,
    Memo,
    Model,
    Stack,
)


@helper(inline=True)
def fits(model: Model, stack: Stack, d: int, p: int) -> bool:
    """Whether a pattern fits into the room of frame d, and between the reservations."""
    room, t = stack.room[d], stack.value[d, TIME]
    for x in range(model.take.shape[1]):
        if model.take[p, x] > 0 and model.take[p, x] > room[x]:
            return False
    for k in range(model.spare.shape[1]):
        load, left = model.take[p, model.classes + k], room[model.classes + k]
        if load > 0 and left - load < max(model.spare[p, k], stack.spare[d, k]):
            return False
    if model.shut[p] != 0:
        end = t + model.asks[p, 0]
        for r in range(model.reserved.shape[0]):
            meets = t < model.reserved[r, 1] and end > model.reserved[r, 0] + LATE
            if (model.shut[p] >> r) & 1 == 1 and meets:
                return False
    return True


@helper(inline=True)
def ready(model: Model, frame: Any, t: float, j: int) -> bool:
    """Whether an item is released at t, and nothing before it waits or runs."""
    if model.runs[j, RELEASE] > t:
        return False
    return model.items[j, BEFORE] & (frame[WAITING] | frame[RUNNING]) == 0


@helper(inline=True)
def eligible(model: Model, frame: Any, t: float, j: int) -> bool:
    """Whether an item waits, and for nothing but room."""
    if (frame[WAITING] >> j) & 1 == 0 or not ready(model, frame, t, j):
        return False
    twin = model.items[j, TWIN]
    return twin < 0 or (frame[WAITING] >> twin) & 1 == 0


@helper(inline=True)
def copy_frame(stack: Stack, d: int) -> None:
    """Make frame d + 1 like frame d."""
    for x in range(stack.frame.shape[1]):
        stack.frame[d + 1, x] = stack.frame[d, x]
    for x in range(stack.room.shape[1]):
        stack.room[d + 1, x] = stack.room[d, x]
    for x in range(stack.value.shape[1]):
        stack.value[d + 1, x] = stack.value[d, x]
    for k in range(stack.spare.shape[1]):
        stack.spare[d + 1, k] = stack.spare[d, k]


@helper(inline=True)
def begin(model: Model, stack: Stack, d: int, j: int, p: int) -> None:
    """Make frame d + 1: item j starts in pattern p."""
    copy_frame(stack, d)
    e = d + 1
    seconds = model.asks[p, 0]
    stack.frame[e, WAITING] ^= 1 << j
    stack.frame[e, RUNNING] |= 1 << j
    digit = 2 + p - model.items[j, FIRST]
    stack.frame[e, KEY + model.items[j, WORD]] += model.items[j, WORTH] * digit
    stack.frame[e, MOVED] = 1
    stack.frame[e, JOB] = j + 1
    stack.frame[e, PATTERN] = 0
    stack.plan[j, START] = stack.value[d, TIME]
    stack.plan[j, END] = stack.value[d, TIME] + seconds
    stack.chosen[j, CHOSEN] = p
    stack.value[e, COST] += model.runs[j, WEIGHT] * (stack.plan[j, END] - model.times[0, 0])
    for x in range(stack.room.shape[1]):
        stack.room[e, x] -= model.take[p, x]
    for k in range(stack.spare.shape[1]):
        stack.spare[e, k] = max(stack.spare[e, k], model.spare[p, k])
    vectors = stack.supply.size
    for v in range(vectors):
        share = model.asks[p, 1 + v]
        stack.value[e, ENERGY + v] += share * seconds - model.energy[j, v]
        stack.value[e, ENERGY + vectors + v] += share


@helper(inline=True)
def next_event(model: Model, stack: Stack, d: int) -> float:
    """Next end, release or change of free units after frame d, s; inf if there is none."""
    t = stack.value[d, TIME]
    at = inf
    for j in range(model.runs.shape[0]):
        if (stack.frame[d, RUNNING] >> j) & 1 == 1:
            at = min(at, stack.plan[j, END])
        elif (stack.frame[d, WAITING] >> j) & 1 == 1 and model.runs[j, RELEASE] > t:
            at = min(at, model.runs[j, RELEASE])
    if stack.frame[d, ROW] + 1 < model.times.shape[0]:
        at = min(at, model.times[stack.frame[d, ROW] + 1, 0])
    return at


@helper(inline=True)
def proceed(model: Model, stack: Stack, d: int, t: float) -> None:
    """Make frame d + 1: the event at t."""
    copy_frame(stack, d)
    e = d + 1
    row = stack.frame[d, ROW]
    vectors = stack.supply.size
    for v in range(vectors):
        idle = 1.0 - stack.value[d, ENERGY + vectors + v] - model.times[row, 1 + v]
        stack.value[e, ENERGY + v] += max(idle, 0.0) * (t - stack.value[d, TIME])
    stack.value[e, TIME] = t
    stack.frame[e, EVENT] = e
    stack.frame[e, JOB] = 0
    stack.frame[e, PATTERN] = 0
    for j in range(model.runs.shape[0]):
        if (stack.frame[d, RUNNING] >> j) & 1 == 1 and stack.plan[j, END] <= t:
            p = stack.chosen[j, CHOSEN]
            stack.frame[e, RUNNING] ^= 1 << j
            digit = 1 + p - model.items[j, FIRST]
            stack.frame[e, KEY + model.items[j, WORD]] -= model.items[j, WORTH] * digit
            stack.frame[e, MOVED] = 1
            for x in range(stack.room.shape[1]):
                stack.room[e, x] += model.take[p, x]
            for v in range(vectors):
                stack.value[e, ENERGY + vectors + v] -= model.asks[p, 1 + v]
    for k in range(stack.spare.shape[1]):
        stack.spare[e, k] = 0
        for j in range(model.runs.shape[0]):
            if (stack.frame[e, RUNNING] >> j) & 1 == 1:
                stack.spare[e, k] = max(stack.spare[e, k], model.spare[stack.chosen[j, CHOSEN], k])
    if row + 1 < model.times.shape[0] and model.times[row + 1, 0] <= t:
        stack.frame[e, ROW] = row + 1
        for x in range(stack.room.shape[1]):
            stack.room[e, x] += model.rows[row + 1, x] - model.rows[row, x]


@helper(inline=True)
def since(model: Model, stack: Stack, d: int, j: int, p: int) -> float:
    """From which event on the pattern has fitted all the time, given that it fits at frame d."""
    before = stack.frame[d, EVENT] - 1
    t = stack.value[d, TIME]
    while before >= 0:
        now = stack.value[before, TIME]
        if not ready(model, stack.frame[before], now, j):
            return t
        if not fits(model, stack, before, p):
            return t
        t = now
        before = stack.frame[before, EVENT] - 1
    return t


@helper(inline=True)
def wasteful(model: Model, stack: Stack, d: int, t: float) -> bool:
    """Whether going on to t leaves out an item that could have run since some event, until t."""
    now = stack.value[d, TIME]
    for j in range(model.runs.shape[0]):
        if eligible(model, stack.frame[d], now, j):
            for p in range(model.items[j, FIRST], model.items[j + 1, FIRST]):
                if model.asks[p, 0] > t - model.times[0, 0]:
                    break
                if not fits(model, stack, d, p):
                    continue
                if since(model, stack, d, j, p) + model.asks[p, 0] <= t:
                    return True
    return False


@helper(inline=True)
def allowed(model: Model, stack: Stack, d: int, j: int, p: int, early: bool) -> bool:
    """Whether an eligible item may start in a pattern at frame d.

    `early` tells whether it was ready at the event before: then it must not have fitted there.
    """
    if not fits(model, stack, d, p):
        return False
    for v in range(stack.supply.size):
        more = model.asks[p, 1 + v] * model.asks[p, 0] - model.energy[j, v]
        if stack.value[d, ENERGY + v] + more > stack.supply[v]:
            return False
    before = stack.frame[d, EVENT] - 1
    return not early or not fits(model, stack, before, p)


@helper(inline=True)
def child(model: Model, stack: Stack, d: int) -> int:
    """Find the next pattern with which an item may start at frame d; -1 if there is none."""
    now = stack.value[d, TIME]
    frame = stack.frame[d]
    before = frame[EVENT] - 1
    j, p = frame[JOB], frame[PATTERN]
    while j < model.runs.shape[0]:
        latest = stack.limits[DEADLINE] - model.runs[j, AFTER]
        if now + model.runs[j, LEAST] <= latest and eligible(model, frame, now, j):
            early = before >= 0 and ready(model, stack.frame[before], stack.value[before, TIME], j)
            for q in range(max(p, model.items[j, FIRST]), model.items[j + 1, FIRST]):
                if now + model.asks[q, 0] > latest:
                    break
                if allowed(model, stack, d, j, q, early):
                    frame[JOB] = j
                    frame[PATTERN] = q + 1
                    return q
        j += 1
        p = 0
    frame[JOB] = j
    return -1


@helper(inline=True)
def keep(model: Model, stack: Stack, d: int) -> None:
    """Everything has started: this is the best plan so far."""
    last = model.times[0, 0]
    for j in range(model.runs.shape[0]):
        stack.plan[j, BEST_START] = stack.plan[j, START]
        stack.plan[j, BEST_END] = stack.plan[j, END]
        stack.chosen[j, BEST_CHOSEN] = stack.chosen[j, CHOSEN]
        last = max(last, stack.plan[j, END])
    stack.counters[FOUND] += 1
    margin = stack.limits[MARGIN]
    if stack.limits[WEIGHTED] > 0.0:
        value = stack.value[d, COST]
        stack.limits[COST_LIMIT] = value - max(margin, value * RELATIVE)
    else:
        value = last - model.times[0, 0]
        stack.limits[DEADLINE] = last - max(margin, value * RELATIVE)


@kernel
def root_bound(model: Model, stack: Stack) -> float:
    """Lower bound of the makespan, or of weighted completion, before anything is decided."""
    if stack.limits[WEIGHTED] > 0.0:
        return least_cost(model, stack, 0, 0) * (1.0 - 1e-12)
    origin = model.times[0, 0]
    bound = 0.0
    for j in range(model.runs.shape[0]):
        bound = max(bound, model.runs[j, RELEASE] - origin + model.runs[j, TAIL])
    for v in range(stack.supply.size):
        left = stack.value[0, ENERGY + v]
        r = 0
        while left > 0.0:
            share = 1.0 - model.times[r, 1 + v]
            length = inf
            if r + 1 < model.times.shape[0]:
                length = model.times[r + 1, 0] - model.times[r, 0]
            if share * length >= left:
                bound = max(bound, model.times[r, 0] - origin + left / share)
                left = 0.0
            else:
                left -= share * length
                r += 1
    return bound * (1.0 - 1e-12)


@kernel
def search(model: Model, stack: Stack, memo: Memo, work: int) -> bool:
    """Explore at most `work` nodes more; True once there is nothing left to explore.

    A node is a start or an event. What is left is kept in `stack` for the next call; on the first
    one frame 0 is the root.
    """
    items = model.runs.shape[0]
    counters, limits = stack.counters, stack.limits
    supplies(model, stack)
    until = counters[WORK] + work
    d = counters[DEPTH]
    while d >= 0 and counters[WORK] < until:
        if stack.frame[d, JOB] > items or hopeless(stack, d):
            d -= 1
            continue
        if stack.frame[d, JOB] < items:
            p = child(model, stack, d)
            if p >= 0:
                counters[WORK] += 1
                begin(model, stack, d, stack.frame[d, JOB], p)
                d += 1
                if stack.value[d, COST] > limits[COST_LIMIT]:
                    d -= 1
                elif stack.frame[d, WAITING] == 0:
                    keep(model, stack, d)
                    supplies(model, stack)
                    d -= 1
                continue
        stack.frame[d, JOB] = items + 1
        t = next_event(model, stack, d)
        if t == inf or wasteful(model, stack, d, t):
            continue
        counters[WORK] += 1
        proceed(model, stack, d, t)
        d += 1
        running = line_up(model, stack, d)
        out = hopeless(stack, d) or (limits[DEADLINE] < inf and too_late(model, stack, d, running))
        if not out and limits[COST_LIMIT] < inf:
            left = limits[COST_LIMIT] - stack.value[d, COST]
            out = least_cost(model, stack, d, running) > left
        if not out and stack.frame[d, MOVED] == 1:
            stack.frame[d, MOVED] = 0
            out = remembered(model, stack, memo, d)
            counters[PRUNED] += out
        if out:
            d -= 1
    counters[DEPTH] = d
    return d < 0
