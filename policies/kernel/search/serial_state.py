"""The arrays of the serial builder, of its annealing and of the mapping by earliest finish.

All of them read a `Problem` whose classes are numbered cluster by cluster, and in which tasks that
have started are parents like others, B of them, numbered behind its N items.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from coalloc.policies.kernel.record import Counts, Floats, Ints, record
from coalloc.policies.kernel.state import Problem

ANY, SPLIT = -1, -2
BLEND, MADE, SUM = 5, 6, 7
"""Of `Annealing.value`: how much the mean end counts beside the last one; and of what `schedule`
built last, the last end and the weighted sum of ends, seconds from now."""
CHAIN, APPEND, PACK, IDLE = 3, 4, 5, 6
"""Of `Annealing.count`: how many items `SerialDesk.chain` holds; flags of `schedule`: an item needs
its slots free ever after, and it may have fewer processes where it ends sooner so; whether the last
move changed nothing."""


@record
class Site(NamedTuple):
    """Free slots before anything is listed: K clusters, C classes numbered cluster by cluster."""

    first: Ints  # K + 1, classes of each cluster, by falling power
    rows: Ints  # K, stretches
    time: Floats  # K x T, s
    free: Counts  # K x T x classes of a cluster
    load: Ints  # K x T, units of the link
    room: Ints  # G x K, processes on an empty cluster


@record
class Items(NamedTuple):
    """N items to be placed, beside what the problem says; times are s at power 1."""

    scaled: Floats  # N x 2: a + b / n, n the processes
    fixed: Floats  # N x 2
    comm: Floats  # Gbit of the all-to-all
    low: Ints
    high: Ints
    limit: Floats  # s, no run is longer
    table_first: Ints  # N + 1; empty where the time is a + b / n
    table_procs: Ints
    table_scaled: Floats
    table_fixed: Floats
    splits: Ints
    weight: Floats  # of its job
    job: Ints
    tail: Floats  # s, least time behind it
    overhead: Floats  # N, share of the time that being split may cost
    books: Ints  # 1, whether tasks that are split book their links


@record
class SerialGenes(NamedTuple):
    """Decisions of a search."""

    order: Ints  # L, parents first
    procs: Ints  # N
    home: Ints  # N
    parts: Ints  # N x K
    low: Floats  # N


@record
class SerialDesk(NamedTuple):
    """Working memory."""

    rows: Ints  # K
    time: Floats  # K x T
    free: Counts  # K x T x classes
    load: Ints  # K x T
    least: Annotated[Ints, "C"]
    want: Annotated[Ints, "K"]
    best: Annotated[Ints, "K"]
    place: Annotated[Ints, "vertices"]  # N + B, in the order; -1 is none
    chain: Annotated[Ints, "N"]
    saved: Annotated[Ints, "K"]
    last: Annotated[Floats, "jobs"]


@record
class Out(NamedTuple):
    """Placements of the items."""

    start: Floats  # N
    end: Floats  # N + B
    parts: Ints  # (N + B) x K, processes; of tasks that have started, 1 on their clusters
    use_first: Annotated[Ints, "N"]  # where the classes begin that an item takes
    use_count: Annotated[Ints, "N"]
    use_class: Annotated[Ints, "pool"]
    use_procs: Annotated[Ints, "pool"]
    used: Annotated[Ints, 1]  # entries of the last two


class SerialState(NamedTuple):
    """All that the serial builder reads and writes."""

    problem: Problem
    site: Site
    items: Items
    desk: SerialDesk
    out: Out


@record
class Choices(NamedTuple):
    """Processes that items may have where they are mapped: S rows, those of an item in a row."""

    procs: Ints  # S
    low: Ints  # N x K, first row on each cluster alone
    high: Ints  # N x K, last row; below the first if there is none
    wide_row: Ints  # N, a row that may also be spread over clusters; -1 if there is none
    wide_want: Ints  # N x K, the processes on each cluster then
