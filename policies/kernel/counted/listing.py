"""Items in an order: none overtakes, or what fits starts, beside the bookings of the first.

EASY books the first item that does not fit now on nodes by name, and nothing that starts beside it
delays it. As many items as the depth says are booked before that, each where it ends first.
"""

from __future__ import annotations

from math import inf
from typing import Any

from coalloc.policies.kernel.counted.fits import (
    AHEAD,
    FIRST,
    GROWN,
    HEAP,
    KEPT,
    LEFT,
    LOOKS,
    PEEK,
    PICKS,
    STAMP,
    USES,
    amount,
    fits,
    has_room,
    place,
    ready_at,
)
from coalloc.policies.kernel.heap import pop, push

STRICT, EVENT, EASY = 0, 1, 2
ROUNDING = 1e-12
WAKE, OPENED = -1, -2
"""Events that begin or end nothing: an item may start, a reservation is over."""


def listing(b: Any, order: Any, queue: Any, mode: int, depth: int, most: int) -> None:
    """Place the items; the head is the first of `queue`.

    `depth`: items that are booked ahead. `most`: nodes and classes that are looked at before the
    rest is left.
    """
    line_up(b, order)
    t, head = 0.0, -1
    for pos in range(b.items if depth > 0 else 0):
        i = queue[pos]
        if depth > 0 and b.pending[i] == 0 and not (b.ready[i] <= t and start_now(b, i, t)):
            b.lost[i] = 0 if book(b, i, t) else 1
            depth -= 1
    while b.count[LOOKS] < most:
        b.count[STAMP] += 1
        if head < 0 or mode == STRICT:
            head = take_first(b, queue, mode, t)
        if mode != STRICT:
            backfill(b, t, most)
        if b.count[LEFT] == 0 or (b.count[HEAP] == 0 and (mode != STRICT or head < 0)):
            return
        if b.count[HEAP] == 0:
            b.lost[head] = 1
            continue
        t = b.heap_key[0]
        b.count[STAMP] += 1
        while b.count[HEAP] > 0 and b.heap_key[0] == t:
            event = pop(b.heap_key, b.heap_id, b.count, HEAP)
            if event >= 0:
                change(b, event // 2, event % 2 == 0, True)
            elif event == OPENED:
                b.count[GROWN] = b.count[STAMP]
        if head >= 0 and b.start[head] <= t:
            head = -1


def prepare(b: Any) -> None:
    """Fill the tables of a board on which what runs is laid."""
    for s in range(b.forms):
        for k in range(b.clusters):
            for v in range(b.node_first[k], b.node_first[k + 1]):
                x = fits(b, s, v, v)
                b.fit[s * b.nodes + v] = x
                b.bars[b.bar_first[s] + k * (b.cap[s] + 1) + x] += 1
                b.mass[s * b.clusters + k] += x
    for i in range(b.items):
        b.waiting[b.item_form[i]] += 1
        b.pending[i] = b.parent_first[i + 1] - b.parent_first[i]
        b.ready[i] = inf
        for k in range(b.clusters):
            b.ready[i] = min(b.ready[i], b.arrival[i * b.clusters + k])
            if b.arrival[i * b.clusters + k] > 0.0:
                note(b, b.arrival[i * b.clusters + k], WAKE)
    for j in range(b.reservations):
        note(b, b.shut_to[j], OPENED)
    for use in range(b.count[USES]):
        note(b, b.use_to[use], 2 * (b.items + use))


def note(b: Any, key: float, value: int) -> None:
    """Put an event on the agenda."""
    push(b.heap_key, b.heap_id, b.count, HEAP, key, value)


def line_up(b: Any, order: Any) -> None:
    """Chain the items of each class in their order."""
    for q in range(b.classes):
        b.class_first[q], b.shortest[q], b.tried[q] = -1, inf, -1
    for pos in range(b.items - 1, -1, -1):
        i = order[pos]
        q = b.item_class[i]
        b.rank[i], b.class_next[i], b.class_first[q] = pos, b.class_first[q], i
        b.shortest[q] = min(b.shortest[q], b.least[i])
    b.count[LEFT], b.count[FIRST] = b.items, 0


def refit(b: Any, s: int, form: int, v: int, row: int) -> int:
    """Count anew what a node takes of a form; how many processes more."""
    k = 0
    while b.node_first[k + 1] <= v:
        k += 1
    at, old, x = (
        b.bar_first[form] + k * (b.cap[s] + 1),
        b.fit[form * b.nodes + v],
        fits(b, s, v, row),
    )
    if x != old:
        b.bars[at + old] -= 1
        b.bars[at + x] += 1
        b.fit[form * b.nodes + v] = x
        b.mass[form * b.clusters + k] += x - old
    return int(x - old)


def change(b: Any, entry: int, ends: bool, booked: bool) -> None:
    """Let an entry, which is an item or what runs, begin, booked or not, or end."""
    first = b.entry_first[entry]
    for use in range(first, first + b.entry_count[entry]):
        v = b.use_node[use]
        for r in range(b.resources):
            taken = b.use_take[use * b.resources + r]
            b.free[v * b.resources + r] += taken if ends else -taken
        if ends:
            unlink(b, v, use)
        elif booked:
            unbook(b, v)
            b.count[AHEAD] -= 1 if use == first else 0
        if v >= b.nodes:
            b.count[GROWN] = b.count[STAMP] if ends else b.count[GROWN]
            continue
        for s in range(b.forms):
            x = b.fit[s * b.nodes + v]
            follows = x < b.cap[s] if ends else x > 0
            if follows and b.waiting[s] > 0 and refit(b, s, s, v, v) > 0:
                b.grown[s] = b.count[STAMP]


def unlink(b: Any, v: int, use: int) -> None:
    """Take a use off the list of its row."""
    before = b.use_head[v]
    if before == use:
        b.use_head[v] = b.use_next[use]
        return
    while b.use_next[before] != use:
        before = b.use_next[before]
    b.use_next[before] = b.use_next[use]


def unbook(b: Any, v: int) -> None:
    """One use to come of a row less."""
    b.booked[v] -= 1
    if b.booked[v] == 0:
        b.soonest[0] = inf if b.count[KEPT] == 1 else b.soonest[0]
        j = 0
        while b.kept[j] != v:
            j += 1
        b.count[KEPT] -= 1
        b.kept[j] = b.kept[b.count[KEPT]]


def use_of(b: Any, v: int, i: int, now: float) -> int:
    """A new use of a row by an item, of nothing yet; where its amounts stand."""
    use = b.count[USES]
    b.count[USES] = use + 1
    b.use_node[use], b.use_from[use], b.use_to[use] = v, b.start[i], b.end[i]
    b.use_next[use], b.use_head[v] = b.use_head[v], use
    b.entry_count[i] += 1
    if b.start[i] > now:
        b.soonest[0] = min(b.soonest[0], b.start[i])
        if b.booked[v] == 0:
            b.kept[b.count[KEPT]] = v
            b.count[KEPT] += 1
        b.booked[v] += 1
    return int(use * b.resources)


def commit(b: Any, i: int, t: float, e: float, now: float) -> None:
    """Give an item the nodes that are picked, with its load on links and its licences."""
    s, total, procs, k = b.item_form[i], b.clusters, 0, 0
    b.start[i], b.end[i], b.entry_first[i], b.home[i] = t, e, b.count[USES], -1
    for c in range(total):
        b.part[c] = 0
    for j in range(b.count[PICKS]):
        v, n = b.pick_node[j], b.pick_procs[j]
        at = use_of(b, v, i, now)
        b.use_procs[at // b.resources] = n
        for r in range(b.resources):
            b.use_take[at + r] = amount(b, s, v, n, r)
        while b.node_first[k + 1] <= v:
            k += 1
        b.part[k] += n
        b.home[i] = k
        procs += n
    for c in range(total):
        n, load = b.part[c], 0.0
        if 0 < n < procs:
            load = b.item_gbps[i] * n * (procs - n) / (procs - 1)
            if b.wide[i] >= 0:
                load = b.wide_gbps[b.wide[i] * total + c]
        if load > 0.0:
            b.use_take[use_of(b, b.nodes + b.licences + c, i, now)] = load
    for j in range(b.licences):
        need, c = b.form_pool[s * b.licences + j], b.pool_cluster[j]
        if need > 0.0 and (c < 0 or b.part[c] > 0):
            b.use_take[use_of(b, b.nodes + j, i, now)] = need
    b.waiting[s] -= 1
    b.count[LEFT] -= 1
    b.count[AHEAD] += 1 if t > now else 0
    note(b, e, 2 * i)
    if t > now:
        note(b, t, 2 * i + 1)
    else:
        change(b, i, False, False)
    for j in range(b.child_first[i], b.child_first[i + 1]):
        child = b.child[j]
        b.pending[child] -= 1
        if b.pending[child] == 0:
            b.ready[child] = inf
            for k in range(total):
                ready = ready_at(b, child, k)
                b.ready[child] = min(b.ready[child], ready)
                note(b, ready, WAKE)


def take_first(b: Any, queue: Any, mode: int, t: float) -> int:
    """Start what fits now from the front; the first that does not, which EASY books, or -1."""
    for pos in range(b.count[FIRST], b.items):
        i = queue[pos]
        if b.start[i] == b.start[i] or b.lost[i] == 1:
            b.count[FIRST] += 1 if pos == b.count[FIRST] else 0
        elif b.pending[i] == 0 and b.ready[i] <= t and not start_now(b, i, t):
            if mode == EVENT:
                return -1
            if mode == STRICT or book(b, i, t):
                return int(i)
            b.lost[i] = 1
    return -1


def start_now(b: Any, i: int, t: float) -> bool:
    """Start an item on the most processes for which there is room; whether there is."""
    q, s = b.item_class[i], b.item_form[i]
    if max(b.grown[s], b.count[GROWN]) > b.tried[q]:
        b.tried[q], b.failed[q] = b.count[STAMP], inf
    if b.least[i] >= b.failed[q]:
        return False
    for m in range(b.widest[i], b.mode_first[i] - 1, -1):
        e = place(b, i, m, t, s)
        if e < inf:
            commit(b, i, t, e, t)
            return True
    b.failed[q] = b.least[i] if may_fit(b, i) else 0.0
    ahead = b.soonest[0] - t
    if b.count[AHEAD] == 1 and b.reservations == 0 and b.failed[q] > ahead:
        b.failed[q] = ahead * (1.0 + ROUNDING)  # all that meet the one booking fare alike
    return False


def may_fit(b: Any, i: int) -> bool:
    """Whether there is room for an item now, whatever is booked and however long it runs."""
    s, n = b.item_form[i], b.procs[b.mode_first[i]]
    for k in range(b.clusters):
        if has_room(b, s, s, k, n) > 0:
            return True
    return bool(b.splits[i] == 1)


def book(b: Any, i: int, now: float) -> bool:
    """Book the place where an item ends first; whether there is one."""
    best, chosen = inf, -1
    for m in range(b.mode_first[i], b.widest[i] + 1):
        t, e = seek(b, i, m, now, best)
        if e < best:
            best, chosen = e, m
    if chosen >= 0:
        t, e = seek(b, i, chosen, now, inf)
        commit(b, i, t, e, now)
    return chosen >= 0


def seek(b: Any, i: int, m: int, t: float, before: float) -> tuple[float, float]:
    """Choose nodes for the first start of a mode: that and its end; inf where it is not before."""
    s, form, rows = b.item_form[i], b.forms, b.nodes + b.licences + b.clusters
    b.count[LOOKS] += 3 * b.nodes + b.count[HEAP]
    for v in range(b.nodes):
        b.fit[form * b.nodes + v] = b.fit[s * b.nodes + v]
    for x in range(b.nodes * b.resources):
        b.free[rows * b.resources + x] = b.free[x]
    for x in range(b.clusters * (b.cap[s] + 1)):
        b.bars[b.bar_first[form] + x] = b.bars[b.bar_first[s] + x]
    for k in range(b.clusters):
        b.mass[form * b.clusters + k] = b.mass[s * b.clusters + k]
    b.count[PEEK] = b.count[HEAP]
    for j in range(b.count[HEAP]):
        b.peek_key[j], b.peek_id[j] = b.heap_key[j], b.heap_id[j]
    while t + b.least[i] < before:
        if t >= b.ready[i]:
            e = place(b, i, m, t, form)
            if e < inf:
                return t, e
        if b.count[PEEK] == 0:
            break
        t = b.peek_key[0]
        while b.count[PEEK] > 0 and b.peek_key[0] == t:
            event = pop(b.peek_key, b.peek_id, b.count, PEEK)
            if event < 0:
                continue
            first = b.entry_first[event // 2]
            for use in range(first, first + b.entry_count[event // 2]):
                v = b.use_node[use]
                if v < b.nodes:
                    for r in range(b.resources):
                        taken = b.use_take[use * b.resources + r]
                        taken = taken if event % 2 == 0 else -taken
                        b.free[(rows + v) * b.resources + r] += taken
                    refit(b, s, form, v, rows + v)
    return inf, inf


def following(b: Any, i: int) -> int:
    """The next item of a class that has no place."""
    j = b.class_next[i]
    while j >= 0 and b.start[j] == b.start[j]:
        j = b.class_next[j]
    b.class_next[i] = j
    return int(j)


def backfill(b: Any, t: float, most: int) -> None:
    """Start what fits now, in the order; classes of which nothing can fit are passed over."""
    b.count[PEEK] = 0
    b.count[LOOKS] += b.classes
    for q in range(b.classes):
        i = b.class_first[q]
        if i >= 0 and b.start[i] == b.start[i]:
            i = b.class_first[q] = following(b, i)
        if i < 0:
            continue
        if max(b.grown[b.item_form[i]], b.count[GROWN]) > b.tried[q]:
            b.tried[q], b.failed[q] = b.count[STAMP], inf if may_fit(b, i) else 0.0
        if b.shortest[q] < b.failed[q]:
            b.passed[q] = inf
            push(b.peek_key, b.peek_id, b.count, PEEK, float(b.rank[i]), i)
    while b.count[PEEK] > 0 and b.count[LOOKS] < most:
        i = pop(b.peek_key, b.peek_id, b.count, PEEK)
        b.count[LOOKS] += 10
        q, later = b.item_class[i], following(b, i)
        if b.start[i] != b.start[i]:
            may = b.pending[i] == 0 and b.ready[i] <= t and b.lost[i] == 0
            if not (may and start_now(b, i, t)):
                b.passed[q] = min(b.passed[q], b.least[i])
        if later < 0:
            b.shortest[q] = b.passed[q]
        elif b.failed[q] > 0.0:
            push(b.peek_key, b.peek_id, b.count, PEEK, float(b.rank[later]), later)
