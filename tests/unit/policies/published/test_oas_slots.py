"""The slot model against the exact search, and both against trying everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import ceil

import pytest

from coalloc.model.cost import link_loads, run_time
from coalloc.model.errors import InputError
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.platform import Cluster, Node
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.kernel.instance.decoding import Planner
from coalloc.policies.options import read_options
from coalloc.policies.published.slot_grid import on_grid
from coalloc.policies.registry import lookup
from tests.support.planned import planned


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
    search = planned("oas-slots", snapshot)
    slots = round(search.stats["slotted_makespan"] / search.stats["slot_s"])
    assert slots == exhaustive(snapshot, search.stats["slot_s"])
    plan = planned("oas-slots", snapshot, engine="mip")
    assert "not_searched" not in plan.stats
    assert plan.stats["slotted_bound"] == pytest.approx(plan.stats["slotted_makespan"])
    assert plan.stats["slotted_makespan"] == pytest.approx(search.stats["slotted_makespan"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_both_engines_agree_on_three_jobs(seed: int) -> None:
    snapshot = instance(seed, jobs=3)
    search, plan = planned("oas-slots", snapshot), planned("oas-slots", snapshot, engine="mip")
    assert plan.stats["slotted_makespan"] == pytest.approx(search.stats["slotted_makespan"])


def test_running_work_is_waited_for() -> None:
    base = instance(0)
    running = (Running(id="r", nodes={"a0": 1, "a1": 1, "b0": 1, "b1": 1}, start=-1.0, end=70.0),)
    snapshot = Snapshot(clusters=base.clusters, queue=base.queue, running=running)
    for engine in ("search", "mip"):
        plan = planned("oas-slots", snapshot, engine=engine, slot="8")
        assert all(p.start >= 72.0 and p.start % 8.0 == 0.0 for p in plan.placements)


def test_too_few_slots_are_proved_too_few() -> None:
    plan = planned("oas-slots", instance(0), engine="mip", slots=1)
    assert plan.stats["not_searched"] == "no plan ends within 1 slots"
    assert plan.status is Status.HEURISTIC
    assert plan.placements


def test_a_large_program_is_not_built() -> None:
    plan = planned("oas-slots", instance(0, jobs=3), engine="mip", largest_model=50)
    assert "too many" in plan.stats["not_searched"]


@pytest.mark.parametrize("text", ["fast", "-3", "0%", "nan"])
def test_slot_is_read_with_an_exact_error(text: str) -> None:
    with pytest.raises(InputError, match=r"options\.slot: '.*' is neither seconds above 0 nor"):
        planned("oas-slots", instance(0), slot=text)


def test_order_of_jobs_does_not_matter() -> None:
    base = instance(3)
    orders = [Snapshot(clusters=base.clusters, queue=queue) for queue in permutations(base.queue)]
    values = {planned("oas-slots", order).stats["slotted_makespan"] for order in orders}
    assert len(values) == 1


def tight(seed: int, names: str, procs: int) -> Snapshot:
    """Clusters of two nodes, and two jobs that saturate links together or alone."""
    rng = random.Random(seed)
    clusters = tuple(
        Cluster(
            name=name,
            link_gbps=rng.choice([0.08, 0.13, 0.2]),
            nodes=tuple(
                Node(name=f"{name}{n}", power=rng.choice([1.0, 1.0, 0.5])) for n in range(2)
            ),
        )
        for name in names
    )
    queue = tuple(
        RigidJob(
            id=str(n),
            procs=procs,
            base_time=rng.uniform(5.0, 20.0),
            sigma=rng.choice([0.3, 0.5, 0.7]),
            proc_gbps=0.1,
        )
        for n in range(2)
    )
    return Snapshot(clusters=clusters, queue=queue)


def slots_of(snapshot: Snapshot, job: RigidJob, nodes: set[str], sc: float, slot: float) -> int:
    power = min(n.power for c in snapshot.clusters for n in c.nodes if n.name in nodes)
    return ceil(run_time(job.base_time, job.sigma, power, sc) / slot - 1e-9)


def settled(
    snapshot: Snapshot, placed: list[tuple[RigidJob, set[str], int]], slot: float, most: float
) -> int | None:
    """The last slot of jobs at these starts by the least SC that their loads ask for, or None.

    A longer run meets more jobs, so the slowdowns only grow on the way to the least fixed point.
    """
    loads = []
    for job, names, _ in placed:
        inside = {c.name: sum(n.name in names for n in c.nodes) for c in snapshot.clusters}
        gbps = link_loads(job.proc_gbps, {k: n for k, n in inside.items() if n})
        loads.append({c.name: gbps.get(c.name, 0.0) / c.link_gbps for c in snapshot.clusters})
    sc = [1.0] * len(placed)
    while True:
        spans = [
            (start, start + slots_of(snapshot, job, names, slow, slot))
            for (job, names, start), slow in zip(placed, sc, strict=True)
        ]
        pairs = list(combinations(range(len(placed)), 2))
        meet = [(x, y) for x, y in pairs if spans[x][0] < spans[y][1] and spans[y][0] < spans[x][1]]
        if any(placed[x][1] & placed[y][1] for x, y in meet):
            return None
        needed = []
        for x, (begin, end) in enumerate(spans):
            at = [
                sum(loads[y][k] for y, (a, b) in enumerate(spans) if a <= t < b)
                for t in range(begin, end)
                for k, load in loads[x].items()
                if load > 0.0
            ]
            needed.append(max([1.0, *at]))
        if max(needed) > most * (1 + 1e-9):
            return None
        if needed == sc:
            return max(end for _, end in spans)
        sc = needed


def saturated(snapshot: Snapshot, slot: float, most: float, best: int) -> int:
    """The fewest slots up to `best` by all starts and node sets of rigid jobs."""
    names = [node.name for cluster in snapshot.clusters for node in cluster.nodes]
    jobs = [job for job in snapshot.queue if isinstance(job, RigidJob)]
    while True:
        starts = [range(best) for _ in jobs]
        sets = [[set(chosen) for chosen in combinations(names, job.procs)] for job in jobs]
        found = (
            settled(snapshot, list(zip(jobs, chosen, when, strict=True)), slot, most)
            for when in product(*starts)
            for chosen in product(*sets)
        )
        shorter = next((last for last in found if last is not None and last < best), None)
        if shorter is None:
            return best
        best = shorter


@pytest.mark.parametrize("threshold", [1.5, 3.0])
@pytest.mark.parametrize(
    "seed", [2, 4, 6, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 3, 5, 7, 8, 9))]
)
def test_saturated_links_as_by_trying_everything(seed: int, threshold: float) -> None:
    snapshot = tight(seed, "abc", 3)
    plan = planned("oas-slots", snapshot, saturation_threshold=threshold)
    slot = plan.stats["slot_s"]
    slots = round(plan.stats["slotted_makespan"] / slot)
    assert not plan.deferred
    assert plan.stats["slotted_bound"] == pytest.approx(plan.stats["slotted_makespan"])
    assert slots == saturated(snapshot, slot, threshold, slots + 1)
    program = planned("oas-slots", snapshot, engine="mip", saturation_threshold=threshold)
    assert program.stats["slotted_makespan"] == pytest.approx(plan.stats["slotted_makespan"])
    policy = lookup("oas")
    options = read_options({"saturation_threshold": threshold}, policy.options)
    free = policy.solve(snapshot, options, Budget(work=2_000)).objective
    assert free.bound is not None
    assert free.bound <= plan.objective.value


def test_saturation_starts_jobs_side_by_side() -> None:
    """Seed 6: apart, the links carry one job after the other; at SC 1.25 both, in 3 slots not 5."""
    slots = {}
    for threshold in (1.0, 1.5):
        plan = planned("oas-slots", tight(6, "abc", 3), saturation_threshold=threshold)
        slots[threshold] = round(plan.stats["slotted_makespan"] / plan.stats["slot_s"])
        assert max(p.sc for p in plan.placements) == pytest.approx(
            1.0 if threshold == 1.0 else 1.25
        )
    assert slots == {1.0: 5, 1.5: 3}


def test_a_long_queue_is_planned_with_saturated_links_too() -> None:
    base = tight(3, "ab", 3)  # no link carries such a job at SC 1
    queue = tuple(replace(base.queue[0], id=str(n)) for n in range(250))
    plan = planned("oas-slots", replace(base, queue=queue), saturation_threshold=1.5)
    assert plan.stats["not_searched"] == "more than 200 jobs"
    assert not plan.deferred
    assert {p.sc for p in plan.placements} == {1.5}


def test_a_run_is_not_read_from_an_end_too_late_to_tell_it_from() -> None:
    """Behind 30,000 years a microsecond is lost: the time on the grid is that of the cost model."""
    job = RigidJob(id="1", procs=2, base_time=1e-6)
    snapshot = Snapshot(
        clusters=(Cluster(name="a", nodes=(Node(name="n", slots=2),)),), queue=(job,)
    )
    planner = Planner(snapshot, read_options({}, lookup("oas-slots").options))
    late = Placement(job="1", start=1e12, end=1e12 + 1e-3, nodes={"n": 2})
    plan = Plan(
        policy="oas-slots",
        options={},
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=late.end),
        placements=(late,),
    )
    (moved,) = on_grid(planner, plan, 1e8)
    assert moved.start == 0.0
    assert moved.end == pytest.approx(1e-6)
