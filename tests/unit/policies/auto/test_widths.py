"""Widths of moldable jobs on line under `auto`: by the price of processors, and who keeps all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coalloc.model.history import History
from coalloc.model.plan import NOTES, Plan, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.auto.policy import narrowed
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.unit.policies.kernel.kernel_case import case, cluster, nodes, rigid

SOME = [12.0, 7.0, 5.0, 4.2]
"""Seconds on 1 to 4 processors: wider costs work."""
QUIET = {"work": 0.1, "gap": 1000.0, "count": 10.0, "last": -1.0, "seen": -1.0}
"""Notes of a load of nearly nothing."""
AUTO = lookup("auto")


def moldable(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "kind": "moldable", "times": SOME, **fields}


def planned(snapshot: Snapshot, budget: Budget, **given: Any) -> Plan:
    plan = AUTO.solve(snapshot, read_options(given, AUTO.options), budget)
    assert check(snapshot, plan).violations == ()
    return plan


def widest(queue: list[dict[str, Any]], budget: Budget, guarded: tuple[int, ...] = ()) -> list[int]:
    planner = Planner(case([cluster("a", 4)], queue), read_options({}, AUTO.options))
    planner.guarded = np.array(guarded, dtype=np.int64)
    return [max(mode[0] for mode in item.modes) for item in narrowed(planner, budget)[0].items]


def test_an_only_job_in_a_quiet_system_keeps_all_widths() -> None:
    assert widest([moldable("1")], Budget(live=True, notes=QUIET)) == [4]


def test_widths_fall_with_the_jobs_that_wait_and_those_to_come() -> None:
    # The cost of k is p(k) (1 + v k): v = 8 (n - 1) / 4 + 12 (1/2) / (1/2) / 4, nothing known.
    assert widest([moldable("1")], Budget(live=True)) == [1]
    queue = [moldable("1"), rigid(2, 2, 9.0), rigid(3, 2, 9.0)]
    assert widest(queue, Budget(live=True, notes=QUIET)) == [1, 2, 2]


def test_the_first_overdue_job_keeps_all_widths() -> None:
    queue = [moldable("1"), moldable("2"), rigid(3, 2, 9.0)]
    assert widest(queue, Budget(live=True), guarded=(1, 0)) == [1, 4, 2]


def test_a_queue_of_rigid_jobs_is_left_alone() -> None:
    planner = Planner(case([cluster("a")], [rigid(1, 2, 9.0)]), read_options({}, AUTO.options))
    assert narrowed(planner, Budget(live=True)) == (planner, {})


def test_rigid_jobs_count_as_arrivals_once_there_were_moldable_ones() -> None:
    planner = Planner(case([cluster("a")], [rigid(1, 2, 9.0)]), read_options({}, AUTO.options))
    same, notes = narrowed(planner, Budget(live=True, notes=QUIET))
    assert same is planner
    assert notes["seen"] == 0.0
    assert notes["work"] == pytest.approx(0.1 * 0.98 + 18.0)


def test_the_load_is_that_of_predicted_run_times() -> None:
    queue = [moldable("1")]
    history = History(pool=(0.1,), samples=((0.1,) * 8,), of={"1": 0})
    loads = []
    for known in (History(), history):
        planner = Planner(case([cluster("a", 4)], queue), read_options({}, AUTO.options))
        loads.append(narrowed(planner, Budget(live=True, notes=QUIET, history=known))[1]["work"])
    assert loads[1] - 0.098 == pytest.approx((loads[0] - 0.098) * 0.1**0.8, rel=0.01)


def test_jobs_that_gain_little_by_width_run_side_by_side() -> None:
    queue = [moldable(str(n), times=[12.0, 11.0, 10.5, 10.2]) for n in range(4)]
    snapshot, easy = case([cluster("a", 4)], queue), lookup("easy")
    plan = planned(snapshot, Budget(live=True))
    assert [sum(nodes(plan, str(n)).values()) for n in range(4)] == [1, 1, 1, 1]
    assert {p.start for p in plan.placements} == {0.0}
    wide = easy.solve(snapshot, read_options({}, easy.options), Budget())
    assert sum(p.end for p in plan.placements) < 0.5 * sum(p.end for p in wide.placements)


def test_what_is_known_of_arrivals_outlives_a_round_that_is_stopped() -> None:
    queue = [moldable(str(n)) for n in range(20)]
    stopped = planned(
        case([cluster("a", 6)], queue), Budget(live=True, stop=lambda: True, notes=QUIET)
    )
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.stats[NOTES]["seen"] == 0.0


def test_the_bound_is_that_of_all_allotments() -> None:
    queue = [moldable("1"), rigid(2, 1, 9.0)]
    plan = planned(case([cluster("a", 5)], queue), Budget(live=True, bounds=True))
    assert plan.objective.bound is not None
    assert plan.objective.bound <= 4.2 + 9.0 + 1e-6 <= plan.objective.value + 1e-6


def test_divisible_jobs_take_what_the_others_leave() -> None:
    chunks = {"id": "d", "kind": "divisible", "work": 20.0, "chunk_s": 10.0}
    queue = [moldable(str(n)) for n in range(5)]
    without = planned(case([cluster("a", 6)], queue), Budget(live=True))
    plan = planned(case([cluster("a", 6)], [*queue, chunks]), Budget(live=True))
    assert [p for p in plan.placements if p.job != "d"] == list(without.placements)
