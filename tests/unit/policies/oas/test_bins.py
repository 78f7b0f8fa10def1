"""The annealing by bins: its plans can be listed, and it finds what the exact search does."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.kernel.annealing_loop import CURRENT
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.kernel.search.bins import ALL, COST, HERE, anneal
from coalloc.policies.kernel.search.lister import Lister
from coalloc.policies.kernel.search.listing_state import MADE
from coalloc.policies.kernel.state import MAKESPAN
from coalloc.policies.oas.bins import FIRST_CYCLE, BinAnnealing, bins_of
from coalloc.policies.oas.exact import ExactSearch
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.seeds import QUICK, seeds
from tests.support.strip_packing import perfect_instances, read_instance
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid


def lister(snapshot: Snapshot, **given: Any) -> Lister:
    planner = Planner(snapshot, read_options(given, lookup("oas").options))
    booked = planner.decode([], "insert")
    return Lister(planner, range(len(planner.items)), booked)


def even(seed: int) -> Snapshot:
    """Six or seven jobs on equal nodes, some of them busy; every second time whole seconds."""
    rng = random.Random(seed)
    nodes = rng.randint(3, 9)

    def seconds(low: float, high: float) -> float:
        value = rng.uniform(low, high)
        return float(round(value)) if seed % 2 else value

    queue = [
        rigid(n, rng.randint(1, nodes), seconds(1, 12), sigma=rng.choice([1.0, 0.6]))
        for n in range(rng.randint(6, 7))
    ]
    busy = rng.randint(0, nodes - 1)
    running = [
        {"id": f"r{n}", "nodes": {f"a{n + 1}": 1}, "start": -1.0, "end": 60.0 + seconds(0, 9)}
        for n in range(busy)
    ]
    return case([cluster("a", nodes)], queue, running)


def strips(seed: int) -> Snapshot:
    """Seven jobs that lie whole in one of two or three clusters of unequal width and power."""
    rng = random.Random(seed)
    widths = rng.sample(range(4, 10), rng.randint(2, 3))
    clusters = [
        cluster(name, width, link=0.0, power=rng.choice([1.0, 0.5]))
        for name, width in zip("abc", widths, strict=False)
    ]
    queue = [
        rigid(n, rng.randint(1, max(widths)), float(rng.randint(1, 12)), proc_gbps=1.0)
        for n in range(7)
    ]
    return case(clusters, queue)


def searched(snapshot: Snapshot, enough: float) -> float:
    """The best makespan, or one that is enough, that the search finds from a plan without skill."""
    listed = lister(snapshot)
    bins = bins_of(listed)
    assert bins is not None
    first = listed.planner.decode(range(len(listed.items)), "insert")
    search, best = BinAnnealing(listed, bins, first.outcome, seed=1), first.makespan
    while search.work < 3_000_000 and best > enough:
        if search.run(best, 0.0, 1000):
            order, homes = search.found
            genes = listed.genes(order)
            genes.block[:] = 1
            genes.home[order] = homes
            assert listed.evaluate(genes, MAKESPAN) < float("inf")
            found = float(listed.desk.measure[MADE])
            assert found < best
            best = found
    return best


@pytest.mark.parametrize(
    ("tight", "fits", "starts"),
    [
        ([1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 10, 20]),  # the last one passes nobody in time
        ([1, 1, 1, 1], [0, 1, 0, 0], [0, 10, 20, 0]),  # the second one lets the widest go first
        ([1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 10, 20]),  # the third one stops all behind it
        ([1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 10, 20]),  # beside nothing, the first one starts
    ],
)
def test_a_job_that_fits_yields_to_the_widest_behind_it(
    tight: list[int], fits: list[int], starts: list[float]
) -> None:
    queue = [rigid(n, procs, 10.0) for n, procs in enumerate([6, 2, 9, 4])]
    listed = lister(case([cluster("a", 10)], queue))
    first = listed.planner.decode(range(4), "insert")
    search = BinAnnealing(listed, [[0]], first.outcome, seed=1)
    records = search.replicas[0]
    jobs = np.argsort(search.items)  # they are kept by width
    records.orders.order[0] = jobs
    records.orders.yields[:, jobs] = tight, fits
    search.desk.counters[HERE] = ALL
    anneal(records, search.state, 0, True)
    assert search.desk.start[jobs].tolist() == starts


@pytest.mark.parametrize(
    ("order", "end", "late", "cost"),
    [
        ([1, 0, 2], 30.0, 0.0, 3 * 50 * 25 / 30),  # half of the slots idle at first
        ([0, 1, 2], 30.0, 0.0, 3 * 50 * 15 / 30),
        ([0, 2, 1], 30.0, 0.0, 3 * 50 * 5 / 30),  # the same room, last
        ([0, 1, 2], 20.0, 100.0, 100 + 3 * 50 * 5 / 20),  # the third job is late as a whole
        ([1, 0, 2], 15.0, 200.0, 200 + 3 * 50 * 10 / 15),
    ],
)
def test_idle_slots_cost_the_more_the_earlier(
    order: list[int], end: float, late: float, cost: float
) -> None:
    queue = [rigid(n, procs, 10.0) for n, procs in enumerate([10, 5, 10])]
    listed = lister(case([cluster("a", 10)], queue))
    first = listed.planner.decode(range(3), "insert")
    search = BinAnnealing(listed, [[0]], first.outcome, seed=1)
    records = search.replicas[0]
    records.orders.order[0] = np.argsort(search.items)[order]
    search.case.aim[:] = end, 0.0, 3.0
    search.desk.counters[HERE] = ALL
    assert anneal(records, search.state, 0, True) == pytest.approx(cost)
    assert search.desk.value[:, 0].tolist() == pytest.approx([late, cost])


def listed_plainly(procs: list[int], seconds: list[float], order: list[int], yields: Any) -> Any:
    """Starts of jobs on 30 slots, by the words at the top of `kernel.search.bins`."""
    waiting, running, start, t = list(order), dict[int, float](), {}, 0.0
    while waiting:
        free = 30 - sum(procs[n] for n in running)
        fit = list[int]()
        for n in waiting:
            if procs[n] <= free:
                fit.append(n)
            elif not yields[0][n]:
                break
        if fit:
            first = fit[0]
            if yields[1][first] and running:
                first = max(fit, key=lambda n: procs[n])
            waiting.remove(first)
            start[first], running[first] = t, t + seconds[first]
        else:
            t = min(running.values())
            running = {n: end for n, end in running.items() if end > t}
    return [start[n] for n in range(len(procs))]


@pytest.mark.parametrize(("seed", "size"), [(0, 5), (1, 63), (2, 64), (3, 65), (4, 150), (5, 150)])
def test_masks_list_what_plain_words_say(seed: int, size: int) -> None:
    rng = random.Random(seed)
    procs = [rng.randint(1, 30) for _ in range(size)]
    seconds = [float(rng.randint(1, 9)) for _ in range(size)]
    queue = [rigid(n, *job) for n, job in enumerate(zip(procs, seconds, strict=True))]
    listed = lister(case([cluster("a", 30)], queue))
    first = listed.planner.decode(range(size), "insert")
    search = BinAnnealing(listed, [[0]], first.outcome, seed=1)
    records = search.replicas[0]
    order = rng.sample(range(size), size)
    yields = [[int(rng.random() < share) for _ in range(size)] for share in (0.9, 0.5)]
    jobs = np.argsort(search.items)
    records.orders.order[0], records.orders.yields[:, jobs] = jobs[order], yields
    search.case.aim[0] = 1e9
    search.desk.counters[HERE] = ALL
    anneal(records, search.state, 0, True)
    assert search.desk.start[jobs].tolist() == listed_plainly(procs, seconds, order, yields)


def test_what_is_kept_is_listed_as_soon_without_yielding() -> None:
    queue = [rigid(n, procs, 10.0, proc_gbps=1.0) for n, procs in enumerate([2, 3, 1, 2, 3, 1])]
    listed = lister(case([cluster("a", 4, link=0.0), cluster("b", 4, link=0.0)], queue))
    first = listed.planner.decode(range(6), "insert")
    search = BinAnnealing(listed, [[0], [1]], first.outcome, seed=1)
    records = search.replicas[0]
    jobs = np.argsort(search.items)
    for k in (0, 1):  # the third one starts beside the first one, and before the second one
        records.orders.order[k, :3] = jobs[3 * k : 3 * k + 3]
    records.orders.jobs[:], search.case.aim[0] = 3, 20.0
    search.desk.counters[HERE] = ALL
    for orders in (records.orders, records.best):
        anneal(records._replace(orders=orders), search.state, 0, True)
        assert search.desk.start[jobs].tolist() == [0, 10, 0, 0, 10, 0]


def test_moves_that_do_not_stay_are_taken_back() -> None:
    queue = [rigid(n, 1 + n % 3, 10.0 + n, proc_gbps=1.0) for n in range(9)]
    listed = lister(case([cluster(name, 3, link=0.0) for name in "abc"], queue))
    first = listed.planner.decode(range(9), "insert")
    search = BinAnnealing(listed, [[0], [1], [2]], first.outcome, seed=1)
    records = search.replicas[0]

    def choices() -> Any:
        order, jobs, yields = (part.tolist() for part in records.orders)
        return [row[:size] for row, size in zip(order, jobs, strict=True)], yields

    before = choices()
    for _ in range(500):
        search.state.value[CURRENT] = -1.0
        anneal(records, search.state, 1, False)
        assert choices() == before


def test_replicas_give_way_to_copies_of_cheaper_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = [rigid(n, procs, 10.0) for n, procs in enumerate([2, 3, 1, 2, 3, 1])]
    listed = lister(case([cluster("a", 4)], queue))
    first = listed.planner.decode(range(6), "insert")
    search = BinAnnealing(listed, [[0]], first.outcome, seed=1)
    monkeypatch.setattr("coalloc.policies.oas.bins.ENOUGH", FIRST_CYCLE // 3)
    turns = search._cycle(first.makespan)
    next(turns)
    for cost, replica in zip([1e9, 0.0, 1e9], search.replicas, strict=True):
        replica.orders.order[0], replica.desk.known[COST] = [cost, 1, 2, 3, 4, 5], cost
    for _ in range(3):
        next(turns)
    assert [one.orders.order[0].tolist() for one in search.replicas] == [[*range(6)]] * 3
    search.replicas[0].orders.order[0, 0], search.replicas[0].desk.known[COST] = 5, 7.0
    assert search.replicas[1].orders.order[0, 0] == search.replicas[1].desk.known[COST, 0] == 0


@pytest.mark.parametrize("build", [even, strips])
@pytest.mark.parametrize("seed", seeds(20))
def test_finds_what_the_exact_search_does(build: Callable[[int], Snapshot], seed: int) -> None:
    snapshot = build(seed)
    exact = ExactSearch(lister(snapshot).planner, "makespan", None)
    assert exact.run(5_000_000)
    # The slow ones search to the end: nothing is better than what is exact.
    best = searched(snapshot, exact.value * (1 + 1e-9) if seed < QUICK else 0.0)
    whole = build is strips or seed % 2 == 1
    assert exact.value * (1 - 1e-9) <= best <= exact.value * (1 + (1e-9 if whole else 0.002))


def test_perfect_packings_and_the_same_again(shared: Path) -> None:
    policy = lookup("oas")
    options = read_options({}, policy.options)
    seen = 0
    for path, height in perfect_instances(shared / "data" / "strip_packing"):
        snapshot = read_instance(path)
        if len(snapshot.queue) <= 20:
            budget = Budget(seed=3, work=4_000_000)
            plan, again = (policy.solve(snapshot, options, budget) for _ in range(2))
            assert plan.objective.value <= height * 1.06, path
            assert (plan.placements, plan.stats) == (again.placements, again.stats)
            seen += 1
    assert seen > 4


def test_says_why_nothing_is_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coalloc.policies.oas.exact.cp_model", lambda: None)
    policy = lookup("oas")
    plan = policy.solve(strips(2), read_options({}, policy.options), Budget(work=20_000))
    assert plan.stats["exact_search"] == "none: ortools is not installed"


@pytest.mark.parametrize(
    ("clusters", "extra", "options", "expected"),
    [
        ([cluster("a", 4)], {}, {}, [[0]]),
        # jobs that load no link may be split as they like
        ([cluster("a", 4, link=1.0), cluster("b", 4, link=1.0)], {}, {}, [[0, 1]]),
        ([cluster("a", 4, link=1.0), cluster("b", 4, link=1.0)], {"proc_gbps": 0.1}, {}, None),
        ([cluster("a", 4), cluster("b", 4)], {}, {"coallocation": "forbidden"}, [[0], [1]]),
        ([cluster("a", 4), cluster("b", 4, power=0.5)], {}, {}, None),
        ([cluster("a", 4)], {"earliest": 5.0}, {}, None),
        ([cluster("a", 4)], {"after": ["x"]}, {}, None),
        ([cluster("a", 4, memory_mb=100, slots=2)], {"memory_mb_per_proc": 80}, {}, None),
    ],
)
def test_applies_where_only_slots_count(
    clusters: list[dict[str, Any]], extra: dict[str, Any], options: dict[str, Any], expected: Any
) -> None:
    snapshot = case(clusters, [rigid("x", 2, 5), rigid("y", 2, 5, **extra)])
    found = bins_of(lister(snapshot, **options))
    assert (found and sorted(found)) == expected


def test_does_not_apply_beside_a_reservation() -> None:
    hold = {"id": "h", "nodes": ["a1"], "start": 20.0, "end": 30.0}
    snapshot = case([cluster("a", 4)], [rigid("x", 2, 5), rigid("y", 2, 5)], reservations=[hold])
    assert bins_of(lister(snapshot)) is None
