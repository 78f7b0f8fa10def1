"""The slot model against the exact search, and both against trying everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import ceil
from typing import Any

import pytest

from coalloc.model.cost import link_loads, run_time
from coalloc.model.errors import InputError
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.check import check
from coalloc.policies.options import read_options
from coalloc.policies.registry import lookup


def instance(seed: int, jobs: int = 2) -> Snapshot:
    """Two clusters of two nodes."""
    rng = random.Random(seed)
    clusters = tuple(
        Cluster(
            name=name,
            link_gbps=rng.choice([1.0, 0.1]),
            nodes=tuple(
                Node(name=f"{name}{n}", power=rng.choice([1.0, 0.75, 0.5])) for n in range(2)
            ),
        )
        for name in "ab"
    )
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=rng.randint(1, 3),
            base_time=rng.uniform(5.0, 20.0),
            sigma=0.7,
            proc_gbps=0.1,
        )
        for n in range(jobs)
    )
    return Snapshot(clusters=clusters, queue=queue)


def solve(snapshot: Snapshot, **given: Any) -> Plan:
    policy = lookup("oas-slots")
    plan = policy.solve(snapshot, read_options(given, policy.options), Budget())
    assert check(snapshot, plan).violations == ()
    return plan


def choices(snapshot: Snapshot, job: RigidJob, slot: float) -> Iterator[tuple[set[str], int]]:
    """Node sets of a job that load no link too much, with the slots they take."""
    nodes = [(c, node) for c in snapshot.clusters for node in c.nodes]
    for chosen in combinations(nodes, job.procs):
        inside: dict[str, int] = {}
        for cluster, _ in chosen:
            inside[cluster.name] = inside.get(cluster.name, 0) + 1
        loads = link_loads(job.proc_gbps, inside)
        links = {c.name: c.link_gbps for c in snapshot.clusters}
        if all(load <= links[name] * (1 + 1e-9) for name, load in loads.items()):
            power = min(node.power for _, node in chosen)
            length = ceil(run_time(job.base_time, job.sigma, power) / slot - 1e-9)
            yield {node.name for _, node in chosen}, length


def exhaustive(snapshot: Snapshot, slot: float) -> int:
    """The fewest slots for two jobs; side by side only where even both on a link are allowed."""
    one, two = (job for job in snapshot.queue if isinstance(job, RigidJob))
    best = 10**9
    for (a, long_a), (b, long_b) in product(
        choices(snapshot, one, slot), choices(snapshot, two, slot)
    ):
        together = not a & b and _links_hold(snapshot, [(one, a), (two, b)])
        best = min(best, max(long_a, long_b) if together else long_a + long_b)
    return best


def _links_hold(snapshot: Snapshot, placed: list[tuple[RigidJob, set[str]]]) -> bool:
    total = {c.name: 0.0 for c in snapshot.clusters}
    for job, names in placed:
        inside = {c.name: sum(n.name in names for n in c.nodes) for c in snapshot.clusters}
        for name, load in link_loads(job.proc_gbps, inside).items():
            total[name] += load
    return all(total[c.name] <= c.link_gbps * (1 + 1e-9) for c in snapshot.clusters)


@pytest.mark.parametrize(
    "seed", [3, 4, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 2, 6, 7))]
)
def test_both_engines_agree_with_trying_everything(seed: int) -> None:
    snapshot = instance(seed)
    search = solve(snapshot)
    slots = round(search.stats["slotted_makespan"] / search.stats["slot_s"])
    assert slots == exhaustive(snapshot, search.stats["slot_s"])
    for solver in ("highs", "cbc"):
        plan = solve(snapshot, engine="mip", solver=solver)
        assert "not_searched" not in plan.stats
        assert plan.stats["slotted_bound"] == pytest.approx(plan.stats["slotted_makespan"])
        assert plan.stats["slotted_makespan"] == pytest.approx(search.stats["slotted_makespan"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_both_engines_agree_on_three_jobs(seed: int) -> None:
    snapshot = instance(seed, jobs=3)
    search, plan = solve(snapshot), solve(snapshot, engine="mip")
    assert plan.stats["slotted_makespan"] == pytest.approx(search.stats["slotted_makespan"])


def test_running_work_is_waited_for() -> None:
    base = instance(0)
    running = (Running(id="r", nodes={"a0": 1, "a1": 1, "b0": 1, "b1": 1}, start=-1.0, end=70.0),)
    snapshot = Snapshot(clusters=base.clusters, queue=base.queue, running=running)
    for engine in ("search", "mip"):
        plan = solve(snapshot, engine=engine, slot="8")
        assert all(p.start >= 72.0 and p.start % 8.0 == 0.0 for p in plan.placements)


def test_too_few_slots_are_proved_too_few() -> None:
    plan = solve(instance(0), engine="mip", slots=1)
    assert plan.stats["not_searched"] == "no plan ends within 1 slots"
    assert plan.status is Status.HEURISTIC
    assert plan.placements


def test_a_large_program_is_not_built() -> None:
    plan = solve(instance(0, jobs=3), engine="mip", largest_model=50)
    assert "too many" in plan.stats["not_searched"]


@pytest.mark.parametrize("text", ["fast", "-3", "0%", "nan"])
def test_slot_is_read_with_an_exact_error(text: str) -> None:
    with pytest.raises(InputError, match=r"options\.slot: '.*' is neither seconds above 0 nor"):
        solve(instance(0), slot=text)


def test_order_of_jobs_does_not_matter() -> None:
    base = instance(3)
    values = {
        solve(Snapshot(clusters=base.clusters, queue=queue)).stats["slotted_makespan"]
        for queue in permutations(base.queue)
    }
    assert len(values) == 1
