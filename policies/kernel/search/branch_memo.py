"""The memo of states that the exact search has been in; compiled.

See `branch_and_bound` for what dominance rests on.
"""

from __future__ import annotations

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.search.branch_state import (
    COST,
    END,
    KEY,
    RUNNING,
    STORED,
    TIME,
    WAYS,
    WORK,
    Memo,
    Model,
    Stack,
)


@helper(inline=True)
def remembered(model: Model, stack: Stack, memo: Memo, d: int) -> bool:
    """Whether a state at least as good was explored; if not, keep this one."""
    one, two = stack.frame[d, KEY], stack.frame[d, KEY + 1]
    time, cost = stack.value[d, TIME], stack.value[d, COST]
    mixed = one * 0x9E3779B97F4A7C1 + two * 0x5851F42D4C957F2D
    mixed ^= mixed >> 29
    mixed *= 0x3F58476D1CE4E5B9
    mixed ^= mixed >> 32
    last = memo.key.shape[0] - 1
    place = (mixed + stack.counters[WORK] % WAYS) & last
    open_place = False
    for way in range(WAYS):
        x = (mixed + way) & last
        if memo.key[x, 0] == 0 and memo.key[x, 1] == 0:
            if not open_place:
                place = x
                stack.counters[STORED] += 1
            break
        if memo.key[x, 0] != one or memo.key[x, 1] != two:
            continue
        better = memo.state[x, 0] <= time and memo.state[x, 1] <= cost
        worse = memo.state[x, 0] >= time and memo.state[x, 1] >= cost
        y = 2
        for j in range(model.runs.shape[0]):
            if (stack.frame[d, RUNNING] >> j) & 1 == 1:
                better = better and memo.state[x, y] <= stack.plan[j, END]
                worse = worse and memo.state[x, y] >= stack.plan[j, END]
                y += 1
        if better:
            return True
        if worse and not open_place:
            place = x
            open_place = True
    memo.key[place, 0], memo.key[place, 1] = one, two
    memo.state[place, 0], memo.state[place, 1] = time, cost
    y = 2
    for j in range(model.runs.shape[0]):
        if (stack.frame[d, RUNNING] >> j) & 1 == 1:
            memo.state[place, y] = stack.plan[j, END]
            y += 1
    return False
