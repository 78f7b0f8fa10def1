"""The steps of `demt`: shelves that double, stacks, knapsack, dual approximation, lists."""

from __future__ import annotations

from itertools import compress, product

import numpy as np
import pytest
from benchmarks.papers.moldable_instances import FAMILIES, moldable_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.policies.kernel.pool.shelf_packing import fitting_rows, stack_up
from coalloc.policies.moldable.cmax_bound import cmax_bound
from coalloc.policies.moldable.laying import PoolLister
from coalloc.policies.moldable.queue import MoldableQueue
from coalloc.policies.moldable.shelves import fill_shelves, select, shelf_length
from coalloc.policies.moldable.two_shelf import LARGE, SECOND, SMALL, part_jobs, two_shelf
from tests.unit.policies.published.demt_case import Row, queue_of, snapshot_of

FOUR: list[Row] = [
    ("a", [4.0, 2.0], 6.0),
    ("b", [1.0], 1.0),
    ("c", [1.0], 2.0),
    ("d", [8.0, 4.0, 3.0], 5.0),
]


def named(queue: MoldableQueue, rows: list[Row], guess: float) -> list[tuple[float, list[str]]]:
    def name(job: int, row: int) -> str:
        return f"{rows[job][0]}{queue.procs[row]}"

    return [
        (shelf.length, list(map(name, shelf.jobs.tolist(), shelf.rows.tolist())))
        for shelf in fill_shelves(queue, guess, "knapsack")
    ]


def test_the_smallest_allotment_that_fits() -> None:
    queue = queue_of(snapshot_of(FOUR, 3))
    jobs, out = np.array([3, 0, 3, 1]), np.zeros(4, dtype=np.int64)
    fitting_rows(queue.first, queue.times, jobs, np.array([4.0, 4.0, 2.9, 1.0]), out)
    assert [-1 if row < 0 else int(queue.procs[row]) for row in out] == [2, 1, -1, 1]


def test_stacks_by_next_fit() -> None:
    out = np.zeros(6, dtype=np.int64)
    is_small = np.array([True, True, False, True, True, True])
    seconds = np.array([3.0, 2.0, 9.0, 2.0, 2.5, 1.0])
    assert stack_up(seconds, is_small, 5.0, out) == 4
    assert out.tolist() == [0, 0, 1, 2, 2, 3]


def test_shelves_worked_by_hand() -> None:
    queue = queue_of(snapshot_of(FOUR, 3))
    # K = 3, t_0 = 1: b and c; t_1 = 2: a on two; t_2 = 4: d on two
    assert named(queue, FOUR, 8.0) == [(1.0, ["c1", "b1"]), (2.0, ["a2"]), (4.0, ["d2"])]


def test_shelves_go_on_until_nobody_is_left() -> None:
    rows: list[Row] = [
        ("a", [1.0], 1),
        ("b", [1.0], 5),
        ("c", [1.0], 2),
        ("d", [1.0], 4),
        ("e", [1.0], 3),
    ]
    queue = queue_of(snapshot_of(rows, 1))
    shelves = fill_shelves(queue, 1.0, "knapsack")
    # the published loop ends after K = 0; stacks of two, then of up to four, are next
    assert [shelf.length for shelf in shelves] == [1.0, 2.0, 4.0]
    assert ["".join(rows[job][0] for job in shelf.jobs) for shelf in shelves] == ["b", "de", "ca"]
    assert [shelf.stacked for shelf in shelves] == [0, 2, 2]


def test_a_stack_weighs_the_sum_of_its_jobs() -> None:
    rows: list[Row] = [("x", [2.0], 5), ("y", [1.0], 4), ("u", [1.0], 3), ("v", [1.0], 3)]
    queue = queue_of(snapshot_of(rows, 1))
    assert named(queue, rows, 2.0) == [(1.0, ["y1"]), (2.0, ["u1", "v1"]), (4.0, ["x1"])]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("selection", ["knapsack", "greedy"])
def test_lengths_double_and_every_job_is_in_one_shelf(family: str, selection: str) -> None:
    queue = queue_of(moldable_instance(family, 60, 20, 3))
    guess = cmax_bound(queue)
    begin = shelf_length(queue, guess)
    assert queue.times.min() <= begin < 2.0 * queue.times.min()
    assert (guess / begin) == 2.0 ** round(np.log2(guess / begin))
    shelves = fill_shelves(queue, guess, selection)
    powers = [shelf.length / begin for shelf in shelves]
    assert powers == [2.0 ** round(np.log2(power)) for power in powers]
    assert powers == sorted(set(powers))
    assert sorted(job for shelf in shelves for job in shelf.jobs) == list(range(60))
    for shelf in shelves:
        procs, times = queue.procs[shelf.rows], queue.times[shelf.rows]
        assert (times <= shelf.length).all()
        is_first = shelf.rows == queue.first[shelf.jobs]
        assert (is_first | (queue.times[shelf.rows - 1] > shelf.length)).all()
        ratio = queue.weight[shelf.jobs] / (procs * times)
        assert (np.diff(ratio) <= 1e-12).all()


def test_busy_processors_and_releases_hold_jobs_back() -> None:
    rows: list[Row] = [(name, [1.0], 1.0) for name in "abc"]
    busy = [{"id": "r", "nodes": {"a0": 1, "a1": 1}, "start": 0.0, "end": 3.5}]
    later = {"id": "d", "kind": "rigid", "procs": 1, "base_time": 1.0, "earliest": 5.0}
    queue = queue_of(snapshot_of(rows, 3, running=busy, queue=[later]))
    shelves = fill_shelves(queue, 1.0, "knapsack")
    # one processor until 3.5: one job, then a stack of the other two; d not before 8 >= 5
    assert [(shelf.length, shelf.jobs.tolist()) for shelf in shelves] == [
        (1.0, [2]),
        (2.0, [0, 1]),
        (8.0, [3]),
    ]


def test_jobs_without_weight_find_a_shelf() -> None:
    queue = queue_of(snapshot_of([(str(n), [2.0], 0.0) for n in range(7)], 2))
    for selection in ("knapsack", "greedy"):
        shelves = fill_shelves(queue, 2.0, selection)
        assert sum(shelf.jobs.size for shelf in shelves) == 7


@settings(max_examples=150)
@given(
    entries=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=7),
    more=st.integers(0, 6),
)
def test_knapsack_against_all_subsets(entries: list[tuple[int, int]], more: int) -> None:
    weight = np.array([float(w) for w, _ in entries])
    size = np.array([k for _, k in entries], dtype=np.int64)
    room = int(size.max()) + more
    totals = [
        sum(compress(weight, taken))
        for taken in product([False, True], repeat=size.size)
        if sum(compress(size, taken)) <= room
    ]
    chosen = select(weight, size, room, "knapsack")
    assert size[chosen].sum() <= room
    assert weight[chosen].sum() == max(totals)
    quick = select(weight, size, room, "greedy")
    assert size[quick].sum() <= room
    assert weight[quick].sum() <= max(totals)
    assert size[quick].sum() + size[~quick].min(initial=99) > room  # nobody left still fits


@pytest.mark.parametrize("family", FAMILIES)
def test_dual_approximation_meets_the_bound(family: str) -> None:
    queue = queue_of(moldable_instance(family, 80, 40, 2))
    found = two_shelf(queue)
    bound = cmax_bound(queue)
    assert bound * (1.0 - 1e-6) <= found.guess <= bound * 1.02
    procs, times = queue.procs[found.rows], queue.times[found.rows]
    assert procs[found.part == LARGE].sum() <= 40
    assert (times <= found.guess).all()
    assert (times[found.part != LARGE] <= found.guess / 2.0).all()
    assert (procs[found.part == SMALL] == 1).all()
    assert float(procs @ times) <= 40 * found.guess * (1.0 + 1e-9)
    assert found.part[found.order].tolist() == sorted(found.part)
    assert part_jobs(queue, bound * 0.99) is None


def test_shelves_of_the_dual_approximation_by_hand() -> None:
    rows: list[Row] = [("w", [9.0, 6.0], 1.0), ("x", [4.0], 1.0), ("y", [2.0], 1.0)]
    found = part_jobs(queue_of(snapshot_of(rows, 3)), 6.0)
    assert found is not None
    # w and x run for more than 3 s, and nothing makes them shorter; y is small
    assert found.part.tolist() == [LARGE, LARGE, SMALL]
    assert found.order.tolist() == [0, 1, 2]
    second = part_jobs(queue_of(snapshot_of([("v", [5.0, 3.0, 2.0], 1.0)] * 1 + rows, 4)), 6.0)
    assert second is not None
    assert second.part.tolist() == [LARGE, LARGE, LARGE, SMALL]
    tight = part_jobs(queue_of(snapshot_of([("v", [5.0, 3.0], 1.0), ("w", [6.0], 1.0)], 2)), 6.0)
    assert tight is not None
    assert tight.part.tolist() == [LARGE, LARGE]
    assert part_jobs(queue_of(snapshot_of(rows, 2)), 6.0) is None
    assert SECOND not in tight.part


def listed(queue: MoldableQueue, order: list[int], rows: list[int]) -> list[float]:
    """Start of each job by list scheduling, from the definition."""
    begun: list[tuple[float, float, int]] = []
    start = [np.nan] * queue.size
    times = sorted({0.0, *queue.starts.tolist(), *queue.release.tolist()})
    left = list(order)

    def free(at: float) -> int:
        level = int(queue.capacity[np.searchsorted(queue.starts, at, side="right") - 1])
        return level - sum(k for a, b, k in begun if a <= at < b)

    while left:
        now = times.pop(0)
        for i in list(left):
            k, end = int(queue.procs[rows[i]]), now + float(queue.times[rows[i]])
            edges = [now, *(s for s in queue.starts.tolist() if now < s < end)]
            if queue.release[i] <= now and all(free(at) >= k for at in edges):
                begun.append((now, end, k))
                start[i] = now
                left.remove(i)
                times = sorted({*times, end})
    return start


@st.composite
def queues(draw: st.DrawFn) -> MoldableQueue:
    procs = draw(st.integers(1, 5))
    queue = [
        {
            "id": str(n),
            "kind": "moldable",
            "times": [8.0, 5.0, 4.0, 3.0, 2.5][: draw(st.integers(1, procs))],
            "earliest": draw(st.sampled_from([0.0, 0.0, 2.0, 7.0])),
            "weight": draw(st.sampled_from([0.0, 1.0, 3.0])),
        }
        for n in range(draw(st.integers(1, 9)))
    ]
    running = [{"id": "r", "nodes": {"a0": 1}, "start": 0.0, "end": draw(st.sampled_from([1, 9]))}]
    kept = {"id": "k", "nodes": [f"a{procs - 1}"], "start": 6.0, "end": 11.0}
    return queue_of(
        snapshot_of(
            [],
            procs,
            queue=queue,
            running=running if draw(st.booleans()) else [],
            reservations=[kept] if draw(st.booleans()) else [],
        )
    )


@settings(max_examples=80)
@given(queue=queues(), data=st.data())
def test_list_scheduling_against_its_definition(queue: MoldableQueue, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(queue.size)))
    rows = [
        data.draw(st.integers(int(a), int(b) - 1))
        for a, b in zip(queue.first[:-1], queue.first[1:], strict=True)
    ]
    lister = PoolLister(queue)
    cmax, total = lister.run(np.array(order), np.array(rows))
    expected = np.array(listed(queue, list(order), rows))
    assert lister.start.tolist() == expected.tolist()
    ends = expected + queue.times[rows]
    assert cmax == ends.max()
    assert total == pytest.approx(float(queue.weight @ ends))
    assert lister.run(np.array(order), np.array(rows), total * (1 - 1e-9) - 1e-9) == (
        np.inf,
        np.inf,
    )
    assert lister.run(np.array(order), np.array(rows), total * (1 + 1e-9) + 1e-9)[0] == cmax
