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

*Left shift* (`shiftable`). A job is not started where it fitted, in the same pattern, all the time
since the event before; nor does the search leave an event at which a waiting job fits and would
end by the next event. Shifting that job there keeps all else and ends it sooner.

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
from typing import Any, NamedTuple

from coalloc.policies.kernel.compiled import kernel, part

DEPTH, WORK, STORED, FOUND, PRUNED = 0, 1, 2, 3, 4
DEADLINE, COST_LIMIT, MARGIN, WEIGHTED = 0, 1, 2, 3
RELATIVE = 5e-10
WAYS = 8
"""Places of the memo in which a state may be kept."""
LATE = 5e-7
"""By so much a job may pass the begin of a reservation, seconds: half the checker's tolerance."""


class Model(NamedTuple):
    """The problem: N items, P patterns, C classes, K clusters, V price vectors, T rows."""

    first: Any  # N + 1
    use: Any  # P x C
    load: Any  # P x K
    seconds: Any  # P
    window_first: Any  # P + 1
    window: Any  # W x 2
    release: Any  # N, s
    before: Any  # N, set of items that must be done
    twin: Any  # N, an equal item that must start first, or -1
    weight: Any  # N, the last item of each job has its weight
    tail: Any  # N, s from its start to the end of all that follow it
    after: Any  # N, s from its end on
    least: Any  # N, s, shortest run
    units: Any  # N, fewest units
    price: Any  # P x V
    energy: Any  # N x V
    smith: Any  # V x N, items by rising energy / weight
    row_time: Any  # T, s
    row_free: Any  # T x C
    row_left: Any  # T x K
    blocked: Any  # T x V, share that is not there
    word: Any  # N, the word of the key with its digit
    unit: Any  # N, the worth of that digit


class Stack(NamedTuple):
    """One frame for each start and each event on the way to the present node."""

    time: Any
    row: Any
    event: Any  # frame of the event
    waiting: Any  # set
    running: Any  # set
    key: Any  # x 2
    free: Any  # x C
    left: Any  # x K
    energy: Any  # x V, used, wasted and needed
    busy: Any  # x V, share in use
    cost: Any
    job: Any  # next child
    pattern: Any
    moved: Any  # whether anything started or ended since the last state that was looked up
    start: Any  # N
    end: Any  # N
    chosen: Any  # N, pattern
    order: Any  # N, scratch: what runs by rising end
    best_start: Any  # N
    best_end: Any  # N
    best_chosen: Any  # N
    supply: Any  # V, energy there is before the deadline
    counters: Any  # 6
    limits: Any  # 4


class Memo(NamedTuple):
    """States that were explored."""

    key: Any  # M x 2, zero where empty
    state: Any  # M x (N + 2): time, cost, ends of what runs by rising number


@part
def supplies(model: Model, stack: Stack) -> None:
    """How much energy there is before the deadline, by each price vector."""
    deadline = stack.limits[DEADLINE]
    rows = model.row_time.size
    for v in range(stack.supply.size):
        total = 0.0
        if deadline == inf:
            stack.supply[v] = inf
            continue
        for r in range(rows):
            until = deadline
            if r + 1 < rows:
                until = min(deadline, model.row_time[r + 1])
            if until > model.row_time[r]:
                total += (until - model.row_time[r]) * (1.0 - model.blocked[r, v])
        stack.supply[v] = total * (1.0 + 1e-10)


@part
def fits(model: Model, stack: Stack, d: int, p: int, t: float) -> bool:
    """Whether a pattern fits into what frame d has free, at t."""
    for c in range(model.use.shape[1]):
        if model.use[p, c] > stack.free[d, c]:
            return False
    for k in range(model.load.shape[1]):
        if model.load[p, k] > 0 and model.load[p, k] > stack.left[d, k]:
            return False
    for w in range(model.window_first[p], model.window_first[p + 1]):
        if t < model.window[w, 1] and t + model.seconds[p] > model.window[w, 0] + LATE:
            return False
    return True


@part
def shiftable(model: Model, stack: Stack, e: int, j: int, p: int) -> bool:
    """Whether the pattern could have begun at the event before that of frame e."""
    if e == 0:
        return False
    d = e - 1
    t = stack.time[d]
    if model.release[j] > t or model.before[j] & (stack.waiting[d] | stack.running[d]) != 0:
        return False
    return fits(model, stack, d, p, t)


@part
def eligible(model: Model, stack: Stack, d: int, j: int) -> bool:
    """Whether an item waits, and for nothing but room."""
    if (stack.waiting[d] >> j) & 1 == 0 or model.release[j] > stack.time[d]:
        return False
    if model.before[j] & (stack.waiting[d] | stack.running[d]) != 0:
        return False
    twin = model.twin[j]
    return twin < 0 or (stack.waiting[d] >> twin) & 1 == 0


@part
def line_up(model: Model, stack: Stack, d: int) -> int:
    """Sort what runs by its end; how many."""
    count = 0
    for j in range(model.release.size):
        if (stack.running[d] >> j) & 1 == 1:
            x = count
            while x > 0 and stack.end[stack.order[x - 1]] > stack.end[j]:
                stack.order[x] = stack.order[x - 1]
                x -= 1
            stack.order[x] = j
            count += 1
    return count


@part
def busy_cost(model: Model, stack: Stack, d: int, v: int, running: int) -> float:
    """Least cost of what waits at frame d, by one price vector: mean busy times, plus half runs.

    Times count from the first row on, as all costs do.
    """
    origin = model.row_time[0]
    now = stack.time[d] - origin
    busy = stack.busy[d, v]
    at = 0
    total = 0.0
    for x in range(model.release.size):
        j = model.smith[v, x]
        if (stack.waiting[d] >> j) & 1 == 0 or model.weight[j] <= 0.0:
            continue
        energy = model.energy[j, v]
        rest = energy
        moment = 0.0
        while rest > 0.0:
            rate = 1.0 if at == running else max(1.0 - busy, 1e-9)
            until = inf if at == running else stack.end[stack.order[at]] - origin
            length = rest / rate
            if now + length <= until:
                moment += rest * (now + length / 2.0)
                rest = 0.0
                now += length
            else:
                length = until - now
                moment += rate * length * (now + length / 2.0)
                rest -= rate * length
                now = until
                busy -= model.price[stack.chosen[stack.order[at]], v]
                at += 1
        mean = moment / energy if energy > 0.0 else now
        total += model.weight[j] * (mean + model.least[j] / 2.0)
    return total


@part
def too_dear(model: Model, stack: Stack, d: int, running: int) -> bool:
    """Whether what waits at frame d must cost more than the limit leaves."""
    limit = stack.limits[COST_LIMIT] - stack.cost[d]
    if limit == inf:
        return False
    single = 0.0
    for j in range(model.release.size):
        if (stack.waiting[d] >> j) & 1 == 1:
            start = max(stack.time[d], model.release[j]) - model.row_time[0]
            single += model.weight[j] * (start + model.least[j])
    if single > limit:
        return True
    for v in range(stack.supply.size):
        if busy_cost(model, stack, d, v, running) > limit:
            return True
    return False


@part
def too_late(model: Model, stack: Stack, d: int, running: int) -> bool:
    """Whether something that waits cannot end before the deadline, for want of free units."""
    deadline = stack.limits[DEADLINE]
    if deadline == inf:
        return False
    free = 0
    for c in range(model.use.shape[1]):
        free += stack.free[d, c]
    rows = model.row_time.size
    for j in range(model.release.size):
        if (stack.waiting[d] >> j) & 1 == 0:
            continue
        t = max(stack.time[d], model.release[j])
        found = free
        x, row = 0, stack.row[d]
        while found < model.units[j] and (x < running or row + 1 < rows):
            ends = inf if x == running else stack.end[stack.order[x]]
            if row + 1 < rows and model.row_time[row + 1] <= ends:
                row += 1
                t = max(t, model.row_time[row])
                for c in range(model.use.shape[1]):
                    found += model.row_free[row, c] - model.row_free[row - 1, c]
            else:
                t = max(t, ends)
                for c in range(model.use.shape[1]):
                    found += model.use[stack.chosen[stack.order[x]], c]
                x += 1
        if t + model.tail[j] > deadline:
            return True
    return False


@part
def remembered(model: Model, stack: Stack, memo: Memo, d: int) -> bool:
    """Whether a state at least as good was explored; if not, keep this one."""
    one, two = stack.key[d, 0], stack.key[d, 1]
    mixed = one * 0x9E3779B97F4A7C1 + two * 0x5851F42D4C957F2D
    mixed ^= mixed >> 29
    mixed *= 0x3F58476D1CE4E5B9
    mixed ^= mixed >> 32
    size = memo.key.shape[0]
    first = mixed & (size - 1)
    place = -1
    for way in range(WAYS):
        x = (first + way) & (size - 1)
        if memo.key[x, 0] == 0 and memo.key[x, 1] == 0:
            if place < 0:
                place = x
                stack.counters[STORED] += 1
            break
        if memo.key[x, 0] != one or memo.key[x, 1] != two:
            continue
        better = memo.state[x, 0] <= stack.time[d] and memo.state[x, 1] <= stack.cost[d]
        worse = memo.state[x, 0] >= stack.time[d] and memo.state[x, 1] >= stack.cost[d]
        y = 2
        for j in range(model.release.size):
            if (stack.running[d] >> j) & 1 == 1:
                better = better and memo.state[x, y] <= stack.end[j]
                worse = worse and memo.state[x, y] >= stack.end[j]
                y += 1
        if better:
            return True
        if worse and place < 0:
            place = x
    if place < 0:
        place = (first + stack.counters[WORK] % WAYS) & (size - 1)
    memo.key[place, 0], memo.key[place, 1] = one, two
    memo.state[place, 0], memo.state[place, 1] = stack.time[d], stack.cost[d]
    y = 2
    for j in range(model.release.size):
        if (stack.running[d] >> j) & 1 == 1:
            memo.state[place, y] = stack.end[j]
            y += 1
    return False


@part
def copy_frame(model: Model, stack: Stack, d: int) -> None:
    """Make frame d + 1 like frame d, but for its children."""
    stack.time[d + 1] = stack.time[d]
    stack.row[d + 1] = stack.row[d]
    stack.event[d + 1] = stack.event[d]
    stack.waiting[d + 1] = stack.waiting[d]
    stack.running[d + 1] = stack.running[d]
    stack.key[d + 1, 0] = stack.key[d, 0]
    stack.key[d + 1, 1] = stack.key[d, 1]
    stack.cost[d + 1] = stack.cost[d]
    stack.moved[d + 1] = stack.moved[d]
    for c in range(model.use.shape[1]):
        stack.free[d + 1, c] = stack.free[d, c]
    for k in range(model.load.shape[1]):
        stack.left[d + 1, k] = stack.left[d, k]
    for v in range(stack.supply.size):
        stack.energy[d + 1, v] = stack.energy[d, v]
        stack.busy[d + 1, v] = stack.busy[d, v]


@part
def begin(model: Model, stack: Stack, d: int, j: int, p: int) -> None:
    """Make frame d + 1: item j starts in pattern p."""
    copy_frame(model, stack, d)
    stack.waiting[d + 1] ^= 1 << j
    stack.running[d + 1] |= 1 << j
    stack.key[d + 1, model.word[j]] += model.unit[j] * (2 + p - model.first[j])
    stack.moved[d + 1] = 1
    stack.start[j] = stack.time[d]
    stack.end[j] = stack.time[d] + model.seconds[p]
    stack.chosen[j] = p
    stack.cost[d + 1] += model.weight[j] * (stack.end[j] - model.row_time[0])
    for c in range(model.use.shape[1]):
        stack.free[d + 1, c] -= model.use[p, c]
    for k in range(model.load.shape[1]):
        stack.left[d + 1, k] -= model.load[p, k]
    for v in range(stack.supply.size):
        price = model.price[p, v]
        stack.energy[d + 1, v] += price * model.seconds[p] - model.energy[j, v]
        stack.busy[d + 1, v] += price
    stack.job[d + 1] = j + 1
    stack.pattern[d + 1] = 0


@part
def next_event(model: Model, stack: Stack, d: int) -> float:
    """When something ends, is released or becomes available after frame d; inf never."""
    t = stack.time[d]
    at = inf
    for j in range(model.release.size):
        if (stack.running[d] >> j) & 1 == 1:
            at = min(at, stack.end[j])
        elif (stack.waiting[d] >> j) & 1 == 1 and model.release[j] > t:
            at = min(at, model.release[j])
    if stack.row[d] + 1 < model.row_time.size:
        at = min(at, model.row_time[stack.row[d] + 1])
    return at


@part
def proceed(model: Model, stack: Stack, d: int, t: float) -> None:
    """Make frame d + 1: the event at t."""
    copy_frame(model, stack, d)
    for v in range(stack.supply.size):
        idle = 1.0 - stack.busy[d, v] - model.blocked[stack.row[d], v]
        stack.energy[d + 1, v] += max(idle, 0.0) * (t - stack.time[d])
    stack.time[d + 1] = t
    stack.event[d + 1] = d + 1
    for j in range(model.release.size):
        if (stack.running[d] >> j) & 1 == 1 and stack.end[j] <= t:
            p = stack.chosen[j]
            stack.running[d + 1] ^= 1 << j
            stack.key[d + 1, model.word[j]] -= model.unit[j] * (1 + p - model.first[j])
            stack.moved[d + 1] = 1
            for c in range(model.use.shape[1]):
                stack.free[d + 1, c] += model.use[p, c]
            for k in range(model.load.shape[1]):
                stack.left[d + 1, k] += model.load[p, k]
            for v in range(stack.supply.size):
                stack.busy[d + 1, v] -= model.price[p, v]
    r = stack.row[d]
    if r + 1 < model.row_time.size and model.row_time[r + 1] <= t:
        stack.row[d + 1] = r + 1
        for c in range(model.use.shape[1]):
            stack.free[d + 1, c] += model.row_free[r + 1, c] - model.row_free[r, c]
        for k in range(model.load.shape[1]):
            stack.left[d + 1, k] += model.row_left[r + 1, k] - model.row_left[r, k]
    stack.job[d + 1] = 0
    stack.pattern[d + 1] = 0


@part
def wasteful(model: Model, stack: Stack, d: int, t: float) -> bool:
    """Whether going on to t leaves out an item that would start now and end by then."""
    for j in range(model.release.size):
        if eligible(model, stack, d, j) and stack.time[d] + model.least[j] <= t:
            for p in range(model.first[j], model.first[j + 1]):
                if stack.time[d] + model.seconds[p] > t:
                    break
                if fits(model, stack, d, p, stack.time[d]):
                    return True
    return False


@part
def hopeless(model: Model, stack: Stack, d: int) -> bool:
    """Whether energy needed exceeds what there is."""
    for v in range(stack.supply.size):
        if stack.energy[d, v] > stack.supply[v]:
            return True
    return False


@part
def keep(model: Model, stack: Stack, d: int) -> None:
    """Everything has started: this is the best plan so far."""
    last = 0.0
    for j in range(model.release.size):
        stack.best_start[j] = stack.start[j]
        stack.best_end[j] = stack.end[j]
        stack.best_chosen[j] = stack.chosen[j]
        last = max(last, stack.end[j]) if j > 0 else stack.end[j]
    stack.counters[FOUND] += 1
    if stack.limits[WEIGHTED] > 0.0:
        value = stack.cost[d]
        stack.limits[COST_LIMIT] = value - max(stack.limits[MARGIN], value * RELATIVE)
    else:
        value = last - model.row_time[0]
        stack.limits[DEADLINE] = last - max(stack.limits[MARGIN], value * RELATIVE)
        supplies(model, stack)


@part
def child(model: Model, stack: Stack, d: int) -> int:
    """Find the next pattern with which an item may start at frame d; -1 if there is none."""
    t = stack.time[d]
    j, p = stack.job[d], stack.pattern[d]
    while j < model.release.size:
        if eligible(model, stack, d, j) and t + model.least[j] + model.after[j] <= stack.limits[DEADLINE]:
            p = max(p, model.first[j])
            while p < model.first[j + 1]:
                if t + model.seconds[p] + model.after[j] > stack.limits[DEADLINE]:
                    break
                good = fits(model, stack, d, p, t)
                for v in range(stack.supply.size):
                    if good:
                        asked = model.price[p, v] * model.seconds[p] - model.energy[j, v]
                        good = stack.energy[d, v] + asked <= stack.supply[v]
                if good and not shiftable(model, stack, stack.event[d], j, p):
                    stack.job[d] = j
                    stack.pattern[d] = p + 1
                    return p
                p += 1
        j += 1
        p = 0
    stack.job[d] = j
    return -1


@kernel
def root_bound(model: Model, stack: Stack) -> float:
    """Lower bound of the makespan, or of weighted completion, before anything is decided."""
    origin = model.row_time[0]
    bound = 0.0
    if stack.limits[WEIGHTED] > 0.0:
        for j in range(model.release.size):
            bound += model.weight[j] * (model.release[j] - origin + model.least[j])
        for v in range(stack.supply.size):
            bound = max(bound, busy_cost(model, stack, 0, v, 0))
        return bound
    rows = model.row_time.size
    for j in range(model.release.size):
        bound = max(bound, model.release[j] - origin + model.tail[j])
    for v in range(stack.supply.size):
        left = stack.energy[0, v]
        r = 0
        while left > 0.0:
            share = 1.0 - model.blocked[r, v]
            length = inf if r + 1 == rows else model.row_time[r + 1] - model.row_time[r]
            if share * length >= left:
                bound = max(bound, model.row_time[r] - origin + left / share)
                left = 0.0
            else:
                left -= share * length
                r += 1
    return bound * (1.0 - 1e-12)


@kernel
def search(model: Model, stack: Stack, memo: Memo, work: int) -> bool:
    """Explore at most `work` nodes more; True once there is nothing left to explore.

    On the first call frame 0 is the root. What is left is kept in `stack` for the next call.
    """
    items = model.release.size
    counters = stack.counters
    supplies(model, stack)
    until = counters[WORK] + work
    d = counters[DEPTH]
    while d >= 0 and counters[WORK] < until:
        if stack.job[d] < items and not hopeless(model, stack, d):
            p = child(model, stack, d)
            if p >= 0:
                counters[WORK] += 1
                begin(model, stack, d, stack.job[d], p)
                d += 1
                if stack.waiting[d] == 0:
                    if stack.cost[d] <= stack.limits[COST_LIMIT]:
                        keep(model, stack, d)
                    d -= 1
                continue
        if stack.job[d] > items or hopeless(model, stack, d):
            d -= 1
            continue
        stack.job[d] = items + 1
        t = next_event(model, stack, d)
        if t == inf or wasteful(model, stack, d, t):
            continue
        counters[WORK] += 1
        proceed(model, stack, d, t)
        d += 1
        running = line_up(model, stack, d)
        if (
            hopeless(model, stack, d)
            or too_late(model, stack, d, running)
            or too_dear(model, stack, d, running)
        ):
            d -= 1
        elif stack.moved[d] == 1:
            stack.moved[d] = 0
            if remembered(model, stack, memo, d):
                counters[PRUNED] += 1
                d -= 1
    counters[DEPTH] = d
    return d < 0
