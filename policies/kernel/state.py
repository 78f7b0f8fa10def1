"""What the compiled kernels work on: arrays, in tuples with names.

Units are in the names or beside the fields; N items, M modes, G groups, C classes, K clusters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

WIDTH = 64
TOL = 1e-9
SHORTEST = 5e-7
"""No placement is shorter, seconds: below the checker's tolerance, above a double's near 1e9."""
FINEST = 2.0**-50
"""Nor than this share of its start: far from 0 the neighbours of a double are further apart."""
FULL = 1 << 44
"""Load units of a link's whole capacity."""
MOST_LOAD = 64 * FULL
"""What a load counts as at most: sums of them stay whole numbers of 64 bits."""
ROUNDING = 1 << 12
"""Load units by which the sum may pass: 2.3e-10, for the rounding of each load."""
STRICT, INSERT, EVENT, EASY = 0, 1, 2, 3

ROWS, FREE_ROWS, BLOCKS, FREE_BLOCKS = 0, 1, 2, 3
WINDOWS, STAMP, USES, REMEMBERED, STAIRS = 0, 1, 2, 3, 4
SPARE, FIRST_START = 4, 5
STEPS, SEEN = 32, 256
"""Steps, and rows, that `look_ahead` goes."""
MEMORY = 2048
"""Starts that `recall` looks through."""


class Problem(NamedTuple):
    """What is to be placed and on what; never written by a kernel.

    N items, M modes, G groups, C classes, K clusters, R reservations.
    """

    mode_first: Any  # N + 1
    mode_procs: Any  # M
    mode_scaled: Any  # M, s at power 1: the part that scales with 1 / power
    mode_fixed: Any  # M, s
    mode_comm: Any  # M, Gbit / process: divided by a cluster's intra_gbps
    item_group: Any  # N
    item_release: Any  # N, s
    item_gbps: Any  # N
    item_splits: Any  # N
    item_apart: Any  # N: each cluster is tried by itself, for data or communication
    item_arrival: Any  # N x K, s: the release, and data of tasks that have started
    parent_first: Any  # N + 1
    parent: Any  # edges
    parent_gbit: Any  # edges; below 0 a mere order
    child_first: Any  # N + 1
    child: Any  # edges
    need: Any  # G x C, units per process, 0 not allowed
    group_class: Any  # G x C, allowed classes by falling power
    group_size: Any  # G
    group_plain: Any  # G, whether every class is allowed and takes one unit a process
    exempt: Any  # G x R
    class_cluster: Any  # C
    class_power: Any  # C
    class_grain: Any  # C, units in a slot
    closed_first: Any  # C + 1
    closed: Any  # reservations of each class
    reserved: Any  # R x 2, start and end, s
    link_gbps: Any  # K
    inverse_intra: Any  # K, s / Gbit
    latency: Any  # K, s
    patterns: Any  # P x K, processes per cluster, for searches that fix them


class Choice(NamedTuple):
    """What a search has fixed for each item; -1 and 0.0 leave it to the decoder."""

    mode: Any  # N, index into the item's modes
    power: Any  # N, level of power
    pattern: Any  # N, index into patterns


class Base(NamedTuple):
    """The profile before anything is placed: T rows."""

    time: Any  # T
    free: Any  # T x C
    load: Any  # T x K


class Profile(NamedTuple):
    """Free slots and link load over time."""

    free: Any  # rows x (C + K): units of classes, then whole slots of clusters
    load: Any  # rows x K
    recycled: Any  # rows given back
    block: Any  # blocks in order
    recycled_block: Any
    count: Any  # blocks
    time: Any  # blocks x WIDTH
    row: Any
    total: Any
    peak: Any
    dip: Any
    dips: Any  # blocks
    bounds: Any  # blocks x 4: min total, max total, min peak, max peak
    size: Any  # ROWS, FREE_ROWS, BLOCKS, FREE_BLOCKS


class Scratch(NamedTuple):
    """Working memory of the kernels."""

    least: Any  # C, minimum over the window
    until: Any  # C, when a reservation closes the class
    procs: Any  # C
    avail: Any  # K
    loaded: Any  # K
    low: Any  # K
    take: Any  # K
    best_take: Any  # K
    left: Any  # K
    cost: Any  # K
    rank: Any  # K
    pick_class: Any  # C
    pick_procs: Any  # C
    best_class: Any  # C
    best_procs: Any  # C
    pick: Any  # 5: length, clusters, jump; mode and length of the best
    pick_cost: Any  # 6: cost, weakest power, jump; start of the best; SPARE, FIRST_START
    stamp: Any  # G
    sums: Any  # G x 4: total now, peak now, total beside the head, peak beside the head
    reach: Any  # G x C, running sum of what is free now, by falling power
    shared: Any  # K
    counters: Any  # 5
    memory: Any  # MEMORY x 6: group, whole, processes, shortest and longest run, first start
    position: Any  # N
    live: Any  # N, what `events` has still to place, by order
    live_procs: Any  # N, smallest allotment
    live_ready: Any  # N, s
    live_top: Any  # N, s on the strongest nodes
    live_whole: Any  # N, 1 if it may not be split
    stair: Any  # STEPS x 2, see `look_ahead`
    stair_time: Any  # STEPS, s
    stair_least: Any  # C


class Outcome(NamedTuple):
    """Where the items went."""

    start: Any  # N, nan where not placed
    end: Any
    mode: Any  # N, index into the item's modes
    use_first: Any
    use_count: Any
    use_class: Any  # pool
    use_procs: Any  # pool
    missing: Any  # N, parents without a place
    ready: Any  # N, s
