"""Items that cannot run at the same time: a clique of them runs one after the other.

Two items exclude each other if their processes are more than the slots of all that either may use,
or if every pair of their splits overdraws a slot count of a cluster or a link.

Notes
-----
`links_exclude` looks for a pair of splits cluster by cluster: how many processes of one item can
be placed at most if the other has placed so many. The other's counts are cut into runs; a run
counts its largest number of processes and costs its least slots and its least load, so that a pair
which this rules out is truly impossible. With runs of one process it is exact. What is left of a
link admits 0..w or n - w..n processes; the upper part stands on one cluster at most.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coalloc.policies.bounds.columns import low_sides
from coalloc.policies.bounds.supply import Flags, Floats, Ints

Stop = Callable[[], bool]


def heaviest_clique(excluded: Flags, weight: Floats, seeds: int) -> Ints:
    """Seek a set of pairwise excluded items of large weight: greedy from several first items.

    `excluded` (N x N): symmetric.
    """
    best: list[int] = []
    most = 0.0
    order = np.argsort(-weight, kind="stable")
    reach = excluded @ weight + weight
    for seed in np.argsort(-reach, kind="stable")[:seeds]:
        chosen = [int(seed)]
        open_ = excluded[seed] & (weight > 0.0)
        while open_.any():
            # the item that leaves most weight to choose from, itself included
            rest = np.flatnonzero(open_)
            if rest.size > 64:
                n = int(order[open_[order]][0])
            else:
                n = int(rest[(excluded[np.ix_(rest, rest)] @ weight[rest] + weight[rest]).argmax()])
            chosen.append(n)
            open_ &= excluded[n]
        total = float(weight[chosen].sum())
        if total > most:
            best, most = chosen, total
    return np.array(sorted(best), dtype=np.int64)


def links_exclude(
    procs: Ints,
    gbps: Floats,
    room: Ints,
    links: Floats,
    slots: Ints,
    pairs: Ints,
    runs: int,
    stop: Stop,
) -> Flags:
    """Whether every way to place a pair overdraws something; False where that is not sure.

    `room` (N x K): processes of an item that a cluster takes.
    `links`, `slots`: capacity of an empty cluster.
    `runs`: runs into which the counts of the second item of a pair are cut, per cluster.
    """
    out = np.zeros(len(pairs), dtype=np.bool_)
    chunk = max(1, 200_000 // max(runs * runs * len(slots), 1))
    for at in range(0, len(pairs), chunk):
        if stop():
            break
        part = pairs[at : at + chunk]
        out[at : at + chunk] = _exclude(procs, gbps, room, links, slots, part, runs)
    return out


def _exclude(
    procs: Ints, gbps: Floats, room: Ints, links: Floats, slots: Ints, pairs: Ints, runs: int
) -> Flags:
    i, j = pairs[:, 0], pairs[:, 1]
    n, m = procs[i], procs[j]
    step = np.maximum(-(-np.minimum(m, slots.max()) // runs), 1)  # Q
    target = -(-m // step)  # runs that hold all processes of j
    states = int(target.max()) + 1
    # most processes of i, with nothing or one cluster above the half, by runs of j so far
    reached = np.full((2, pairs.shape[0], states), -1.0)
    reached[0, :, 0] = 0.0
    for k in range(slots.size):
        following = np.full_like(reached, -1.0)
        for run in range(int(target.max()) + 1):
            least = np.where(run > 0, (run - 1) * step + 1, 0)
            last = np.minimum(run * step, np.minimum(m, room[j, k]))
            possible = (least <= last) & (least <= slots[k])
            if not possible.any():
                break
            load = _least_load(m, gbps[j], least, np.minimum(last, slots[k]))
            small, large = _beside(n, gbps[i], room[i, k], slots[k] - least, links[k] - load)
            if run:
                possible &= links[k] * (1.0 + 1e-9) - load >= 0.0
            for lead in (0, 1):
                for gain, upto in ((small, lead), (large, lead + 1)):
                    if upto > 1:
                        continue
                    grown = np.where(
                        possible[:, None] & (gain >= 0)[:, None] & (reached[lead] >= 0.0),
                        reached[lead] + gain[:, None],
                        -1.0,
                    )[:, : states - run]
                    np.maximum(following[upto, :, run:], grown, out=following[upto, :, run:])
        reached = following
    ends = np.take_along_axis(
        np.maximum.accumulate(reached.max(axis=0)[:, ::-1], axis=1)[:, ::-1],
        target[:, None],
        axis=1,
    )[:, 0]
    return np.asarray(ends < n)


def _least_load(m: Ints, gbps: Floats, least: Ints, last: Ints) -> Floats:
    """Smallest load of least..last of m processes: concave, so at an end."""
    over = np.maximum(m - 1, 1)
    ends = [gbps * t * (m - t) / over for t in (least, np.maximum(last, least))]
    return np.asarray(np.minimum(*ends))


def _beside(n: Ints, gbps: Floats, room: Ints, slots: Ints, link: Floats) -> tuple[Ints, Ints]:
    """Most of n processes on one cluster, on the low side and above it (-1: none)."""
    cap = np.minimum(room, slots)
    low = low_sides(n, gbps, np.maximum(link, 0.0) * (1.0 + 1e-9))
    small = np.minimum(low, cap)
    large = np.where(np.minimum(cap, n) >= n - low, np.minimum(cap, n), -1)
    return np.where(cap >= 0, small, -1), large
