"""The mapper of workflows: run times, earliest finish, insertion, data, spreading."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from coalloc.model.cost import task_time
from coalloc.model.snapshot import Snapshot
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.workflow.mapping import DENSE, Mapper
from tests.support.planned import planned
from tests.support.snapshots import snapshots
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid, spans

ALONE = {"coallocation": "forbidden"}


def flow(tasks: list[dict[str, Any]], edges: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"id": "w", "kind": "workflow", "tasks": tasks, "edges": edges or []}


def task(name: str, work: float, **fields: Any) -> dict[str, Any]:
    return {"id": name, "work": work, **fields}


def mapper_of(snapshot: Snapshot, **options: Any) -> Mapper:
    return Mapper(Planner(snapshot, options))


def whole(mapper: Mapper) -> tuple[Any, Any]:
    """Every row on every cluster."""
    low = np.ascontiguousarray(np.broadcast_to(mapper.costs.first[:-1, None], mapper.single.shape))
    return low, mapper.single


def test_run_times_are_those_of_the_cost_model() -> None:
    clusters = [
        {**cluster("alpha", 3), "intra_gbps": 4.0},
        {**cluster("beta", 2, power=0.5), "intra_gbps": None},
    ]
    clusters[1]["nodes"].append({"name": "b9", "power": 0.25})
    tasks = [task("t", 30.0, parallel_fraction=0.9, min_procs=2, max_procs=9, comm_gb=2.0)]
    snapshot = case(clusters, [flow(tasks)])
    costs = mapper_of(snapshot).costs
    assert costs.procs.tolist() == [2, 3, 4, 5, 6]
    by_name = {c.name: c for c in snapshot.clusters}
    item = snapshot.queue[0].tasks[0]  # type: ignore[union-attr]
    assert costs.seconds[:2, 0].tolist() == pytest.approx(
        [task_time(item, {"alpha": n}, 1.0, by_name) for n in (2, 3)]
    )
    assert costs.seconds[:2, 1].tolist() == pytest.approx(
        [task_time(item, {"beta": n}, power, by_name) for n, power in ((2, 0.5), (3, 0.25))]
    )
    assert np.isinf(costs.seconds[2:]).all()
    assert costs.power.tolist() == pytest.approx([1.0, 1.25 / 3])


def test_rows_of_a_large_range_are_a_ladder() -> None:
    tasks = [task("t", 9.0, parallel_fraction=1.0, max_procs=5000), task("s", 1.0, max_procs=700)]
    mapper = mapper_of(case([cluster("alpha", 3, slots=1000)], [flow(tasks)]))
    procs = mapper.costs.procs[: mapper.costs.first[1]]
    assert procs.size <= DENSE
    assert procs[[0, -1]].tolist() == [1, 3000]
    assert np.diff(mapper.costs.first).tolist() == [procs.size, 1]
    for limit in (0, 1, 700, 3000, 9999):
        last = int(mapper.costs.last_rows(np.array([limit, 0]))[0])
        assert last == int((procs <= limit).sum()) - 1
    assert mapper.costs.last_rows(np.array([5, 0]))[1] == mapper.costs.first[1] - 1


@given(snapshot=snapshots(most=4))
@settings(max_examples=150)
def test_one_item_ends_as_soon_as_the_kernel_finds(snapshot: Snapshot) -> None:
    """The kernel's insertion is the oracle: powers, memory, reservations and all that."""
    planner = Planner(snapshot, ALONE)
    mapper = Mapper(planner)
    low, high = whole(mapper)
    for n, item in enumerate(planner.items):
        if item.parents:
            continue
        mapper.clear()
        end = mapper.map(np.array([n]), low, high)
        assert end == pytest.approx(float(planner.decode([n], "insert").outcome.end[n]))


@given(snapshot=snapshots())
@settings(max_examples=60)
def test_without_insertion_nodes_are_free_for_good(snapshot: Snapshot) -> None:
    mapper = mapper_of(snapshot)
    low, high = whole(mapper)
    order = mapper.in_order(mapper.graph.bottom(np.ones(mapper.graph.size)))
    for n in order.tolist():
        times = np.unique(mapper.desk.time).tolist()
        before = [mapper.free_from(n, t) for t in times]
        mapper.map(np.array([n]), low, high, insertion=False)
        start = float(mapper.out.start[n])
        instant = max(x for x, t in enumerate(times) if t <= start)
        assert (mapper.out.parts[n] <= before[instant]).all()


def test_insertion_fills_a_gap_that_appending_leaves() -> None:
    queue = [rigid(1, 1, 10.0), rigid(2, 2, 5.0), rigid(3, 1, 10.0)]
    for insertion, end in ((True, 10.0), (False, 25.0)):
        mapper = mapper_of(case([cluster("alpha", 2)], queue), **ALONE)
        mapper.map(np.arange(3), *whole(mapper), insertion)
        assert mapper.out.start[:2].tolist() == [0.0, 10.0]
        assert mapper.out.end[2] == end


def test_ties_go_to_fewer_processes() -> None:
    queue = [{"id": "m", "kind": "moldable", "times": [6.0, 6.0, 6.0]}]
    mapper = mapper_of(case([cluster("alpha", 3)], queue))
    mapper.map(np.arange(1), *whole(mapper))
    assert mapper.out.parts[0].tolist() == [1]


SPREAD: list[dict[str, Any]] = [
    {**cluster("alpha", 2, 2.0), "intra_gbps": 16.0, "link_latency_s": 0.5},
    {**cluster("beta", 2, 1.0), "intra_gbps": 8.0},
]


def test_a_task_on_two_clusters_costs_what_the_model_says() -> None:
    tasks = [
        task("a", 12.0, parallel_fraction=1.0, max_procs=4, comm_gb=3.0),
        task("b", 4.0),
        task("c", 4.0, parallel_fraction=1.0, max_procs=4),
    ]
    edges = [{"from": "a", "to": "b", "gb": 0.25}, {"from": "a", "to": "c", "gb": 0.25}]
    snapshot = case(SPREAD, [flow(tasks, edges)])
    mapper = mapper_of(snapshot)
    rows = mapper.costs.first[:-1]
    assert mapper.place(0, int(rows[0]) + 3, [2, 2])
    by_name = {c.name: c for c in snapshot.clusters}
    item = snapshot.queue[0].tasks[0]  # type: ignore[union-attr]
    seconds = task_time(item, {"alpha": 2, "beta": 2}, 1.0, by_name)
    # 12/4 s, 8 * 3 / 4 / 8 s inside, 24 * (2/4) * (2/3) / 1 s between
    assert seconds == pytest.approx(3.0 + 0.75 + 8.0)
    assert mapper.out.end[0] == pytest.approx(seconds)
    assert mapper.place(1, int(rows[1]), [1, 0])  # 2 Gbit over the slower link, and its latency
    assert mapper.out.start[1] == pytest.approx(seconds + 2.0 + 0.5)
    assert mapper.place(2, int(rows[2]) + 2, [2, 1])  # the same clusters: nothing to move
    assert mapper.out.start[2] == pytest.approx(seconds)


def test_a_link_bounds_how_jobs_are_spread() -> None:
    """Two jobs of 4 Gbit/s a link do not run side by side over 5; one waits."""
    queue = [rigid(n, 4, 10.0, proc_gbps=3.0) for n in (1, 2)]
    clusters = [cluster("alpha", 4, 5.0), cluster("beta", 4, 5.0)]
    mapper = mapper_of(case(clusters, queue))
    for n in (0, 1):
        assert mapper.place(n, n, [2, 2])
    assert mapper.out.end[:2].tolist() == [10.0, 20.0]


def test_a_link_that_is_full_is_avoided_beside_reservations_too() -> None:
    """Also where it is full at the very instant from which the job could start."""
    clusters = [cluster("alpha", 2, 1.0), cluster("beta", 2)]
    running = [{"id": "r", "nodes": {}, "start": 0.0, "end": 90.0, "link_gbps": {"alpha": 1.0}}]
    kept = [{"id": "v", "nodes": ["alpha1"], "start": 10.0, "end": 71.0}]
    snapshot = case(clusters, [rigid(1, 4, 5.0, proc_gbps=0.1)], running, kept)
    assert spans(planned("m-heft", snapshot)) == {"1": (90.0, 95.0)}


def test_data_of_started_tasks_arrive_when_they_do() -> None:
    job = flow([task("b", 4.0)], [{"from": "a", "to": "b", "gb": 0.25}])
    job["started"] = [{"task": "a", "clusters": ["alpha", "beta"], "end": 3.0}]
    mapper = mapper_of(case(SPREAD, [job]))
    assert mapper.place(0, 0, [0, 1])
    assert mapper.out.start[0] == pytest.approx(3.0 + 2.0 + 0.5)


def test_what_is_free_for_good() -> None:
    queue = [rigid(1, 2, 5.0), rigid(2, 1, 1.0)]
    clusters = [cluster("alpha", 3), cluster("beta", 1)]
    mapper = mapper_of(case(clusters, queue), **ALONE)
    assert mapper.place(0, 0, [2, 0])
    assert mapper.free_from(1, 0.0).tolist() == [1, 1]
    assert mapper.free_from(1, 5.0).tolist() == [3, 1]
