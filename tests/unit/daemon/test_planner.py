"""Plans of rounds are made in a solver process, or by `plain` in a thread of the daemon."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from coalloc.daemon.solver.answer import encoded
from coalloc.daemon.solver.frames import Request
from coalloc.daemon.solver.planner import IN_THREAD, RoundPlanner, UnusablePlanError, plainly
from coalloc.daemon.solver.pool import SolveOutcome
from coalloc.daemon.solver.sent import decode_snapshot
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Snapshot


class Pool:
    """A solver whose request ends like that; keeps the time limits."""

    def __init__(
        self, status: Literal["done", "killed", "crashed", "error"], is_warm: bool
    ) -> None:
        self.status, self.is_warm = status, is_warm
        self.limits: list[float] = []

    async def solve(
        self, snapshot: bytes, request: Request, *, deadline_s: float, on_incumbent: object
    ) -> SolveOutcome:
        self.limits.append(deadline_s)
        body = encoded(plainly(decode_snapshot(snapshot))) if self.status == "done" else None
        return SolveOutcome(status=self.status, plan=body, message="why", elapsed_s=0.0)


def placed(pool: Pool, jobs: int) -> int:
    """Jobs that the last resort places, of so many that wait."""
    queue = tuple(RigidJob(id=str(i + 1), procs=1, base_time=1.0) for i in range(jobs))
    snapshot = Snapshot(clusters=(Cluster(name="a", nodes=(Node(name="a1"),)),), queue=queue)
    planner = RoundPlanner(pool, lambda event: None)  # type: ignore[arg-type]
    plan = asyncio.run(planner.solve(snapshot, planner.request("plain")))
    return len(plan.placements)


@pytest.mark.parametrize(
    ("status", "is_warm", "jobs", "asked"),
    [
        ("done", True, IN_THREAD + 1, 1),
        ("done", True, IN_THREAD, 0),  # sooner than a solver would have read them
        ("done", False, IN_THREAD + 1, 0),
        ("killed", True, IN_THREAD + 1, 1),  # nothing comes after it
        ("crashed", True, IN_THREAD + 1, 1),
    ],
)
def test_the_last_resort_is_asked_of_a_solver_that_is_warm_and_plans_in_any_case(
    status: Literal["done", "killed", "crashed"], is_warm: bool, jobs: int, asked: int
) -> None:
    pool = Pool(status, is_warm)
    assert placed(pool, jobs) == jobs
    assert pool.limits == [600.0] * asked, "sixty times the limit of others"


def test_a_plan_that_fails_the_check_is_not_made_again_without_it() -> None:
    with pytest.raises(UnusablePlanError, match="why"):
        placed(Pool("error", True), IN_THREAD + 1)
