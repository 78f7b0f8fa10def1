"""Jobs with shapes: what never fits, what still fits, what they hold and are charged."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from coalloc.core.base.events import Solved, StatementReceived
from coalloc.core.base.messages import SHAPES, Hello, Prepare, Read
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Done, Refused, RoundNow, Submit, Update
from coalloc.core.jobs.suitable_nodes import laid_out
from coalloc.core.rounds.snapshots import snapshot
from coalloc.daemon.queries.job_views import cluster_rows
from coalloc.model.settings import LimitsConfig
from coalloc.model.shape import Shape, lays_out
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.sites.reading import NativeJob
from coalloc.model.snapshot import Running
from coalloc.model.values import replace
from tests.support.core_site import Site, reading, workflow
from tests.unit.core.base.test_usage import run
from tests.unit.core.jobs.test_occupation import plan_of
from tests.unit.core.starts.test_negotiation import Crowded

GPUS = {"gpu:a100": 4, "gpu": 4}


def equip(site: Site, name: str = "a", *, slots: int = 8, **fields: Any) -> None:
    """Nodes of eight CPUs with memory and GPUs; `a1={...}` is of that node alone."""
    own = {node: fields.pop(node) for node in list(fields) if node.startswith(name)}
    of_all = {"slots": slots, "memory_mb": 8000, "resources": GPUS}
    read = reading(name, site.sizes[name])
    nodes = tuple(replace(n, **{**of_all, **own.get(n.name, {})}) for n in read.nodes)
    seen = replace(read, nodes=nodes, **fields)
    site.do(StatementReceived(statement=Read(cluster=name, reading=seen)))


def equipped(nodes: int = 2, **settings: Any) -> Site:
    site = Site({"a": nodes}, **settings)
    equip(site)
    return site


def shaped(site: Site, procs: int = 1, job: dict[str, Any] | None = None, **shape: Any) -> str:
    return site.submit(procs, job={**(job or {}), "shape": shape})


@pytest.mark.parametrize(
    ("procs", "shape", "fields", "why"),
    [
        (2, {"min_nodes": 2, "max_nodes": 2, "per_node": {"gpu:a100": 4}}, {}, ""),
        (
            2,
            {"min_nodes": 2, "max_nodes": 2, "per_node": {"gpu:a100": 4}},
            {"one_cluster": True, "clusters": ["b", "c"]},
            "needs 2 nodes with 4 gpu:a100 each; the largest cluster has 1 such node",
        ),
        (1, {"per_node": {"gpu:v100": 1}}, {}, "needs 1 process with 1 gpu:v100; "),
        (
            1,
            {"per_proc": {"gpu": 5}},
            {},
            "with 5 gpu; all clusters have room for 0",
        ),
        (
            40,
            {"cpus_per_proc": 1},
            {},
            "with 1 CPU each; all clusters have room for 32",
        ),
        (1, {"cpus_per_proc": 9}, {}, "needs 1 process with 9 CPUs"),
        (1, {"memory_mb_per_node": 8001}, {}, "needs 1 process with 8001 MiB"),
        (8, {"max_nodes": 1}, {"memory_mb_per_proc": 1001}, "needs 1 node with 8008 MiB; "),
        (1, {"cpus_per_proc": 9, "memory_mb_per_node": 9000}, {}, "with 9 CPUs and 9000 MiB;"),
        (1, {"exclusive": True, "all_memory": True}, {}, ""),
        (5, {"procs_per_node": 1}, {}, "needs 5 nodes with 1 slot each; all clusters have 4 such"),
        (1, {"per_job": {"matlab": 2}}, {}, ""),
        (1, {"per_job": {"matlab": 4}}, {}, "needs 4 matlab; no cluster has more than 3"),
    ],
)
def test_what_can_never_run_is_refused_with_the_short_resource(
    procs: int, shape: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    site = Site({"a": 2, "b": 1, "c": 1}, solving=False)
    for name in site.sizes:
        equip(site, name, resources={"matlab": 3} if name == "a" else {})
    job = {"kind": "rigid", "base_time": 9.0, "procs": procs, "shape": shape, **fields}
    answer = site.ask(Submit(token="x", job=job, launch=Launch(argv=("x",))))
    assert isinstance(answer, Refused) == bool(why), answer
    if isinstance(answer, Refused):
        assert answer.code == "infeasible"
        assert why in answer.message


def test_every_layout_is_found_and_is_one() -> None:
    dice = Random(5)
    for _ in range(3000):
        room = {f"n{i}": dice.randrange(4) for i in range(dice.randrange(5))}
        least = dice.randrange(1, 4)
        most = dice.choice([None, least, least + 1])
        shape, procs = Shape(min_nodes=least, max_nodes=most, exclusive=True), dice.randrange(1, 8)
        nodes = laid_out(shape, procs, room)
        counts = product(*(range(count + 1) for count in room.values()))
        within = range(least, (most or len(room)) + 1)
        is_one = any(sum(c) == procs and sum(x > 0 for x in c) in within for c in counts)
        assert bool(nodes) == is_one == lays_out(shape, procs, list(room.values()))
        if nodes:
            assert sum(nodes.values()) == procs
            assert len(nodes) in within
            assert all(0 < count <= room[name] for name, count in nodes.items())


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ({"cpus_per_proc": 4}, {"cpus_per_proc": 4}, True),
        ({"cpus_per_proc": 5}, {"cpus_per_proc": 4}, False),
        ({"memory_mb_per_node": 7000}, {"memory_mb_per_node": 1000}, True),
        ({"memory_mb_per_node": 7000}, {"memory_mb_per_node": 1001}, False),
        ({"memory_mb_per_node": 1}, {"all_memory": True}, False),
        ({"per_node": {"gpu:a100": 3}}, {"per_proc": {"gpu": 1}}, True),
        ({"per_node": {"gpu": 3}}, {"per_node": {"gpu:a100": 2}}, False),
        ({"cpus_per_proc": 1}, {"exclusive": True}, False),
        ({"exclusive": True}, {}, False),
        ({"cpus_per_proc": 7}, {}, True),
    ],
)
def test_what_still_fits_is_counted_before_a_start(
    first: dict[str, Any], second: dict[str, Any], fits: bool
) -> None:
    """Whether it runs already, or is placed by the same plan."""
    for is_running in (False, True):
        site = equipped(1, solving=False)
        jobs = [shaped(site, **first), shaped(site, **second)]
        for chosen in [jobs[:1], jobs[1:]] if is_running else [jobs]:
            if not site.pending_solves:
                site.ask(RoundNow(), operator=True)
            solve = site.pending_solves.pop()
            plan = plan_of(site.now, *((job, None, {"a1": 1}) for job in chosen))
            site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))
        assert site.job(jobs[0]).state is JobState.PREPARING
        assert (site.job(jobs[1]).state is JobState.PREPARING) == fits


def test_what_a_job_holds_is_told_to_the_next_round() -> None:
    site = equipped()
    whole: dict[str, Any] = {"min_nodes": 2, "exclusive": True, "memory_mb_per_node": 500}
    job = shaped(site, 3, {"memory_mb_per_proc": 100}, **whole)
    assert dict(site.job(job).nodes) == {"a1": 2, "a2": 1}
    (held,) = snapshot(site.state, site.now).running
    assert (dict(held.nodes), dict(held.memory_mb)) == ({"a1": 8, "a2": 8}, {"a1": 700, "a2": 600})
    assert [node.free for node in cluster_rows(site.state, site.now)[0].nodes] == [0, 0]
    (order,) = (order for _, order in site.orders_for(job, Prepare))
    assert (order.shape, order.size, dict(order.nodes)) == (Shape(**whole), 3, {"a1": 2, "a2": 1})
    site = equipped(1)
    shaped(site, 2, cpus_per_proc=3, per_node={"gpu:a100": 1}, per_proc={"gpu:a100": 1})
    (held,) = snapshot(site.state, site.now).running
    assert (dict(held.nodes), dict(held.memory_mb)) == ({"a1": 6}, {})
    assert held.resources == {"a1": {"gpu:a100": 3}}
    site.submit(1, job={"memory_mb_per_proc": 7})
    assert snapshot(site.state, site.now).running[1].memory_mb == {"a1": 7}


def test_usage_and_limits_are_of_slots() -> None:
    site = equipped(2, users={"*": LimitsConfig(max_procs=9)})
    job = shaped(site, exclusive=True)
    second = shaped(site, 2, cpus_per_proc=1)
    assert site.job(second).state is JobState.PENDING
    run(site, job, 10.0)
    assert sum(use.proc_s for use in site.state.sharing.usage.values()) == pytest.approx(
        80.0, rel=1e-4
    )
    assert site.job(second).state is JobState.PREPARING
    answer = site.ask(
        Submit(
            token="x",
            job={"kind": "rigid", "base_time": 9.0, "procs": 2, "shape": {"cpus_per_proc": 5}},
            launch=Launch(argv=("x",)),
        )
    )
    assert isinstance(answer, Refused)
    assert answer.message == "needs 10 processes, and user ann may run 9"


def test_a_shape_that_took_more_than_a_limit_allows_lets_others_be_planned() -> None:
    site = Site({"a": 2}, users={"*": LimitsConfig(max_procs=6)})
    equip(site, a1={"slots": 8, "cpus": 8}, a2={"slots": 4, "cpus": 4})
    job, other = shaped(site, exclusive=True), site.submit(1)
    waits = site.job(job)
    assert (waits.state, waits.reason) == (JobState.PENDING, "over_limit")
    assert waits.detail == "needs 8 processes, and user ann may run 6"
    site.ask(RoundNow(), operator=True)
    assert site.job(other).state is JobState.PREPARING


def test_where_a_node_is_a_slot_it_is_one_of_it_however_many_cpus_are_asked_for() -> None:
    site = Site({"a": 2}, users={"*": LimitsConfig(max_procs=2)})
    equip(site, a1={"slots": 1, "cpus": 8}, a2={"slots": 1, "cpus": 8})
    job = shaped(site, 9, cpus_per_proc=1)
    assert dict(site.job(job).nodes) == {"a1": 8, "a2": 1}
    assert dict(site.job(job).parts[0].slots) == {"a1": 1, "a2": 1}


def test_an_older_executor_is_offered_no_job_with_a_shape() -> None:
    site = Site({"a": 2, "b": 1})
    site.do(StatementReceived(statement=Hello(cluster="a", abilities=())))
    equip(site)
    job, plain = shaped(site, cpus_per_proc=1), site.submit(1)
    assert (site.job(job).clusters, site.job(plain).clusters) == (("b",), ("a",))
    waits = shaped(site, 2, {"clusters": ["a"]}, cpus_per_proc=1)
    assert site.state.findings.outlook[waits].detail == "a: its executor is older than shapes"
    site.do(StatementReceived(statement=Hello(cluster="a", abilities=(SHAPES,))))
    site.ask(RoundNow(), operator=True)
    assert site.job(waits).clusters == ("a",)


def test_tasks_and_pieces_have_their_own_shape_or_that_of_the_whole() -> None:
    site = equipped()
    tasks = [{"id": "x", "work": 9.0, "shape": {"cpus_per_proc": 3}}, {"id": "y", "work": 9.0}]
    flow = site.submit_workflow("x y", job={"tasks": tasks, "shape": {"cpus_per_proc": 2}})
    shapes = [site.orders_for(f"{flow}.{n}", Prepare)[0][1].shape for n in (1, 2)]
    assert shapes == [Shape(cpus_per_proc=3), Shape(cpus_per_proc=2)]
    job = {"kind": "divisible", "work": 1.0, "chunk_s": 1.0, "shape": {"cpus_per_proc": 3}}
    pool = site.ask(Submit(token="x", job=job, launch=Launch(argv=("x",))))
    assert isinstance(pool, Done)
    ((_, order),) = site.orders_for(f"{pool.body['job']}.1", Prepare)
    assert order.shape == Shape(cpus_per_proc=3)
    tasks = [{**tasks[0], "shape": {"cpus_per_proc": 9}}]
    lacking = site.ask(workflow("y", "x", job={"tasks": tasks}))
    assert isinstance(lacking, Refused)
    assert lacking.message == "task x needs 1 process with 9 CPUs; all clusters have room for 0"


def test_a_handed_job_has_the_shape_that_it_has_there() -> None:
    site = equipped(solving=False)
    entry = NativeJob(id="7", submitted=900.0, user="eve", procs=2, shape=Shape(cpus_per_proc=4))
    equip(site, handed=(entry,))
    (record,) = site.state.jobs.values()
    assert record.job.shape == entry.shape
    equip(site, handed=(replace(entry, shape=Shape(cpus_per_proc=9)),))
    record = site.job(record.id)
    assert (record.state, record.reason) == (JobState.HELD, "infeasible")
    assert "9 CPUs" in record.detail


def test_a_changed_job_keeps_a_shape_that_can_run() -> None:
    site = equipped(solving=False)
    job = shaped(site, 4, min_nodes=2, max_nodes=2, procs_per_node=2)
    assert isinstance(site.ask(Update(job=job, fields={"procs": 5})), Refused)
    assert not isinstance(site.ask(Update(job=job, fields={"procs": 3})), Refused)
    assert site.job(job).job.shape == Shape(min_nodes=2, max_nodes=2, procs_per_node=2)
    anywhere = {"cpus_per_proc": 2, "min_nodes": 1, "max_nodes": None, "procs_per_node": None}
    site.ask(Update(job=job, fields={"shape": anywhere, "procs": 5}))
    assert site.job(job).job.shape == Shape(cpus_per_proc=2)
    assert isinstance(site.ask(Update(job=job, fields={"shape": {"exclusive": 9}})), Refused)
    answer = site.ask(Update(job=job, batch={"passed": "--exclude=a1"}))
    assert isinstance(answer, Refused)


def test_a_queue_gets_a_job_only_where_its_nodes_have_room_for_the_shape() -> None:
    site = Crowded({"a": 2, "b": 2, "c": 2})
    for name, gpus in (("a", GPUS), ("b", {}), ("c", GPUS)):
        nodes: dict[str, Any] = {f"{name}{i}": {"resources": gpus} for i in (1, 2)}
        work = Running(id="x", nodes={f"{name}1": 8, f"{name}2": 8}, start=0.0, end=9e3, ours=False)
        equip(site, name, queues=True, waiting=3, running=(work,), **nodes)
    job = shaped(site, 2, min_nodes=2, per_node={"gpu:a100": 2})
    site.waits(job, *site.job(job).clusters)
    assert site.job(job).clusters == ("a", "c")
    assert [dict(part.nodes) for part in site.job(job).parts] == [
        {"a1": 1, "a2": 1},
        {"c1": 1, "c2": 1},
    ]
    site.tell(job, "a", PartState.PREPARING, nodes={"a1": 1, "a2": 1})
    assert site.job(job).parts[0].held == {"a1": 1, "a2": 1}
