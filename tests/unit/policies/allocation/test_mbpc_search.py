"""The search over levels: proofs on the paper's cases, agreement with the program, limits."""

from __future__ import annotations

import random
from typing import Any

import pytest
from benchmarks.papers.mbpc.study import ABW, case_1, case_2

from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Reservation, Snapshot
from coalloc.model.values import replace
from coalloc.policies.allocation import mbpc
from coalloc.policies.allocation.counts import can_count
from coalloc.policies.allocation.scene import read_scene
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup
from tests.support.planned import planned


def mixed(seed: int) -> Snapshot:
    """Up to five jobs on small clusters: nodes of two slots, features, bound jobs, equal jobs."""
    rng = random.Random(seed)
    gbps = rng.choice([0.01, 0.037, 0.05])

    def node(name: str) -> Node:
        features = tuple(rng.sample(["x", "y"], rng.choice([0, 1, 2])))
        power = rng.choice([0.3, 0.4, 0.5, 0.8, 0.9, 1.0])
        return Node(name=name, power=power, slots=rng.choice([1, 1, 2]), features=features)

    clusters = tuple(
        Cluster(
            name=f"c{k}",
            link_gbps=rng.choice([gbps, 2 * gbps, 4 * gbps / 3, 7 * gbps / 3, 10.0]),
            nodes=tuple(node(f"c{k}n{n}") for n in range(rng.randint(1, 5))),
        )
        for k in range(rng.randint(1, 4))
    )
    kinds = [
        RigidJob(
            id="",
            procs=rng.choice([1, 2, 3, 4, 5]),
            base_time=float(rng.randint(1, 9)),
            sigma=rng.choice([0.0, 0.3, 0.5, 1.0]),
            proc_gbps=gbps,
            features=rng.choice([(), (), ("x",), ("y",)]),
            clusters=rng.choice([None, None, ("c0",)]),
        )
        for _ in range(3)
    ]
    queue = tuple(replace(rng.choice(kinds), id=str(n)) for n in range(rng.randint(2, 5)))
    return Snapshot(clusters=clusters, queue=queue)


@pytest.mark.parametrize("abw", ABW)
def test_every_second_case_is_proved(abw: float) -> None:
    for seed in range(2):
        seen: list[Plan] = []
        policy = lookup("mbpc")
        options = read_options({}, policy.options)
        plan = policy.solve(case_2(abw, seed), options, Budget(), seen.append)
        assert check(case_2(abw, seed), plan).violations == ()
        assert plan.status is Status.OPTIMAL
        assert len(plan.placements) == 3
        values = [one.objective.value for one in seen]
        assert values == sorted(values, reverse=True)
        assert values[-1] == plan.objective.value


def test_tighter_links_never_pay() -> None:
    values = [planned("mbpc", case_2(abw, 2)).objective.value for abw in ABW]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


@pytest.mark.parametrize("threshold", [1.0, 1.5, 4.0])
def test_agrees_with_the_program(threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    placed, seeds = 0, range(25)
    given: dict[str, Any] = {"select": "skip", "saturation_threshold": threshold}
    searched = [planned("mbpc", mixed(seed), **given) for seed in seeds]
    monkeypatch.setattr(mbpc, "FEW", 0)
    by_program = [planned("mbpc", mixed(seed), **given) for seed in seeds]
    for mine, other in zip(searched, by_program, strict=True):
        assert mine.status is other.status
        assert [p.job for p in mine.placements] == [p.job for p in other.placements]
        # the program's gap is relative to 1000; the search has none
        assert mine.objective.value == pytest.approx(other.objective.value, rel=1e-6)
        assert mine.objective.value <= other.objective.value * (1 + 1e-9)
        placed += len(mine.placements)
    assert placed > 30


@pytest.mark.parametrize(("abw", "value"), [(0.35, 3.5136), (0.3, 3.7972), (0.2, 5.1391)])
def test_a_threshold_buys_feasibility(abw: float, value: float) -> None:
    plan = planned("mbpc", case_1(abw), saturation_threshold=3.0)
    assert plan.status is Status.OPTIMAL
    assert plan.objective.value == pytest.approx(value, abs=5e-5)
    assert not plan.deferred


def test_the_first_case_does_not_fit_at_once_below_the_tight_link() -> None:
    assert [d.job for d in planned("mbpc", case_1(0.38)).deferred] == ["J3"]
    assert not planned("mbpc", case_1(0.389)).deferred


@pytest.mark.parametrize("work", [1, 5, 40])
def test_a_search_that_is_spent_has_a_bound_and_repeats(work: int) -> None:
    best = planned("mbpc", case_2(0.7, 0)).objective.value
    plan = planned("mbpc", case_2(0.7, 0), Budget(work=work))
    assert plan.status is Status.FEASIBLE
    assert plan.stats["work"] <= work
    assert plan.objective.bound is not None
    assert plan.objective.bound <= best <= plan.objective.value
    assert plan == planned("mbpc", case_2(0.7, 0), Budget(work=work))


def test_a_search_is_stopped_by_the_clock() -> None:
    asked = iter(range(60))
    plan = planned("mbpc", case_2(0.7, 0), Budget(stop=lambda: next(asked, 60) >= 50))
    assert plan.status is Status.TIME_LIMIT
    assert len(plan.placements) == 3


def test_nodes_kept_for_others_are_left_to_the_program() -> None:
    """A job of a weaker level runs longer, and then may not use what a stronger one may."""
    nodes = tuple(Node(name=f"a{n}", power=p) for n, p in enumerate((1.0, 0.8, 0.5, 0.4)))
    queue = tuple(RigidJob(id=n, procs=2, base_time=10.0, sigma=0.7) for n in ("1", "2"))
    open_all = Snapshot(clusters=(Cluster(name="a", nodes=nodes),), queue=queue)
    kept = Reservation(id="r", nodes=("a0", "a2"), start=15.0, end=20.0)
    closed = replace(open_all, reservations=(kept,))
    options = read_options({}, lookup("mbpc").options)
    assert can_count(read_scene(open_all, options), [0, 1])
    assert not can_count(read_scene(closed, options), [0, 1])
    assert planned("mbpc", open_all).status is Status.OPTIMAL
    assert [d.job for d in planned("mbpc", closed).deferred] == ["2"]
