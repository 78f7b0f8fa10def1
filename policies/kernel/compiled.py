"""The compiled kernel: a profile of node classes and links over time, and three decoders.

All kernels that call each other stand in this one file, although it is long: numba's cache keeps a
caller's old code when a callee in another file changes.

Why counts are enough
---------------------
A class is a set of nodes of one cluster, one power, the same features, memory and slots, covered by
the same reservations; the profile only counts its free slots. A plan that keeps the counts can
always be laid on real nodes: take the placements by start time and give each any free slots of its
class. Slots of a class are interchangeable, because whatever closes a node in the middle of the
time axis (a reservation) is part of the class, while running jobs and ``free_at`` close only a
beginning [time, x). So a slot that is free when a placement starts stays free until the next
placement is put on it, and the number of free slots at that instant is what the profile counts
(interval graphs are perfect). Where a process takes more than a slot of *one node*, the slots of a
class are no longer interchangeable; there every node is a class of its own, counted in units of
which a slot has `class_grain` (`intake`).

Notes
-----
*Profile.* Rows are stretches of constant free slots and link load; a row's data lie in a pool, and
blocks of up to `WIDTH` entries (start time, row, and two numbers for skipping) keep them in order.
``total`` is the number of whole free slots of a row, ``peak`` the largest sum of one cluster: a
block whose maxima are too small, or whose minima are large enough, is passed in one step. ``dip``
marks a row that may offer less than the one before it: only these can lower the minimum over a
window. `book` takes or gives back a placement; `undo` also removes the rows that `book` made, so
that a search that undoes in reverse order leaves no trace. Loads are whole numbers of 2**-44 of a
link's capacity: they add up and undo without drift.

*Fit.* `window` tries one start: levels of power from the strongest on, each with its own run time
A / power + B, its own window, and the minimum of free slots over it; the first level that fits ends
first. `seek` tries the starts from the earliest on, until none can end sooner. A split is found as
`split` describes (equation (4) is concave in t).

*Memory.* While a profile only fills, a job finds no start before that of an earlier one which asked
for no more processes and no more time on any power; `recall` begins there.

*Ties*: earlier end (within 1e-9 s), smaller allotment, fewer clusters, weaker nodes (less power in
sum), snapshot order.

References
----------
Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001 (EASY and conservative).
"""

from __future__ import annotations

from coalloc.policies.kernel.allotment import allot, fill, spread
from coalloc.policies.kernel.decoders import (
    begin,
    decode,
    events,
    following,
    line_up,
    look_ahead,
    may_fit,
    serial,
    survey,
)
from coalloc.policies.kernel.fit import (
    closes,
    descend,
    enough,
    enter,
    gather,
    retreat,
    room,
    window,
)
from coalloc.policies.kernel.jit import kernel, part
from coalloc.policies.kernel.loads import data_ready, load_units, low_side
from coalloc.policies.kernel.profile import (
    add_block,
    book,
    bound,
    cut,
    drop,
    locate,
    move,
    reset,
    undo,
)
from coalloc.policies.kernel.seek import clear, commit, recall, remember, seek
from coalloc.policies.kernel.state import (
    BLOCKS,
    EASY,
    EVENT,
    FINEST,
    FIRST_START,
    FREE_BLOCKS,
    FREE_ROWS,
    FULL,
    INSERT,
    MEMORY,
    MOST_LOAD,
    REMEMBERED,
    ROUNDING,
    ROWS,
    SHORTEST,
    SPARE,
    STAMP,
    STEPS,
    STRICT,
    TOL,
    USES,
    WIDTH,
    WINDOWS,
    Base,
    Choice,
    Outcome,
    Problem,
    Profile,
    Scratch,
)

__all__ = [
    "BLOCKS",
    "EASY",
    "EVENT",
    "FINEST",
    "FIRST_START",
    "FREE_BLOCKS",
    "FREE_ROWS",
    "FULL",
    "INSERT",
    "MEMORY",
    "MOST_LOAD",
    "REMEMBERED",
    "ROUNDING",
    "ROWS",
    "SHORTEST",
    "SPARE",
    "STAMP",
    "STEPS",
    "STRICT",
    "TOL",
    "USES",
    "WIDTH",
    "WINDOWS",
    "Base",
    "Choice",
    "Outcome",
    "Problem",
    "Profile",
    "Scratch",
    "add_block",
    "allot",
    "begin",
    "book",
    "bound",
    "clear",
    "closes",
    "commit",
    "cut",
    "data_ready",
    "decode",
    "descend",
    "drop",
    "enough",
    "enter",
    "events",
    "fill",
    "following",
    "gather",
    "kernel",
    "line_up",
    "load_units",
    "locate",
    "look_ahead",
    "low_side",
    "may_fit",
    "move",
    "part",
    "recall",
    "remember",
    "reset",
    "retreat",
    "room",
    "seek",
    "serial",
    "spread",
    "survey",
    "undo",
    "window",
]
