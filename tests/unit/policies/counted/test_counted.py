"""Plans by counted resources: against brute force, EASY on dictionaries, and a judge of them."""

from copy import deepcopy
from itertools import permutations, product
from random import Random
from typing import Any

import pytest

from coalloc.model.formats.snapshot_json import read_snapshot
from coalloc.model.plan import Plan, Reason
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.counted import policy
from coalloc.policies.counted.bounds import bound_of
from coalloc.policies.counted.needs import needs_counting
from coalloc.policies.counted.planning import CountedQueue
from coalloc.policies.kernel.counted.listing import EVENT
from coalloc.policies.options import read_options
from coalloc.policies.registry import POLICIES
from tests.support.counted_cases import easy_starts, faults, needs, random_case, sizes

NODE = {"name": "n1", "slots": 64, "memory_mb": 262_144, "resources": {"gpu:a100": 4}}
JOB = {"id": "1", "kind": "rigid", "procs": 1, "base_time": 100.0}


def solved(name: str, snapshot: Snapshot, **budget: Any) -> Plan:
    row = POLICIES[name]
    return row.solve(snapshot, read_options({}, row.options), Budget(work=120, **budget))


def laid(snapshot: Snapshot) -> Plan:
    """EASY by arrival, as it runs without a compiler."""
    queue = CountedQueue(snapshot, {})
    return queue.plan(queue.lay(range(len(queue.items))), "easy", {})


def site(*jobs: dict[str, Any], nodes: Any = (NODE,), **more: Any) -> Snapshot:
    queue = [{**JOB, "id": str(n), **job} for n, job in enumerate(jobs, start=1)]
    clusters = [{"name": "a", "nodes": list(nodes)}]
    return read_snapshot(
        {"format": "coalloc-snapshot/1", "clusters": clusters, "queue": queue, **more}
    )


@pytest.mark.parametrize("name", POLICIES)
def test_what_fills_a_node_exactly_runs_together(name: str) -> None:
    shaped = {"procs": 32, "shape": {"cpus_per_proc": 1, "memory_mb_per_node": 229_376}}
    plan = solved(name, site(shaped, {"procs": 32, "memory_mb_per_proc": 1024}))
    assert [one.start for one in plan.placements] == [0.0, 0.0]
    assert plan.stats["counted"] is True


@pytest.mark.parametrize(
    ("job", "more", "counts"),
    [
        ({}, {}, False),
        # a CPU for each process is a slot where nodes have a slot for each CPU
        ({"shape": {"cpus_per_proc": 1, "procs_per_node": 64}}, {}, False),
        ({"shape": {"cpus_per_proc": 2}}, {}, True),
        ({"shape": {"min_nodes": 1, "per_proc": {"gpu": 1}}}, {}, True),
        ({"shape": {"exclusive": True}}, {}, True),
        # nodes that it cannot use do not matter
        ({"shape": {"exclusive": True}, "features": ["none"]}, {}, False),
        ({"memory_mb_per_proc": 5}, {}, False),
        ({"memory_mb_per_proc": 5}, {"memory_mb": {"n1": 7}}, True),
    ],
)
def test_only_what_is_no_slot_is_counted(job: Any, more: Any, counts: bool) -> None:
    running = [{"id": "r", "nodes": {"n1": 1}, "start": 0.0, "end": 99.0, **more}]
    assert needs_counting(site(job, running=running)) is counts


def test_what_runs_holds_what_it_tells() -> None:
    running = [
        {
            "id": "r",
            "nodes": {"n1": 1},
            "start": 0.0,
            "end": 500.0,
            "memory_mb": {"n1": 200_000},
            "resources": {"n1": {"gpu:a100": 3}},
        }
    ]
    jobs: list[dict[str, Any]] = [
        {"shape": {"memory_mb_per_node": 70_000}},
        {"shape": {"per_node": {"gpu": 2}}},
        {"shape": {"per_node": {"gpu:a100": 1}, "memory_mb_per_node": 60_000}},
    ]
    plan = laid(site(*jobs, running=running))
    assert [one.start for one in plan.placements] == [500.0, 500.0, 0.0]


def test_what_can_never_run_is_told_apart_from_what_cannot_now() -> None:
    down = {**NODE, "name": "n2", "state": "down"}
    jobs: list[dict[str, Any]] = [
        {"procs": 2, "shape": {"min_nodes": 2}},
        {"procs": 3, "shape": {"min_nodes": 3}},
        {"shape": {"per_node": {"gpu": 5}}},
        {"shape": {"per_job": {"matlab": 1}}},
    ]
    plan = laid(site(*jobs, nodes=(NODE, down)))
    assert [one.reason for one in plan.deferred] == [Reason.INSUFFICIENT] + [Reason.INFEASIBLE] * 3


def test_easy_is_that_on_dictionaries() -> None:
    for seed in range(300):
        snapshot = read_snapshot(random_case(Random(seed), easy=True))
        plan = laid(snapshot)
        found = {one.job: one.start for one in plan.placements}
        assert found == easy_starts(snapshot), seed
        assert not faults(snapshot, plan), seed


@pytest.mark.nightly
@pytest.mark.parametrize("piece", range(100))
def test_a_hundred_thousand_plans(piece: int) -> None:
    """Every other one is EASY as on dictionaries; the judge sees all of them."""
    for seed in range(1000 * piece, 1000 * (piece + 1)):
        name = "easy" if seed % 2 else ("fcfs", "fpfs", "conservative")[seed // 2 % 3]
        snapshot = read_snapshot(random_case(Random(seed), easy=name == "easy"))
        plan = policy.solve(name, snapshot, read_options({}, POLICIES[name].options), Budget())
        assert not faults(snapshot, plan), seed
        if name == "easy":
            found = {one.job: one.start for one in plan.placements}
            assert found == easy_starts(snapshot), seed


@pytest.mark.parametrize("name", ["easy", "fcfs", "fpfs", "conservative", "auto", "oas"])
def test_plans_are_allowed(name: str) -> None:
    for seed in range(40):
        snapshot = read_snapshot(random_case(Random(seed)))
        for live in (False, True) if name == "auto" else (False,):
            plan = solved(name, snapshot, live=live)
            assert not faults(snapshot, plan), seed
            entries: Any = (*plan.placements, *plan.deferred)
            assert {one.job for one in entries} == {job.id for job in snapshot.queue}, seed
            told = plan.objective
            assert told.bound is None or told.bound <= told.value * (1.0 + 1e-9), seed


def test_compiled_and_plain_agree_and_no_search_is_worse_than_easy() -> None:
    for seed in range(40):
        snapshot = read_snapshot(random_case(Random(seed)))
        if not needs_counting(snapshot):
            continue
        easy = solved("easy", snapshot)
        assert laid(snapshot).placements == easy.placements, seed
        found = solved("oas", snapshot).objective
        assert (found.deferred, found.value) <= (easy.objective.deferred, easy.objective.value)


@pytest.mark.parametrize("objective", ["makespan", "weighted_completion"])
def test_no_order_beats_the_bound(objective: str) -> None:
    for seed in range(60):
        body = random_case(Random(seed))
        body["queue"] = body["queue"][:4]
        queue = CountedQueue(read_snapshot(body), {"objective": objective})
        bound = bound_of(queue, weighs=objective != "makespan")
        orders = permutations(range(len(queue.items)))
        ranks = [queue.rank(queue.lay(order, mode=EVENT)) for order in orders]
        found = [rank[1] for rank in ranks if rank[0] == 0]
        assert bound is None or bound <= min(found, default=bound), seed


def test_one_job_starts_where_any_layout_fits() -> None:
    for seed in range(300):
        body = random_case(Random(seed), easy=True)
        body["queue"] = body["queue"][:1]
        body["running"] = []
        snapshot = read_snapshot(body)
        job: Any = snapshot.queue[0]
        nodes = [node for _, node in snapshot.nodes() if node.state.value == "up"]
        shape = job.shape
        most = shape.procs_per_node or job.procs

        def fits(node: Any, n: int, job: Any = job) -> bool:
            wanted = needs(job.shape, job.memory_mb_per_proc, node, n)
            return all(amount <= sizes(node).get(name, 0) for name, amount in wanted.items())

        possible = any(
            sum(layout) == job.procs
            and shape.min_nodes <= sum(n > 0 for n in layout) <= (shape.max_nodes or len(nodes))
            and all(n == 0 or fits(node, n) for node, n in zip(nodes, layout, strict=True))
            for layout in product(range(min(most, job.procs) + 1), repeat=len(nodes))
        )
        assert bool(laid(snapshot).placements) is possible, seed


def _doubled(body: dict[str, Any]) -> None:
    """Twice the slots, and CPUs of a process."""
    for node in body["clusters"][0]["nodes"]:
        node["slots"] *= 2
    for job in body["queue"]:
        job["shape"]["cpus_per_proc"] *= 2
    for work in body["running"]:
        work["nodes"] = {name: 2 * n for name, n in work["nodes"].items()}


def _tripled(body: dict[str, Any]) -> None:
    """Memory in other units."""
    for node in body["clusters"][0]["nodes"]:
        node["memory_mb"] = node["memory_mb"] and 3 * node["memory_mb"]
    for job in body["queue"]:
        job["memory_mb_per_proc"] = 3 * job.get("memory_mb_per_proc", 0)
        job["shape"]["memory_mb_per_node"] = 3 * job["shape"].get("memory_mb_per_node", 0)
    for work in body["running"]:
        work["memory_mb"] = {name: 3 * n for name, n in work.get("memory_mb", {}).items()}


def _richer(body: dict[str, Any]) -> None:
    """A resource that is asked for by nobody."""
    for node in body["clusters"][0]["nodes"]:
        node["resources"]["nvme"] = 3


@pytest.mark.parametrize("changed", [_doubled, _tripled, _richer])
def test_what_makes_no_difference_changes_no_plan(changed: Any) -> None:
    for seed in range(60):
        body = random_case(Random(seed), easy=True)
        for node in body["clusters"][0]["nodes"]:
            node |= {"cpus": None, "cpus_per_core": 1}
        for job in body["queue"]:
            shape = job.setdefault("shape", {"memory_mb_per_node": 1})
            shape["cpus_per_proc"] = max(shape.get("cpus_per_proc", 1), 1)
        for work in body["running"]:  # its share is rounded down
            work["memory_mb"] = dict.fromkeys(work["nodes"], 1)
        other = deepcopy(body)
        changed(other)
        plans = [laid(read_snapshot(one)) for one in (body, other)]
        assert plans[0].placements == plans[1].placements, seed


@pytest.mark.parametrize("name", ["plain", "easy"])
@pytest.mark.parametrize("procs", [5, 7, 9, 10])
def test_a_job_is_spread_over_clusters_of_uneven_nodes(name: str, procs: int) -> None:
    """More processes than nodes, of which some take one alone."""
    sizes = {"p": [4], "q": [4], "a": [1, 1]}
    snapshot = read_snapshot(
        {
            "format": "coalloc-snapshot/1",
            "time": 0.0,
            "clusters": [
                {"name": c, "nodes": [{"name": f"{c}{k}", "slots": s} for k, s in enumerate(each)]}
                for c, each in sizes.items()
            ],
            "queue": [{"id": "j", "kind": "rigid", "procs": procs, "base_time": 5.0}],
        }
    )
    (placement,) = solved(name, snapshot).placements
    assert (placement.start, sum(placement.nodes.values())) == (0.0, procs)
