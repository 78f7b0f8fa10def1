"""Compiled code, and what turns a snapshot into its arrays and back.

`instance` turns a snapshot into arrays and schedules into plans. `profiles`, `search` and `pool`
are the schedule builders, by what they keep of the free slots. What all of them share is here:
`state` (the decoders' arrays), `record`, `loads`, `heap`, `annealing_loop`, `xorshift`. The
compiler is numba's, through `jit` and `linking` (once, as a whole) on `libraries`.

================================  ========================  ======================================
Schedule builder                  Modules                   Serves
================================  ========================  ======================================
serial and parallel, on a         `decoders`, `events`,     simple orders, `easy*`, `conservative`,
profile of free slots over time   on `profile`, `fit`,      `auto` on line, rounds of 10,000 jobs;
                                  `seek`                    `stream` replays whole logs on it
parallel, on what is free now     `listing`, annealed by    `oas`, `oas-balanced`, `oas-slots`
                                  `annealing`
serial with insertion, on a       `serial_sgs` on           `workflow`; `auto` where one workflow
profile of each cluster           `serial_fit`, annealed    is all that waits
                                  by `serial_annealing`
                                  the same; by earliest     `m-heft*`, `hcpa`, `mcpa`, `mca-heft`
                                  finish over levels of
                                  power `earliest_finish`;
                                  `cpa` grows allotments
parallel on one pool of           `pool_list`, annealed by  `bicriteria*`, `demt`, its
processors; allotments may give   `list_annealing`          comparators
way; O(log n) a start
by prices on one pool             `pool_insertion`,         `bicriteria`
                                  `pool_reinsertion`
================================  ========================  ======================================

Five searches anneal: `annealing`, `serial_annealing`, `list_annealing`, `pool_reinsertion` and
`bins` (rigid jobs, whole in one of several bins of equal slots, which it lists itself). Each
has its moves; `annealing_loop` has the loop with acceptance and cooling, compiled once for each.

All are given one encoding of the queue, `state.Problem`. Another is made from it: `Jobs` and
`Processors` of `pool`, which are one-dimensional, and which bounds of moldable jobs read where
clusters differ.

`shelf_packing` builds no schedules: which jobs a shelf of `demt` holds.

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

Classes are numbered by falling power over all clusters. A decoder that tries the strongest classes
first so reads neighbours: in a group that may use every class it is vector instructions. The serial
builder goes by cluster, and has classes numbered so (`workflow.arrays`).

Notes
-----
*Profile.* Rows are stretches of constant free slots and link load; a row's data lie in a pool, and
blocks of up to `WIDTH` entries (start time, row, and two numbers for skipping) keep them in order.
``total`` is the number of whole free slots of a row, ``peak`` the largest sum of one cluster: a
block whose maxima are too small, or whose minima are large enough, is passed in one step. ``dip``
marks a row that may offer less than the one before it: only these can lower the minimum over a
window. `book` takes or gives back a placement; of a block that a placement covers it only notes
what that takes of each row (``owed``), and `apply_owed` takes it off when a row is to be read.
Loads are whole numbers of 2**-44 of a link's capacity: they add up without drift.

*Fit.* `window` tries one start: levels of power from the strongest on, each with its own run time
A / power + B, its own window, and the minimum of free slots over it; the first level that fits ends
first. `seek` tries the starts from the earliest on, until none can end sooner. A split is found as
`coalloc.model.split` describes (equation (4) is concave in t).

*Memory.* While a profile only fills, a job finds no start before that of an earlier one which asked
for no more processes and no more time on any power; `recall` begins there.

*Ties*: earlier end (within 1e-9 s), smaller allotment, fewer clusters, weaker nodes (less power in
sum), snapshot order.

References
----------
Mu'alem, Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001 (EASY and conservative).
"""
