"""Trees of minima over a list, as arrays: a change and a search cost O(log n)."""

from __future__ import annotations

import numpy as np

from coalloc.policies.kernel.jit import helper
from coalloc.policies.kernel.record import Floats


@helper(inline=True)
def put(tree: Floats, leaf: int, value: float) -> None:
    """Change a leaf of a tree of minima; tree[1] is the root, leaves are its last half."""
    tree[leaf] = value
    p = leaf >> 1
    while p > 0:
        least = min(tree[2 * p], tree[2 * p + 1])
        if tree[p] == least:
            break
        tree[p] = least
        p >>= 1


@helper(inline=True)
def leaf_within(tree: Floats, leaf: int, limit: float) -> int:
    """The first leaf from this one on whose value is at most `limit`; 0 if none is."""
    half = tree.size >> 1
    p = leaf
    while tree[p] > limit:
        while p & 1:
            p >>= 1
        if p == 0:
            return 0
        p += 1
    while p < half:
        p *= 2
        if tree[p] > limit:
            p += 1
    return p


@helper(inline=True)
def grow(tree: Floats) -> None:
    """Fill in all that is above the leaves."""
    for p in range((tree.size >> 1) - 1, 0, -1):
        tree[p] = min(tree[2 * p], tree[2 * p + 1])


def empty_tree(leaves: int) -> Floats:
    """Space for a tree of at least so many leaves."""
    half = 1 << max(leaves - 1, 0).bit_length()
    return np.empty(2 * half)
