"""Workflows in the orders of `auto` on line: one job each, counted once, tasks by what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coalloc.model.history import History
from coalloc.model.jobs import Edge, RigidJob, Started, Task, WorkflowJob
from coalloc.model.plan import Plan
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.auto import online
from coalloc.policies.auto.overdue import Waits, overdue
from coalloc.policies.auto.policy import narrowed
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.orders.simple import traits
from coalloc.policies.registry import lookup
from coalloc.policies.workflow.ranking import ranked

AUTO = lookup("auto")
DAY = 86_400.0
QUIET = {"work": 0.1, "gap": 1000.0, "count": 10.0, "last": -1.0, "seen": -1.0}


def machine(nodes: int) -> Cluster:
    return Cluster(name="a", nodes=tuple(Node(name=f"a{n}") for n in range(nodes)))


def task(name: str, seconds: float, procs: int = 1) -> Task:
    return Task(id=name, work=seconds, min_procs=procs, max_procs=procs)


def flow(name: str, tasks: list[Task], edges: str = "", **fields: Any) -> WorkflowJob:
    """A workflow with edges like ``a>b a>c``."""
    pairs = [pair.split(">") for pair in edges.split()]
    return WorkflowJob(
        id=name,
        tasks=tuple(tasks),
        edges=tuple(Edge(parent=a, child=b) for a, b in pairs),
        **fields,
    )


def fork(name: str, **fields: Any) -> WorkflowJob:
    """A fork of a short and a long task, joined again."""
    tasks = [task("a", 10.0), task("b", 20.0), task("c", 60.0, 2), task("d", 30.0)]
    return flow(name, tasks, "a>b a>c b>d c>d", **fields)


def planner_of(snapshot: Snapshot) -> Planner:
    return Planner(snapshot, read_options({}, AUTO.options))


def round_of(snapshot: Snapshot, history: History | None = None, **options: object) -> Plan:
    budget = Budget(live=True, history=history or History())
    plan = AUTO.solve(snapshot, read_options(options, AUTO.options), budget)
    assert not check(snapshot, plan).violations
    return plan


def starts(plan: Plan) -> dict[str, float]:
    return {p.job if p.task is None else f"{p.job}.{p.task}": p.start for p in plan.placements}


def test_a_workflow_is_as_long_as_its_longest_path_and_as_wide_as_its_area_by_that() -> None:
    queue = (RigidJob(id="j", procs=3, base_time=50.0), fork("f"))
    planner = planner_of(Snapshot(clusters=(machine(4),), queue=queue))
    whole, ranks = ranked(planner, traits(planner))
    assert whole.seconds.tolist() == [50.0, *[100.0] * 4]
    assert whole.procs.tolist() == pytest.approx([3.0, *[(10 + 20 + 120 + 30) / 100.0] * 4])
    assert ranks.rank.tolist() == [50.0, 100.0, 50.0, 90.0, 30.0]
    assert ranks.first.tolist() == [0, 1]


def test_what_runs_counts_until_its_end() -> None:
    rest = flow("f", [task("b", 20.0)], "a>b", started=(Started(task="a", clusters=("a",), end=7),))
    planner = planner_of(Snapshot(clusters=(machine(4),), queue=(rest,)))
    whole, _ = ranked(planner, traits(planner))
    assert whole.seconds.tolist() == [27.0]


def test_completion_counts_each_job_once_at_its_last_task() -> None:
    queue = (RigidJob(id="j", procs=1, base_time=5.0), fork("f", weight=3.0))
    plan = round_of(Snapshot(clusters=(machine(4),), queue=queue))
    assert plan.objective.value == pytest.approx(5.0 + 3.0 * 100.0)
    assert plan.stats["predicted_completion"] == pytest.approx(plan.objective.value)


def test_tasks_of_a_workflow_stand_together_and_equal_workflows_in_order_of_arrival() -> None:
    queue = (fork("1", submitted=-5.0), fork("2", submitted=-5.0), fork("3", submitted=-5.0))
    planner = planner_of(Snapshot(clusters=(machine(4),), queue=queue))
    jobs, ranks = ranked(planner, traits(planner))
    queued = online.OnlineQueue(
        problem=planner.compiled.problem,
        base=planner.compiled.base,
        profile=planner.profile,
        scratch=planner.scratch,
        jobs=jobs,
        weights=planner.weights,
        shares=np.ones(12),
        first=online.NONE,
        ranks=ranks,
    )
    for _, order in online.orders(queued):
        # of each: a, then c, which has more behind it than b, then d
        assert order.tolist() == [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11]


def test_equal_workflows_start_in_order_of_arrival_and_tasks_by_rank() -> None:
    queue = tuple(fork(str(n), submitted=n - 9.0) for n in range(3))
    found = starts(round_of(Snapshot(clusters=(machine(2),), queue=queue)))
    assert [found[f"{n}.a"] for n in range(3)] == sorted(found[f"{n}.a"] for n in range(3))
    assert found["0.c"] <= found["0.b"]


def test_a_short_job_goes_before_the_tasks_of_a_long_workflow() -> None:
    """Each task is shorter than the job, and the workflow is longer."""
    chain = flow("f", [task(f"t{n}", 100.0, 4) for n in range(9)], submitted=-9.0)
    short = RigidJob(id="short", procs=4, base_time=150.0, submitted=-1.0)
    found = starts(round_of(Snapshot(clusters=(machine(4),), queue=(chain, short))))
    assert found["short"] == 0.0


def test_the_last_task_of_a_workflow_goes_before_a_longer_job() -> None:
    rest = flow("f", [task("z", 50.0, 4)], submitted=-1.0)
    long = RigidJob(id="long", procs=4, base_time=500.0, submitted=-1.0)
    found = starts(round_of(Snapshot(clusters=(machine(4),), queue=(long, rest))))
    assert (found["f.z"], found["long"]) == (0.0, 50.0)


def test_predictions_shorten_workflows_too() -> None:
    chain = flow("f", [task("x", 500.0, 4), task("y", 500.0, 4)], "x>y", submitted=-2.0)
    other = RigidJob(id="j", procs=4, base_time=600.0, submitted=-3.0)
    snapshot = Snapshot(clusters=(machine(4),), queue=(other, chain))
    assert starts(round_of(snapshot))["j"] == 0.0
    history = History(pool=(1.0, 0.01), samples=((0.01,) * 8, (1.0,) * 8), of={"f": 0, "j": 1})
    assert starts(round_of(snapshot, history))["f.x"] == 0.0


def test_a_workflow_that_has_waited_too_long_goes_first() -> None:
    wide = flow("f", [task("x", 600.0, 10), task("y", 60.0)], "x>y", submitted=-DAY - 1.0)
    short = tuple(
        RigidJob(id=f"s{n}", procs=5, base_time=60.0 + n, submitted=-float(n)) for n in range(6)
    )
    work = Running(id="r", nodes={f"a{n}": 1 for n in range(5)}, start=-60.0, end=90.0)
    snapshot = Snapshot(clusters=(machine(10),), queue=(wide, *short), running=(work,))
    assert starts(round_of(snapshot))["f.x"] == pytest.approx(90.0)
    assert starts(round_of(snapshot, wait_limit=None))["f.x"] > 90.0
    young = replace(wide, submitted=-60.0)
    assert starts(round_of(replace(snapshot, queue=(young, *short))))["f.x"] > 90.0


@pytest.mark.parametrize(("ended", "late"), [(-60.0, []), (-DAY, [1]), (50.0, [])])
def test_a_task_waits_since_its_parents_ended(ended: float, late: list[int]) -> None:
    """Its workflow was submitted two days ago, and ran since."""
    tasks = [task("y", 600.0, 4), task("z", 10.0)]
    begun = (Started(task="x", clusters=("a",), end=ended),)
    rest = flow("f", tasks, "x>y y>z", submitted=-2 * DAY, started=begun)
    first = RigidJob(id="j", procs=1, base_time=5.0, submitted=-3 * DAY, earliest=9.0)
    planner = planner_of(Snapshot(clusters=(machine(4),), queue=(first, rest)))
    assert overdue(planner, DAY).tolist() == [1, 2]
    assert Waits.read(planner, Budget(live=True)).overdue().tolist() == late


def test_of_overdue_tasks_the_one_that_waited_longest_is_first() -> None:
    def rest(name: str, submitted: float, ended: float) -> WorkflowJob:
        begun = (Started(task="x", clusters=("a",), end=ended),)
        return flow(name, [task("y", 60.0)], "x>y", submitted=submitted, started=begun)

    queue = (rest("old", -9 * DAY, -DAY - 5.0), rest("new", -3 * DAY, -2 * DAY))
    planner = planner_of(Snapshot(clusters=(machine(4),), queue=queue))
    assert Waits.read(planner, Budget(live=True)).overdue().tolist() == [1, 0]


def test_tasks_that_wait_for_others_keep_nothing_waiting() -> None:
    chain = flow("f", [task("x", 500.0, 2), task("y", 10.0, 4)], "x>y", weight=1e6)
    other = RigidJob(id="j", procs=2, base_time=5_000.0)
    found = starts(round_of(Snapshot(clusters=(machine(4),), queue=(chain, other))))
    assert (found["f.x"], found["j"], found["f.y"]) == (0.0, 0.0, 5_000.0)


def test_a_workflow_alone_is_searched() -> None:
    alone = Snapshot(clusters=(machine(3),), queue=(fork("f"),))
    assert "trials" in round_of(alone).stats
    beside = replace(alone, queue=(*alone.queue, RigidJob(id="j", procs=1, base_time=5.0)))
    assert str(round_of(beside).stats["order"]).startswith("width")


def test_malleable_tasks_are_narrow_where_others_wait() -> None:
    def widths(count: int, jobs: int) -> set[int]:
        tasks = [
            Task(id=f"t{n}", work=100.0, parallel_fraction=0.8, max_procs=16) for n in range(count)
        ]
        others = [RigidJob(id=f"j{n}", procs=1, base_time=9.0) for n in range(jobs)]
        snapshot = Snapshot(clusters=(machine(16),), queue=(flow("f", tasks), *others))
        found, _ = narrowed(planner_of(snapshot), Budget(live=True, notes=QUIET))
        return {item.modes[-1][0] for item in found.items if item.task is not None}

    assert widths(1, 0) == {16}
    assert max(widths(8, 0)) < 16
    assert max(widths(1, 30)) < max(widths(1, 3)) < 16
