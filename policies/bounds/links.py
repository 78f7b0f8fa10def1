"""Link loads of a job's splits.

By equation (4), t of n processes inside a cluster load its link with h(t) = b t (n - t) / (n - 1),
which is concave. With prices z on the links the cheapest split of a job is a linear price on a
polytope's vertices: all clusters but one take nothing or all they can.

Notes
-----
`least_load` replaces h by the chord from 0 to the most that a cluster takes, which is below h, and
fills clusters by rising slope. Where all links have the same price it fills the largest cluster
first and charges h itself: the sum of t (n - t) is n^2 less the sum of squares, which a largest
first filling makes largest, so this is exact but for the counts that a link does not admit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coalloc.policies.bounds.columns import SPLIT, Columns
from coalloc.policies.bounds.rows import BoundRow, Domain
from coalloc.policies.bounds.supply import Floats, Supply


def least_load(columns: Columns, gbps: Floats, price: Floats) -> Floats:
    """Smallest sum of price times load of each column, over all splits that it stands for: P.

    `gbps`: bandwidth of one process.
    `price`: of a Gbit/s on each link, at least 0.
    """
    out = np.zeros(columns.item.size)
    row = np.flatnonzero((columns.shape == SPLIT) & (gbps > 0.0) & (columns.procs > 1))
    if not row.size:
        return out
    n = columns.procs[row, None].astype(np.float64)
    upper = np.minimum(columns.most[row].astype(np.float64), n - 1.0)
    equal = price.min(initial=np.inf) == price.max(initial=0.0)
    slope = price[None, :] * (n - upper) / (n - 1.0)
    order = np.argsort(np.where(upper > 0.0, slope, np.inf), axis=1, kind="stable")
    upper = np.take_along_axis(upper, order, axis=1)
    before = np.cumsum(upper, axis=1) - upper
    take = np.clip(n - before, 0.0, upper)
    if equal:
        load = price[0] * (take * (n - take)).sum(axis=1) / (n[:, 0] - 1.0)
    else:
        load = (take * np.take_along_axis(slope, order, axis=1)).sum(axis=1)
    out[row] = load * gbps[row]
    return out


def link_rows(
    columns: Columns, supply: Supply, domain: Domain, gbps: Floats, prices: list[Floats]
) -> Iterator[BoundRow]:
    """Load of all links, each at its price, against their capacity at that price."""
    for price in prices:
        usable = np.where(domain.cluster & np.isfinite(supply.links).all(axis=0), price, 0.0)
        if not usable.any():
            continue
        load = np.where(domain.columns, least_load(columns, gbps, usable), 0.0)
        capacity = np.where(usable > 0.0, supply.links, 0.0) @ usable
        if capacity.max(initial=0.0) <= 0.0:
            continue
        yield BoundRow(family="links", amount=load * columns.seconds, supply=capacity)


def plain_prices(supply: Supply, singly: bool) -> list[Floats]:
    """All links alike; each by its capacity; and each link by itself if `singly`."""
    links = supply.links.max(axis=0, initial=0.0)
    out = [np.ones(links.size)]
    with np.errstate(divide="ignore"):
        share = np.where((links > 0.0) & np.isfinite(links), 1.0 / links, 0.0)
    if share.any() and share.min() != share.max():
        out.append(share)
    if singly and links.size > 1:
        out += list(np.eye(links.size))
    return out
