"""`easy-sjbf`: reservations and backfilling by predicted run times."""

from __future__ import annotations

import pytest

from coalloc.model.history import History
from coalloc.model.jobs import RigidJob
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.orders.simple import believed_running, last_two
from coalloc.policies.registry import lookup

DAY = 86_400.0
NODES = tuple(Node(name=f"a{n}") for n in range(4))
RATIOS = History(
    pool=(1.0,),
    samples=((0.5, 0.1, 0.1), (1.0, 1.0), (0.2, 0.3)),
    of={"short": 0, "shorter": 0, "runs": 1, "quarter": 2},
)


def job(name: str, procs: int, seconds: float, submitted: float) -> RigidJob:
    return RigidJob(id=name, procs=procs, base_time=seconds, submitted=submitted)


def starts(snapshot: Snapshot, history: History, policy: str = "easy-sjbf") -> dict[str, float]:
    row = lookup(policy)
    budget = Budget(live=True, history=history)
    plan = row.solve(snapshot, read_options({}, row.options), budget)
    assert not check(snapshot, plan).violations
    return {placement.job: placement.start for placement in plan.placements}


def busy(end: float, name: str = "runs", start: float = 0.0, now: float = 0.0) -> Snapshot:
    """Two of four nodes are in use, the first of the queue wants all, two others want two."""
    queue = (
        job("wide", 4, 60.0, submitted=-30.0),
        job("short", 2, 400.0, submitted=-20.0),
        job("shorter", 2, 300.0, submitted=-10.0),
    )
    running = (Running(id=name, nodes={"a0": 1, "a1": 1}, start=start, end=end),)
    cluster = Cluster(name="a", nodes=NODES)
    return Snapshot(time=now, clusters=(cluster,), queue=queue, running=running)


def test_jobs_that_are_over_in_time_by_prediction_start_the_shortest_first() -> None:
    snapshot = busy(end=100.0)
    assert starts(snapshot, History(), "easy") == {"wide": 100.0, "short": 160.0, "shorter": 160.0}
    found = starts(snapshot, RATIOS)  # 40 s and 30 s: before 100 s
    assert found["shorter"] == 0.0
    assert found["short"] > 0.0


def test_the_reservation_is_at_the_predicted_end_of_what_runs() -> None:
    # by prediction the work ends at 25 s, so that neither job is over before
    assert starts(busy(end=100.0, name="quarter"), RATIOS)["wide"] == 100.0
    assert last_two(RATIOS, ["quarter", "unknown"]).tolist() == pytest.approx([0.25, 1.0])


@pytest.mark.parametrize(
    ("now", "believed"),
    [
        (0.0, 250.0),  # as predicted
        (250.0, 310.0),  # outlived: 1 min more
        (400.0, 550.0),  # by 150 s: 5 min
        (700.0, 1000.0),  # by 450 s: 15 min, which is past the planned end
    ],
)
def test_work_that_has_outlived_its_prediction_is_given_more(now: float, believed: float) -> None:
    snapshot = busy(end=1000.0, name="quarter", now=now)
    assert believed_running(snapshot, RATIOS).running[0].end == pytest.approx(believed)


def test_a_job_that_waited_for_a_day_goes_first() -> None:
    queue = (
        job("wide", 4, 60.0, submitted=0.0),
        job("old", 3, 500.0, submitted=-DAY),
        job("late", 1, 10.0, submitted=0.0),
    )
    snapshot = Snapshot(clusters=(Cluster(name="a", nodes=NODES),), queue=queue)
    assert starts(snapshot, History()) == {"old": 0.0, "late": 0.0, "wide": 500.0}
