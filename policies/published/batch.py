"""`bicriteria-batch`: arrivals wait for the next batch; inside a batch, shelves of doubling length.

When a batch has ended, all that waits and may start becomes the next one. Its shelves of lengths
t_j = C* / 2**(K - j) are filled by knapsack as `demt` does (`shelves`), and its jobs are listed in
the order of the shelves, on the allotments chosen then, whatever arrives meanwhile. It ends with
the last of its jobs.

Notes
-----
With a solver that stays within rho times the least makespan of a batch, the last job ends within
2 rho times the least makespan of the whole instance (section 2.2): the last batch holds only what
arrived after the one before it had begun.

The barrier is carried from round to round in the policy's notes: the jobs of the batch with their
shelves and allotments, in order. Jobs that are cancelled, or can no longer run, leave the batch.
Those that wait for it are planned behind it, from the end that it has by plan: their starts are
estimates, and none of them starts while a job of the batch waits or runs.

Deviations
----------
The paper proves the conversion for the makespan, and its algorithm is off-line; to combine them is
ours. Off line, without notes, the whole queue is one batch.

References
----------
Dutot, Eyraud-Dubois, Mounie, Trystram, "Bi-criteria algorithm for scheduling jobs on cluster
platforms", SPAA 2004, sections 2.2 and 3.2. D. Shmoys, J. Wein, D. Williamson, "Scheduling parallel
machines on-line", SIAM J. Comput. 24 (1995).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from coalloc.model.plan import NOTES, Plan
from coalloc.model.values import replace
from coalloc.policies.array_types import Flags, Ints
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.laying import PoolLister
from coalloc.policies.moldable.queue import MoldableQueue, of_planner
from coalloc.policies.moldable.rolling import lay
from coalloc.policies.moldable.shelves import fill_shelves
from coalloc.policies.moldable.two_shelf import two_shelf
from coalloc.policies.one_pass import empty_plan, on_planner

NAME = "bicriteria-batch"
BEHIND_S = 1e-3
"""Delay of the next batch where the running one should have ended by now, seconds."""


class Member(Struct, frozen=True, array_like=True):
    """A job of a batch, or a task of a workflow."""

    job: str
    task: str | None
    procs: int
    """The allotment chosen when the batch began."""
    shelf_s: float
    """Length of its shelf, seconds; 0 where it has none."""

    @property
    def running_as(self) -> tuple[str, str | None]:
        """The job's id, and "" where its tasks run as the id, a point, and a number."""
        return self.job, None if self.task is None else ""


class Batch(Struct, frozen=True, kw_only=True):
    """The jobs that started, or are to start, before anything that arrived later."""

    number: int = 0
    """1 is the first."""
    begun: float = 0.0
    """When it began, on the snapshots' axis, seconds."""
    members: tuple[Member, ...] = ()
    """In the order in which they are listed."""

    @classmethod
    def read(cls, notes: Mapping[str, Any]) -> Batch:
        """Read notes; what are no notes of ours is as none."""
        try:
            return msgspec.convert(notes, cls)
        except msgspec.ValidationError:
            return cls()

    def write(self) -> Any:
        """The notes to read in the next round."""
        return msgspec.to_builtins(self)

    def still_there(self, planner: Planner) -> Batch:
        """Without the members that have ended, are gone, or cannot run any more."""
        waiting = {(item.job.id, item.task_id) for item in planner.items}
        running: set[tuple[str, str | None]] = {(run.id, None) for run in planner.snapshot.running}
        running |= {(run.id.rpartition(".")[0], "") for run in planner.snapshot.running}
        kept = [
            member
            for member in self.members
            if (member.job, member.task) in waiting or member.running_as in running
        ]
        return replace(self, members=tuple(kept))

    def runs(self, running: str) -> bool:
        """Whether this running job, or task of a workflow, is of the batch."""
        names = {(running, None), (running.rpartition(".")[0], "")}
        return any(member.running_as in names for member in self.members)

    def shelves(self) -> list[float]:
        """Lengths of the shelves whose jobs have not all ended, seconds, by rising length."""
        return sorted({member.shelf_s for member in self.members} - {0.0})


def plan(planner: Planner, budget: Budget, on_incumbent: OnIncumbent | None) -> Plan:
    """Plan a round of the batch that goes on, or of a new one."""
    batch = Batch.read(budget.notes).still_there(planner)
    if not planner.items:
        return empty_plan(planner, NAME, budget, {NOTES: batch.write()})
    queue = of_planner(planner)
    if not batch.members:
        batch = begin(planner, queue, batch.number + 1, budget.origin)
    order, rows, inside = _resume(planner, queue, batch)
    if not inside.all():
        end = _end(planner, queue, batch, order, rows)
        queue = _behind(planner, queue, ~inside, end)
        later, wide = shelved(queue, np.flatnonzero(~inside), planner.options["selection"])
        order = np.concatenate((order, [item for item, _ in later])).astype(np.int64)
        rows[~inside] = wide[~inside]
    schedule = lay(planner, queue, order, rows)
    stats = {
        "work": schedule.work,
        "batch": batch.number,
        "shelves_s": batch.shelves(),
        NOTES: batch.write(),
    }
    return planner.plan(schedule, NAME, budget.seed, stats)


def begin(planner: Planner, queue: MoldableQueue, number: int, origin: float) -> Batch:
    """Make a batch of all that may start now, and of what waits for nothing else."""
    jobs: Flags = queue.release <= 0.0
    for n, item in enumerate(planner.items):
        jobs[n] &= all(jobs[parent] for parent, _ in item.parents)
    chosen, rows = shelved(queue, np.flatnonzero(jobs), planner.options["selection"])
    members = [
        Member(
            planner.items[item].job.id,
            planner.items[item].task_id,
            int(queue.procs[rows[item]]),
            length,
        )
        for item, length in chosen
    ]
    return Batch(number=number, begun=planner.snapshot.time + origin, members=tuple(members))


def shelved(
    queue: MoldableQueue, items: Ints, selection: str
) -> tuple[list[tuple[int, float]], Ints]:
    """Put items on shelves of doubling length.

    The items in the order of their shelves with the length of each one's shelf, seconds; and the
    allotments of all N, which are the smallest for other items.
    """
    rows = queue.first[:-1].copy()
    part, keep = _part(queue, items)
    if not part.size:
        return [(int(item), 0.0) for item in items.tolist()], rows
    found = two_shelf(part)
    guess = PoolLister(part).run(found.order, found.rows)[0]
    chosen: list[tuple[int, float]] = []
    for shelf in fill_shelves(part, guess if guess < np.inf else found.guess, selection):
        rows[part.items[shelf.jobs]] = keep[shelf.rows]
        chosen += [(int(item), shelf.length) for item in part.items[shelf.jobs]]
    seen = {item for item, _ in chosen}
    return chosen + [(int(item), 0.0) for item in items.tolist() if item not in seen], rows


def _part(queue: MoldableQueue, items: Ints) -> tuple[MoldableQueue, Ints]:
    """Some items as if released at once, on what is there for good; and which allotments these are.

    What never fits beside open-ended reservations is not in it.
    """
    lasting = int(queue.capacity[-1])
    fits = queue.procs[queue.first[items]] <= lasting
    items = items[fits]
    keep = [
        np.flatnonzero(queue.procs[a:b] <= lasting) + a
        for a, b in zip(queue.first[items], queue.first[items + 1], strict=True)
    ]
    part = dataclasses.replace(
        queue.allotted(keep),
        items=items,
        weight=queue.weight[items],
        release=np.zeros(items.size),
    )
    return part, np.concatenate([*keep, items[:0]])


def _resume(planner: Planner, queue: MoldableQueue, batch: Batch) -> tuple[Ints, Ints, Flags]:
    """Order and allotments of the batch's items that wait, and which items are in it."""
    index = {(item.job.id, item.task_id): n for n, item in enumerate(planner.items)}
    rows = queue.first[:-1].copy()
    inside = np.zeros(queue.size, dtype=np.bool_)
    order: list[int] = []
    for member in batch.members:
        item = index.get((member.job, member.task))
        if item is None:
            continue
        a, b = int(queue.first[item]), int(queue.first[item + 1])
        rows[item] = max(a, a + int(np.searchsorted(queue.procs[a:b], member.procs, "right")) - 1)
        inside[item] = True
        order.append(item)
    return np.array(order, dtype=np.int64), rows, inside


def _end(planner: Planner, queue: MoldableQueue, batch: Batch, order: Ints, rows: Ints) -> float:
    """Planned end of the batch, seconds from now."""
    snapshot = planner.snapshot
    ends = [
        run.busy_until(snapshot.time, snapshot.overrun_s) - snapshot.time
        for run in snapshot.running
        if batch.runs(run.id)
    ]
    if order.size:
        alone = lay(planner, queue, order, rows).outcome
        ends += (alone.end[order] - snapshot.time).tolist()
    return max([BEHIND_S, *(end for end in ends if end == end)])


def _behind(planner: Planner, queue: MoldableQueue, items: Flags, end: float) -> MoldableQueue:
    """Let items wait for the end of the batch."""
    release = np.where(items, np.maximum(queue.release, end), queue.release)
    planner.compiled.problem.item_release[:] = planner.snapshot.time + release
    for item, seconds in zip(planner.items, release.tolist(), strict=True):
        item.release = planner.snapshot.time + seconds
    return dataclasses.replace(queue, release=release)


SOLVERS: Mapping[str, SolveFunction] = {NAME: on_planner(plan)}
