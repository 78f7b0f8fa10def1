"""Names of several nodes in one text: ``a[1-4]``, as ClusterShell reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

from coalloc.model.errors import InputError
from coalloc.model.formats.decoded import shown

Value = TypeVar("Value")
LARGEST_SET = 1_000_000
"""A node set that stands for more nodes than this is refused."""
MOST_NAMED = 10_000
"""The same of an option of a job."""
COUNTLESS = 10**18
"""From here on how many they are helps nobody."""

_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_SEPARATOR = re.compile(r"[,&!^](?![^\[]*\])")
"""Between sets, outside brackets."""
_RANGE = re.compile(r" *([0-9]{1,18})(?: *- *([0-9]{1,18})(?:/([0-9]{1,18}))?)? *")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:")


def expand(text: str, where: str = "", most: int = LARGEST_SET) -> tuple[str, ...]:
    """The names a node set stands for, in its own order; `InputError` where it is none."""
    if text and _PLAIN.issuperset(text):
        return (text,)
    size = _size(text)
    if size is None:
        raise InputError(where, f"{shown(text)} is not a node set: brackets hold 1-4,7 or 0-8/2")
    if size > most:
        many = size if size < COUNTLESS else "countless"
        raise InputError(where, f"{shown(text)} names {many} nodes, more than {most}")
    from ClusterShell.NodeSet import (
        RESOLVER_NOGROUP,
        NodeSet,
        NodeSetException,
    )  # slow to load, seldom needed

    try:
        names = tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError, AssertionError) as error:
        raise InputError(where, f"{shown(text)} is not a node set: {error}") from error
    if not names:
        raise InputError(where, f"{shown(text)} names no node")
    return names


@lru_cache(maxsize=1000)
def named_nodes(options: tuple[str, ...], name: str) -> frozenset[str]:
    """Nodes that the last ``--exclude=`` or ``--nodelist=`` of some options names.

    None where only the batch system knows them, by a file.
    """
    begin = f"--{name}="
    text = next((each[len(begin) :] for each in options[::-1] if each.startswith(begin)), "/")
    try:
        return frozenset() if "/" in text else frozenset(expand(text, most=MOST_NAMED))
    except InputError:
        return frozenset()


def expand_counts(counts: Mapping[str, Value], where: str) -> dict[str, Value]:
    """Expand the node sets in a nodes map, in which no node may come twice; each has the value."""
    out: dict[str, Value] = {}
    for text, count in counts.items():
        for name in expand(text, f"{where}.{text}"):
            if name in out:
                raise InputError(f"{where}.{text}", f"node {shown(name)} is named twice")
            out[name] = count
    return out


def _size(text: str) -> int | None:
    """The most nodes that a text can name; None where a bracket holds no range.

    ClusterShell would build a[1-99999999999] before anyone could ask its length.
    """
    total = 0
    for one in _SEPARATOR.split(text):
        product = 1
        for inside in _BRACKET.findall(one):
            size = 0
            for part in inside.split(","):
                found = _RANGE.fullmatch(part)
                if found is None:
                    return None
                low, high, step = found.groups()
                size += 1 if high is None else (int(high) - int(low)) // max(int(step or 1), 1) + 1
            product *= max(size, 1)
        total += product
    return total


def fold(names: Iterable[str]) -> str:
    """The shortest node set for these names; of names that no node can have, just a list."""
    listed = list(names)
    if len(listed) <= 1:
        return "".join(listed)
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return str(NodeSet.fromlist(listed, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError, AssertionError):
        return ",".join(listed)


_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL | re.ASCII)


def fold_in_order(names: Iterable[str]) -> str:
    """Join consecutive numbers, in the order given: cheaper than `fold`, for many short lists."""
    sets: list[tuple[str, list[list[str]]]] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        prefix, digits = found.groups() if found else (name, "")
        if not digits or not sets or sets[-1][0] != prefix or not sets[-1][1]:
            sets.append((prefix, [[digits, digits]] if digits else []))
            continue
        runs = sets[-1][1]
        if str(int(runs[-1][1]) + 1).zfill(len(runs[-1][1])) == digits:
            runs[-1][1] = digits
        else:
            runs.append([digits, digits])
    return ",".join(map(_written, sets))


def _written(one: tuple[str, list[list[str]]]) -> str:
    prefix, runs = one
    ranges = [low if low == high else f"{low}-{high}" for low, high in runs]
    if len(ranges) == 1 and "-" not in ranges[0]:
        return prefix + ranges[0]
    return f"{prefix}[{','.join(ranges)}]" if ranges else prefix
