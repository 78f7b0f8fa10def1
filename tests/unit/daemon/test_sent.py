"""Long plans and queues go between the daemon and its solvers in parts."""

from __future__ import annotations

import asyncio

import msgspec

from coalloc.core.base.plan_order import PlanOrder, start_of
from coalloc.daemon.solver.answer import encoded
from coalloc.daemon.solver.planner import _taken_in
from coalloc.daemon.solver.sent import (
    SLICE,
    decode_snapshot,
    encode_snapshot,
    parted,
)
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.snapshot import Snapshot

NOW = 100.0


def plan_of(placed: int, starting: int, deferred: int) -> Plan:
    """So many placements, the last to start first, and of them so many that start at once."""
    starts = [NOW + max(0, placed - number - starting) for number in range(placed)]
    return Plan(
        policy="p",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=tuple(
            Placement(job=f"{i}", start=start, end=start + 1.0, nodes={f"n{i % 7}": 1})
            for i, start in enumerate(starts)
        ),
        deferred=tuple(Deferred(job=f"d{i}", reason=Reason.OUT_OF_TIME) for i in range(deferred)),
    )


def test_a_long_plan_comes_in_parts_of_which_the_first_has_all_that_starts_at_once() -> None:
    plan = plan_of(3 * SLICE, SLICE + 5, SLICE + 1)
    head, parts = parted(plan, NOW)
    texts = [msgspec.json.encode(part) for part in parts]
    assert max(len(placements) + len(deferred) for placements, deferred in parts) <= SLICE
    assert [p.start for p in head.placements].count(NOW) == SLICE + 5 == len(head.placements)
    taken, order = asyncio.run(_taken_in(encoded(head), texts))
    assert taken.placements == tuple(sorted(plan.placements, key=start_of))
    assert taken.deferred == plan.deferred
    assert order == PlanOrder.of(plan)


def test_a_short_plan_comes_as_it_is() -> None:
    plan = plan_of(10, 2, 3)
    assert parted(plan, NOW) == (plan, [])
    assert asyncio.run(_taken_in(encoded(plan), ()))[0] == plan


def test_a_long_queue_is_read_as_it_was_written() -> None:
    jobs = tuple(RigidJob(id=f"{i}", procs=1, base_time=1.0) for i in range(2 * SLICE + 1))
    for queue in ((), jobs):
        assert decode_snapshot(encode_snapshot(Snapshot(time=NOW, queue=queue))).queue == queue
