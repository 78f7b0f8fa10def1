"""Names of several nodes in one text: ``a[1-4]``, as ClusterShell reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable

from coalloc.model.errors import InputError

LARGEST_SET = 1_000_000
"""A node set that stands for more nodes than this is refused."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:")


def expand(text: str, where: str = "") -> tuple[str, ...]:
    """The names a node set stands for, in its own order.

    Raises
    ------
    InputError
        If the text is not a node set.
    """
    if text and _PLAIN.issuperset(text):
        return (text,)
    from ClusterShell.NodeSet import (
        RESOLVER_NOGROUP,
        NodeSet,
        NodeSetException,
    )  # slow to load, seldom needed

    try:
        names = NodeSet(text, resolver=RESOLVER_NOGROUP)
        size = len(names)
    except (NodeSetException, ValueError, OverflowError, MemoryError) as error:
        raise InputError(where, f"{text!r} is not a node set: {error}") from error
    if size == 0:
        raise InputError(where, f"{text!r} names no node")
    if size > LARGEST_SET:
        raise InputError(where, f"{text[:40]!r} names {size} nodes, more than {LARGEST_SET}")
    return tuple(names)


def fold(names: Iterable[str]) -> str:
    """The shortest node set for these names."""
    listed = list(names)
    if len(listed) <= 1:
        return "".join(listed)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(listed, resolver=RESOLVER_NOGROUP))
