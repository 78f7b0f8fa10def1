"""Arrays of list scheduling on counts (see `listing`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from coalloc.policies.kernel.record import Floats, Ints, record

MADE, BLEND, HELD = 0, 1, 2
LENGTH, LOADS, RUNNING, USED, STARTED = 0, 1, 2, 3, 4


@record
class Rows(NamedTuple):
    """Free units before anything is listed, T stretches of time; never written by a kernel."""

    time: Floats  # T
    free: Ints  # T x C, units
    load: Ints  # T x K, units of a link's capacity
    dips: Ints  # T: something becomes less after this row
    able: Floats  # 1, power of all usable slots
    weight: Floats  # N
    weight_sum: Floats  # 1, of the jobs listed
    job: Ints  # N, place in the queue
    area: Floats  # N, least power * s
    ready: Floats  # N, s
    missing: Ints  # N, parents without a place
    first_use: Ints  # 1, where the uses of listed items may begin


@record
class ListingGenes(NamedTuple):
    """Decisions of a search."""

    order: Ints  # L
    mode: Ints  # N
    level: Ints  # N
    home: Ints  # N
    block: Ints  # N
    sc: Floats  # N


@record
class ListingDesk(NamedTuple):
    """Working memory."""

    free: Ints  # C
    least: Ints  # C
    avail: Ints  # K
    low: Ints  # K
    upper: Ints  # K
    rank: Ints  # K
    take: Ints  # K
    best: Ints  # K
    load: Ints  # K
    ahead: Ints  # K
    limit: Ints  # K
    cost: Floats  # K
    count: Any  # C, processes that each allowed class of an item takes
    use_class: Ints  # C
    use_procs: Ints  # C
    follows: Ints  # L
    procs: Ints  # L, by order
    started: Ints  # L
    running: Ints  # L, by falling end
    units: Ints  # N x K, load of a running item
    ready: Floats  # N
    missing: Ints  # N
    last: Floats  # jobs, latest end
    power: Floats  # N, power that a running item holds
    level: Ints  # N, the choice; -1 once it has left no place
    home: Ints  # N, likewise
    measure: Floats  # MADE, s; BLEND, see `listing`; HELD, power of what `lay` laid
    counters: Ints  # 8
