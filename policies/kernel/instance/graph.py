"""The graph of everything queued: who waits for whom, levels and longest paths.

All workflows and plain jobs of a queue are one graph; a plain job is a vertex that may stand alone.

Notes
-----
N vertices, E edges. Everything is linear in N + E, in plain loops: the vectors are short where the
graph is deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from coalloc.policies.array_types import Flags, Floats, Ints, firsts
from coalloc.policies.kernel.instance.modes import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A directed acyclic graph in compressed rows."""

    parent_first: Ints
    parent: Ints
    """Vertices."""
    parent_gbit: Floats
    """Data on the edge, Gbit; below 0 it is a mere order."""
    child_first: Ints
    child: Ints
    child_gbit: Floats
    order: Ints
    """The vertices, parents first; of those that are free to come, the first in the queue."""
    level: Ints
    """Edges on the longest path from a vertex without parents."""

    @property
    def size(self) -> int:
        """Vertices."""
        return self.order.size

    def bottom(self, weight: Floats, delay: Floats | None = None) -> Floats:
        """Longest path from each vertex to the end, both included: HEFT's upward rank.

        `weight` (array, N): of the vertices, seconds.
        `delay` (array, E): of the edges, as `child` has them.
        """
        return weight + self.tail(weight, delay)

    def tail(self, weight: Floats, delay: Floats | None = None) -> Floats:
        """The same without the vertex itself."""
        first, child = self.child_first.tolist(), self.child.tolist()
        extra = [0.0] * len(child) if delay is None else delay.tolist()
        path: list[float] = weight.tolist()
        out = [0.0] * self.size
        for v in reversed(self.order.tolist()):
            for x in range(first[v], first[v + 1]):
                out[v] = max(out[v], extra[x] + path[child[x]])
            path[v] += out[v]
        return np.array(out, dtype=np.float64)

    def top(self, weight: Floats) -> Floats:
        """Longest path from an entry to each vertex, which itself is left out."""
        first, parent = self.parent_first.tolist(), self.parent.tolist()
        mine = weight.tolist()
        out = [0.0] * self.size
        for v in self.order.tolist():
            for x in range(first[v], first[v + 1]):
                out[v] = max(out[v], out[parent[x]] + mine[parent[x]])
        return np.array(out, dtype=np.float64)

    def with_ancestors(self, vertices: Ints) -> Flags:
        """Mark these vertices and whatever they wait for."""
        out = np.zeros(self.size, dtype=np.bool_)
        out[vertices] = True
        if vertices.size:
            for v in self.order[::-1].tolist():
                if not out[v]:
                    out[v] = out[self.child[self.child_first[v] : self.child_first[v + 1]]].any()
        return out

    def by_priority(self, priority: Floats) -> Ints:
        """The vertices by falling priority, ties in topological order."""
        place = np.empty(self.size, dtype=np.int64)
        place[self.order] = np.arange(self.size)
        return np.lexsort((place, -priority)).astype(np.int64)


def graph_of(items: Sequence[Item]) -> Graph:
    """Read the parents of what is to be placed.

    Raises `ValueError` if something waits for itself.
    """
    return make_graph([item.parents for item in items])


def parents_first(order: Sequence[int], items: Sequence[Item]) -> list[int]:
    """The same order, except that what an item waits for comes before it."""
    out: list[int] = []
    seen: set[int] = set()
    for first in order:
        stack = [first]
        while stack:
            item = stack[-1]
            missing = [parent for parent, _ in items[item].parents if parent not in seen]
            if missing:
                stack += missing
                continue
            stack.pop()
            if item not in seen:
                seen.add(item)
                out.append(item)
    return out


def make_graph(parents: Sequence[Sequence[tuple[int, float]]]) -> Graph:
    """Lay out a graph that is given as each vertex's parents, with Gbit of data.

    Raises `ValueError` if a vertex waits for itself.
    """
    children = children_of(parents)
    order, level = _sorted(parents, children)
    parent_first, parent, parent_gbit = compressed(parents)
    child_first, child, child_gbit = compressed(children)
    return Graph(
        parent_first=parent_first,
        parent=parent,
        parent_gbit=parent_gbit,
        child_first=child_first,
        child=child,
        child_gbit=child_gbit,
        order=order,
        level=level,
    )


def children_of(parents: Sequence[Sequence[tuple[int, float]]]) -> list[list[tuple[int, float]]]:
    """Of each vertex those that wait for it, with Gbit of data."""
    children: list[list[tuple[int, float]]] = [[] for _ in parents]
    for v, mine in enumerate(parents):
        for u, gbit in mine:
            children[u].append((v, gbit))
    return children


def _sorted(
    parents: Sequence[Sequence[tuple[int, float]]], children: Sequence[Sequence[tuple[int, float]]]
) -> tuple[Ints, Ints]:
    missing = [len(mine) for mine in parents]
    level = [0] * len(parents)
    order = [v for v, count in enumerate(missing) if not count]
    for v in order:  # it grows behind itself
        for child, _ in children[v]:
            level[child] = max(level[child], level[v] + 1)
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    if len(order) < len(parents):
        raise ValueError("a vertex waits for itself")
    return np.array(order, dtype=np.int64), np.array(level, dtype=np.int64)


def compressed(lists: Sequence[Sequence[tuple[int, float]]]) -> tuple[Ints, Ints, Floats]:
    """Lists of (vertex, Gbit) in compressed rows: where each begins, vertices, Gbit."""
    flat = list(chain.from_iterable(lists))
    return (
        firsts(list(map(len, lists))),
        np.array([v for v, _ in flat], dtype=np.int64),
        np.array([gbit for _, gbit in flat], dtype=np.float64),
    )
