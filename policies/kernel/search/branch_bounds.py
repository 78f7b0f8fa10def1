"""Bounds of the exact search: energy by price vectors, tails, weighted completion; compiled.

See `branch_and_bound` for what they rest on.
"""

from __future__ import annotations

from math import inf

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.search.branch_state import (
    BY_END,
    CHOSEN,
    DEADLINE,
    END,
    ENERGY,
    LEAST,
    RELEASE,
    ROW,
    RUNNING,
    TAIL,
    TIME,
    UNITS,
    WAITING,
    WEIGHT,
    Model,
    Stack,
)


@helper(inline=True)
def hopeless(stack: Stack, d: int) -> bool:
    """Whether the energy needed exceeds what there is."""
    most = 0.0
    for v in range(stack.supply.size):
        most = max(most, stack.value[d, ENERGY + v] - stack.supply[v])
    return most > 0.0


@helper(inline=True)
def line_up(model: Model, stack: Stack, d: int) -> int:
    """Sort what runs by its end; how many."""
    count = 0
    for j in range(model.runs.shape[0]):
        if (stack.frame[d, RUNNING] >> j) & 1 == 1:
            x = count
            while x > 0 and stack.plan[stack.chosen[x - 1, BY_END], END] > stack.plan[j, END]:
                stack.chosen[x, BY_END] = stack.chosen[x - 1, BY_END]
                x -= 1
            stack.chosen[x, BY_END] = j
            count += 1
    return count


@helper(inline=True)
def busy_cost(model: Model, stack: Stack, d: int, v: int, running: int) -> float:
    """Least cost of what waits at frame d, by one price vector: mean busy times, plus half runs.

    Times count from the first row on, as all costs do.
    """
    origin = model.times[0, 0]
    now = stack.value[d, TIME] - origin
    busy = stack.value[d, ENERGY + stack.supply.size + v]
    at = 0
    total = 0.0
    for x in range(model.runs.shape[0]):
        j = model.smith[v, x]
        if (stack.frame[d, WAITING] >> j) & 1 == 0 or model.runs[j, WEIGHT] <= 0.0:
            continue
        energy = model.energy[j, v]
        rest = energy
        moment = 0.0
        while rest > 0.0:
            rate, until = 1.0, inf
            if at < running:
                rate = max(1.0 - busy, 1e-9)
                until = stack.plan[stack.chosen[at, BY_END], END] - origin
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
                busy -= model.asks[stack.chosen[stack.chosen[at, BY_END], CHOSEN], 1 + v]
                at += 1
        mean = moment / energy if energy > 0.0 else now
        total += model.runs[j, WEIGHT] * (mean + model.runs[j, LEAST] / 2.0)
    return total


@helper(inline=True)
def least_cost(model: Model, stack: Stack, d: int, running: int) -> float:
    """Least cost of what waits at frame d."""
    best = 0.0
    for j in range(model.runs.shape[0]):
        if (stack.frame[d, WAITING] >> j) & 1 == 1:
            start = max(stack.value[d, TIME], model.runs[j, RELEASE]) - model.times[0, 0]
            best += model.runs[j, WEIGHT] * (start + model.runs[j, LEAST])
    for v in range(stack.supply.size):
        best = max(best, busy_cost(model, stack, d, v, running))
    return best


@helper(inline=True)
def too_late(model: Model, stack: Stack, d: int, running: int) -> bool:
    """Whether something that waits cannot end before the deadline, for want of free units."""
    free = 0
    for c in range(model.classes):
        free += stack.room[d, c]
    rows = model.times.shape[0]
    for j in range(model.runs.shape[0]):
        if (stack.frame[d, WAITING] >> j) & 1 == 0:
            continue
        t = max(stack.value[d, TIME], model.runs[j, RELEASE])
        found = free
        x, row = 0, stack.frame[d, ROW]
        while found < model.items[j, UNITS] and (x < running or row + 1 < rows):
            ends = inf if x == running else stack.plan[stack.chosen[x, BY_END], END]
            if row + 1 < rows and model.times[row + 1, 0] <= ends:
                row += 1
                t = max(t, model.times[row, 0])
                for c in range(model.classes):
                    found += model.rows[row, c] - model.rows[row - 1, c]
            else:
                t = max(t, ends)
                for c in range(model.classes):
                    found += model.take[stack.chosen[stack.chosen[x, BY_END], CHOSEN], c]
                x += 1
        if t + model.runs[j, TAIL] > stack.limits[DEADLINE]:
            return True
    return False


@helper(inline=True)
def supplies(model: Model, stack: Stack) -> None:
    """Energy available before the deadline, by each price vector."""
    deadline = stack.limits[DEADLINE]
    rows = model.times.shape[0]
    for v in range(stack.supply.size):
        total = 0.0
        for r in range(rows):
            until = deadline
            if r + 1 < rows:
                until = min(deadline, model.times[r + 1, 0])
            if until > model.times[r, 0] and model.times[r, 1 + v] < 1.0:
                total += (until - model.times[r, 0]) * (1.0 - model.times[r, 1 + v])
        stack.supply[v] = total * (1.0 + 1e-10)
