"""The cost model and the speed-ups, against numbers worked out by hand."""

from __future__ import annotations

from math import inf

import pytest

from coalloc.model.cost import base_time, edge_delay, link_load, link_loads, run_time, task_time
from coalloc.model.jobs import Edge, MoldableJob, RigidJob, Task
from coalloc.model.platform import Cluster
from coalloc.model.speedup import (
    LADDER,
    AmdahlSpeedup,
    DowneySpeedup,
    TableSpeedup,
    allotments,
    repaired,
)

CLUSTERS = {
    "a": Cluster(name="a", link_gbps=1.0, intra_gbps=10.0, link_latency_s=0.1),
    "b": Cluster(name="b", link_gbps=0.5, intra_gbps=8.0, link_latency_s=0.2),
    "free": Cluster(name="free"),
    "shut": Cluster(name="shut", link_gbps=0.0),
}


@pytest.mark.parametrize(
    ("sigma", "power", "sc", "expected"),
    [
        (1.0, 1.0, 1.0, 100.0),
        (1.0, 0.5, 9.0, 200.0),  # only processing counts
        (0.0, 0.5, 2.0, 200.0),  # only communication counts
        (0.7, 0.8, 1.5, 132.5),  # 100 * (0.875 + 0.45)
    ],
)
def test_run_time(sigma: float, power: float, sc: float, expected: float) -> None:
    assert run_time(100.0, sigma, power, sc) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sigma", "power", "factor"), [(0.05, 0.5, 1.05), (0.2, 0.6, 1.13333), (0.3, 0.7, 1.12857)]
)
def test_run_times_of_mbpc_case_1(sigma: float, power: float, factor: float) -> None:
    assert run_time(1.0, sigma, power) == pytest.approx(factor, abs=1e-5)


def test_mbpc_case_1_sums_to_its_optimum() -> None:
    # three jobs whose weakest nodes have SP 2, 1.667 and 1.4286
    powers = {0.05: 1 / 2, 0.2: 0.6, 0.3: 0.7}
    total = sum(run_time(1.0, sigma, power) for sigma, power in powers.items())
    assert total == pytest.approx(3.311905, abs=5e-7)


def test_link_loads_of_mbpc_case_1() -> None:
    # 18 processes at 0.075 Gbit/s: 2 + 16 on one pair of links, 4 + 14 on another; a link that
    # carries both must have .1412 + .2471 = .3883
    small = link_loads(0.075, {"1": 2, "2": 16})
    large = link_loads(0.075, {"2": 4, "3": 14})
    assert small == pytest.approx({"1": 0.141176, "2": 0.141176}, abs=1e-6)
    assert large == pytest.approx({"2": 0.247059, "3": 0.247059}, abs=1e-6)
    assert small["2"] + large["2"] == pytest.approx(0.388235, abs=1e-6)


def test_link_load_at_its_ends() -> None:
    assert link_load(1.0, 1, 1) == 0.0  # equation (4) divides by zero there
    assert link_load(1.0, 5, 5) == 0.0
    assert link_load(1.0, 2, 1) == 1.0
    assert link_loads(1.0, {"a": 5}) == {}
    assert link_loads(0.0, {"a": 2, "b": 2}) == {}
    assert link_loads(0.3, {"a": 1, "b": 1, "c": 2}) == pytest.approx(
        {"a": 0.3, "b": 0.3, "c": 0.4}
    )


def test_base_time_of_both_kinds() -> None:
    table = TableSpeedup(procs=(1, 2, 4), times=(10.0, 6.0, 4.0))
    moldable = MoldableJob(id="m", speedup=table, min_procs=1, max_procs=4)
    assert base_time(RigidJob(id="r", procs=8, base_time=7.0), 8) == 7.0
    assert [base_time(moldable, n) for n in (1, 2, 3, 4)] == [10.0, 6.0, 6.0, 4.0]


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({"a": 1}, 100 / 0.8 + 40 / 10),
        ({"a": 4}, 125 * (0.1 + 0.9 / 4) + 40 / 40),
        # intra is the smaller 8; b's link is the slower: 40 * 3/4 * 1/3 / 0.5
        ({"a": 1, "b": 3}, 125 * (0.1 + 0.9 / 4) + 40 / 32 + 20),
        ({"free": 2}, 125 * 0.55),
        ({"a": 1, "shut": 1}, inf),
    ],
)
def test_task_time(inside: dict[str, int], expected: float) -> None:
    task = Task(id="t", work=100.0, parallel_fraction=0.9, max_procs=9, comm_gb=5.0)
    assert task_time(task, inside, 0.8, CLUSTERS) == pytest.approx(expected)


def test_a_task_without_traffic_minds_no_link() -> None:
    task = Task(id="t", work=10.0, parallel_fraction=1.0, max_procs=2)
    assert task_time(task, {"a": 1, "shut": 1}, 1.0, CLUSTERS) == 5.0


@pytest.mark.parametrize(
    ("parent", "child", "expected"),
    [
        ("a", "a", 0.0),
        (("a", "b"), ("b", "a"), 0.0),
        ("a", "b", 8 * 1.5 / 0.5 + 0.2),
        ("a", ("a", "b"), 8 * 1.5 / 0.5 + 0.2),
        ("a", ("free",), 8 * 1.5 / 1.0 + 0.1),
        ("a", ("shut",), inf),
    ],
)
def test_edge_delay(parent: tuple[str, ...], child: tuple[str, ...], expected: float) -> None:
    edge = Edge(parent="p", child="c", gb=1.5)
    assert edge_delay(edge, parent, child, CLUSTERS) == pytest.approx(expected)


def test_an_edge_without_data_costs_the_latency() -> None:
    assert edge_delay(Edge(parent="p", child="c"), ["b"], ["shut"], CLUSTERS) == 0.2


def test_amdahl() -> None:
    amdahl = AmdahlSpeedup(time_1=100.0, parallel_fraction=0.95)
    assert amdahl.time(1) == pytest.approx(100.0)
    assert amdahl.time(19) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("a", "sigma", "n", "speedup"),
    [
        (10.0, 0.0, 5, 5.0),  # no variance: linear up to A, then flat
        (10.0, 0.0, 50, 10.0),
        (10.0, 1.0, 1, 1.0),
        (10.0, 1.0, 10, 100 / 14.5),  # n <= A
        (10.0, 1.0, 15, 150 / 17.0),  # A <= n <= 2A - 1: A n / (sigma (A - 1/2) + n (1 - sigma/2))
        (10.0, 1.0, 19, 10.0),
        (10.0, 0.5, 20, 10.0),  # past 2A - 1 no formula counts: it would give more than A
        (10.0, 0.5, 25, 10.0),
        (10.25, 0.5, 19, 194.75 / 19.125),  # 2A - 1 is 19.5
        (10.0, 2.0, 20, 600 / 68.0),
        (10.0, 2.0, 1, 1.0),  # high variance: n A (sigma + 1) / (sigma (n + A - 1) + A)
        (10.0, 2.0, 10, 300 / 48.0),
        (10.0, 2.0, 28, 10.0),  # A + A sigma - sigma
        (10.0, 2.0, 99, 10.0),
        (1.0, 3.0, 7, 1.0),
    ],
)
def test_downey(a: float, sigma: float, n: int, speedup: float) -> None:
    downey = DowneySpeedup(time_1=100.0, parallelism=a, variance=sigma)
    assert downey.speedup(n) == pytest.approx(speedup)
    assert downey.time(n) == pytest.approx(100.0 / speedup)


@pytest.mark.parametrize(
    ("times", "answers", "dropped"),
    [
        ((10.0, 6.0, 4.5), (10.0, 6.0, 4.5), []),
        ((10.0, 6.0, 7.0), (10.0, 6.0, 6.0), [3]),  # the time rises
        ((10.0, 4.0, 4.0), (10.0, 10.0, 4.0), [2]),  # the work falls from 10 to 8
        ((10.0, 6.0, 6.0), (10.0, 6.0, 6.0), []),  # no gain is no fault
        # a count that was dropped takes no part: the work of 4 is compared with that of 2
        ((10.0, 6.0, 7.0, 3.2), (10.0, 6.0, 6.0, 3.2), [3]),
        ((10.0, 5.0), (10.0, 5.0), []),  # linear
    ],
)
def test_repair(times: tuple[float, ...], answers: tuple[float, ...], dropped: list[int]) -> None:
    counts = tuple(range(1, len(times) + 1))
    table, found = repaired(counts, times)
    assert (table.times, found) == (answers, dropped)
    assert table.procs == counts
    assert repaired(counts, table.times) == (table, [])


def test_repair_compares_the_work_of_a_table_that_begins_above_one() -> None:
    table, dropped = repaired((2, 4, 8), (10.0, 4.9, 2.5))
    assert (table.times, dropped) == ((10.0, 10.0, 2.5), [4])


def test_allotments_are_worth_their_slots() -> None:
    table, _ = repaired((1, 2, 3, 4), (10.0, 6.0, 7.0, 4.0))
    assert allotments(table, 1, 4) == ((1, 10.0), (2, 6.0), (4, 4.0))
    assert allotments(table, 2, 3) == ((2, 6.0),)
    assert allotments(table, 5, 9) == ()
    amdahl = AmdahlSpeedup(time_1=1.0, parallel_fraction=1.0)
    assert [n for n, _ in allotments(amdahl, 3, 7)] == [3, 4, 5, 6, 7]
    ladder = [n for n, _ in allotments(amdahl, 2, 10_000)]
    assert (ladder[0], ladder[-1]) == (2, 10_000)
    assert LADDER - 5 <= len(ladder) <= LADDER
    flat = DowneySpeedup(time_1=1.0, parallelism=4.0, variance=0.0)
    assert [n for n, _ in allotments(flat, 1, 8)] == [1, 2, 3, 4]
