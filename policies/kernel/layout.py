"""Real nodes for the counts of a plan: greedy by start time, as few nodes as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coalloc.policies.kernel.arrays import Compiled
from coalloc.policies.kernel.compiled import Outcome, kernel

Ints = NDArray[np.int64]


@kernel
def lay(order, start, use_first, use_count, use_class, use_procs, use_need, nodes_first, nodes,
        free, until, gives, releases, histogram, out_first, out_node, out_procs):  # fmt: skip
    """Give each placement, by `order` (rising start), free slots of its classes.

    `releases` orders all entries (placements, then occupations of now) by their end; entry e
    ends at until[e] and gives[e] is, for an occupation, its node and slots.
    """
    items = order.size
    top = 0
    r = 0
    for pos in range(items):
        item = order[pos]
        while r < releases.size and until[releases[r]] <= start[item]:
            entry = releases[r]
            r += 1
            if entry >= use_first.size:
                free[gives[entry - use_first.size, 0]] += gives[entry - use_first.size, 1]
                continue
            for x in range(out_first[entry, 0], out_first[entry, 1]):
                free[out_node[x, 0]] += out_node[x, 1]
        out_first[item, 0] = top
        for u in range(use_first[item], use_first[item] + use_count[item]):
            c, need, rest = use_class[u], use_need[u], use_procs[u]
            largest = 0
            for x in range(nodes_first[c], nodes_first[c + 1]):
                count = free[nodes[x]] // need
                histogram[count] += 1
                largest = max(largest, count)
            # whole nodes from the emptiest down, then the fullest node that holds what is left
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
            for x in range(nodes_first[c], nodes_first[c + 1]):
                count = free[nodes[x]] // need
                histogram[count] = 0
                procs = 0
                if count > level:
                    procs = count
                elif count == level and whole > 0:
                    procs = count
                    whole -= 1
                elif part > 0 and count == part:
                    procs = rest
                    part = 0
                if procs > 0:
                    free[nodes[x]] -= procs * need
                    out_node[top, 0] = nodes[x]
                    out_node[top, 1] = procs * need
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
        Node numbers, in snapshot order inside an item, and processes on them.
    """
    problem = compiled.problem
    n = out.start.size
    placed = np.flatnonzero(~np.isnan(out.start))
    order = placed[np.lexsort((out.end[placed], out.start[placed]))]
    held = compiled.occupation
    until = np.concatenate((np.where(np.isnan(out.end), np.inf, out.end), held.until))
    uses = int(out.use_count.sum())
    use_item = np.empty(uses, dtype=np.int64)
    for item in placed:
        first = out.use_first[item]
        use_item[first : first + out.use_count[item]] = item
    use_class, use_procs = out.use_class[:uses], out.use_procs[:uses]
    use_need = problem.need[problem.item_group[use_item], use_class]
    slots = np.array([node.slots for node in compiled.intake.nodes], dtype=np.int64)
    free = slots.copy()
    np.subtract.at(free, held.node, held.slots)
    sizes = [len(nodes) for nodes in compiled.class_nodes]
    nodes_first = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64)
    room = int(np.minimum(use_procs, np.array(sizes, dtype=np.int64)[use_class]).sum()) + 1
    out_first = np.zeros((n, 2), dtype=np.int64)
    out_node = np.empty((room, 2), dtype=np.int64)
    out_procs = np.empty(room, dtype=np.int64)
    top = lay(
        order,
        out.start,
        out.use_first,
        out.use_count,
        use_class,
        use_procs,
        use_need,
        nodes_first,
        np.array([node for nodes in compiled.class_nodes for node in nodes], dtype=np.int64),
        free,
        until,
        np.stack((held.node, held.slots), axis=1),
        np.argsort(until, kind="stable"),
        np.zeros(int(slots.max(initial=0)) + 1, dtype=np.int64),
        out_first,
        out_node,
        out_procs,
    )
    item_of = np.repeat(order, out_first[order, 1] - out_first[order, 0])
    by_node = np.lexsort((out_node[:top, 0], out_first[item_of, 0]))
    return out_first, out_node[by_node, 0], out_procs[by_node]
