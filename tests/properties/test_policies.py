"""Properties of every policy on random snapshots."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.model.jobs import WorkflowJob
from coalloc.model.plan import Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.checking.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES
from tests.properties.plan_promises import (
    OPTIONS,
    WORK,
    assert_allowed,
    assert_never_worse_than_easy,
    solve,
)
from tests.support.snapshots import snapshots

# Drawing a snapshot takes longer than most plans: each is given to many policies.
GROUPS = [tuple(POLICIES)[n::4] for n in range(4)]


@pytest.mark.parametrize("names", GROUPS)
@settings(max_examples=20)
@given(snapshot=snapshots(), options=OPTIONS)
def test_plan_is_allowed_and_repeats(
    names: tuple[str, ...], snapshot: Snapshot, options: dict[str, Any]
) -> None:
    for name in names:
        assert solve(name, snapshot, options) == assert_allowed(name, snapshot, options)


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS)
@settings(max_examples=60)
@given(snapshot=snapshots(), options=OPTIONS)
def test_more_plans_are_allowed(
    names: tuple[str, ...], snapshot: Snapshot, options: dict[str, Any]
) -> None:
    for name in names:
        assert_allowed(name, snapshot, options)


def unpolished(snapshot: Snapshot, order: list[int]) -> Snapshot:
    """The same snapshot with the nodes of each cluster in another order and with other names."""
    names = {
        node.name: f"{cluster.name}-{number}"
        for cluster in snapshot.clusters
        for number, node in enumerate(cluster.nodes)
    }
    clusters = []
    for cluster in snapshot.clusters:
        places = [n for n in order if n < len(cluster.nodes)]
        nodes = (replace(cluster.nodes[n], name=names[cluster.nodes[n].name]) for n in places)
        clusters.append(replace(cluster, nodes=tuple(nodes)))
    return replace(
        snapshot,
        clusters=tuple(clusters),
        running=tuple(
            replace(job, nodes={names[name]: count for name, count in job.nodes.items()})
            for job in snapshot.running
        ),
        reservations=tuple(
            replace(kept, nodes=tuple(names[name] for name in kept.nodes))
            for kept in snapshot.reservations
        ),
    )


def alike(snapshot: Snapshot) -> Snapshot:
    """Make all nodes of a cluster equal, and nothing occupied."""
    clusters = tuple(
        replace(
            cluster,
            nodes=tuple(replace(cluster.nodes[0], name=node.name) for node in cluster.nodes),
        )
        for cluster in snapshot.clusters
    )
    return replace(snapshot, clusters=clusters, running=(), reservations=())


@settings(max_examples=25)
@given(snapshot=snapshots(), order=st.permutations(range(5)))
def test_names_of_equal_nodes_do_not_matter(snapshot: Snapshot, order: list[int]) -> None:
    one = alike(snapshot)
    two = unpolished(one, order)
    for name in ("fcfs", "fpfs", "easy", "conservative", "auto", "plain"):
        policy = POLICIES[name]
        options = read_options({}, policy.options)
        plans = [policy.solve(problem, options, Budget(work=WORK)) for problem in (one, two)]
        assert plans[0].objective == plans[1].objective, name
        assert [(p.job, p.start, p.end) for p in plans[0].placements] == [
            (p.job, p.start, p.end) for p in plans[1].placements
        ], name


@settings(max_examples=60)
@given(snapshot=snapshots(), options=OPTIONS)
def test_auto_is_never_worse_than_easy(snapshot: Snapshot, options: dict[str, Any]) -> None:
    assert_never_worse_than_easy(snapshot, options)


@settings(max_examples=80)
@given(snapshot=snapshots(), waited=st.sampled_from([0.0, 60.0, 2e5]), seed=st.integers(0, 3))
def test_auto_on_line_plans_every_kind_of_job(snapshot: Snapshot, waited: float, seed: int) -> None:
    """What the checker lets pass, twice the same, and no bound above the objective."""
    policy = POLICIES["auto"]
    queue = tuple(
        replace(job, submitted=snapshot.time - (waited if n % 4 == seed else 0.0))
        for n, job in enumerate(snapshot.queue)
    )
    snapshot = replace(snapshot, queue=queue)
    options, budget = read_options({}, policy.options), Budget(live=True, work=WORK)
    plan = policy.solve(snapshot, options, budget)
    assert check(snapshot, plan).violations == ()
    assert policy.solve(snapshot, options, budget) == plan
    bound = plan.objective.bound
    assert bound is None or bound <= plan.objective.value * (1.0 + 1e-9)


@settings(max_examples=50)
@given(snapshot=snapshots())
def test_auto_stops_where_it_is_told_to(snapshot: Snapshot) -> None:
    policy = POLICIES["auto"]
    options = read_options({}, policy.options)
    stopped = policy.solve(snapshot, options, Budget(stop=lambda: True))
    assert stopped.stats["tried"] == 1
    # Tasks of workflows in the order of their rank take less time than lists of events.
    has_tasks = any(isinstance(job, WorkflowJob) for job in snapshot.queue)
    assert stopped.stats["order"] in ({"easy", "rank"} if has_tasks else {"easy"})
    limited = policy.solve(snapshot, options, Budget(work=0))
    assert limited.placements == stopped.placements
    # Whoever is told to stop proves less.
    assert replace(limited.objective, bound=None) == replace(stopped.objective, bound=None)
    assert limited.status is not Status.TIME_LIMIT
