"""A moldable queue as arrays: allotments, processors over time, and when it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.moldable.queue import MoldableQueue, of_planner, why_not
from coalloc.policies.options import CommonOptions, read_options

AMDAHL = {"model": "amdahl", "time": 100.0, "parallel_fraction": 0.9}


def planner_of(*queue: dict[str, Any], **more: Any) -> Planner:
    nodes = [{"name": "a[1-8]"}, {"name": "b[1-4]", "power": more.pop("power", 1.0)}]
    clusters = more.pop("clusters", [{"name": "alpha", "nodes": nodes}])
    given = {"format": "coalloc-snapshot/1", "time": 1000.0, "clusters": clusters} | more
    return Planner(read_snapshot(given | {"queue": list(queue)}), read_options({}, CommonOptions))


def moldable(name: str = "1", **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": "moldable", "times": [10.0, 6.0, 4.5]} | more


def steps(queue: MoldableQueue) -> list[tuple[float, int]]:
    return list(zip(queue.starts.tolist(), queue.capacity.tolist(), strict=True))


def test_one_cluster_of_equal_nodes_is_exact() -> None:
    queue = of_planner(planner_of(moldable(weight=3.0, earliest=1007.0), moldable("2")))
    assert queue.is_exact
    assert steps(queue) == [(0.0, 12)]
    assert queue.first.tolist() == [0, 3, 6]
    assert queue.procs[:3].tolist() == [1, 2, 3]
    assert queue.times[:3].tolist() == [10.0, 6.0, 4.5]
    assert queue.weight.tolist() == [3.0, 1.0]
    assert queue.release.tolist() == [7.0, 0.0]


def test_a_rigid_job_has_one_allotment() -> None:
    rigid = {"id": "r", "kind": "rigid", "procs": 5, "base_time": 60.0}
    queue = of_planner(planner_of(rigid))
    assert (queue.procs.tolist(), queue.times.tolist()) == ([5], [60.0])


def test_slower_nodes_make_it_a_relaxation_on_the_strongest() -> None:
    queue = of_planner(planner_of(moldable(sigma=0.5), power=0.5))
    assert not queue.is_exact
    assert queue.times.tolist() == [10.0, 6.0, 4.5]
    assert queue.width == 12


def test_running_jobs_and_reservations_take_processors_for_a_while() -> None:
    running = [{"id": "x", "nodes": {"a1": 1, "a2": 1}, "start": 900.0, "end": 1100.0}]
    kept = {"id": "k", "nodes": ["b1", "b2", "b3"], "start": 1050.0, "end": 1200.0}
    queue = of_planner(planner_of(moldable(), running=running, reservations=[kept]))
    assert steps(queue) == [(0.0, 10), (50.0, 7), (100.0, 9), (200.0, 12)]


def test_a_reservation_that_lets_somebody_in_closes_nothing_in_the_relaxation() -> None:
    kept = {"id": "k", "nodes": ["b1"], "start": 1050.0, "end": 1200.0, "jobs": ["2"]}
    queue = of_planner(planner_of(moldable(), moldable("2"), reservations=[kept]))
    assert steps(queue) == [(0.0, 12)]
    assert not queue.is_exact


def test_a_ladder_keeps_both_ends_and_about_as_many_as_asked_for() -> None:
    times = [1000.0 / n**0.5 for n in range(1, 13)]
    planner = planner_of(moldable(times=times))
    assert of_planner(planner).procs.size == 12
    few = of_planner(planner, limit=5)
    assert (few.procs[0], few.procs[-1]) == (1, 12)
    assert few.procs.size <= 6
    assert (np.diff(few.times) < 0.0).all()
    assert [planner.items[0].modes[m][0] for m in few.mode] == few.procs.tolist()


def closed_form(low: int, high: int) -> Planner:
    job = moldable() | {"speedup": AMDAHL, "min_procs": low, "max_procs": high, "sigma": 0.5}
    del job["times"]
    nodes = [{"name": f"a[1-{high}]", "power": 0.5}]
    return planner_of(job, clusters=[{"name": "alpha", "nodes": nodes}])


def test_every_allotment_of_a_closed_form_is_there_for_bounds() -> None:
    queue = of_planner(closed_form(2, 200), for_bounds=True)
    assert queue.procs.tolist() == list(range(2, 201))
    assert queue.times[0] == pytest.approx(55.0 * 1.5)
    assert of_planner(closed_form(2, 200)).procs.size < 60


def test_on_large_machines_no_allotment_is_better_than_its_row() -> None:
    queue = of_planner(closed_form(1, 5000), for_bounds=True)
    assert queue.procs.size <= 1000
    ends = np.concatenate((queue.procs[1:] - 1, [5000]))
    for procs, seconds, last in zip(queue.procs, queue.times, ends, strict=True):
        assert procs <= last
        assert seconds == pytest.approx((10.0 + 90.0 / last) * 1.5)


def test_workflows_and_order_among_jobs_are_not_planned() -> None:
    assert why_not(planner_of(moldable(), moldable("2"))) is None
    assert why_not(planner_of(moldable(), moldable("2", after=["1"]))) == (
        "job 2 waits for another job of the queue"
    )
    flow = {"id": "w", "kind": "workflow", "tasks": [{"id": "t", "work": 5.0}], "edges": []}
    assert why_not(planner_of(flow)) == "job w is a workflow"
