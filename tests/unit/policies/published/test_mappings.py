"""The published workflow policies: by hand, their thresholds, and the checker on all they plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.papers.workflow_instances import Shape, das_3, draw_workflow
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_known, read_options
from coalloc.policies.published.cpa import Allotments
from coalloc.policies.published.m_heft import efficient_rows, improving_rows, shared_rows
from coalloc.policies.published.mca_heft import SpreadAllotments, threshold
from coalloc.policies.registry import POLICIES
from coalloc.policies.workflow.mapping import Mapper
from tests.support.planned import planned
from tests.support.snapshots import clusters, jobs
from tests.unit.policies.kernel.kernel_case import case, cluster, nodes, rigid, spans

PUBLISHED = ("mca-heft", "m-heft", "m-heft-imp", "m-heft-eff", "m-heft-max", "hcpa", "mcpa")


def flow(*tasks: dict[str, Any], edges: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    return {
        "id": "w",
        "kind": "workflow",
        "tasks": list(tasks),
        "edges": [{"from": a, "to": b} for a, b in edges],
    }


def task(name: str, work: float, pf: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"id": name, "work": work, "parallel_fraction": pf, "max_procs": 99, **fields}


def mapper_of(snapshot: Snapshot) -> Mapper:
    return Mapper(Planner(snapshot, {}))


def procs_of(plan: Plan) -> dict[str, int]:
    return {p.task or p.job: sum(p.nodes.values()) for p in plan.placements}


TWO = case([cluster("alpha", 4)], [flow(task("a", 8.0), task("b", 8.0))])
"""Two tasks of 8 s that scale perfectly, on four nodes."""


def test_m_heft_takes_all_and_max_leaves_room() -> None:
    assert spans(planned("m-heft", TWO)) == {"w.a": (0.0, 2.0), "w.b": (2.0, 4.0)}
    assert spans(planned("m-heft-max", TWO)) == {"w.a": (0.0, 4.0), "w.b": (0.0, 4.0)}


def test_m_heft_ranks_by_the_way_to_the_end() -> None:
    """Task b comes second in the file, but more waits for it."""
    queue = [flow(task("a", 3.0), task("b", 2.0), task("c", 9.0), edges=(("b", "c"),))]
    found = spans(planned("m-heft", case([cluster("alpha", 1)], queue)))
    assert found == {"w.b": (0.0, 2.0), "w.c": (2.0, 11.0), "w.a": (11.0, 14.0)}


def test_m_heft_moves_data_only_where_it_pays() -> None:
    """Beta is free and twice as fast, but 2 GB take 16 s to it; 0.25 GB take 2 s."""
    platform = [cluster("alpha", 1, 1.0, power=0.5), cluster("beta", 1, 1.0)]
    for gb, where in ((2.0, "alpha1"), (0.25, "beta1")):
        queue = flow(task("a", 4.0), task("b", 8.0), edges=(("a", "b"),))
        queue["edges"][0]["gb"] = gb
        queue["tasks"][0]["max_procs"] = 1
        running = [{"id": "r", "nodes": {"beta1": 1}, "start": 0.0, "end": 7.0}]
        plan = planned("m-heft", case(platform, [queue], running, overrun_s=0.0))
        assert [list(p.nodes) for p in plan.placements] == [["alpha1"], [where]]


@pytest.mark.parametrize(("improvement", "procs"), [(0.51, 1), (0.5, 2), (0.3, 3), (0.25, 4)])
def test_improvement_of_a_step(improvement: float, procs: int) -> None:
    """8 / n: the steps gain 1/2, 1/3, 1/4."""
    mapper = mapper_of(TWO)
    rows = improving_rows(mapper.costs, mapper.single, improvement)
    assert (rows[:, 0] - mapper.costs.first[:-1] + 1).tolist() == [procs, procs]


@pytest.mark.parametrize(("efficiency", "procs"), [(0.7, 1), (0.6, 2), (0.5, 3), (0.4, 4)])
def test_efficiency_of_an_allotment(efficiency: float, procs: int) -> None:
    """Half of it scales: 8, 6, 5 1/3, 5 s, so the efficiencies are 1, 2/3, 1/2, 2/5."""
    mapper = mapper_of(case([cluster("alpha", 4)], [flow(task("a", 8.0, 0.5))]))
    rows = efficient_rows(mapper.costs, mapper.single, efficiency)
    assert rows[0, 0] + 1 == procs


def test_cpa_grows_until_path_and_area_meet() -> None:
    """A chain gets all nodes; of two side by side, CPA gives each two of three, MCPA 3 in all."""
    chain = case([cluster("alpha", 4)], [flow(task("a", 4.0), task("b", 4.0), edges=(("a", "b"),))])
    for name in ("hcpa", "mcpa"):
        plan = planned(name, chain)
        assert spans(plan) == {"w.a": (0.0, 1.0), "w.b": (1.0, 2.0)}
        assert plan.stats["critical_path_s"] == plan.stats["mean_area_s"] == 2.0
    pair = case([cluster("alpha", 3)], [flow(task("a", 4.0), task("b", 4.0))])
    assert procs_of(planned("hcpa", pair, packing=False)) == {"a": 2, "b": 2}
    assert procs_of(planned("mcpa", pair, packing=False)) == {"a": 2, "b": 1}
    assert procs_of(planned("hcpa", pair, packing=True)) == {"a": 2, "b": 1}


def test_hcpa_translates_to_the_speed_of_a_cluster() -> None:
    """What takes two nodes of half the power takes one of full power."""
    platform = [cluster("slow", 4, power=0.5), cluster("fast", 2)]
    mapper = mapper_of(case(platform, [flow(task("a", 8.0))]))
    allotments = Allotments(mapper)
    assert allotments.total == 8.0
    allotments.row += 1  # two nodes of the slow cluster
    assert mapper.costs.procs[allotments.rows()[0]].tolist() == [2, 1]


PAIR = [cluster("alpha", 4, 1.0), cluster("beta", 4, 1.0)]


def test_mca_heft_spreads_what_no_cluster_has_room_for() -> None:
    queue = [flow(task("a", 8.0))]
    wide = planned("mca-heft", case(PAIR, queue), mca_max=1.0)
    assert spans(wide) == {"w.a": (0.0, 1.0)}
    assert procs_of(wide) == {"a": 8}
    assert wide.stats["spread"] == 1
    for options in ({"coallocation": "forbidden"}, {"mca_share": 0.0}):
        alone = planned("mca-heft", case(PAIR, queue), mca_max=1.0, **options)
        assert spans(alone) == {"w.a": (0.0, 2.0)}
        assert set(nodes(alone, "w")) == {"alpha1", "alpha2", "alpha3", "alpha4"}


def test_mca_heft_spreads_above_a_value() -> None:
    """Its MCACCR, work / comm * pf, is 8 / .5 = 16 s a GB."""
    queue = [flow(task("a", 8.0, comm_gb=0.5))]
    spread = {
        mca: planned("mca-heft", case(PAIR, queue), mca_max=1.0, mca=mca).stats["spread"]
        for mca in (15.9, 16.0)
    }
    assert spread == {15.9: 1, 16.0: 0}


def test_mca_heft_fills_the_most_loaded_cluster() -> None:
    """Equal loads: the faster, then the larger; then whoever has been given most."""
    tasks = [task(name, 4.0, max_procs=2, min_procs=2) for name in "abc"]
    platform = [cluster("alpha", 4), cluster("beta", 5), cluster("gamma", 4, power=0.5)]
    plan = planned("mca-heft", case(platform, [flow(*tasks)]), mca_share=0.0)
    where = [sorted({name[:-1] for name in p.nodes}) for p in plan.placements]
    assert where == [["beta"], ["beta"], ["alpha"]]


def test_mca_heft_counts_free_nodes_level_by_level() -> None:
    """The second level finds all nodes free, and waits for the data of the first."""
    queue = [flow(task("a", 4.0), task("b", 4.0), edges=(("a", "b"),))]
    plan = planned("mca-heft", case([cluster("alpha", 4)], queue), mca_max=1.0)
    assert procs_of(plan) == {"a": 4, "b": 4}
    assert spans(plan) == {"w.a": (0.0, 1.0), "w.b": (1.0, 2.0)}


def test_mca_heft_shares_a_level_by_rank() -> None:
    """Ranks 6 and 2 of eight nodes: six and two, but for MCAMAX."""
    queue = [flow(task("a", 6.0), task("b", 2.0))]
    for most, shares in ((1.0, [5, 1]), (0.5, [3, 1])):
        mapper = mapper_of(case([cluster("alpha", 8)], queue))
        allocation = SpreadAllotments(
            mapper, read_options({"mca_max": most}, POLICIES["mca-heft"].options)
        )
        assert (allocation.row - mapper.costs.first[:-1]).tolist() == shares


def test_kinds_of_tasks_keep_their_processes() -> None:
    tasks = [
        task("seq", 5.0, 0.0, max_procs=1),
        task("rigid", 30.0, 0.9, min_procs=3, max_procs=3),
        task("soft", 50.0, 0.9, min_procs=2, max_procs=6),
    ]
    snapshot = case(PAIR, [flow(*tasks), rigid(1, 2, 5.0), rigid(2, 6, 5.0)])
    for name in PUBLISHED:
        procs = procs_of(planned(name, snapshot))
        assert (procs["seq"], procs["rigid"], procs["1"], procs["2"]) == (1, 3, 2, 6)
        assert 2 <= procs["soft"] <= 6


def test_a_share_of_all_ratios() -> None:
    ratios = np.array([5.0, 1.0, np.inf, 3.0])
    assert [threshold(ratios, share) for share in (0.0, 0.25, 0.5, 1.0)] == [
        np.inf,
        5.0,
        3.0,
        -np.inf,
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_thresholds_are_monotone(seed: int) -> None:
    job = draw_workflow(Shape(tasks=30, levels=4), seed)
    mapper = mapper_of(Snapshot(clusters=das_3(), queue=(job,)))
    costs, single = mapper.costs, mapper.single
    table = POLICIES["mca-heft"].options

    def allotted(**given: Any) -> Any:
        return SpreadAllotments(mapper, read_options(given, table))

    for a, b in ((0.0, 0.01), (0.01, 0.1), (0.1, 0.5)):
        assert (improving_rows(costs, single, a) >= improving_rows(costs, single, b)).all()
        assert (efficient_rows(costs, single, a) >= efficient_rows(costs, single, b)).all()
        assert (shared_rows(mapper, a + 0.1) <= shared_rows(mapper, b + 0.1)).all()
        assert (allotted(mca_imp=a).row >= allotted(mca_imp=b).row).all()
        assert (allotted(mca_max=a + 0.1).row <= allotted(mca_max=b + 0.1).row).all()
        fewer, more = allotted(mca_share=a).spreads, allotted(mca_share=b).spreads
        assert (fewer <= more).all()
        assert more.sum() == round(b * 30)


@st.composite
def flows(draw: st.DrawFn, number: int) -> dict[str, Any]:
    """A workflow with all types of tasks, data on edges, communication, and tasks in mid-run."""
    size = draw(st.integers(1, 7))
    tasks = []
    for n in range(size):
        low = draw(st.sampled_from([1, 1, 2, 3]))
        tasks.append(
            {
                "id": f"t{n}",
                "work": draw(st.sampled_from([0.0, 4.0, 20.0, 33.3])),
                "parallel_fraction": draw(st.sampled_from([0.0, 0.5, 0.97, 1.0])),
                "min_procs": low,
                "max_procs": low + draw(st.sampled_from([0, 1, 6, 40])),
                "comm_gb": draw(st.sampled_from([0.0, 0.0, 0.5, 3.0])),
            }
        )
    gb = st.sampled_from([0.0, 0.5, 2.0])
    edges = [
        {"from": f"t{a}", "to": f"t{b}", "gb": draw(gb)}
        for b in range(size)
        for a in range(b)
        if draw(st.integers(0, 2)) == 0
    ]
    return {"id": f"w{number}", "kind": "workflow", "tasks": tasks, "edges": edges}


@st.composite
def mixed(draw: st.DrawFn) -> Snapshot:
    """Workflows and plain jobs on a platform with a bit of everything, partly busy."""
    platform = draw(clusters())
    names = [entry["name"] for entry in platform]
    first = platform[0]["nodes"][0]
    queue = [draw(flows(n)) for n in range(draw(st.integers(1, 3)))]
    queue += [draw(jobs(n, names)) for n in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        queue[0]["started"] = [{"task": "s", "clusters": names[:1], "end": 61.0}]
        queue[0]["edges"].append({"from": "s", "to": "t0", "gb": 1.0})
    running = [{"id": "r", "nodes": {first["name"]: 1}, "start": 0.0, "end": 58.0}]
    reserved = {"id": "v", "nodes": [first["name"]], "start": 70.0, "end": 95.0}
    return read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "time": 50.0,
            "clusters": platform,
            "queue": queue,
            "running": running if draw(st.booleans()) else [],
            "reservations": [reserved] if draw(st.booleans()) else [],
        }
    )


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "insertion": st.booleans(),
        "edge_data": st.booleans(),
        "packing": st.booleans(),
        "free": st.sampled_from(["level", "time"]),
        "mca_share": st.sampled_from([0.0, 0.5, 1.0]),
        "mca_max": st.sampled_from([0.1, 1.0]),
        "coallocation": st.sampled_from(["sooner", "needed", "forbidden"]),
        "power_step": st.sampled_from([0.0, 0.3]),
    },
)


@settings(max_examples=60)
@given(snapshot=mixed(), options=OPTIONS)
def test_plans_pass_the_checker(snapshot: Snapshot, options: dict[str, Any]) -> None:
    for policy in map(POLICIES.__getitem__, PUBLISHED):
        plan = policy.solve(snapshot, read_known(options, policy.options), Budget())
        assert check(snapshot, plan).violations == (), policy.name
        assert not [entry for entry in plan.deferred if entry.detail.startswith("finds no place")]


def test_who_was_passed_over_too_often_leads() -> None:
    queue = [rigid(1, 4, 10.0), rigid(2, 4, 1.0, passed_over=9)]
    snapshot = case([cluster("alpha", 4)], queue)
    for name in PUBLISHED:
        assert spans(planned(name, snapshot))["1"][0] == 0.0
        assert spans(planned(name, snapshot, guard_after=5)) == {"2": (0.0, 1.0), "1": (1.0, 11.0)}


def test_plans_do_not_depend_on_the_names_of_nodes() -> None:
    job = draw_workflow(Shape(tasks=20, levels=4), 5)
    platform = das_3()
    renamed = tuple(
        replace(c, nodes=tuple(replace(n, name=f"x{c.name}{i}") for i, n in enumerate(c.nodes)))
        for c in platform
    )
    for name in PUBLISHED:
        one, two = (planned(name, Snapshot(clusters=p, queue=(job,))) for p in (platform, renamed))
        assert spans(one) == spans(two)


def test_after_binds_tasks_of_which_only_started_ones_are_parents() -> None:
    job = flow(task("t", 1.0, 0.0), edges=(("s", "t"),))
    job |= {"after": ["1"], "started": [{"task": "s", "clusters": ["alpha"], "end": 2.0}]}
    snapshot = case([cluster("alpha", 2)], [rigid(1, 1, 5.0), job])
    for name in PUBLISHED:
        assert spans(planned(name, snapshot))["w.t"] == (5.0, 6.0)
