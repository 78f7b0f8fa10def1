"""Real nodes for the counts of a plan: greedy by start time, as few nodes as possible."""

from __future__ import annotations

import numpy as np

from coalloc.policies.array_types import Ints, entries, firsts
from coalloc.policies.kernel.instance.arrays import Compiled
from coalloc.policies.kernel.instance.node_choice import Bookings, NodeUses, Uses, lay
from coalloc.policies.kernel.state import FINEST, Outcome

NOW_S = 1e-6
"""What starts within so many seconds of the snapshot's time starts now."""


def lay_on_nodes(
    compiled: Compiled, out: Outcome, entries: int | None = None
) -> tuple[Ints, Ints, Ints]:
    """Choose nodes for every placement, or for those that `Budget.node_entries` asks for.

    Returns the range of each item, N x 2, in the other two arrays: node numbers, cluster by cluster
    in snapshot order, and processes on them.
    """
    intake = compiled.intake
    n = out.start.size
    placed = _first(out, intake.snapshot.time, entries)
    sizes = np.array([len(nodes) for nodes in compiled.class_nodes], dtype=np.int64)
    node = np.array([x for nodes in compiled.class_nodes for x in nodes], dtype=np.int64)
    kinds = [intake.kinds[intake.node_kind[x]] for x in node]
    free = np.array([kind.slots * kind.grain for kind in kinds], dtype=np.int64)
    number = np.zeros(len(intake.nodes), dtype=np.int64)
    number[node] = np.arange(node.size)
    held = compiled.occupation
    holder = number[held.node]
    np.subtract.at(free, holder, held.units)
    uses = _uses(compiled, out, np.sort(placed))
    # What was planned in times from now may touch by a rounding: see the checker's `swept_ends`.
    half = out.start + (out.end - out.start) / 2.0
    ends = np.maximum(out.end - FINEST * np.abs(out.end), half)
    until = np.concatenate((np.where(np.isnan(ends), np.inf, ends), held.until))
    room = int(np.minimum(uses.procs, sizes[uses.node_class]).sum()) + 1
    out_first = np.zeros((n, 2), dtype=np.int64)
    out_node, out_units, out_procs = (np.empty(room, dtype=np.int64) for _ in range(3))
    lay(
        placed,
        uses,
        Bookings(
            start=out.start,
            until=until,
            gives=np.stack((holder, held.units), axis=1),
            by_end=np.argsort(until, kind="stable"),
        ),
        firsts(sizes),
        free,
        np.zeros(max((kind.slots for kind in kinds), default=0) + 1, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        NodeUses(span=out_first, node=out_node, units=out_units, procs=out_procs),
    )
    top = int(out_first.max(initial=0))
    return out_first, node[out_node[:top]], out_procs[:top]


def _first(out: Outcome, now: float, entries: int | None) -> Ints:
    """The placements to lay, by start."""
    placed = np.flatnonzero(~np.isnan(out.start))
    placed = placed[np.lexsort((out.end[placed], out.start[placed]))]
    if entries is None:
        return placed
    first, last = out.use_first[placed], (out.use_first + out.use_count)[placed]
    total = np.concatenate(([0], np.cumsum(out.use_procs[: last.max(initial=0)])))
    are_few = np.cumsum(total[last] - total[first]) <= entries
    return placed[are_few | (out.start[placed] <= now + NOW_S)]


def _uses(compiled: Compiled, out: Outcome, placed: Ints) -> Uses:
    """Classes and processes of the placements, each placement's cluster by cluster."""
    problem = compiled.problem
    counts = np.zeros_like(out.use_count)
    counts[placed] = out.use_count[placed]
    item = np.repeat(placed, counts[placed])
    slot = entries(out.use_first[placed], counts[placed])
    node_class = out.use_class[slot]
    sort = np.lexsort((node_class, problem.class_cluster[node_class], item))
    node_class = node_class[sort]
    return Uses(
        span=np.stack((np.cumsum(counts) - counts, counts), axis=1),
        node_class=node_class,
        procs=out.use_procs[slot][sort],
        need=problem.need[problem.item_group[item], node_class],
    )
