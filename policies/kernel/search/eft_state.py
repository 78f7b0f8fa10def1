"""The arrays of the mapping by earliest finish time.

N items, B tasks that have started, S rows of costs, G groups, C classes of nodes, K clusters.
"""

from __future__ import annotations

from typing import NamedTuple

from coalloc.policies.kernel.record import Counts, Floats, Ints, record


@record
class Ground(NamedTuple):
    """Items to be mapped and the platform; never written."""

    parent_first: Ints  # N + 1
    parent: Ints  # edges; N and more are tasks that have started
    parent_gbit: Floats  # edges; below 0 a mere order
    release: Floats  # N, s
    group: Ints  # N
    gbps: Floats  # N, of a plain job's process
    procs: Ints  # S
    scaled: Floats  # S, s at power 1
    fixed: Floats  # S, s
    gbit: Floats  # S, Gbit a process
    need: Ints  # G x C, units per process
    group_class: Ints  # G x C, by falling power
    group_size: Ints  # G
    exempt: Ints  # G x reservations
    class_cluster: Ints  # C
    class_power: Floats  # C
    closed_first: Ints  # C + 1
    closed: Ints
    reserved: Floats  # reservations x 2, s
    link_gbps: Floats  # K
    inverse_intra: Floats  # K, s / Gbit
    latency: Floats  # K, s
    base_time: Floats  # T
    base_free: Counts  # T x C
    base_load: Ints  # T x K
    begun_end: Floats  # B, s
    begun_spread: Ints  # B x K


@record
class Board(NamedTuple):
    """Mapped items, and working memory."""

    time: Floats  # R, s
    slot: Ints  # R, where the row of an instant stands
    free: Counts  # R x C
    load: Ints  # R x K
    size: Ints  # 3: instants, uses, searches
    start: Floats  # N, s
    end: Floats  # N + B, s; inf where not mapped
    row: Ints  # N
    spread: Ints  # (N + B) x K, processes
    use_first: Ints  # N
    use_count: Ints  # N
    use_class: Ints
    use_procs: Ints
    least: Ints  # C
    shut: Floats  # C, s
    have: Ints  # K
    want: Ints  # K
    units: Ints  # K
    best_least: Ints  # C
    best_want: Ints  # K
    best: Floats  # 4: end, start, size, row
