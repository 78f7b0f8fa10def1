"""The simple orders and backfilling (DESIGN: policies).

A policy here is a key to sort by, and a decoder. Ties keep arrival order. A moldable job or a task
of a workflow sorts by its smallest allotment; where it runs, it takes the allotment that ends
earliest, of equal ones the smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coalloc.policies.base import Solve
from coalloc.policies.kernel.decoding import Planner, Schedule
from coalloc.policies.kernel.modes import Item
from coalloc.policies.one_pass import one_pass


def arrival(item: Item) -> float:
    """Every item alike: the order of the queue stays."""
    return 0.0


def fewest(item: Item) -> float:
    """Processes, of the smallest allotment."""
    return float(item.modes[0][0])


def most(item: Item) -> float:
    """Processes, largest first."""
    return -fewest(item)


def shortest(item: Item) -> float:
    """Base time of the smallest allotment, seconds."""
    return item.modes[0][1] + item.modes[0][2]


def longest(item: Item) -> float:
    """Base time, longest first."""
    return -shortest(item)


KEYS: Mapping[str, Callable[[Item], float]] = {
    "fcfs": arrival,
    "sjf": fewest,
    "bjf": most,
    "spt": shortest,
    "lpt": longest,
    "fpfs": arrival,
    "easy": arrival,
    "conservative": arrival,
}
DECODERS: Mapping[str, str] = {
    "fcfs": "strict",
    "sjf": "strict",
    "bjf": "strict",
    "spt": "strict",
    "lpt": "strict",
    "fpfs": "event",
    "easy": "easy",
    "conservative": "insert",
}


def sort_items(planner: Planner, name: str) -> list[int]:
    """Return the items in the order of this policy."""
    items = planner.items
    key = KEYS[name]
    return sorted(range(len(items)), key=lambda n: key(items[n]))


def _solver(name: str) -> Solve:
    def lay(planner: Planner, options: Mapping[str, Any]) -> tuple[Schedule, Mapping[str, Any]]:
        decoder = "event" if options.get("skip") else DECODERS[name]
        return planner.decode(sort_items(planner, name), decoder), {}

    return one_pass(name, lay)


SOLVERS: Mapping[str, Solve] = {name: _solver(name) for name in KEYS}
