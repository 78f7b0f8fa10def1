"""From an order and an allotment for each job to a schedule of the snapshot."""

from __future__ import annotations

import numpy as np

from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.kernel.instance.decoding import Planner, Schedule
from coalloc.policies.kernel.pool.pool_insertion import Placed
from coalloc.policies.kernel.pool.pool_list import Listing, ListRule, list_on_pool, lists_for
from coalloc.policies.kernel.state import SHORTEST, Outcome
from coalloc.policies.moldable.queue import MoldableQueue


class PoolLister:
    """List scheduling of a queue on equal processors; `rows` and `start` are the last list."""

    def __init__(self, queue: MoldableQueue) -> None:
        self.queue, size = queue, queue.size
        self._jobs = queue.jobs._replace(times=np.maximum(queue.times, SHORTEST))
        self._lists = lists_for(size, queue.capacity)
        self.rows, self.start = np.zeros(size, dtype=np.int64), np.zeros(size)
        self._out = Placed(self.rows, self.start, np.zeros(size))

    def run(
        self,
        order: Ints,
        rows: Ints,
        most: float = np.inf,
        *,
        squeeze: float = 1.0,
        stretch: float = 1.0,
    ) -> tuple[float, float]:
        """Return the makespan, seconds, and the weighted completion.

        `order` (array of int, N): jobs.
        `rows` (array of int, N): each job's allotment, an index into the queue's `procs`.
        `most`: both are inf where the weighted completion passes this.
        `squeeze`, `stretch`: shares of an allotment between which a job is given others.
        """
        rule = ListRule(squeeze, stretch, np.inf, most)
        there, listing = self.queue.processors, Listing(order, rows)
        cmax, total = list_on_pool(self._jobs, there, listing, rule, self._lists, self._out)
        return float(cmax), float(total)


class Layer:
    """Lays orders with fixed allotments on the snapshot; `work` counts the starts tried so far.

    Where the queue is exact (one cluster of equal nodes), by its list scheduler; elsewhere by the
    kernel's event decoder, which knows powers, links, reservations, order among jobs and the guard.
    """

    def __init__(self, planner: Planner, queue: MoldableQueue) -> None:
        self.planner, self.queue = planner, queue
        self.lister = PoolLister(queue)
        self.is_exact = queue.is_exact and not planner.guarded.size
        self.work = 0

    def lay(self, order: Ints, rows: Ints, most: float = np.inf) -> Schedule | None:
        """Schedule all jobs; None where the weighted completion passes `most`, if exact."""
        if not self.is_exact:
            return self.decode(order, rows)
        self.work += self.queue.size
        if self.lister.run(order, rows, most)[1] == np.inf:
            return None
        return self.measured(rows, self.lister.start)

    def decode(self, order: Ints, rows: Ints, decoder: str = "event") -> Schedule:
        """Schedule all jobs by the kernel, whatever the snapshot is."""
        mode = self.planner.fixed_mode
        mode[:] = self.queue.mode[rows]
        schedule = self.planner.decode(order.tolist(), decoder)
        mode[:] = -1
        self.work += schedule.work
        return schedule

    def measured(self, rows: Ints, seconds: Floats) -> Schedule:
        """The schedule with these allotments and starts, seconds from now; of an exact queue."""
        queue = self.queue
        start = self.planner.snapshot.time + seconds
        out = Outcome(
            start=start,
            end=start + np.maximum(queue.times[rows], SHORTEST),
            mode=queue.mode[rows],
            use_first=np.arange(queue.size),
            use_count=np.ones(queue.size, dtype=np.int64),
            use_class=np.zeros(queue.size, dtype=np.int64),
            use_procs=queue.procs[rows],
            missing=np.zeros(queue.size, dtype=np.int64),
            ready=self.planner.snapshot.time + queue.release,
        )
        return self.planner.measure(out, queue.size)
