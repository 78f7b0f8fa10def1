"""Moldable jobs put into a profile of free processors, taken out, and put elsewhere: compiled.

A job goes where it costs least at prices of processor time: w (s + p) + k * integral of the prices
over its run. The cheapest start of each allotment in an empty profile is known (`price_rows`); from
there the nearest free place is sought on both sides, allotments that cannot be cheaper are passed.

`improve` takes jobs out that run near each other and puts them back, again and again, accepting
what is better, or worse by little (annealing).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalloc.policies.kernel.jit import alone, inlined

MOST = 24
"""Jobs that are taken out at once, at most."""
LATE = 2.0
"""Weight of a makespan's relative excess, in shares of the weighted completion."""


@inlined
def draw(state: Any) -> Any:
    """A number in 0..1 by xorshift; `state` holds one int64 other than 0."""
    x = state[0]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    state[0] = x
    return (x >> 11) / float(1 << 52)


@inlined
def row_at(edge: Any, size: Any, t: Any) -> Any:
    """The row of the profile that holds at t."""
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) >> 1
        if edge[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@inlined
def book(edge: Any, free: Any, size: Any, s: Any, e: Any, k: Any) -> Any:
    """Take k processors from s to e, or give back -k; returns the number of rows."""
    a = row_at(edge, size, s)
    if edge[a] < s:
        a += 1
        for x in range(size, a, -1):
            edge[x], free[x] = edge[x - 1], free[x - 1]
        edge[a], free[a] = s, free[a - 1]
        size += 1
    b = a
    while b + 1 < size and edge[b + 1] < e:
        free[b] -= k
        b += 1
    # b is the last row before e
    if b + 1 == size or edge[b + 1] > e:
        for x in range(size, b + 1, -1):
            edge[x], free[x] = edge[x - 1], free[x - 1]
        edge[b + 1], free[b + 1] = e, free[b]
        size += 1
    free[b] -= k
    if free[b + 1] == free[b]:
        size -= 1
        for x in range(b + 1, size):
            edge[x], free[x] = edge[x + 1], free[x + 1]
    if a > 0 and free[a] == free[a - 1]:
        size -= 1
        for x in range(a, size):
            edge[x], free[x] = edge[x + 1], free[x + 1]
    return size


@inlined
def cost_at(w: Any, k: Any, p: Any, s: Any, share: Any, price: Any, total: Any, width: Any) -> Any:
    """What k processors from s for p seconds cost, on slots of one width."""
    slots = price.size
    e = s + p
    g, h = int(s / width), int(e / width)
    before, after = total[slots], total[slots]
    if g < slots:
        before = total[g] + price[g] * (s - g * width)
    if h < slots:
        after = total[h] + price[h] * (e - h * width)
    return w * e + share * k * (after - before)


@inlined
def place(
    first: Any,
    procs: Any,
    times: Any,
    least: Any,
    ideal: Any,
    cheapest: Any,
    price: Any,
    total: Any,
    width: Any,
    i: Any,
    w: Any,
    r: Any,
    share: Any,
    cap: Any,
    edge: Any,
    free: Any,
    size: Any,
    answer: Any,
) -> Any:
    """Find job i's place: writes start and end, returns the allotment."""
    best, found = np.inf, -1
    for x in range(first[i] - 1, first[i + 1]):
        a = cheapest[i] if x < first[i] else x
        if least[a] >= best:
            continue
        k, p = procs[a], times[a]
        wanted = min(max(ideal[a], r), cap - p)
        if wanted < r:
            continue
        s, y, meets = wanted, row_at(edge, size, wanted), True
        while True:
            if free[y] < k:
                y += 1
                meets = False
                if y >= size:
                    break
                s = edge[y]
                if s + p > cap or w * (s + p) >= best:
                    break
            elif y + 1 >= size or edge[y + 1] >= s + p:
                value = cost_at(w, k, p, s, share, price, total, width)
                if value < best:
                    best, found = value, a
                    answer[0], answer[1] = s, s + p
                break
            else:
                y += 1
        if meets:
            continue
        e = wanted + p
        s = wanted
        y = row_at(edge, size, e)
        if edge[y] >= e and y > 0:
            y -= 1
        while True:
            if free[y] < k:
                e = edge[y]
                s = e - p
                if s + p > e:
                    s -= 2.0**-52 * e
                if s < r:
                    break
                y -= 1
            elif edge[y] <= s:
                value = cost_at(w, k, p, s, share, price, total, width)
                if value < best:
                    best, found = value, a
                    answer[0], answer[1] = s, s + p
                break
            else:
                y -= 1
    if found >= 0:
        return found
    # nowhere below the cap: where it ends first
    for a in range(first[i], first[i + 1]):
        k, p = procs[a], times[a]
        s, y = r, row_at(edge, size, r)
        while s + p < best:
            if free[y] < k:
                y += 1
                if y >= size:
                    break
                s = edge[y]
            elif y + 1 >= size or edge[y + 1] >= s + p:
                best, found = s + p, a
                answer[0], answer[1] = s, s + p
            else:
                y += 1
    return found


@alone
def insert_all(
    first: Any,
    procs: Any,
    times: Any,
    weight: Any,
    release: Any,
    least: Any,
    ideal: Any,
    cheapest: Any,
    price: Any,
    total: Any,
    width: Any,
    order: Any,
    share: Any,
    cap: Any,
    edge: Any,
    free: Any,
    rows: Any,
    answer: Any,
    row: Any,
    start: Any,
    end: Any,
) -> None:
    """Place all jobs in this order into a profile.

    Parameters
    ----------
    least, ideal : arrays, A
        Cost and start of each allotment where nothing is in the way.
    cheapest : array of int, N
        The allotment to look at first.
    price, total, width : arrays, G and G + 1, and float
        As in `price_jobs`; all slots are of one width.
    share : float
        What part of the prices is paid.
    edge, free, rows : arrays
        The profile: times from which so many processors are free, and how many rows there are.
    row, start, end : arrays, N
        The answers.
    """
    for x in range(order.size):
        i = order[x]
        a = place(
            first,
            procs,
            times,
            least,
            ideal,
            cheapest,
            price,
            total,
            width,
            i,
            weight[i],
            release[i],
            share,
            cap,
            edge,
            free,
            rows[0],
            answer,
        )
        row[i], start[i], end[i] = a, answer[0], answer[1]
        rows[0] = book(edge, free, rows[0], start[i], end[i], procs[a])


@alone
def settle(
    procs: Any,
    times: Any,
    release: Any,
    order: Any,
    row: Any,
    edge: Any,
    free: Any,
    rows: Any,
    start: Any,
    end: Any,
) -> None:
    """Place all jobs in this order into a profile, each on its allotment as early as it fits."""
    for x in range(order.size):
        i = order[x]
        k, p = procs[row[i]], times[row[i]]
        s = release[i]
        y = row_at(edge, rows[0], s)
        while y < rows[0]:
            if free[y] < k:
                y += 1
                s = edge[y]
            elif y + 1 >= rows[0] or edge[y + 1] >= s + p:
                break
            else:
                y += 1
        start[i], end[i] = s, s + p
        rows[0] = book(edge, free, rows[0], s, s + p, k)


@inlined
def judge(weight: Any, end: Any, cap: Any, scale: Any, out: Any) -> Any:
    """Writes makespan and weighted completion; what is minimised: the second, and delays."""
    out[0], out[1] = 0.0, 0.0
    late = 0.0
    for i in range(end.size):
        out[0] = max(out[0], end[i])
        out[1] += weight[i] * end[i]
        late += max(end[i] - cap, 0.0)
    return out[1] + scale * (LATE * max(out[0] / cap - 1.0, 0.0) + 2.0 * late / (cap * end.size))


@inlined
def choose(start: Any, end: Any, cap: Any, makespan: Any, many: Any, state: Any, taken: Any) -> Any:
    """Pick jobs that run near each other, the first at random, or late; returns how many."""
    n = start.size
    seed = min(int(draw(state) * n), n - 1)
    if makespan > cap and draw(state) < 0.4:
        for x in range(n):
            j = (seed + x) % n
            if end[j] > cap:
                seed = j
                break
    wanted = 2 + int(draw(state) * draw(state) * (many - 1))
    at = start[seed] + draw(state) * (min(end[seed], cap) - start[seed])
    reach = 0.2 * cap * draw(state)
    taken[0], got = seed, 1
    for _ in range(8 * wanted):
        j = min(int(draw(state) * n), n - 1)
        if start[j] > at + reach or end[j] < at - reach:
            continue
        known = False
        for z in range(got):
            known = known or taken[z] == j
        if not known:
            taken[got] = j
            got += 1
            if got >= wanted:
                break
    return got


@alone
def improve(
    first: Any,
    procs: Any,
    times: Any,
    weight: Any,
    release: Any,
    least: Any,
    ideal: Any,
    cheapest: Any,
    price: Any,
    total: Any,
    width: Any,
    cap: Any,
    scale: Any,
    trials: Any,
    hot: Any,
    cold: Any,
    many: Any,
    state: Any,
    edge: Any,
    free: Any,
    rows: Any,
    answer: Any,
    row: Any,
    start: Any,
    end: Any,
    taken: Any,
    were: Any,
    best_row: Any,
    best_start: Any,
    measures: Any,
    best: Any,
) -> Any:
    """Take a few jobs out and put them back, so many times; returns the placements tried.

    Parameters
    ----------
    cap, scale : float
        What the makespan should not pass, and what passing it is measured in.
    hot, cold : float
        Temperatures at the begin and end.
    many : int
        Jobs at once, at most.
    state : array of int, 1
        Of the random numbers; not 0.
    row, start, end : arrays, N
        The schedule in the profile, the last accepted on return.
    taken, were : arrays of int and float, 2 x MOST and 3 x MOST
        Working memory.
    best_row, best_start : arrays, N
        The best schedule.
    """
    n = row.size
    current = judge(weight, end, cap, scale, measures)
    best[0] = current
    for i in range(n):
        best_row[i], best_start[i] = row[i], start[i]
    work = 0
    jobs, old_row = taken[0], taken[1]
    old_start, old_end, key = were[0], were[1], were[2]
    for trial in range(trials):
        got = choose(start, end, cap, measures[0], many, state, jobs)
        work += got
        rule, u = draw(state), draw(state)
        share = 1.0 if u < 0.5 else 0.6 if u < 0.8 else 0.3
        for x in range(got):
            j = jobs[x]
            u = draw(state)
            key[x] = u
            if rule > 0.7:
                key[x] = -weight[j] / (procs[row[j]] * times[row[j]]) * (0.5 + u)
            elif rule > 0.4:
                key[x] = -procs[row[j]] * times[row[j]] * (0.5 + u)
        for x in range(got):
            z = x
            for y in range(x + 1, got):
                if key[y] < key[z]:
                    z = y
            jobs[x], jobs[z] = jobs[z], jobs[x]
            key[x], key[z] = key[z], key[x]
        for step in range(2):
            # out with them, and in again; or, where that is worse, back as they were
            for x in range(got):
                j = jobs[x]
                rows[0] = book(edge, free, rows[0], start[j], end[j], -procs[row[j]])
                if step == 0:
                    old_row[x], old_start[x], old_end[x] = row[j], start[j], end[j]
            same = True
            for x in range(got):
                j = jobs[x]
                if step == 0:
                    row[j] = place(
                        first,
                        procs,
                        times,
                        least,
                        ideal,
                        cheapest,
                        price,
                        total,
                        width,
                        j,
                        weight[j],
                        release[j],
                        share,
                        cap,
                        edge,
                        free,
                        rows[0],
                        answer,
                    )
                    start[j], end[j] = answer[0], answer[1]
                    same = same and start[j] == old_start[x] and row[j] == old_row[x]
                else:
                    row[j], start[j], end[j] = old_row[x], old_start[x], old_end[x]
                rows[0] = book(edge, free, rows[0], start[j], end[j], procs[row[j]])
            if step == 1:
                judge(weight, end, cap, scale, measures)
                break
            if same:
                break
            value = judge(weight, end, cap, scale, measures)
            heat = hot * (cold / hot) ** (trial / trials)
            if value <= current - heat * np.log(max(draw(state), 1e-300)):
                current = value
                if value < best[0]:
                    best[0] = value
                    for j in range(n):
                        best_row[j], best_start[j] = row[j], start[j]
                break
    return work


__all__ = ["MOST", "improve", "insert_all", "settle"]
