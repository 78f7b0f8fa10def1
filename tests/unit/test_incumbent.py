"""The incumbent: what is kept, what is told, limits, and statuses."""

from __future__ import annotations

import pytest

from coalloc.model.plan import Objective, Plan, Status
from coalloc.policies.base import Budget
from coalloc.policies.bounds import Bound
from coalloc.policies.incumbent import Incumbent

Solution = tuple[float, float]
"""Jobs without a start, and the value."""


def made(budget: Budget, seen: list[Plan] | None = None) -> Incumbent[Solution]:
    def write(found: Incumbent[Solution]) -> Plan:
        assert found.best is not None
        value = Objective(name="makespan", value=found.best[1], bound=found.told_bound())
        return Plan(policy=found.policy, status=found.status, objective=value)

    listener = None if seen is None else seen.append
    return Incumbent("any", budget, listener, rank=lambda solution: solution, write=write)


def test_the_first_of_equal_solutions_stays() -> None:
    found = made(Budget())
    assert found.offer((0.0, 5.0), "first")
    assert not found.offer((0.0, 5.0), "second")
    assert not found.offer((1.0, 2.0), "leaves a job out")
    assert found.offer((0.0, 4.0), "third")
    assert (found.best, found.origin) == ((0.0, 4.0), "third")
    found.put((0.0, 9.0), "by another measure")
    assert found.best == (0.0, 9.0)


def test_nothing_is_told_before_there_is_a_solution() -> None:
    seen: list[Plan] = []
    found = made(Budget(), seen)
    found.report()
    assert seen == []
    found.offer((0.0, 5.0))
    found.work = 7
    found.report()
    assert [plan.objective.value for plan in seen] == [5.0]
    assert found.reported == 7.0


def test_bounds_only_rise_and_are_met() -> None:
    found = made(Budget())
    found.offer((0.0, 5.0))
    found.raise_bound(Bound(value=4.0, parts={"area": 4.0}))
    found.raise_bound(Bound(value=3.0))
    assert found.bound == Bound(value=4.0, parts={"area": 4.0})
    met = [found.met]
    found.raise_bound(Bound(value=5.0 - 1e-12))
    met.append(found.met)
    found.put((1.0, 5.0), "leaves a job out")
    assert [*met, found.met] == [False, True, False]


@pytest.mark.parametrize(
    ("bound", "stopped", "proved", "status"),
    [
        (None, False, False, Status.HEURISTIC),
        (None, True, False, Status.TIME_LIMIT),
        (3.0, False, False, Status.FEASIBLE),
        (3.0, True, False, Status.TIME_LIMIT),
        (None, True, True, Status.OPTIMAL),
    ],
)
def test_status(bound: float | None, stopped: bool, proved: bool, status: Status) -> None:
    found = made(Budget())
    found.offer((0.0, 5.0))
    found.bound = None if bound is None else Bound(value=bound)
    found.stopped, found.proved = stopped, proved
    plan = found.plan()
    assert plan.status is status
    assert plan.objective.bound == (5.0 if proved else bound)


def test_limits_of_work_and_of_the_clock() -> None:
    found = made(Budget(work=10))
    assert (found.spent, found.chunk(50), found.chunk(3)) == (False, 10, 3)
    found.work = 10
    assert (found.spent, found.stopped, found.chunk(50)) == (True, False, 1)
    told = iter([False, True, False])
    found = made(Budget(stop=lambda: next(told)))
    assert [found.spent, found.spent, found.spent] == [False, True, True]
    assert found.chunk(50) == 50


def test_another_search_is_taken_over() -> None:
    found, other = made(Budget()), made(Budget())
    found.work, other.work, other.tried, other.stopped = 3, 4, 2, True
    other.bound = Bound(value=1.0)
    found.join(other)
    assert (found.work, found.tried, found.stopped, found.bound) == (7, 2, True, other.bound)
