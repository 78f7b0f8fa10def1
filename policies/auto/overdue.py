"""Times at which waiting jobs are overdue: then they go first.

A job on a share s of the slots of the largest cluster that EASY by arrival would start in e seconds
is overdue once it has waited for

    e (wait_factor + (e / LONG_S)^2) / s,

for `FLOOR_S` at least, and at most for ``wait_limit`` or, where that is longer, for `OVERLOAD` e.
The expectation is made once, in the first round that leaves the job waiting, and travels in the
notes of the policy to the rounds after it. So what arrives later cannot put it off.

On line a task of a workflow counts from when it could start: its workflow's submission, or the time
by which all its parents have ended and their data have arrived somewhere. Off line, where no round
follows, ``wait_limit`` alone counts, from the submission of the workflow.

Notes
-----
*Why it grows.* To empty a cluster for a wide job costs all others the more the longer jobs run, and
where EASY keeps jobs for hours, nearly all wide ones would be overdue: users of such logs waited a
third longer in the mean (docs/policies/auto.md). Narrow jobs find room sooner or later without it.

*Why the limit gives way.* Where EASY itself keeps jobs for days, most would be overdue after one,
and the queue would be first come, first served (docs/history/auto-rule.md, "Overloaded windows").

Running work is expected to go on for the share of its planned rest that jobs of its class took of
their planned time (`run_times`). By planned times alone, a job that waits behind time limits of ten
times the run times would be expected to wait ten times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from coalloc.model.history import History
from coalloc.model.plan import OVERDUE
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.state import Base
from coalloc.policies.orders.queue_orders import Traits
from coalloc.policies.orders.run_times import expected_shares, ratios
from coalloc.policies.orders.simple import traits

FLOOR_S = 300.0
"""No job is overdue sooner, seconds."""
LONG_S = 2400.0
"""A wait under EASY that is this long counts by one more than `wait_factor`, seconds."""
OVERLOAD = 1.5
"""Of its wait under EASY a job may wait this much, whatever the limit."""


def overdue(planner: Planner, wait_limit: float | None) -> Ints:
    """Items of jobs that waited, or were passed over, too long, off line.

    By falling `priority`, which is 0 for all jobs of a site without shares, then by arrival.
    """
    guarded = np.zeros(len(planner.items), dtype=np.bool_)
    guarded[planner.guarded] = True
    if wait_limit is not None:
        eligible = np.array([not item.waits for item in planner.items], dtype=np.bool_)
        guarded |= eligible & (traits(planner).waited >= wait_limit)
    late = np.flatnonzero(guarded)
    priority = np.array([planner.items[n].job.priority for n in late], dtype=np.float64)
    return late[np.argsort(-priority, kind="stable")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Waits of the items of a round on line; times in seconds from its begin."""

    planner: Planner
    history: History
    jobs: Traits
    """Of the items."""
    keys: Sequence[str]
    """Of the items in the notes."""
    due: Floats
    """When each is overdue; inf: not known, or never."""
    new: Ints
    """Items that could start and of which nothing is expected yet."""
    known: Mapping[str, float]
    """The notes so far, on their own axis."""
    now: float
    """The round on that axis."""

    @classmethod
    def read(cls, planner: Planner, budget: Budget) -> Waits:
        """Read the notes of earlier rounds."""
        jobs = traits(planner)
        limit, factor = planner.options["wait_limit"], planner.options["wait_factor"]
        after = planner.options.get("guard_after") or 0
        begin, now = planner.snapshot.time, planner.snapshot.time + budget.origin
        found = budget.notes.get(OVERDUE)
        known: Mapping[str, float] = found if isinstance(found, Mapping) else {}
        keys = [
            one.job.id if one.task is None else f"{one.job.id} {one.task.id}"
            for one in planner.items
        ]
        due, new = np.full(len(keys), inf), []
        for n, (item, waited) in enumerate(zip(planner.items, jobs.waited.tolist(), strict=True)):
            if item.waits or item.parents or item.release > begin:
                continue
            if item.task is not None and item.arrival:
                waited = min(waited, begin - min(item.arrival))
            due[n] = inf if limit is None else limit - waited
            if factor is not None and keys[n] in known:
                due[n] = known[keys[n]] - now
            elif factor is not None:
                new.append(n)
            if 0 < after <= item.job.passed_over:
                due[n] = min(due[n], -waited)
        return cls(
            planner=planner,
            history=budget.history,
            jobs=jobs,
            keys=keys,
            due=due,
            new=np.array(new, dtype=np.int64),
            known=known,
            now=now,
        )

    def overdue(self) -> Ints:
        """Items that are overdue, by falling `priority`, then those first that were so first.

        One that is overdue is so never put behind another that becomes so later. In the place of
        the first goes the earliest job of its kind: equal jobs start in arrival order.
        """
        late = np.flatnonzero(self.due <= 0.0)
        if not late.size:
            return late
        items = self.planner.items
        priority = np.array([items[n].job.priority for n in late], dtype=np.float64)
        late = late[np.lexsort((self.due[late], -priority))]
        head = int(late[0])
        kind = _kind(items[head], self.history)
        able = np.flatnonzero(self.due[:head] < inf).tolist()
        twin = next((n for n in able if _kind(items[n], self.history) == kind), head)
        return np.concatenate((np.array([twin], dtype=np.int64), late[late != twin]))

    def expected(self, left: Ints, starts: Floats) -> dict[str, float]:
        """The notes for the rounds to come.

        `left`: the new items that this round leaves waiting.
        `starts`: of all items, under EASY by arrival.
        """
        clusters = self.planner.snapshot.clusters
        slots = max(sum(node.slots for node in cluster.nodes) for cluster in clusters)
        share = np.minimum(self.jobs.procs[left] / slots, 1.0)
        easy = np.nan_to_num(starts[left], nan=inf) - self.planner.snapshot.time
        waits = easy * (self.planner.options["wait_factor"] + (easy / LONG_S) ** 2) / share
        most = np.where(easy < inf, OVERLOAD * easy - self.jobs.waited[left], -inf)
        most = np.maximum(self.due[left], most)
        due = self.now + np.minimum(np.maximum(waits, FLOOR_S), most)
        running = {work.id for work in self.planner.snapshot.running}
        kept = running.union(self.keys)
        notes = {key: due for key, due in self.known.items() if key in kept}
        for n, at in zip(left.tolist(), due.tolist(), strict=True):
            if isfinite(at):
                notes[self.keys[n]] = round(at, 3)
        return notes


def sooner(planner: Planner, history: History) -> Base:
    """Free units over time, by predicted run times of what runs."""
    snapshot, base = planner.snapshot, planner.compiled.base
    now = snapshot.time
    shares = expected_shares(ratios(history, (work.id for work in snapshot.running)))
    ends = {
        work.busy_until(now, snapshot.overrun_s): share
        for work, share in zip(snapshot.running, shares.tolist(), strict=True)
    }
    time = np.array([now + (t - now) * ends.get(t, 1.0) for t in base.time.tolist()])
    order = np.argsort(time, kind="stable")
    time, last = np.unique(time[order], return_index=True)
    last = np.append(last[1:], order.size) - 1
    free = np.diff(base.free, axis=0, prepend=0)[order].cumsum(axis=0)[last]
    load = np.diff(base.load, axis=0, prepend=0)[order].cumsum(axis=0)[last]
    return Base(time=time, free=free.astype(np.int32), load=load)


def _kind(item: Item, history: History) -> Any:
    """All that orders read of an item; tasks are told apart by their ranks."""
    if item.task is not None:
        return item.job.id, item.task.id
    return item.group, item.modes, item.job.weight, history.of.get(item.job.id)
