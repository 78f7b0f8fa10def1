"""Real nodes for the counts of a plan: greedy by start time, as few nodes as possible."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.arrays import Compiled
from coalloc.policies.kernel.compiled import FINEST, Outcome, kernel

Ints = NDArray[np.int64]


@kernel
def give_back(
    free: Any, gives: Any, out_first: Any, out_node: Any, out_units: Any, entry: Any
) -> None:
    """Free the nodes of a placement, or of what ran before."""
    items = out_first.shape[0]
    if entry >= items:
        free[gives[entry - items, 0]] += gives[entry - items, 1]
        return
    for x in range(out_first[entry, 0], out_first[entry, 1]):
        free[out_node[x]] += out_units[x]


@kernel
def share_out(
    need: Any, rest: Any, free: Any, first: Any, last: Any, histogram: Any, quota: Any
) -> None:
    """Decide how many processes the nodes first..last of a class get, on as few as possible.

    The emptiest nodes are filled, and what is left goes to the fullest node that holds it: nodes
    with room for more than quota[0] get all they can, and quota[1] nodes with just that; one with
    room for quota[2] gets quota[3].
    """
    largest = 0
    for x in range(first, last):
        count = free[x] // need
        histogram[count] += 1
        largest = max(largest, count)
    level = largest
    while level > 0 and histogram[level] * level <= rest:
        rest -= histogram[level] * level
        level -= 1
    whole, part = 0, 0
    if level > 0 and rest > 0:
        whole = rest // level
        rest -= whole * level
        if rest > 0:
            part = rest
            while part < level and histogram[part] == 0:
                part += 1
    for x in range(largest + 1):
        histogram[x] = 0
    quota[0], quota[1], quota[2], quota[3] = level, whole, part, rest


@kernel
def lay(
    order: Any,
    start: Any,
    uses: Any,
    use_class: Any,
    use_procs: Any,
    use_need: Any,
    class_first: Any,
    free: Any,
    until: Any,
    gives: Any,
    releases: Any,
    histogram: Any,
    out_first: Any,
    out_node: Any,
    out_units: Any,
    out_procs: Any,
) -> Any:
    """Give each placement, by `order` (rising start), free units of its classes.

    Nodes are numbered so that those of a class follow each other. `releases` orders all entries
    (placements, then what runs now) by their end; entry e ends at until[e], and gives[e] is, for
    what runs now, its node and units.
    """
    quota = np.zeros(4, dtype=np.int64)
    top, r = 0, 0
    for item in order:
        while r < releases.size and until[releases[r]] <= start[item]:
            give_back(free, gives, out_first, out_node, out_units, releases[r])
            r += 1
        out_first[item, 0] = top
        for u in range(uses[item, 0], uses[item, 0] + uses[item, 1]):
            need = use_need[u]
            first, last = class_first[use_class[u]], class_first[use_class[u] + 1]
            share_out(need, use_procs[u], free, first, last, histogram, quota)
            for x in range(first, last):
                count = free[x] // need
                procs = 0
                if count > quota[0]:
                    procs = count
                elif count == quota[0] and quota[1] > 0:
                    procs = count
                    quota[1] -= 1
                elif count == quota[2] and quota[2] > 0:
                    procs = quota[3]
                    quota[2] = 0
                if procs > 0:
                    free[x] -= procs * need
                    out_node[top] = x
                    out_units[top] = procs * need
                    out_procs[top] = procs
                    top += 1
        out_first[item, 1] = top
    return top


def lay_on_nodes(compiled: Compiled, out: Outcome) -> tuple[Ints, Ints, Ints]:
    """Choose nodes for every placement.

    Returns
    -------
    first : N x 2
        Range of each item in the other two.
    nodes, procs : arrays
        Node numbers, cluster by cluster in snapshot order, and processes on them.
    """
    problem, intake = compiled.problem, compiled.intake
    n = out.start.size
    placed = np.flatnonzero(~np.isnan(out.start))
    sizes = np.array([len(nodes) for nodes in compiled.class_nodes], dtype=np.int64)
    class_first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    node = np.array([x for nodes in compiled.class_nodes for x in nodes], dtype=np.int64)
    kinds = [intake.kinds[intake.node_kind[x]] for x in node]
    free = np.array([kind.slots * kind.grain for kind in kinds], dtype=np.int64)
    number = np.zeros(len(intake.nodes), dtype=np.int64)
    number[node] = np.arange(node.size)
    held = compiled.occupation
    holder = number[held.node]
    np.subtract.at(free, holder, held.units)
    # a placement's classes cluster by cluster
    use_item = np.repeat(placed, out.use_count[placed])
    slot = np.concatenate(
        [np.arange(a, a + b) for a, b in zip(out.use_first, out.use_count, strict=True)] or [placed]
    )
    use_class = out.use_class[slot]
    sort = np.lexsort((use_class, problem.class_cluster[use_class], use_item))
    use_class, use_procs = use_class[sort], out.use_procs[slot][sort]
    counts = out.use_count * ~np.isnan(out.start)
    uses = np.stack((np.cumsum(counts) - counts, counts), axis=1)
    # What was planned in times from now may touch by a rounding: see the checker's `swept_ends`.
    half = out.start + (out.end - out.start) / 2.0
    ends = np.maximum(out.end - FINEST * np.abs(out.end), half)
    until = np.concatenate((np.where(np.isnan(ends), np.inf, ends), held.until))
    room = int(np.minimum(use_procs, sizes[use_class]).sum()) + 1
    out_first = np.zeros((n, 2), dtype=np.int64)
    out_node, out_units, out_procs = (np.empty(room, dtype=np.int64) for _ in range(3))
    lay(
        placed[np.lexsort((out.end[placed], out.start[placed]))],
        out.start,
        uses,
        use_class,
        use_procs,
        problem.need[problem.item_group[use_item], use_class],
        class_first,
        free,
        until,
        np.stack((holder, held.units), axis=1),
        np.argsort(until, kind="stable"),
        np.zeros(max((kind.slots for kind in kinds), default=0) + 1, dtype=np.int64),
        out_first,
        out_node,
        out_units,
        out_procs,
    )
    top = int(out_first.max(initial=0))
    return out_first, node[out_node[:top]], out_procs[:top]
