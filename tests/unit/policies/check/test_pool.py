"""The pool that bounds are checked on: which counts of processes it offers, and processors when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from coalloc.model.cost import link_load
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import Objective, Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Reservation, Running, Snapshot
from coalloc.model.speedup import AmdahlSpeedup, TableSpeedup
from coalloc.model.values import replace
from coalloc.policies.checking.pool import Pool, pool_of
from coalloc.policies.checking.sheet import node_columns
from tests.seeds import seeds

MOST = 12


def pool(snapshot: Snapshot, **options: Any) -> Pool:
    objective = Objective(name="makespan", value=0.0)
    plan = Plan(policy="none", status=Status.HEURISTIC, objective=objective, options=options)
    return pool_of(snapshot, plan, node_columns(snapshot))


def sites(rooms: Sequence[int], links: Sequence[float]) -> tuple[Cluster, ...]:
    """A cluster of so many slots on one node behind each link."""
    return tuple(
        Cluster(name=f"c{i}", link_gbps=link, nodes=(Node(name=f"n{i}", slots=room),))
        for i, (room, link) in enumerate(zip(rooms, links, strict=True))
    )


def table(*procs: int, **fields: Any) -> MoldableJob:
    speedup = TableSpeedup(procs=procs, times=tuple(100.0 / n for n in procs))
    return replace(
        MoldableJob(id="m", speedup=speedup, min_procs=1, max_procs=99, proc_gbps=0.0), **fields
    )


def counts(rooms: Sequence[int], links: Sequence[float], job: MoldableJob, **options: Any) -> Any:
    found = pool(Snapshot(clusters=sites(rooms, links), queue=(job,)), **options)
    return list(found.jobs[0][1])


def carried(
    left: int, rooms: Sequence[int], most: Sequence[float], procs: int, gbps: float
) -> bool:
    """Whether some split over the clusters loads no link beyond what it may carry."""
    if not rooms:
        return left == 0
    return any(
        link_load(gbps, procs, n) <= most[0] * (1.0 + 1e-9)
        and carried(left - n, rooms[1:], most[1:], procs, gbps)
        for n in range(min(rooms[0], left) + 1)
    )


@pytest.mark.parametrize("seed", seeds(60))
def test_a_count_is_offered_where_some_split_is_carried(seed: int) -> None:
    rng = random.Random(seed)
    job = table(*range(1, MOST + 1), proc_gbps=rng.choice([0.1, 0.25, 1.0]))
    gbps = job.proc_gbps or 0.0
    for _ in range(5):
        rooms = [rng.randint(1, 7) for _ in range(rng.randint(1, 4))]
        # what some split asks for exactly, a little less, half as much again, nothing, no limit
        exact = [link_load(gbps, rng.randint(2, MOST), rng.randint(1, 4)) for _ in rooms]
        links = [max(load, 0.0) * rng.choice([0.0, 0.999, 1.0, 1.0, 1.5, inf]) for load in exact]
        links = [0.0 if link != link else link for link in links]
        threshold = rng.choice([1.0, 2.0])
        most = [link * threshold for link in links]
        expected = [
            n
            for n in range(1, min(MOST, sum(rooms)) + 1)
            if n <= max(rooms) or carried(n, rooms, most, n, gbps)
        ]
        assert counts(rooms, links, job, saturation_threshold=threshold) == expected


@pytest.mark.parametrize(
    ("job", "options", "expected"),
    [
        (table(2, 4, 6), {}, [2, 4, 6]),
        (table(2, 4, 6), {"coallocation": "forbidden"}, [2]),
        (table(2, 4, 6, proc_gbps=None), {}, [2]),
        (table(2, 4, 6, proc_gbps=None), {"coallocate_moldable": True}, [2, 4, 6]),
        (table(2, 4, 6, proc_gbps=None), {"coallocate_moldable": "yes"}, [2]),
        # where it is for need only: not for a job that one cluster holds at its fewest
        (table(3, 4, 6), {"coallocation": "needed"}, [3]),
        (table(4, 6), {"coallocation": "needed"}, [4, 6]),
        (table(4, 6, max_procs=4), {"coallocation": "needed"}, [4]),
        (table(2, 4, 6, min_procs=4), {"coallocation": "needed"}, [4, 6]),
        (table(3, 4, min_procs=3), {"coallocation": "needed"}, [3]),
        (table(3, 6, max_procs=3), {"coallocation": "needed"}, [3]),
        (table(2, 8, min_procs=3, max_procs=7), {"coallocation": "needed"}, []),
        # no range of its own reaches beyond the processors that there are
        (table(2, 4, 6, 8), {}, [2, 4, 6]),
        (table(2, 4, 6, min_procs=2, max_procs=4), {}, [2, 4]),
        (table(2, 4, 6, clusters=("c1",)), {}, [2]),
        (table(2, 4, 6, features=("gpu",)), {}, []),
    ],
)
def test_counts_of_tables(job: MoldableJob, options: dict[str, Any], expected: list[int]) -> None:
    assert counts((3, 3), (inf, inf), job, **options) == expected


def test_counts_of_closed_forms_are_ranges() -> None:
    speedup = AmdahlSpeedup(time_1=100.0, parallel_fraction=1.0)
    wide = MoldableJob(id="m", speedup=speedup, min_procs=2, max_procs=5, proc_gbps=0.0)
    assert counts((3, 3), (inf, inf), wide) == [2, 3, 4, 5]
    assert counts((3, 3), (inf, inf), wide, coallocation="forbidden") == [2, 3]
    assert counts((3, 3), (inf, inf), wide, coallocation="needed") == [2, 3]
    large = replace(wide, min_procs=4)
    assert counts((3, 3), (inf, inf), large, coallocation="needed") == [4, 5]
    several = pool(Snapshot(clusters=sites((3, 3), (inf, inf)), queue=(wide, rigid("r"))))
    assert several.allotments == 5


def rigid(name: str, **changes: Any) -> RigidJob:
    return replace(RigidJob(id=name, procs=1, base_time=10.0), **changes)


def one_node(*queue: Any, **changes: Any) -> Snapshot:
    node = Node(name="n", slots=4, memory_mb=400)
    clusters = (Cluster(name="k", nodes=(node, Node(name="other", slots=2, power=0.5))),)
    return replace(Snapshot(clusters=clusters, queue=queue, overrun_s=0.0), **changes)


def steps(snapshot: Snapshot, **options: Any) -> dict[float, int]:
    times, level = pool(snapshot, **options).steps
    return dict(zip(times.tolist(), level.tolist(), strict=True))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {0.0: 6}),
        ({"running": (Running(id="o", nodes={"n": 3}, start=0.0, end=130.0),)}, {0.0: 3, 30.0: 6}),
        # what is over counts until the overrun is
        (
            {"running": (Running(id="o", nodes={"n": 3}, start=0.0, end=90.0),), "overrun_s": 5.0},
            {0.0: 3, 5.0: 6},
        ),
        ({"running": (Running(id="o", nodes={"gone": 3}, start=0.0, end=130.0),)}, {0.0: 6}),
        (
            {"reservations": (Reservation(id="x", nodes=("n",), start=110.0, end=120.0),)},
            {0.0: 6, 10.0: 2, 20.0: 6},
        ),
        (
            {"reservations": (Reservation(id="x", nodes=("n",), start=90.0, end=120.0),)},
            {0.0: 2, 20.0: 6},
        ),
        ({"reservations": (Reservation(id="x", nodes=("n",), start=50.0, end=100.0),)}, {0.0: 6}),
        (
            {"reservations": (Reservation(id="x", nodes=("gone",), start=50.0, end=200.0),)},
            {0.0: 6},
        ),
        # one that lets a placed job in closes nothing
        (
            {"reservations": (Reservation(id="x", nodes=("n",), start=0, end=200.0, jobs=("r",)),)},
            {0.0: 6},
        ),
        (
            {"reservations": (Reservation(id="x", nodes=("n",), start=0, end=200.0, jobs=("q",)),)},
            {0.0: 2, 100.0: 6},
        ),
        # a node that is closed twice over is closed once
        (
            {
                "reservations": (Reservation(id="x", nodes=("n",), start=0, end=120.0),),
                "running": (Running(id="o", nodes={"n": 3}, start=0.0, end=110.0),),
            },
            {0.0: 2, 20.0: 6},
        ),
        ({"queue": (rigid("r", memory_mb_per_proc=130),)}, {0.0: 5}),
        ({"queue": (rigid("r", memory_mb_per_proc=130), rigid("q", features=("x",)))}, {0.0: 5}),
        # the least that any job asks for counts
        ({"queue": (rigid("r", memory_mb_per_proc=300), rigid("q"))}, {0.0: 6}),
        ({"queue": (rigid("r", memory_mb_per_proc=300),)}, {0.0: 3}),
        ({"queue": (rigid("r", memory_mb_per_proc=401),)}, {0.0: 2}),
        ({"queue": (rigid("r", features=("gpu",)),)}, {0.0: 0}),
        # memory is shared by slots: 3 of 4 leave 100 of 400
        (
            {
                "queue": (rigid("r", memory_mb_per_proc=200),),
                "running": (Running(id="o", nodes={"n": 3}, start=0.0, end=130.0),),
            },
            {0.0: 2, 30.0: 4},
        ),
        (
            {
                "queue": (rigid("r", memory_mb_per_proc=100),),
                "running": (Running(id="o", nodes={"n": 3}, start=0.0, end=130.0),),
            },
            {0.0: 3, 30.0: 6},
        ),
    ],
)
def test_processors_when(changes: dict[str, Any], expected: dict[float, int]) -> None:
    given = {"time": 100.0, "queue": (rigid("r"),), **changes}
    assert steps(one_node(**given)) == expected


def test_a_mebibyte_is_asked_for_like_any_other_memory() -> None:
    clusters = (Cluster(name="k", nodes=(Node(name="n", slots=4, memory_mb=3),)),)
    queue = (rigid("r", memory_mb_per_proc=1),)
    assert steps(Snapshot(clusters=clusters, queue=queue)) == {0.0: 3}


def test_nodes_open_when_they_are_free_and_never_where_they_never_are() -> None:
    nodes = (
        Node(name="a", slots=2, free_at=110.0),
        Node(name="b", slots=3, free_at=inf),
        Node(name="c"),
    )
    snapshot = Snapshot(clusters=(Cluster(name="k", nodes=nodes),), queue=(rigid("r"),), time=100.0)
    assert steps(snapshot) == {0.0: 1, 10.0: 3}


@pytest.mark.parametrize(
    ("changes", "options", "seconds", "release"),
    [
        ({}, {}, 10.0, 0.0),
        ({"clusters": ("k",)}, {}, 10.0, 0.0),
        # processing counts by the strongest node that the job may use; communication as it is
        ({"memory_mb_per_proc": 401}, {}, 20.0, 0.0),
        ({"memory_mb_per_proc": 401, "sigma": 0.25}, {}, 12.5, 0.0),
        ({"memory_mb_per_proc": 401}, {"power_step": 0.4}, 25.0, 0.0),
        # no node at all: as if they were of full power
        ({"features": ("gpu",)}, {}, 10.0, 0.0),
        ({"earliest": 130.0}, {}, 10.0, 30.0),
        ({"earliest": 30.0}, {}, 10.0, 0.0),
        ({"after": ("o",)}, {}, 10.0, 50.0),
        ({"after": ("o",), "earliest": 170.0}, {}, 10.0, 70.0),
        ({"after": ("gone",)}, {}, 10.0, 0.0),
    ],
)
def test_how_long_a_job_takes_at_least_and_from_when(
    changes: dict[str, Any], options: dict[str, Any], seconds: float, release: float
) -> None:
    running = (Running(id="o", nodes={"n": 1}, start=0.0, end=150.0),)
    found = pool(one_node(rigid("r", **changes), running=running, time=100.0), **options)
    ((procs, times, weight, when),) = found.rows()
    assert procs.tolist() == [1]
    assert times.tolist() == pytest.approx([seconds])
    assert (weight, when) == (1.0, release)


def test_counts_that_are_no_faster_are_left_out() -> None:
    flat = table(1, 2, 3, 4)
    slow = replace(flat, speedup=TableSpeedup(procs=(1, 2, 3, 4), times=(9.0, 6.0, 6.0, 5.0)))
    ((procs, times, _, _),) = pool(one_node(slow)).rows()
    assert (procs.tolist(), times.tolist()) == ([1, 2, 4], [9.0, 6.0, 5.0])
