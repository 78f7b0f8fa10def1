"""List scheduling of moldable jobs that may take less than they want, or what is left over.

At each instant the waiting jobs are looked at in order. One starts on the processors it wants, or,
where at least the share `theta` of them is free, on those (*squeeze*). What nobody can use then is
given to those that start at this instant, up to `phi` times what they want (*stretch*).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import kernel


@kernel
def sift_in(heap_end: Any, heap_procs: Any, size: Any, end: Any, procs: Any) -> None:
    """Add an end to a heap of `size` ends."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if heap_end[parent] <= end:
            break
        heap_end[child], heap_procs[child] = heap_end[parent], heap_procs[parent]
        child = parent
    heap_end[child], heap_procs[child] = end, procs


@kernel
def sift_out(heap_end: Any, heap_procs: Any, size: Any) -> None:
    """Take the first end out of a heap of `size` ends."""
    end, procs = heap_end[size - 1], heap_procs[size - 1]
    size -= 1
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and heap_end[child + 1] < heap_end[child]:
            child += 1
        if heap_end[child] >= end:
            break
        heap_end[parent], heap_procs[parent] = heap_end[child], heap_procs[child]
        parent = child
    if size > 0:
        heap_end[parent], heap_procs[parent] = end, procs


@kernel
def fits_steps(starts: Any, capacity: Any, taken: Any, step: Any, end: Any, procs: Any) -> Any:
    """Whether so many processors are there at every later step before `end`."""
    s = step + 1
    while s < starts.size and starts[s] < end:
        if capacity[s] - taken[s] < procs:
            return False
        s += 1
    return True


@kernel
def take_steps(starts: Any, taken: Any, step: Any, end: Any, procs: Any) -> None:
    """Note that so many processors are in use at every later step before `end`."""
    s = step + 1
    while s < starts.size and starts[s] < end:
        taken[s] += procs
        s += 1


@kernel
def widest(first: Any, procs: Any, i: Any, row: Any, top: Any, free: Any) -> Any:
    """The largest allotment of job i of at most `top` processors, `free` more than `row` takes."""
    wide = row
    while wide + 1 < first[i + 1] and procs[wide + 1] <= top:
        if procs[wide + 1] - procs[row] > free:
            break
        wide += 1
    return wide


@kernel
def list_jobs(
    first: Any,
    procs: Any,
    times: Any,
    weight: Any,
    release: Any,
    starts: Any,
    capacity: Any,
    order: Any,
    target: Any,
    theta: Any,
    phi: Any,
    most: Any,
    wait: Any,
    need: Any,
    taken: Any,
    heap_end: Any,
    heap_procs: Any,
    begun: Any,
    out_row: Any,
    out_start: Any,
    out: Any,
) -> None:
    """Schedule all jobs in this order.

    Parameters
    ----------
    order : array of int, N
    target : array of int, N
        The allotment each job wants, an index into `procs`.
    theta, phi : float
        Squeeze and stretch; 1 is none.
    most : float
        Give up once the weighted completion must pass this.
    wait, need, taken, heap_end, heap_procs, begun : arrays
        Working memory: N ints, N ints, S ints, N floats, N ints, N ints.
    out_row, out_start : arrays, N
        The answers.
    out : array of float, 2
        Makespan and weighted completion; inf where it gave up.
    """
    n = order.size
    out[0], out[1] = 0.0, 0.0
    rest_weight, rest_least, latest = 0.0, 0.0, 0.0
    for x in range(n):
        i = order[x]
        wait[x] = i
        row = target[i]
        # the fewest processors it starts on: the smallest allotment from theta * target on
        low = row
        while low > first[i] and procs[low - 1] >= theta * procs[row]:
            low -= 1
        need[x] = procs[low]
        rest_weight += weight[i]
        rest_least += weight[i] * times[first[i + 1] - 1]
        latest = max(latest, release[i])
    for s in range(starts.size):
        taken[s] = 0
    waiting, size, step, used, now = n, 0, 0, 0, 0.0
    while waiting > 0:
        while step + 1 < starts.size and starts[step + 1] <= now:
            step += 1
        free = capacity[step] - used
        found, kept = 0, 0
        for x in range(waiting):
            i = wait[x]
            if need[x] <= free and release[i] <= now:
                row = target[i]
                while procs[row] > free:
                    row -= 1
                k = procs[row]
                if step + 1 == starts.size or fits_steps(
                    starts, capacity, taken, step, now + times[row], k
                ):
                    begun[found] = i
                    found += 1
                    out_row[i] = row
                    free -= k
                    used += k
                    take_steps(starts, taken, step, now + times[row], k)
                    continue
            if kept < x:
                wait[kept], need[kept] = i, need[x]
            kept += 1
        waiting = kept
        for x in range(found):
            i = begun[x]
            row = out_row[i]
            if free > 0 and phi > 1.0:
                wide = widest(first, procs, i, row, phi * procs[target[i]], free)
                if wide > row:
                    take_steps(starts, taken, step, now + times[row], -procs[row])
                    if fits_steps(starts, capacity, taken, step, now + times[wide], procs[wide]):
                        free -= procs[wide] - procs[row]
                        used += procs[wide] - procs[row]
                        row = wide
                        out_row[i] = row
                    take_steps(starts, taken, step, now + times[row], procs[row])
            end = now + times[row]
            sift_in(heap_end, heap_procs, size, end, procs[row])
            size += 1
            out_start[i] = now
            out[1] += weight[i] * end
            out[0] = max(out[0], end)
            rest_weight -= weight[i]
            rest_least -= weight[i] * times[first[i + 1] - 1]
        if waiting == 0:
            break
        follow = np.inf
        if size > 0:
            follow = heap_end[0]
        if step + 1 < starts.size:
            follow = min(follow, starts[step + 1])
        if latest > now:
            for x in range(waiting):
                if release[wait[x]] > now:
                    follow = min(follow, release[wait[x]])
        if follow == np.inf or out[1] + rest_weight * follow + rest_least > most:
            out[0], out[1] = np.inf, np.inf
            return
        now = follow
        while size > 0 and heap_end[0] <= now:
            used -= heap_procs[0]
            sift_out(heap_end, heap_procs, size)
            size -= 1


@kernel
def draw(state: Any) -> Any:
    """A number in 0..1 by xorshift; `state` holds one int64 other than 0."""
    x = state[0]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    state[0] = x
    return (x >> 11) / float(1 << 52)


@kernel
def improve(
    first: Any,
    procs: Any,
    times: Any,
    weight: Any,
    release: Any,
    starts: Any,
    capacity: Any,
    order: Any,
    target: Any,
    theta: Any,
    phi: Any,
    cap: Any,
    scale: Any,
    trials: Any,
    hot: Any,
    cold: Any,
    state: Any,
    wait: Any,
    need: Any,
    taken: Any,
    heap_end: Any,
    heap_procs: Any,
    begun: Any,
    new_row: Any,
    new_start: Any,
    out: Any,
    best_row: Any,
    best_start: Any,
    best: Any,
) -> Any:
    """Change orders and allotments for less weighted completion, with the makespan held at `cap`.

    Annealing on weighted completion / `scale` + PENALTY * relative excess of the makespan; `hot`
    and `cold` are temperatures in that unit. `order` and `target` are left at the last accepted.
    Returns how many changes were accepted; `best` and its arrays hold the best by that measure.
    """
    n = order.size
    list_jobs(
        first,
        procs,
        times,
        weight,
        release,
        starts,
        capacity,
        order,
        target,
        theta,
        phi,
        np.inf,
        wait,
        need,
        taken,
        heap_end,
        heap_procs,
        begun,
        new_row,
        new_start,
        out,
    )
    current = out[1] / scale + 8.0 * max(out[0] / cap - 1.0, 0.0)
    accepted = 0
    if current < best[2]:
        best[0], best[1], best[2] = out[0], out[1], current
        for i in range(n):
            best_row[i], best_start[i] = new_row[i], new_start[i]
    for trial in range(trials):
        heat = hot * (cold / hot) ** (trial / trials)
        u = draw(state)
        kind = draw(state)
        x = min(int(u * n), n - 1)
        i = order[x]
        old = target[i]
        y = x
        if kind < 0.4:
            step = 1 + int(draw(state) * 3.0)
            if draw(state) < 0.5:
                step = -step
            row = max(first[i], min(first[i + 1] - 1, old + step))
            if row == old:
                continue
            target[i] = row
        else:
            reach = n if kind > 0.9 else max(4, n // 10)
            y = x + int((draw(state) * 2.0 - 1.0) * reach)
            y = max(0, min(n - 1, y))
            if y == x:
                continue
            if kind < 0.65:
                order[x], order[y] = order[y], i
            elif y > x:
                for z in range(x, y):
                    order[z] = order[z + 1]
                order[y] = i
            else:
                for z in range(x, y, -1):
                    order[z] = order[z - 1]
                order[y] = i
        bar = current - heat * np.log(max(draw(state), 1e-300))
        list_jobs(
            first,
            procs,
            times,
            weight,
            release,
            starts,
            capacity,
            order,
            target,
            theta,
            phi,
            bar * scale,
            wait,
            need,
            taken,
            heap_end,
            heap_procs,
            begun,
            new_row,
            new_start,
            out,
        )
        value = out[1] / scale + 8.0 * max(out[0] / cap - 1.0, 0.0)
        if value <= bar:
            current = value
            accepted += 1
            if value < best[2]:
                best[0], best[1], best[2] = out[0], out[1], value
                for j in range(n):
                    best_row[j], best_start[j] = new_row[j], new_start[j]
            continue
        target[i] = old
        if y != x:
            if kind < 0.65:
                order[y] = order[x]
                order[x] = i
            elif y > x:
                for z in range(y, x, -1):
                    order[z] = order[z - 1]
                order[x] = i
            else:
                for z in range(y, x):
                    order[z] = order[z + 1]
                order[x] = i
    return accepted


__all__ = ["improve", "list_jobs", "sift_in", "sift_out"]
