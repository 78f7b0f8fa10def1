"""Arrays of list scheduling on counts (see `listing`)."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from coalloc.policies.kernel.record import Floats, Ints, record
from coalloc.policies.kernel.state import Outcome, Problem

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

    free: Annotated[Ints, "C"]
    least: Annotated[Ints, "C"]
    avail: Annotated[Ints, "K"]
    low: Annotated[Ints, "K"]
    upper: Annotated[Ints, "K"]
    rank: Annotated[Ints, "K"]
    take: Annotated[Ints, "K"]
    best: Annotated[Ints, "K"]
    load: Annotated[Ints, "K"]
    ahead: Annotated[Ints, "K"]
    limit: Annotated[Ints, "K"]
    cost: Annotated[Floats, "K"]
    count: Annotated[Any, "C"]  # processes that each allowed class of an item takes
    use_class: Annotated[Ints, "C"]
    use_procs: Annotated[Ints, "C"]
    follows: Annotated[Ints, "L"]
    procs: Annotated[Ints, "L"]  # by order
    started: Annotated[Ints, "L"]
    running: Annotated[Ints, "L"]  # by falling end
    units: Annotated[Ints, "N", "K"]  # load of a running item
    ready: Annotated[Floats, "N"]
    missing: Annotated[Ints, "N"]
    last: Annotated[Floats, "jobs"]  # latest end
    power: Annotated[Floats, "N"]  # power that a running item holds
    level: Annotated[Ints, "N"]  # the choice; -1 once it has left no place
    home: Annotated[Ints, "N"]  # likewise
    measure: Annotated[Floats, 3]  # MADE, s; BLEND, see `listing`; HELD, power of what `lay` laid
    counters: Annotated[Ints, 8]


class ListingState(NamedTuple):
    """All that a listing reads and writes."""

    problem: Problem
    rows: Rows
    genes: ListingGenes
    desk: ListingDesk
    out: Outcome
