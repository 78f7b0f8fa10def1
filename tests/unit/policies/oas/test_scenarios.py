"""`oas` over scenarios: what is drawn, what is judged, and that nothing is lost by it."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.core.base.effects import SaveHistory, Solve
from coalloc.core.learning.estimates import history_for
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.model.errors import InputError
from coalloc.model.history import NO_HISTORY, History
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget, never
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.oas.scenario_search import Judge, percentile
from coalloc.policies.oas.scenario_times import (
    Lognormal,
    RatioDistribution,
    Sampled,
    Uniform,
    read_run_times,
)
from coalloc.policies.oas.scenarios import RunTimes, draw_arrivals, draw_ends, lay_out, spread
from coalloc.policies.oas.seeds import by_rule
from coalloc.policies.oas.window import choose
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES
from coalloc.policies.relative_time import from_now
from tests.support.core_site import Site
from tests.support.snapshots import snapshots
from tests.unit.policies.kernel.kernel_case import case, cluster, rigid, spans

VARIED: dict[str, Any] = {"scenarios": 5, "run_times": "uniform:0.1,1.5"}
OAS = POLICIES["oas"]


def options(**given: Any) -> dict[str, Any]:
    return read_options(given, OAS.options)


def solve(snapshot: Snapshot, budget: Budget | None = None, **given: Any) -> Plan:
    return OAS.solve(snapshot, options(**given), budget or Budget(work=4000))


@settings(max_examples=20)
@given(
    snapshot=snapshots(),
    chosen=st.fixed_dictionaries(
        {
            "scenarios": st.sampled_from([1, 4, 11]),
            "run_times": st.sampled_from(["exact", "lognormal:-1,1", "uniform:0.1,1.5"]),
            "objective": st.sampled_from(
                ["makespan", "weighted_completion", "makespan_then_weighted_completion"]
            ),
            "scenario_objective": st.sampled_from(["mean", "p90"]),
            "arrivals": st.sampled_from([0.0, 200.0]),
            "window": st.sampled_from([2, 100]),
            "saturation_threshold": st.sampled_from([1.0, 1.5]),
            "guard_after": st.sampled_from([0, 5]),
        }
    ),
    seed=st.integers(0, 3),
)
def test_plans_are_allowed_repeatable_and_judged_no_worse(
    snapshot: Snapshot, chosen: dict[str, Any], seed: int
) -> None:
    budget = Budget(work=3000, seed=seed)
    plan = solve(snapshot, budget, **chosen)
    assert check(snapshot, plan).violations == ()
    assert solve(snapshot, budget, **chosen) == plan
    stats = plan.stats
    assert stats["scenarios"] <= chosen["scenarios"]
    if "scenario_mean" in stats:
        key = chosen["scenario_objective"]
        assert stats[f"scenario_{key}"] <= stats[f"deterministic_{key}"] * (1 + 1e-9)
    bound, value = plan.objective.bound, plan.objective.value
    assert bound is None or bound <= value * (1 + 1e-9)


@settings(max_examples=20)
@given(snapshot=snapshots(), objective=st.sampled_from(["makespan", "weighted_completion"]))
def test_judged_no_worse_than_a_simple_order(snapshot: Snapshot, objective: str) -> None:
    given: dict[str, Any] = {**VARIED, "objective": objective}
    plan = solve(snapshot, **given)
    if "scenario_mean" not in plan.stats:
        return
    planner = Planner(from_now(snapshot), options(**given))
    inside, _ = choose(planner, planner.decode([], "insert"), 100)
    scenarios = lay_out(planner, inside, NO_HISTORY, 1.0, 0, never)
    judge = Judge(scenarios, objective, "mean")
    lister = scenarios[0].lister
    for name in ("fcfs", "sjf", "bjf", "spt", "lpt"):
        for block in (0, 1):
            genes = lister.genes(by_rule(planner, inside, name))
            genes.block[:] = block
            rank = judge.rank(genes)
            assert rank is None or plan.stats["scenario_mean"] <= rank[0] * (1 + 1e-9)


def queue_of(count: int, seed: int = 1) -> Snapshot:
    rng = np.random.default_rng(seed)
    return case(
        [cluster("a", 6, 1.0), cluster("b", 6, 1.0, power=0.5)],
        [
            rigid(n, int(rng.integers(1, 7)), float(rng.uniform(50, 500)), proc_gbps=0.02)
            for n in range(count)
        ],
    )


def test_without_variation_the_scenario_is_the_plan() -> None:
    plan = solve(queue_of(9), scenarios=8, run_times="exact")
    assert plan.stats["scenarios"] == 1
    assert plan.stats["scenario_mean"] == pytest.approx(plan.objective.value, rel=1e-12)


def test_without_a_history_nothing_varies() -> None:
    assert solve(queue_of(5), scenarios=8).stats["scenarios"] == 1
    assert solve(queue_of(5), scenarios=8, run_time_ratios=[0.2, 0.9]).stats["scenarios"] == 8


def test_an_order_for_every_case_beats_the_order_for_the_estimates() -> None:
    """One node; the job that is planned shorter may take ten times as long."""
    snapshot = case([cluster("a", 1)], [rigid("sure", 1, 110.0), rigid("risky", 1, 100.0)])
    history = History(
        pool=(1.0,), samples=((1.0, 1.0, 1.0), (0.9, 1.0, 10.0)), of={"sure": 0, "risky": 1}
    )
    given: dict[str, Any] = {"objective": "weighted_completion"}
    assert spans(solve(snapshot, **given))["risky"][0] == 0.0
    plan = solve(snapshot, Budget(work=4000, history=history), scenarios=30, **given)
    assert spans(plan) == {"sure": (0.0, 110.0), "risky": (110.0, 210.0)}
    assert plan.stats["scenario_mean"] < plan.stats["deterministic_mean"]
    assert plan.status.value != "optimal"
    assert plan.objective.value == pytest.approx(320.0)


def test_the_percentile_looks_at_the_bad_cases() -> None:
    """Of two clusters' worth of work, the mean takes a risk that the percentile does not."""
    assert percentile([float(n) for n in range(1, 11)]) == 9.0
    assert percentile([3.0]) == 3.0
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, inf]) == inf
    snapshot = queue_of(12)
    given = {**VARIED, "scenarios": 20}

    def best(goal: str, told: str) -> float:
        """The best of some searches: a single one may stop short."""
        runs = [Budget(work=60_000, seed=seed) for seed in range(4)]
        plans = [solve(snapshot, budget, **given, scenario_objective=goal) for budget in runs]
        return float(min(plan.stats[told] for plan in plans))

    assert best("p90", "scenario_p90") <= best("mean", "scenario_p90")
    assert best("mean", "scenario_mean") <= best("p90", "scenario_mean")


def test_a_limit_only_cuts_off_what_passes_it() -> None:
    snapshot = queue_of(8)
    planner = Planner(snapshot, options(**VARIED))
    inside, _ = choose(planner, planner.decode([], "insert"), 100)
    scenarios = lay_out(planner, inside, NO_HISTORY, 1.0, 3, never)
    for objective in ("makespan", "weighted_completion"):
        for measure in ("mean", "p90"):
            judge = Judge(scenarios, objective, measure)
            genes = scenarios[0].lister.genes(inside)
            free = judge.rank(genes)
            assert free is not None
            assert free[0] == judge.measure(judge.values(genes))
            assert judge.rank(genes, free[0]) == free
            assert judge.rank(genes, free[0] * 0.99) is None


@pytest.mark.parametrize(
    "ratios", [Sampled((0.2, 0.5, 0.5, 1.3)), Lognormal(-0.5, 0.7), Uniform(0.1, 1.2)]
)
def test_quantiles_rise_and_stay_above(ratios: RatioDistribution) -> None:
    for above in (0.0, 0.3, 0.9):
        found = [ratios.quantile(u, above) for u in (0.0, 0.25, 0.5, 0.75, 0.999999)]
        values = [value for value in found if value is not None]
        assert len(values) == len(found)
        assert values == sorted(values)
        assert values[0] >= above
    assert ratios.quantile(0.5, 1e9) is None


def test_quantiles_of_the_lognormal_agree_with_draws() -> None:
    draws = np.random.default_rng(5).lognormal(-0.5, 0.7, 200_000)
    late = draws[draws > 0.8]
    for u in (0.1, 0.5, 0.9):
        assert Lognormal(-0.5, 0.7).quantile(u) == pytest.approx(np.quantile(draws, u), rel=0.02)
        assert Lognormal(-0.5, 0.7).quantile(u, 0.8) == pytest.approx(
            np.quantile(late, u), rel=0.02
        )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("past", "'past' is not history, exact, lognormal:MU,SIGMA or uniform:LOW,HIGH"),
        ("lognormal:1", "'lognormal:1' is not history, exact"),
        ("uniform:nan,2", "'uniform:nan,2' is not history, exact"),
        ("uniform:2,1", "uniform:2,1 has its bounds reversed"),
        ("uniform:0,1", "uniform:0,1: 0 is not above 0"),
        ("lognormal:0,-1", "lognormal:0,-1: MU is -20..20, SIGMA 0..20"),
    ],
)
def test_a_distribution_that_cannot_be_read_is_one_line(text: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        options(run_times=text)
    assert str(error.value).startswith(f"options.run_times: {what}")
    assert "\n" not in str(error.value)


def test_constants_are_read_as_such() -> None:
    assert read_run_times("uniform:0.5,0.5", "") == Sampled((0.5,))
    assert read_run_times("lognormal:0,0", "") == Sampled((1.0,))
    assert read_run_times("history", "") is None


def test_samples_of_one_job_are_spread_over_its_distribution() -> None:
    numbers = spread(np.random.default_rng(0), 10)
    assert sorted((numbers * 10).astype(int).tolist()) == list(range(10))


def test_running_work_ends_later_than_now_and_only_ours_varies() -> None:
    running = [
        {"id": "ours", "nodes": {"a1": 1}, "start": 0.0, "end": 100.0},
        {"id": "late", "nodes": {"a2": 1}, "start": 0.0, "end": 40.0},
        {"id": "theirs", "nodes": {"a3": 1}, "start": 0.0, "end": 100.0, "ours": False},
    ]
    snapshot = case([cluster("a", 4)], [rigid(1, 1, 5.0)], running, time=50.0, overrun_s=7.0)
    times = RunTimes(options(run_times="uniform:0.1,1.0"), NO_HISTORY)
    ends = draw_ends(snapshot, times, 8, np.random.default_rng(0))
    mine, late, theirs = (sorted({works[n].end for works in ends}) for n in range(3))
    assert len(mine) == 8
    assert 50.0 <= mine[0] < 60.0 < 90.0 < mine[-1] <= 100.0
    assert late == [57.0]
    assert theirs == [100.0]


def test_a_job_never_runs_beyond_its_time_limit() -> None:
    snapshot = case([cluster("a", 1)], [rigid(1, 1, 100.0, time_limit=150.0)])
    plan = solve(snapshot, scenarios=10, run_times="uniform:1,9")
    assert plan.stats["scenario_p90"] == pytest.approx(150.0)


def test_arrivals_are_like_the_queue_and_in_time() -> None:
    snapshot = queue_of(6)
    planner = Planner(snapshot, options())
    found = draw_arrivals(planner, 0.01, 1000.0, 50, np.random.default_rng(2))
    times = [job.submitted for job, _ in found]
    assert times == sorted(times)
    assert 0.0 < times[0] <= times[-1] <= 1000.0
    queued = {job.id: job for job in snapshot.queue}
    for job, model in found:
        assert job.id not in queued
        restored = replace(job, id=model, submitted=0.0, earliest=0.0)
        assert restored == queued[model]
    assert len(draw_arrivals(planner, 10.0, 1000.0, 4, np.random.default_rng(2))) == 4
    assert draw_arrivals(planner, 0.0, 1000.0, 4, np.random.default_rng(2)) == []


def test_a_class_stands_for_itself_once_it_has_run_often_enough() -> None:
    history = History(pool=(0.5,), samples=((0.1, 0.1), (0.2, 0.2, 0.2)), of={"few": 0, "many": 1})
    times = RunTimes(options(), history)
    found = [times.of(job).quantile(0.5) for job in ("few", "many", "unknown")]
    assert found == [0.5, 0.2, 0.5]


def test_the_history_names_the_classes_of_these_jobs_alone() -> None:
    ratios = {"ann\nsim": (0.5, 0.7), "bob\nsim": (1.0,)}
    history = history_for(
        ratios, {"1": ("ann\nsim\nx", "ann\nsim"), "2": ("eve\nsim",), "3": ("ann\nsim",)}
    )
    assert history == History(pool=(0.5, 0.7, 1.0), samples=((0.5, 0.7),), of={"1": 0, "3": 0})


def test_the_daemons_core_keeps_ratios_and_hands_them_out_where_asked(tmp_path: Path) -> None:
    site = Site({"a": 1}, options={"scenarios": 4})
    for seconds in (50.0, 80.0):
        job = site.submit()
        site.run(job)
        site.wait(seconds)
        site.finish(job)
    running, waiting = site.submit(), site.submit()
    asked = [effect for effect in site.effects if isinstance(effect, Solve)][-1]
    there = (*asked.snapshot.queue, *asked.snapshot.running)
    assert {running, waiting} == {job.id for job in there}
    (seen,) = asked.history.samples
    assert seen == pytest.approx((0.5, 0.8))
    assert asked.history.of == {running: 0, waiting: 0}
    saved = [effect for effect in site.effects if isinstance(effect, SaveHistory)][-1]
    assert saved.ratios == asked.history.pool
    store = Store(tmp_path / "s.db")
    try:
        store.commit(site.effects)
        remembered = recall(store, 10).remembered
        assert dict(remembered.learning.ratios) == {saved.key: saved.ratios}
        assert Site(remembered=remembered).state.learning.ratios == {saved.key: saved.ratios}
    finally:
        store.close()
