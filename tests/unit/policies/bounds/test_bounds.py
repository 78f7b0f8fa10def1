"""Bounds never pass an optimum, and say what they should."""

import json
import re
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from coalloc.cli.main import main
from coalloc.model.formats.plan_json import write_plan
from coalloc.model.formats.snapshot_json import write_snapshot
from coalloc.model.snapshot import Snapshot
from coalloc.model.split import low_side, split
from coalloc.model.values import replace
from coalloc.policies.bounds import Bound, lower_bound
from coalloc.policies.bounds.exclusion import (
    Sets,
    best_weights,
    heaviest,
    heaviest_by_width,
    heaviest_clique,
    links_exclude,
)
from coalloc.policies.bounds.rows import families
from coalloc.policies.checking.proofs import proofs_of
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.orders.simple import sort_items
from tests.support.planned import planned
from tests.support.snapshots import snapshots
from tests.support.strip_packing import perfect_instances, read_instance
from tests.unit.policies.bounds.bounds_case import optimum, random_snapshot
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid

OBJECTIVES = ("makespan", "weighted_completion")
SINGLE = {"coallocation": "forbidden"}


def bound(snapshot: Snapshot, objective: str = "makespan", **options: Any) -> Bound:
    return lower_bound(Planner(snapshot, options), objective, effort="full")


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("options", [{}, SINGLE], ids=["split", "single"])
def test_never_passes_the_optimum(objective: str, options: dict[str, Any]) -> None:
    reached = []
    for seed in range(16):
        snapshot = random_snapshot(seed)
        best = optimum(snapshot, objective, options)
        for effort in ("quick", "full"):
            found = lower_bound(Planner(snapshot, options), objective, effort=effort)
            assert found.value <= best * (1.0 + 1e-9), (seed, effort, found.parts, best)
        if 0.0 < best < np.inf:
            reached.append(found.value / best)
    assert len(reached) > 12
    assert np.mean(reached) > 0.85


@pytest.mark.parametrize("options", [{}, SINGLE, {"coallocate_moldable": True}], ids=str)
def test_never_passes_a_plan_of_any_queue(options: dict[str, Any]) -> None:
    @settings(max_examples=6, deadline=None)
    @given(snapshots())
    def holds(snapshot: Snapshot) -> None:
        planner = Planner(snapshot, options)
        for decoder in ("insert", "event"):
            schedule = planner.decode(sort_items(planner, "lpt"), decoder)
            if schedule.unplaced:
                continue
            for effort in ("quick", "full"):
                found = lower_bound(planner, "makespan", effort=effort)
                assert found.value <= schedule.makespan * (1.0 + 1e-9) + 1e-9
                found = lower_bound(planner, "weighted_completion", effort=effort)
                assert found.value <= schedule.weighted_completion * (1.0 + 1e-9) + 1e-9

    holds()


def test_nothing_to_place_is_no_time() -> None:
    snapshot = case([cluster("a")], [rigid(1, 2, 5.0, held=True)])
    assert bound(snapshot) == Bound(value=0.0)
    assert bound(snapshot).binding == ""


def test_functions_are_superadditive() -> None:
    for size in range(1, 31):
        for weigh in families(size, np.arange(1, size + 1), 40):
            value = weigh(np.arange(size + 1, dtype=np.float64))
            for a in range(size + 1):
                rest = np.arange(size + 1 - a)
                assert (value[a] + value[rest] <= value[a + rest] + 1e-12).all(), (size, a)


def test_perfect_packings_are_bounded_by_their_area(
    shared_file: Callable[[str], Path],
) -> None:
    for path, height in perfect_instances(shared_file("data/strip_packing")):
        found = lower_bound(Planner(read_instance(path), {}), "makespan")
        assert found.value == pytest.approx(height, rel=1e-9), path.name


def test_a_chain_counts_what_comes_before_and_after() -> None:
    queue = [
        rigid(1, 1, 10.0, earliest=3.0),
        rigid(2, 2, 20.0, after=["1"]),
        rigid(3, 1, 5.0, after=["2"], sigma=1.0),
    ]
    snapshot = case([cluster("a", 2, power=0.5)], queue)
    assert bound(snapshot).value == pytest.approx(3.0 + 20.0 + 40.0 + 10.0)
    assert bound(snapshot).parts["longest"] == pytest.approx(73.0)


def test_a_job_waits_for_room_beside_what_runs() -> None:
    running = [{"id": "r", "nodes": {"a[1-3]": 1}, "start": 0.0, "end": 100.0}]
    snapshot = case([cluster("a", 4)], [rigid(1, 2, 10.0)], running)
    assert bound(snapshot).value == pytest.approx(110.0)


def test_what_waits_in_front_and_behind_is_added_to_the_work_between() -> None:
    work = [rigid(n, 1, 10.0, earliest=50.0) for n in range(8)]
    last = rigid("last", 1, 7.0, after=[str(n) for n in range(8)])
    assert bound(case([cluster("a", 2)], [*work, last])).value == pytest.approx(50.0 + 40.0 + 7.0)


def test_one_machine_is_served_by_smiths_rule() -> None:
    jobs = [(4.0, 1.0), (1.0, 3.0), (6.0, 7.0), (2.0, 0.0), (3.0, 3.0)]
    queue = [rigid(n, 2, time, weight=weight) for n, (time, weight) in enumerate(jobs)]
    ends = np.cumsum([1.0, 6.0, 3.0, 4.0])
    expected = ends @ np.array([3.0, 7.0, 3.0, 1.0])
    snapshot = case([cluster("a", 2)], queue)
    assert bound(snapshot, "weighted_completion").value == pytest.approx(expected)


def test_weighted_work_waits_for_releases_and_for_what_runs() -> None:
    running = [{"id": "r", "nodes": {"a1": 1}, "start": 0.0, "end": 100.0}]
    queue = [rigid(1, 1, 10.0, weight=1.0), rigid(2, 1, 4.0, weight=9.0, earliest=200.0)]
    snapshot = case([cluster("a", 1)], queue, running)
    assert bound(snapshot, "weighted_completion").value == pytest.approx(110.0 + 9.0 * 204.0)


def test_fast_nodes_are_shared_out() -> None:
    # each job would run for 10 s on the two fast nodes; four of them cannot
    queue = [rigid(n, 1, 10.0 + n / 3e4) for n in range(4)]  # no common measure
    fast, slow = cluster("a", 1, power=1.0), cluster("b", 1, power=0.5)
    found = bound(case([fast, slow], queue))
    assert found.parts["area"] < found.value
    assert found.value == pytest.approx(80.0 / 3.0, rel=1e-3)


def test_work_of_many_widths_is_shared_out_over_all_powers() -> None:
    powers = (1.0, 0.8, 0.6)
    queue = [rigid(n, 7 * n % 97 + 1, 50.0 + n, sigma=0.7) for n in range(120)]
    snapshot = case([cluster(x, 100, power=p) for x, p in zip("abc", powers, strict=True)], queue)
    work = sum(job["procs"] * job["base_time"] for job in queue)
    fluid = work / sum(100 / (0.7 / p + 0.3) for p in powers)
    planner = Planner(snapshot, {})
    assert lower_bound(planner, effort="full").value >= 0.998 * fluid
    assert lower_bound(planner, effort="quick").value >= 0.95 * fluid


def test_jobs_wider_than_a_cluster_follow_each_other_over_tight_links() -> None:
    def snapshot(link: float) -> Snapshot:
        # no common measure, to which a little more might raise a bound by much
        return case([cluster(name, 4, link) for name in "abcdef"], list(_wide(5, 10.0 / 3.0)))

    # 4 + 2 load two links with .5 * 4 * 2 / 5 = .8 each
    tight = bound(case([cluster("a", 4, 1.0), cluster("b", 4, 1.0)], list(_wide(5))))
    assert tight.parts["exclusion_by_links"] == pytest.approx(50.0)
    assert tight.value == pytest.approx(50.0)
    values = [bound(snapshot(link)).value for link in (0.8, 1.6, 2.4, 8.0)]
    for more, less in pairwise(values):
        assert less <= more * (1.0 + 1e-3)
    assert values[0] > values[-1]


def _wide(count: int, seconds: float = 10.0) -> Any:
    return (rigid(n, 6, seconds, proc_gbps=0.5) for n in range(count))


@pytest.mark.parametrize("seed", range(4))
def test_wider_links_and_more_nodes_never_raise_the_bound(seed: int) -> None:
    snapshot = random_snapshot(seed)
    found = bound(snapshot).value
    wider = [replace(cluster, link_gbps=2.0 * cluster.link_gbps) for cluster in snapshot.clusters]
    planner = Planner(snapshot, {})
    if not planner.intake.deferred:
        looser = bound(replace(snapshot, clusters=tuple(wider))).value
        assert looser <= found * (1.0 + 1e-2)
    double = replace(
        snapshot,
        queue=tuple(replace(job, earliest=job.earliest + 10.0) for job in snapshot.queue),
    )
    assert bound(double).value >= found * (1.0 - 1e-2)


@pytest.mark.parametrize(
    ("power", "value"),
    [
        (1.0, 50 / 3),  # 10 s of b for the widest, meanwhile a third of the others on a
        (0.5, 25.0),  # 20 s, and two thirds of them
    ],
)
def test_sets_on_clusters_of_unequal_width_tell_more_than_all_slots(
    power: float, value: float
) -> None:
    clusters = [cluster("a", 4), cluster("b", 6, power=power)]
    queue = [rigid(n, procs, 10.0 + 1e-7) for n, procs in enumerate([5, 3, 3, 3])]  # no measure
    found = bound(case(clusters, queue), **SINGLE)
    assert found.parts["cluster_sets"] == pytest.approx(value, rel=1e-6)
    assert found.value > max(found.parts[name] for name in ("levels", "clusters")) * 1.01
    assert "cluster_sets" not in bound(case(clusters, queue)).parts


@pytest.mark.parametrize("seed", range(8))
def test_heaviest_set_for_every_number_of_slots(seed: int) -> None:
    rng = np.random.default_rng(seed)
    procs, weight = rng.integers(1, 12, 8), rng.integers(0, 6, 8).astype(np.float64)
    top, members = heaviest_by_width(procs, weight, 20)
    some = np.array(list(product([0, 1], repeat=8)))
    for slots in range(21):
        assert top[slots] == (some @ weight)[some @ procs <= slots].max()
    assert procs[members].sum() <= 20
    assert weight[members].sum() == top[20]


def test_a_threshold_lets_links_carry_more() -> None:
    clusters = [cluster("a", 4, 1.0), cluster("b", 4, 1.0)]
    strict = bound(case(clusters, list(_wide(4)))).value
    assert strict == pytest.approx(40.0)
    assert bound(case(clusters, list(_wide(4))), saturation_threshold=2.0).value <= 40.0


def test_single_clusters_are_bins() -> None:
    # three at a time, or four of which one is split
    queue = [rigid(n, 3, 10.0) for n in range(12)]
    clusters = [cluster(name, 4) for name in "abc"]
    assert bound(case(clusters, queue), coallocation="forbidden").value == pytest.approx(40.0)
    assert bound(case(clusters, queue)).value == pytest.approx(30.0)


def test_links_that_carry_no_split_make_bins_too() -> None:
    queue = [rigid(n, 3, 10.0, proc_gbps=1.0) for n in range(6)]
    clusters = [cluster("a", 4, 0.9), cluster("b", 4, 0.9)]
    assert bound(case(clusters, queue)).value == pytest.approx(30.0)


def test_jobs_confined_to_a_cluster_are_bounded_there() -> None:
    queue = [rigid(n, 3, 10.0, clusters=["a"]) for n in range(4)]
    snapshot = case([cluster("a", 4), cluster("b", 40)], queue)
    assert bound(snapshot).value == pytest.approx(40.0)


def test_a_pair_is_excluded_exactly_where_no_two_splits_fit() -> None:
    rng = np.random.default_rng(5)
    verdicts = set()
    for _ in range(60):
        clusters = int(rng.integers(2, 4))
        slots = rng.integers(2, 6, clusters)
        links = rng.choice([0.3, 0.6, 1.0], clusters)
        procs = rng.integers(2, int(slots.sum()), 2)
        gbps = rng.choice([0.05, 0.2, 0.3], 2)
        if not all(_ways(int(procs[i]), float(gbps[i]), slots, links) for i in (0, 1)):
            continue
        room = np.tile(slots, (2, 1))
        pair = np.array([[0, 1]])
        exact = not any(
            all(a + b <= slots) and all(la + lb <= links * (1 + 1e-9))
            for a, la in _ways(int(procs[0]), float(gbps[0]), slots, links)
            for b, lb in _ways(int(procs[1]), float(gbps[1]), slots, links)
        )
        for runs in (16, 2):
            found = links_exclude(procs, gbps, room, links, slots, pair, runs, lambda: False)
            assert found[0] == exact if runs == 16 else found[0] <= exact
        verdicts.add(exact)
    assert verdicts == {True, False}


def _ways(procs: int, gbps: float, slots: Any, links: Any) -> list[tuple[Any, Any]]:
    out = []
    for counts in np.ndindex(*(slots + 1)):
        t = np.array(counts)
        load = gbps * t * (procs - t) / (procs - 1)
        if t.sum() == procs and (load <= links * (1 + 1e-9)).all():
            out.append((t, load))
    low = [low_side(procs, gbps, float(link), 1e-9) for link in links]
    assert bool(out) == (split(procs, slots.tolist(), low) is not None)
    return out


def _random_sets(rng: np.random.Generator, size: int) -> Sets:
    pairs = np.triu(rng.random((size, size)) < 0.2, 1)
    return Sets(
        need=rng.uniform(0.05, 0.7, (size, 2)),
        excluded=pairs | pairs.T,
    )


def _best(sets: Sets, seconds: Any, first: Any) -> tuple[float, Any]:
    def found(_: int, weight: Any) -> tuple[Any, float]:
        return heaviest(sets, weight)

    return best_weights(seconds[None], found, [first], 60, 0.0, lambda: False)


def _run_together(sets: Sets) -> list[list[int]]:
    size = sets.need.shape[0]
    found = []
    for mask in range(1, 1 << size):
        members = [j for j in range(size) if mask >> j & 1]
        fits = (sets.need[members].sum(axis=0) <= 1.0).all()
        if fits and not sets.excluded[np.ix_(members, members)].any():
            found.append(members)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_set_that_can_run_together_outweighs_one(seed: int) -> None:
    sets = _random_sets(np.random.default_rng(seed), 9)
    together = _run_together(sets)
    seconds = np.random.default_rng(seed + 90).integers(1, 10, 9).astype(np.float64)
    value, worth = _best(sets, seconds, sets.need[:, 0] * seconds)
    assert value == pytest.approx(worth.sum())
    most = max((worth / seconds)[members].sum() for members in together)
    assert most == pytest.approx(1.0)
    assert value >= seconds @ sets.need[:, 0]
    price = np.random.default_rng(seed + 50).random(9)
    members, most = heaviest(sets, price)
    assert sorted(members.tolist()) in together
    assert most == pytest.approx(max(price[found].sum() for found in together))
    _, cut_short = heaviest(sets, price, nodes=3)
    assert cut_short >= most * (1.0 - 1e-9)


def test_items_of_which_only_two_fit_at_once_take_half_as_long_again() -> None:
    sets = Sets(need=np.full((3, 1), 0.4), excluded=np.zeros((3, 3), dtype=np.bool_))
    value, _ = _best(sets, np.full(3, 10.0), np.full(3, 10.0))
    assert value == pytest.approx(15.0)


def test_the_heaviest_clique_is_found_beside_a_longer_one() -> None:
    excluded = np.zeros((5, 5), dtype=np.bool_)
    for a, b in [(0, 1), (1, 2), (0, 2), (3, 4)]:
        excluded[a, b] = excluded[b, a] = True
    weight = np.array([1.0, 1.0, 1.0, 2.0, 2.5])
    assert heaviest_clique(excluded, weight, 5).tolist() == [3, 4]


def test_a_search_that_is_stopped_at_once_still_bounds() -> None:
    for seed in range(4):
        planner = Planner(random_snapshot(seed), {})
        for objective in OBJECTIVES:
            stopped = lower_bound(planner, objective, lambda: True, "full")
            whole = lower_bound(planner, objective, effort="full")
            assert 0.0 < stopped.value <= whole.value * (1.0 + 1e-9)


def test_a_plan_is_measured_on_the_jobs_it_places() -> None:
    queue = [rigid(1, 2, 10.0), rigid(2, 2, 30.0, held=True), rigid(3, 99, 5.0)]
    snapshot = case([cluster("a", 2)], queue)
    plan = planned("fcfs", snapshot)
    makespan, completion = proofs_of(snapshot, plan)
    assert (makespan.name, makespan.value) == ("makespan", 10.0)
    assert makespan.gap == pytest.approx(0.0, abs=1e-9)
    assert completion.bound.value == pytest.approx(10.0)


def test_check_prints_what_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = case([cluster("a", 4, 1.0), cluster("b", 4, 1.0)], list(_wide(3)))
    plan = planned("fcfs", snapshot)
    files = [str(tmp_path / "s.json"), str(tmp_path / "p.json")]
    for name, body in zip(files, (write_snapshot(snapshot), write_plan(plan)), strict=True):
        Path(name).write_text(json.dumps(body))
    assert main(["check", *files]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^proved: makespan at least 30 \(\w+\), gap [\d.e-]+ %$", out, re.MULTILINE)
    assert main(["check", *files, "--json"]) == 0
    proved = json.loads(capsys.readouterr().out)["proved"]["makespan"]
    assert proved["gap"] == pytest.approx(0.0, abs=1e-9)
    assert proved["parts"]["exclusion_by_links"] == pytest.approx(proved["bound"])
