"""The compiled loop of CPA: a process more for the critical task that gains most by it."""

from __future__ import annotations

from typing import NamedTuple

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.record import Floats, Ints, record

EPS = 1e-9


@record
class Tasks(NamedTuple):
    """N tasks and what each may take, S rows of all of them."""

    order: Ints  # N, parents first
    parent_first: Ints  # N + 1
    parent: Ints
    child_first: Ints  # N + 1
    child: Ints
    level: Ints  # N
    procs: Ints  # S
    seconds: Floats  # S
    last: Ints  # N, the row that each task may reach


@record
class Paths(NamedTuple):
    """Working memory."""

    top: Floats  # N, s: longest path to a task
    bottom: Floats  # N, s: longest path from a task's start to the end
    crowd: Ints  # levels, processes of all tasks


@helper(inline=True)
def longest_to(tasks: Tasks, row: Ints, top: Floats) -> float:
    """Find the longest path to each task; the critical path, s."""
    path = 0.0
    for x in range(tasks.order.size):
        v = tasks.order[x]
        longest = 0.0
        for y in range(tasks.parent_first[v], tasks.parent_first[v + 1]):
            u = tasks.parent[y]
            longest = max(longest, top[u] + tasks.seconds[row[u]])
        top[v] = longest
        path = max(path, longest + tasks.seconds[row[v]])
    return path


@helper(inline=True)
def longest_from(tasks: Tasks, row: Ints, bottom: Floats) -> None:
    """Find the longest path from each task's start to the end."""
    for x in range(tasks.order.size - 1, -1, -1):
        v = tasks.order[x]
        longest = 0.0
        for y in range(tasks.child_first[v], tasks.child_first[v + 1]):
            longest = max(longest, bottom[tasks.child[y]])
        bottom[v] = longest + tasks.seconds[row[v]]


@helper(inline=True)
def gains_most(
    tasks: Tasks, row: Ints, paths: Paths, path: float, total: float, by_level: bool
) -> int:
    """The task of the critical path that gains most by its next row; -1 if none may take it."""
    procs, seconds = tasks.procs, tasks.seconds
    chosen, gain = -1, 0.0
    for v in range(row.size):
        r = row[v]
        if r >= tasks.last[v] or paths.top[v] + paths.bottom[v] < path * (1.0 - EPS):
            continue
        if by_level and paths.crowd[tasks.level[v]] + procs[r + 1] - procs[r] > total:
            continue
        mine = (seconds[r] / procs[r] - seconds[r + 1] / procs[r + 1]) / (procs[r + 1] - procs[r])
        if mine > gain:
            chosen, gain = v, mine
    return chosen


@kernel
def grow(tasks: Tasks, total: float, by_level: bool, row: Ints, paths: Paths, out: Floats) -> None:
    """Grow allotments until the path is at most the mean area.

    `total` are the processes of the platform; by level, none may use more than there are (MCPA).
    The allotments in `row` are grown in place; `out` is the length of the critical path and the
    mean area, seconds.
    """
    procs, seconds, crowd = tasks.procs, tasks.seconds, paths.crowd
    for x in range(crowd.size):
        crowd[x] = 0
    area = 0.0
    for v in range(row.size):
        crowd[tasks.level[v]] += procs[row[v]]
        area += procs[row[v]] * seconds[row[v]]
    while True:
        path = longest_to(tasks, row, paths.top)
        out[0], out[1] = path, area / total
        if path <= out[1]:
            return
        longest_from(tasks, row, paths.bottom)
        chosen = gains_most(tasks, row, paths, path, total, by_level)
        if chosen < 0:
            return
        r = row[chosen]
        area += procs[r + 1] * seconds[r + 1] - procs[r] * seconds[r]
        crowd[tasks.level[chosen]] += procs[r + 1] - procs[r]
        row[chosen] = r + 1
