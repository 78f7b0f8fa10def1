"""Arrays of the compiled kernels, in tuples with names.

Units are in the names or beside the fields; N items, M modes, G groups, C classes, K clusters.
`record.room_for` makes arrays of the shapes that annotations have.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from coalloc.policies.kernel.record import Bools, Counts, Floats, Ints, record

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
STRICT, INSERT, EVENT, EASY, RESERVE = 0, 1, 2, 3, 4
"""Decoders; the last is EASY with a reservation for each job that does not fit now."""
MAKESPAN, WEIGHING = 0, 1
"""Objectives of the searches: the last end, and the sum of weight x end."""

ROWS, FREE_ROWS, BLOCKS, FREE_BLOCKS = 0, 1, 2, 3
WINDOWS, STAMP, USES, REMEMBERED = 0, 1, 2, 3
STEPS, SEEN = 32, 256
"""Steps, and rows, that `look_ahead` goes."""
BLOCK, SIZES = 32, 64
"""Live items of a block, blocks of a stretch, and classes of processes, by powers of 2: `events`
skips blocks and stretches."""
MEMORY = 2048
"""Starts that `recall` looks through."""


@record
class Problem(NamedTuple):
    """Items to be placed and the platform; never written by a kernel.

    N items, M modes, G groups, C classes, K clusters, R reservations.
    """

    mode_first: Ints  # N + 1
    mode_procs: Ints  # M
    mode_scaled: Floats  # M, s at power 1: the part that scales with 1 / power
    mode_fixed: Floats  # M, s
    mode_comm: Floats  # M, Gbit / process: divided by a cluster's intra_gbps
    item_group: Ints  # N
    item_release: Floats  # N, s
    item_limit: Floats  # N, s: no run takes longer, on nodes of any power
    item_gbps: Floats  # N
    item_splits: Bools  # N
    item_apart: Ints  # N, row of the next: for data or communication each cluster is tried; -1: no
    item_arrival: Floats  # A x K, s: the release, and data of tasks that have started
    item_wide: Ints  # N, row of the next two: a task that no cluster holds alone; -1: any other
    wide_parts: Ints  # W x K, its processes on each cluster
    wide_units: Ints  # W x K, its load of each link
    parent_first: Ints  # N + 1
    parent: Ints  # edges
    parent_gbit: Floats  # edges; below 0 a mere order
    child_first: Ints  # N + 1
    child: Ints  # edges
    need: Ints  # G x C, units per process, 0 not allowed
    group_class: Ints  # G x C, allowed classes by falling power
    group_size: Ints  # G
    group_plain: Bools  # G, whether every class is allowed and takes one unit a process
    exempt: Ints  # G x R
    class_cluster: Ints  # C
    class_power: Floats  # C
    class_grain: Ints  # C, units in a slot
    closed_first: Ints  # C + 1
    closed: Ints  # reservations of each class
    reserved: Floats  # R x 2, start and end, s
    link_gbps: Floats  # K
    inverse_intra: Floats  # K, s / Gbit
    latency: Floats  # K, s


@record
class Base(NamedTuple):
    """The profile before anything is placed: T rows."""

    time: Floats  # T
    free: Counts  # T x C
    load: Ints  # T x K


@record
class Profile(NamedTuple):
    """Free slots and link load over time."""

    free: Annotated[Counts, "rows", "units"]  # units of classes, then whole slots of clusters
    load: Annotated[Ints, "rows", "K"]
    recycled: Annotated[Ints, "rows"]  # given back
    block: Annotated[Ints, "blocks"]  # in order
    recycled_block: Annotated[Ints, "blocks"]
    filled: Annotated[Ints, "blocks"]  # entries
    time: Annotated[Floats, "blocks", WIDTH]
    row: Annotated[Ints, "blocks", WIDTH]
    total: Annotated[Ints, "blocks", WIDTH]
    peak: Annotated[Ints, "blocks", WIDTH]
    dip: Annotated[Ints, "blocks", WIDTH]
    dips: Annotated[Ints, "blocks"]
    bounds: Annotated[Ints, "blocks", 4]  # min total, max total, min peak, max peak
    owed: Annotated[Counts, "blocks", "units"]  # to take off each row of `free`: see `apply_owed`
    owed_load: Annotated[Ints, "blocks", "K"]  # to add to each row of `load`
    owes: Annotated[Ints, "blocks"]  # the same of each total; 0: all is taken off
    size: Annotated[Ints, 4]  # ROWS, FREE_ROWS, BLOCKS, FREE_BLOCKS


@record
class Scratch(NamedTuple):
    """Working memory of the kernels."""

    least: Annotated[Counts, "C"]  # minimum over the window
    until: Annotated[Floats, "C"]  # when a reservation closes the class
    procs: Annotated[Ints, "C"]  # processes that fit, by the order of the group's classes
    avail: Annotated[Ints, "K"]  # processes that fit
    loaded: Annotated[Ints, "K"]  # the largest load of the link over the window
    low: Annotated[Ints, "K"]  # see `loads.low_side`
    take: Annotated[Ints, "K"]  # a split that is tried
    best_take: Annotated[Ints, "K"]  # the split that is chosen
    left: Annotated[Ints, "K"]  # of a split what has no class yet
    cost: Annotated[Floats, "K"]  # power of the classes that a cluster would give
    rank: Annotated[Ints, "K"]  # clusters by what they offer
    pick_class: Annotated[Ints, "C"]
    pick_procs: Annotated[Ints, "C"]
    best_class: Annotated[Ints, "C"]
    best_procs: Annotated[Ints, "C"]
    stamp: Annotated[Ints, "G"]
    sums: Annotated[Ints, "G", 2]  # processes that fit now, in all and on one cluster
    reach: Annotated[Ints, "G", "C"]  # running sum of what is free now, by falling power
    shared: Annotated[Ints, "K"]  # whole slots, or processes: sums of one row
    counters: Annotated[Ints, 4]  # WINDOWS, STAMP, USES, REMEMBERED
    memory: Annotated[Floats, MEMORY, 6]  # group, whole, processes, shortest and longest run, start
    position: Annotated[Ints, "N"]
    live: Annotated[Ints, "N"]  # what `events` has still to place, by order
    live_procs: Annotated[Ints, "N"]  # smallest allotment
    live_ready: Annotated[Floats, "N"]  # s
    live_top: Annotated[Floats, "N"]  # s on the strongest nodes
    live_whole: Annotated[Ints, "N"]  # 1 if it may not be split
    block_top: Annotated[Floats, "B", SIZES]  # s: the shortest of each size, blocks, then stretches
    block_late: Annotated[Bools, "B"]  # an item may start later only, likewise
    until_size: Annotated[Floats, SIZES]  # s: until when so many are free
    stair: Annotated[Ints, STEPS, 2]  # see `look_ahead`
    stair_time: Annotated[Floats, STEPS]  # s
    stair_least: Annotated[Counts, "C"]


@record
class Outcome(NamedTuple):
    """Placements of the items."""

    start: Annotated[Floats, "N"]  # nan where not placed
    end: Annotated[Floats, "N"]
    mode: Annotated[Ints, "N"]  # index into the item's modes
    use_first: Annotated[Ints, "N"]
    use_count: Annotated[Ints, "N"]
    use_class: Annotated[Ints, "pool"]
    use_procs: Annotated[Ints, "pool"]
    missing: Annotated[Ints, "N"]  # parents without a place
    ready: Annotated[Floats, "N"]  # s


@record
class ProfileState(NamedTuple):
    """Items and their places on one profile: what a decoder reads and changes."""

    problem: Problem
    profile: Profile
    scratch: Scratch
    out: Outcome
    fixed_mode: Ints  # N, the only mode that an item may have; -1: any
