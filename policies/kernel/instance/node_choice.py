"""The nodes that each placement gets of its classes; compiled."""

from __future__ import annotations

from typing import NamedTuple

from coalloc.policies.kernel.jit import helper, kernel
from coalloc.policies.kernel.record import Floats, Ints, record


@record
class Uses(NamedTuple):
    """Units that placements take of classes. N items, U uses."""

    span: Ints  # N x 2, first use and how many
    node_class: Ints  # U
    procs: Ints  # U
    need: Ints  # U, units a process


@record
class Bookings(NamedTuple):
    """From when until when nodes are held: by N placements, then by R entries of what runs now."""

    start: Floats  # N, s
    until: Floats  # N + R, s
    gives: Ints  # R x 2, node and units
    by_end: Ints  # N + R, entries by rising end


@record
class NodeUses(NamedTuple):
    """Units that placements take of nodes."""

    span: Ints  # N x 2, first and last + 1 of each item in the others
    node: Ints
    units: Ints
    procs: Ints


@helper()
def give_back(free: Ints, gives: Ints, out: NodeUses, entry: int) -> None:
    """Free the nodes of a placement, or of what ran before."""
    items = out.span.shape[0]
    if entry >= items:
        free[gives[entry - items, 0]] += gives[entry - items, 1]
        return
    for x in range(out.span[entry, 0], out.span[entry, 1]):
        free[out.node[x]] += out.units[x]


@helper()
def share_out(
    need: int, rest: int, free: Ints, first: int, last: int, histogram: Ints, quota: Ints
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
    order: Ints,
    uses: Uses,
    bookings: Bookings,
    class_first: Ints,
    free: Ints,
    histogram: Ints,
    quota: Ints,
    out: NodeUses,
) -> None:
    """Give each placement, by `order` (rising start), free units of its classes.

    Nodes are numbered so that those of a class follow each other, from `class_first`. `free` are
    the units of each node, and change. Working memory: `histogram`, zeros, one more than the slots
    of a node, and `quota`, 4.
    """
    top, r = 0, 0
    by_end, until, start = bookings.by_end, bookings.until, bookings.start
    for item in order:
        while r < by_end.size and until[by_end[r]] <= start[item]:
            give_back(free, bookings.gives, out, by_end[r])
            r += 1
        out.span[item, 0] = top
        for u in range(uses.span[item, 0], uses.span[item, 0] + uses.span[item, 1]):
            need = uses.need[u]
            first, last = class_first[uses.node_class[u]], class_first[uses.node_class[u] + 1]
            share_out(need, uses.procs[u], free, first, last, histogram, quota)
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
                    out.node[top] = x
                    out.units[top] = procs * need
                    out.procs[top] = procs
                    top += 1
        out.span[item, 1] = top
