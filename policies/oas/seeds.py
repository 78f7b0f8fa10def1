"""Beginnings of a search: simple orders, the balanced rule, and what was planned before.

The *balanced* rule is the pattern that the extended OAS paper finds in optimal plans (section on
the effects of the ordering): jobs with heavy processing, by sigma * base_time, on powerful nodes,
the light ones on weak nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.search.annealing import Domains
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.search.listing_state import ListingGenes
from coalloc.policies.orders.simple import sort_items


def area(item: Item) -> float:
    """Slots times seconds of the smallest allotment, at power 1."""
    return item.modes[0][0] * (item.modes[0][1] + item.modes[0][2])


def smith(item: Item) -> float:
    """Area by weight: the order that keeps the sum of weighted ends small."""
    return area(item) / max(item.job.weight, 1e-12)


RULES: Mapping[str, Callable[[Item], float]] = {
    "area": lambda item: -area(item),
    "smith": smith,
    "weighted-shortest": lambda item: smith(item) / item.modes[0][0],
}


def by_rule(planner: Planner, items: Sequence[int], name: str) -> list[int]:
    """Some items in the order of a simple policy, or of one of `RULES`."""
    if name in RULES:
        return sorted(items, key=lambda n: RULES[name](planner.items[n]))
    chosen = set(items)
    return [n for n in sort_items(planner, name) if n in chosen]


def balanced(lister: Lister, domains: Domains) -> ListingGenes:
    """Heavy items on powerful nodes, light ones on weak nodes.

    The items, heaviest first, share out the levels of power so that each level and the stronger
    ones get the part of the work that they can do.
    """
    problem, planner = lister.problem, lister.planner
    # By sigma * base_time of the smallest allotment.
    order = sorted(lister.items.tolist(), key=lambda n: -planner.items[n].modes[0][1])
    genes = lister.genes(order)
    if not order or not lister.rows.free.size:
        return genes
    able = lister.rows.free.max(axis=0) // problem.class_grain * problem.class_power
    able = np.cumsum(able) / max(able.sum(), 1e-300)
    total = max(sum(area(planner.items[n]) for n in order), 1e-300)
    done = 0.0
    for n in order:
        share = (done + 0.5 * area(planner.items[n])) / total
        done += area(planner.items[n])
        choices = domains.levels[n, 2 : 1 + domains.levels[n, 0]]
        choices = choices[choices < able.size]
        fitting = choices[able[choices] >= share] if choices.size else choices
        if choices.size:
            genes.level[n] = fitting[0] if fitting.size else choices[-1]
    return genes
