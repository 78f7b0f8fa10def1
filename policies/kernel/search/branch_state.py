"""Arrays of the exact search, in tuples with names; columns by constants."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from coalloc.policies.kernel.record import Floats, Ints, record

DEPTH, WORK, STORED, FOUND, PRUNED = 0, 1, 2, 3, 4
DEADLINE, COST_LIMIT, MARGIN, WEIGHTED = 0, 1, 2, 3
FIRST, BEFORE, TWIN, UNITS, WORD, WORTH = 0, 1, 2, 3, 4, 5
RELEASE, WEIGHT, TAIL, AFTER, LEAST = 0, 1, 2, 3, 4
ROW, EVENT, WAITING, RUNNING, KEY, JOB, PATTERN, MOVED = 0, 1, 2, 3, 4, 6, 7, 8
TIME, COST, ENERGY = 0, 1, 2
START, END, BEST_START, BEST_END = 0, 1, 2, 3
CHOSEN, BEST_CHOSEN, BY_END = 0, 1, 2

RELATIVE = 5e-10
"""By so much a plan must be better, relative."""
WAYS = 8
"""Places of the memo in which a state may be kept."""
LATE = 5e-7
"""By so much a job may pass the begin of a reservation, seconds: half the checker's tolerance."""


@record
class Model(NamedTuple):
    """The problem: N items, P patterns, C classes, K clusters, V price vectors, T rows.

    Columns are named by the constants above. A *row* is a stretch of time with the same nodes and
    links left by what runs now; its first column is when it begins.
    """

    classes: int  # C
    take: Ints  # P x (C + K), units of classes and loads of links
    asks: Floats  # P x (1 + V), seconds, then the share of the machine by each price vector
    spare: Ints  # P x K, what its slowdown leaves unused of the links; P x 0 without saturation
    shut: Ints  # P, set of reservations it may not meet
    reserved: Floats  # R x 2
    items: Ints  # (N + 1) x 6: patterns, sets of items, a twin or -1, units, digit of the key
    runs: Floats  # N x 5, seconds, but the weight
    energy: Floats  # N x V, least seconds x share
    smith: Ints  # V x N, items by rising energy / weight
    rows: Ints  # T x (C + K), what is there
    times: Floats  # T x (1 + V), when it begins, then the share that is not there


@record
class Stack(NamedTuple):
    """One frame for each start and each event on the way to the present node."""

    frame: Annotated[Ints, "D", 9]
    room: Annotated[Ints, "D", "things"]  # C + K, what is free
    spare: Annotated[Ints, "D", "links"]  # K, the most that a running pattern leaves unused, or 0
    value: Annotated[Floats, "D", "sums"]  # time, cost; energy used, wasted and needed; share used
    plan: Annotated[Floats, "N", 4]  # seconds
    chosen: Annotated[Ints, "N", 3]  # patterns; the last column is scratch
    supply: Annotated[Floats, "V"]  # energy there is before the deadline
    counters: Annotated[Ints, 5]
    limits: Annotated[Floats, 4]


@record
class Memo(NamedTuple):
    """States that were explored."""

    key: Ints  # M x 2, zero where empty
    state: Floats  # M x (N + 2): time, cost, ends of what runs by rising number
