"""Fits of items on nodes, and nodes for one at one start, on one cluster or several.

`Board` holds the tables: V nodes by cluster, K clusters, L licences, R resources (slots and memory
first), S forms, N items, Q classes of items that fit or not together, W = V + L + K rows.
"""

from __future__ import annotations

import collections
from math import inf
from typing import Any

MEMORY = 1
UNLIMITED = 1e18
"""Amount of what is not counted."""
SHORTEST = 5e-7
"""No run is planned shorter, seconds."""
TOLERANCE = 5e-10
"""How far loads may pass a link, relative: rounding."""
SEEN, PICKS, KEPT, STAMP, GROWN, USES, HEAP, PEEK, FIRST, LEFT, AHEAD, LOOKS = range(12)
"""Places in ``count``."""

NUMBERS = "nodes clusters licences resources forms items classes kinds reservations rows width"
FLOATS = (
    "power level shut_from shut_to latency gbps inner per_proc per_node form_pool item_gbps least"
    " limit arrival wide_gbps scaled fixed comm parent_gbit free use_from use_to use_take heap_key"
    " peek_key start end ready failed shortest passed soonest"
)
INTS = (
    "cpus core kind node_first level_first shut_first shut form_cpus cap low high alone"
    " all_memory form_kind form_open pool_cluster bar_first item_form item_class splits wide"
    " wide_procs mode_first procs parent_first parent child_first child count fit mass bars grown"
    " waiting booked kept use_head use_next use_node use_procs entry_first entry_count heap_id"
    " peek_id room seen bar chosen pick_node pick_procs part pending lost home widest rank"
    " class_first class_next tried"
)
_named_tuple: Any = collections.namedtuple
NAMES = (*NUMBERS.split(), "size", *FLOATS.split(), *INTS.split())
Board: Any = _named_tuple("Board", NAMES)
"""Numbers and flat tables; those from ``free`` and ``count`` on change."""


def amount(b: Any, s: int, v: int, n: int, r: int) -> float:
    """Amount of a resource of a node that so many processes of a form take."""
    size = b.size[v * b.resources + r]
    if b.alone[s] == 1 and r != MEMORY:
        return float(size)
    if r == 0 and b.form_cpus[s] > 0:
        cpus = -(-n * b.form_cpus[s] // b.core[v]) * b.core[v]
        return float(-(-cpus * int(size) // b.cpus[v]))
    if r == MEMORY and size >= UNLIMITED:
        return 0.0
    if r == MEMORY and b.all_memory[s] == 1:
        return float(size)
    place = s * b.resources + r
    return float(n if r == 0 else b.per_node[place] + b.per_proc[place] * n)


def fits(b: Any, s: int, v: int, row: int) -> int:
    """Processes of a form that a node takes of what a row of ``free`` has."""
    own, at, asked = v * b.resources, row * b.resources, s * b.resources
    if b.form_kind[s * b.kinds + b.kind[v]] == 0:
        return 0
    most = int(b.free[at])
    if most <= 0:
        return 0
    if b.form_cpus[s] > 0:
        if b.cpus[v] != b.size[own] or b.core[v] > 1:
            most = most * b.cpus[v] // int(b.size[own]) // b.core[v] * b.core[v]
        if b.form_cpus[s] > 1:
            most = most // b.form_cpus[s]
    most = min(most, b.cap[s])
    for r in range(b.resources):
        left = b.free[at + r]
        whole = b.all_memory[s] if r == MEMORY else b.alone[s]
        if whole == 1 and left < b.size[own + r]:
            return 0
        each = b.per_proc[asked + r]
        if r > 0 and b.per_node[asked + r] + each > 0.0:
            left -= b.per_node[asked + r]
            if left < 0.0:
                return 0
            if each * most > left:
                most = int(left / each)  # exact below 2**52
    return most


def lower(b: Any, v: int, t: float) -> None:
    """Lower the last row of ``free`` to what a row has at an instant."""
    low = len(b.free) - b.resources
    for r in range(b.resources):
        left = b.size[v * b.resources + r]
        use = b.use_head[v]
        while use >= 0:
            if b.use_from[use] <= t < b.use_to[use]:
                left -= b.use_take[use * b.resources + r]
            use = b.use_next[use]
        b.free[low + r] = min(b.free[low + r], left)


def look(b: Any, v: int, t: float, e: float, row: int) -> float:
    """Fill the last row of ``free`` with the least that a row has in [t, e); its first entry.

    `row`: that of ``free`` which shows t; -1: none does.
    """
    low = len(b.free) - b.resources
    for r in range(b.resources):
        b.free[low + r] = inf if row < 0 else b.free[row * b.resources + r]
    if row < 0:
        lower(b, v, t)
    use = b.use_head[v]
    while use >= 0:
        if t < b.use_from[use] < e:
            lower(b, v, b.use_from[use])
        use = b.use_next[use]
    return float(b.free[low])


def closed(b: Any, s: int, v: int, t: float, e: float) -> bool:
    """Whether a reservation keeps a form from a node in [t, e)."""
    for j in range(b.shut_first[v], b.shut_first[v + 1]):
        own = b.shut[j]
        overlaps = b.shut_from[own] < e and t < b.shut_to[own]
        if overlaps and b.form_open[s * b.reservations + own] == 0:
            return True
    return False


def enough(bars: Any, at: int, cap: int, n: int, low: int, high: int) -> int:
    """Nodes, at least `low`, that take so many processes, by bars from a place on; 0: none do."""
    left, used, there = n, 0, 0
    for x in range(cap, 0, -1):
        count = bars[at + x]
        there += count
        if left > 0 and count > 0:
            take = min(count, high - used, -(-left // x))
            used += take
            left -= take * x
            if left > 0 and used == high:
                return 0
        if left <= 0 and there >= low:
            return max(used, low)
    return 0


def has_room(b: Any, s: int, form: int, k: int, n: int) -> int:
    """Nodes of a cluster that take so many processes, whatever is booked; 0: none do."""
    if b.mass[form * b.clusters + k] < n:
        return 0
    at = b.bar_first[form] + k * (b.cap[s] + 1)
    return enough(b.bars, at, b.cap[s], n, b.low[s], b.high[s])


def survey(b: Any, s: int, form: int, k: int, power: float, t: float, e: float) -> None:
    """Bars of a cluster's nodes of a power at least for a run in [t, e), beside what is booked.

    `form`: the row of ``fit`` for that start.
    """
    first, last, base, seen = b.node_first[k], b.node_first[k + 1], form * b.nodes, b.count[SEEN]
    shown = 0 if form < b.forms else b.rows
    to, at = k * b.width, b.bar_first[form] + k * (b.cap[s] + 1)
    whole = power <= b.level[b.level_first[k + 1] - 1] and b.shut_first[first] == b.shut_first[last]
    for x in range(b.cap[s] + 1):
        b.bar[to + x] = b.bars[at + x] if whole else 0
    kept = b.count[KEPT] if e > b.soonest[0] else 0
    looks = kept if whole else last - first
    b.count[LOOKS] += b.cap[s] + looks
    for j in range(looks):
        v = b.kept[j] if whole else first + j
        if v < first or v >= last:
            continue
        x = b.fit[base + v]
        if whole:
            b.bar[to + x] -= 1
        elif x > 0 and (b.power[v] < power or closed(b, s, v, t, e)):
            x = 0
        if x > 0 and kept > 0 and b.booked[v] > 0:
            look(b, v, t, e, shown + v)
            x = fits(b, s, v, len(b.free) // b.resources - 1)
        b.room[v], b.seen[v] = x, seen
        b.bar[to + x] += 1


def pick(b: Any, s: int, form: int, k: int, n: int, low: int) -> float:
    """Choose nodes of a surveyed cluster: as few as may be, the last the fullest that will do.

    Returns the least power of them.
    """
    row, top, left, nodes, weakest = k * b.width, b.cap[s], n, 0, inf
    for x in range(top + 1):
        b.chosen[x] = 0
    while left > 0:
        want = left - max(low - nodes - 1, 0)
        x = want
        while x <= top and b.bar[row + x] == 0:
            x += 1
        if x > top:
            while b.bar[row + top] == 0:
                top -= 1
            x = top
        b.bar[row + x] -= 1
        b.chosen[x] += 1
        left -= min(x, want)
        nodes += 1
    left = n
    for v in range(b.node_first[k], b.node_first[k + 1]):
        x = b.room[v] if b.seen[v] == b.count[SEEN] else b.fit[form * b.nodes + v]
        if x > 0 and b.chosen[x] > 0:
            b.chosen[x] -= 1
            nodes -= 1
            j = b.count[PICKS]
            b.pick_node[j], b.pick_procs[j] = v, min(x, left - nodes)
            left -= b.pick_procs[j]
            b.count[PICKS] = j + 1
            weakest = min(weakest, b.power[v])
            if nodes == 0:
                break
    return weakest


def run_time(b: Any, i: int, m: int, power: float, k: int) -> float:
    """Run time of a mode; on one cluster, a task's own traffic counts."""
    fixed = b.fixed[m] + (b.comm[m] * b.inner[k] if k >= 0 else 0.0)
    return max(min(b.scaled[m] / power + fixed, b.limit[i]), SHORTEST)


def runs_on(b: Any, i: int, k: int, c: int) -> bool:
    """Whether an item on cluster k, or spread over its own, uses cluster c."""
    return bool(c == k if b.wide[i] < 0 else b.wide_procs[b.wide[i] * b.clusters + c] > 0)


def ready_at(b: Any, i: int, k: int) -> float:
    """Time from which an item may start on cluster k, or spread, its parents' data there."""
    ready, one = 0.0, b.wide[i] < 0
    for c in range(k if one else 0, k + 1 if one else b.clusters):
        if runs_on(b, i, k, c):
            ready = max(ready, b.arrival[i * b.clusters + c])
    for j in range(b.parent_first[i], b.parent_first[i + 1]):
        parent, gbit = b.parent[j], b.parent_gbit[j]
        end, same, slowest, latency = b.end[parent], True, inf, 0.0
        for c in range(b.clusters if gbit >= 0.0 else 0):
            mine, its = runs_on(b, i, k, c), runs_on(b, parent, b.home[parent], c)
            same = same and mine == its
            if mine or its:
                slowest, latency = min(slowest, b.gbps[c]), max(latency, b.latency[c])
        if not same:
            end += latency
            if gbit > 0.0:
                end += gbit / slowest if slowest > 0.0 else inf
        ready = max(ready, end)
    return ready


def licensed(b: Any, s: int, k: int, t: float, e: float) -> bool:
    """Whether a cluster, or -1: the site, has what a form takes of it as a whole."""
    for j in range(b.licences):
        need = b.form_pool[s * b.licences + j]
        if need > 0.0 and b.pool_cluster[j] == k and look(b, b.nodes + j, t, e, -1) < need:
            return False
    return True


def place(b: Any, i: int, m: int, t: float, form: int) -> float:
    """Choose nodes for a mode at a start where it ends first; its end, or inf.

    `form`: the row of ``fit`` for that start.
    """
    s, n, best = b.item_form[i], b.procs[m], inf
    low, high, cap = b.low[s], b.high[s], b.cap[s]
    for k in range(b.clusters):
        if has_room(b, s, form, k, n) == 0 or ready_at(b, i, k) > t:
            continue
        for j in range(b.level_first[k], b.level_first[k + 1]):
            e = t + run_time(b, i, m, b.level[j], k)
            if e >= best or (b.scaled[m] == 0.0 and j + 1 < b.level_first[k + 1]):
                continue
            b.count[SEEN] += 1
            survey(b, s, form, k, b.level[j], t, e)
            if enough(b.bar, k * b.width, cap, n, low, high) == 0:
                continue
            if licensed(b, s, k, t, e) and licensed(b, s, -1, t, e):
                b.count[PICKS] = 0
                best = t + run_time(b, i, m, pick(b, s, form, k, n, low), k)
    return split(b, i, m, t, form) if best == inf and b.splits[i] == 1 else best


def split(b: Any, i: int, m: int, t: float, form: int) -> float:
    """The same over several clusters; of few nodes each has as many processes as these need.

    ``part`` has the room of each cluster, its low and upper side (`coalloc.model.split`), its
    share, and one to try. An item that is spread has its shares from the start.
    """
    s, n, weakest, total = b.item_form[i], b.procs[m], inf, b.clusters
    wide, held = b.wide[i] * total, 0
    for j in range(b.level_first[total]):
        weakest = min(weakest, b.level[j])
    e = t + run_time(b, i, m, weakest, -1)
    unit = -(-n // b.high[s]) if b.high[s] < min(n, b.nodes) else 1
    b.count[SEEN] += 1
    for k in range(total):
        b.part[k] = b.part[total + k] = b.part[2 * total + k] = 0
        b.part[3 * total + k] = b.wide_procs[wide + k] if wide >= 0 else 0
        some = b.node_first[k] < b.node_first[k + 1] and ready_at(b, i, k) <= t
        if not some or not licensed(b, s, k, t, e) or not licensed(b, s, -1, t, e):
            continue
        survey(b, s, form, k, 0.0, t, e)
        for x in range(unit, b.cap[s] + 1):
            b.part[k] += b.bar[k * b.width + x] * (x if unit == 1 else unit)
        link = b.nodes + b.licences + k
        room = look(b, link, t, e, -1) + TOLERANCE * b.size[link * b.resources]
        if wide >= 0 and b.wide_procs[wide + k] <= b.part[k] and b.wide_gbps[wide + k] <= room:
            held += b.wide_procs[wide + k]
        side = low_side(n, b.item_gbps[i], room)
        b.part[total + k] = side
        b.part[2 * total + k] = min(b.part[k], side) // unit * unit
    if (wide >= 0 and held < n) or (wide < 0 and not share(b, n)):
        return inf
    weakest = spread(b, s, form)
    return inf if weakest == inf else t + run_time(b, i, m, weakest, -1)


def low_side(n: int, gbps: float, room: float) -> int:
    """Processes on the low side that a link admits; all where it admits any split."""
    count = 0
    while count < n // 2 and gbps * (count + 1) * (n - count - 1) <= room * (n - 1):
        count += 1
    return n if count == n // 2 else count


def share(b: Any, n: int) -> bool:
    """Share processes out to clusters: fewest of these, then least load; whether there is a way."""
    total = b.clusters
    fewest, load, trial = total + 1, 0, 4 * total
    for lead in range(-1, total):
        left, used, squares = n, 0, 0
        for k in range(total):
            b.part[trial + k] = 0
        if lead >= 0:
            side = b.part[total + lead]
            if side < 1 or b.part[lead] < n - side or b.part[lead] <= b.part[2 * total + lead]:
                continue
            b.part[trial + lead] = min(b.part[lead], n - 1)
            left -= b.part[trial + lead]
        for _ in range(total):
            most, chosen = 0, -1
            for k in range(total):
                if b.part[trial + k] == 0 and b.part[2 * total + k] > most:
                    most, chosen = b.part[2 * total + k], k
            if chosen >= 0 and left > 0:
                b.part[trial + chosen] = min(most, left)
                left -= b.part[trial + chosen]
        for k in range(total):
            used += 1 if b.part[trial + k] > 0 else 0
            squares += b.part[trial + k] * b.part[trial + k]
        if left == 0 and (used < fewest or (used == fewest and squares > load)):
            fewest, load = used, squares
            for k in range(total):
                b.part[3 * total + k] = b.part[trial + k]
    return fewest <= total


def spread(b: Any, s: int, form: int) -> float:
    """Choose nodes of surveyed clusters for their shares; the least power of them, or inf."""
    total, nodes, weakest, most = b.clusters, 0, inf, 0
    for k in range(total):
        part = b.part[3 * total + k]
        b.part[k] = enough(b.bar, k * b.width, b.cap[s], part, 1, b.high[s]) if part > 0 else 0
        nodes += b.part[k]
        most += part if b.part[k] == 0 else 0
    if most > 0 or nodes > b.high[s]:
        return inf
    b.count[PICKS] = 0
    for k in range(total):
        part, there = b.part[3 * total + k], 0
        for x in range(1, b.cap[s] + 1):
            there += b.bar[k * b.width + x]
        more = max(min(b.low[s] - nodes, min(there, part) - b.part[k]), 0)
        nodes += more
        if part > 0:
            weakest = min(weakest, pick(b, s, form, k, part, b.part[k] + more))
    return weakest if nodes >= b.low[s] else inf
