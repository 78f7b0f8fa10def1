"""What list scheduling on counts reads, chooses and works in (see `listing`)."""

from __future__ import annotations

from typing import Any, NamedTuple

MAKESPAN, WEIGHTED = 0, 1
MADE, BLEND, HELD = 0, 1, 2
LENGTH, LOADS, RUNNING, USED, STARTED = 0, 1, 2, 3, 4


class Rows(NamedTuple):
    """What is free before anything is listed, T stretches of time; never written by a kernel."""

    time: Any  # T
    free: Any  # T x C, units
    load: Any  # T x K, units of a link's capacity
    dips: Any  # T: something becomes less after this row
    able: Any  # 1, power of all usable slots
    weight: Any  # N
    weight_sum: Any  # 1, of the jobs listed
    job: Any  # N, place in the queue
    area: Any  # N, least power * s
    ready: Any  # N, s
    missing: Any  # N, parents without a place
    first_use: Any  # 1, where the uses of listed items may begin


class Genes(NamedTuple):
    """What a search chooses."""

    order: Any  # L
    mode: Any  # N
    level: Any  # N
    home: Any  # N
    block: Any  # N
    sc: Any  # N


class Desk(NamedTuple):
    """Working memory."""

    free: Any  # C
    least: Any  # C
    avail: Any  # K
    low: Any  # K
    upper: Any  # K
    rank: Any  # K
    take: Any  # K
    best: Any  # K
    load: Any  # K
    ahead: Any  # K
    limit: Any  # K
    cost: Any  # K
    count: Any  # C, processes that each allowed class of an item takes
    use_class: Any  # C
    use_procs: Any  # C
    follows: Any  # L
    procs: Any  # L, by order
    started: Any  # L
    running: Any  # L, by falling end
    units: Any  # N x K, load of a running item
    ready: Any  # N
    missing: Any  # N
    last: Any  # jobs, latest end
    power: Any  # N, power that a running item holds
    level: Any  # N, the choice; -1 once it has left no place
    home: Any  # N, likewise
    measure: Any  # MADE, s; BLEND, see `listing`; HELD, power of what `lay` laid
    counters: Any  # 8
