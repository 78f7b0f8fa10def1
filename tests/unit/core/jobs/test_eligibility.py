"""Clusters and nodes that take a job by the rules of their batch systems: submits and snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import SHAPES, WHOLE_JOBS, Hello, Prepare, Read
from coalloc.core.base.requests import Cancel, Done, Refused, Submit
from coalloc.core.jobs.eligibility import refused_by_all
from coalloc.core.jobs.offers import Offers
from coalloc.core.rounds.snapshots import snapshot
from coalloc.daemon.queries.job_views import why
from coalloc.model.jobs import RigidJob
from coalloc.model.settings import TriggerConfig
from coalloc.model.sites.batch_options import NAMES, BatchOptions
from coalloc.model.sites.parts import Launch
from coalloc.model.sites.reading import NodeReading
from coalloc.model.sites.site_rules import Association, Limits, PartitionRules, Room, SiteRules
from coalloc.model.snapshot import Reservation
from coalloc.model.values import replace
from coalloc.policies.base import Budget
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site, reading

SHORT = PartitionRules(name="short", limits=Limits(time_s=1800.0, nodes=1))
RULES = SiteRules(
    honoured=NAMES,
    usual=BatchOptions(partition="main"),
    partitions=(PartitionRules(name="main"), SHORT),
)


def ruled(
    site: Site, name: str, rules: SiteRules | None, *, queues: bool = False, **nodes: dict[str, Any]
) -> None:
    """Have a cluster read with rules, and some of its nodes with what they have besides."""
    read = reading(name, site.sizes[name])
    usual = {"partitions": ("main", "short")}
    given = tuple(replace(node, **{**usual, **nodes.get(node.name, {})}) for node in read.nodes)
    told = replace(read, nodes=given, rules=rules, queues=queues)
    site.do(StatementReceived(statement=Read(cluster=name, reading=told)))


def refused(
    site: Site, procs: int = 1, limit: float = 60.0, on: tuple[str, ...] | None = None, **told: Any
) -> str:
    job = {"kind": "rigid", "procs": procs, "base_time": 10.0, "time_limit": limit, "clusters": on}
    command = Submit(
        token=str(len(site.answers)),
        job=job,
        launch=Launch(argv=("x",)),
        batch=BatchOptions(**told),
    )
    answer = site.ask(command)
    return answer.message if isinstance(answer, Refused) else ""


def planned_on(site: Site, nodes: int, *passed: str, name: str = "a") -> set[str]:
    batch = BatchOptions(passed=passed)
    shape = {"cpus_per_proc": 1, "min_nodes": nodes, "max_nodes": nodes}
    job = site.submit(nodes, batch=batch, job={"shape": shape, "one_cluster": True})
    told = snapshot(site.state, site.now)
    (asked,) = (each for each in told.queue if each.id == job)
    assert isinstance(asked, RigidJob)
    site.ask(Cancel(job=job))
    return {node.name for _, node in told.nodes() if set(asked.features) <= set(node.features)}


@pytest.mark.parametrize(("partition", "kinds"), [(PartitionRules(name="main"), 1), (SHORT, 2)])
def test_time_limits_make_kinds_of_jobs_where_a_rule_is_about_times(
    partition: PartitionRules, kinds: int
) -> None:
    site = Site({"a": 2}, solving=False)
    ruled(site, "a", SiteRules(partitions=(partition,)))
    jobs = [site.submit(job={"time_limit": limit}) for limit in (600.0, 900.0)]
    offers = Offers(state=site.state, now=site.now, busy={})
    assert len({id(offers.of(site.job(job))) for job in jobs}) == kinds


def test_nodes_that_a_job_excludes_or_lists_are_planned_so() -> None:
    site = Site({"a": 4}, solving=False)
    ruled(site, "a", RULES)
    every = {"a1", "a2", "a3", "a4"}
    assert planned_on(site, 1) == every
    assert planned_on(site, 1, "--exclude=a[1-2]") == {"a3", "a4"}
    assert planned_on(site, 2, "--nodelist=a2,a4") == {"a2", "a4"}
    assert len(found := planned_on(site, 3, "--nodelist=a2,a4", "--exclude=a1")) == 3
    assert found == {"a2", "a3", "a4"}
    for unknown in ("--exclude=/home/ann/nodes", "--exclude=a[1-99999999]", "--exclude=a[x"):
        assert planned_on(site, 1, unknown) == every  # the cluster's Slurm judges it
    for passed in ("--nodelist=a9", "--nodelist=a1|--exclude=a1"):
        told = refused(site, on=("a",), passed=tuple(passed.split("|")))
        assert f"a: no node there has {passed.partition('|')[0]}" in told
    assert "1 suitable slots exist" in refused(site, 2, on=("a",), passed=("--exclude=a[1-3]",))


GPUS = {"gpu": 4, "gpu:a100": 4}
TYPED = {"procs": 2, "shape": {"per_proc": {"gpu:a100": 2}}}
ON_NODES = {"procs": 2, "shape": {"per_node": {"gpu": 2}, "min_nodes": 2}}
ASKED: tuple[tuple[dict[str, Any], dict[str, int], str], ...] = (
    ({"procs": 6, "shape": {"per_proc": {"gpu": 1}}}, {"gpu": 6}, ""),
    ({"procs": 6, "shape": {"per_proc": {"gpu": 1}}}, {"gpu": 5}, "at most 5 gpu at once"),
    (TYPED, {"gpu": 3}, "at most 3 gpu at once"),  # a type counts for its family, too
    ({"procs": 2, "shape": {"per_proc": {"gpu": 2}}}, {"gpu:a100": 3}, ""),
    (ON_NODES, {"gpu": 3}, "at most 3 gpu at once"),
    ({"procs": 4, "memory_mb_per_proc": 100}, {"mem": 400}, ""),
    ({"procs": 4, "memory_mb_per_proc": 100}, {"mem": 399}, "at most 399 MiB at once"),
    ({"procs": 1, "shape": {"memory_mb_per_node": 500}}, {"mem": 499}, "at most 499 MiB at once"),
)


@pytest.mark.parametrize(("job", "limits", "told"), ASKED)
def test_limits_on_resources_hold_at_submit(
    job: dict[str, Any], limits: dict[str, int], told: str
) -> None:
    site = Site({"a": 2}, slots=4, solving=False)
    nodes: dict[str, Any] = {
        name: {"slots": 4, "resources": GPUS, "memory_mb": 1000} for name in ("a1", "a2")
    }
    ruled(site, "a", replace(RULES, qos={"small": Limits(resources=limits)}), **nodes)
    command = Submit(
        token="t",
        job={"kind": "rigid", "base_time": 10.0, "one_cluster": True, **job},
        launch=Launch(argv=("x",)),
        batch=BatchOptions(qos="small"),
    )
    answer = site.ask(command)
    said = answer.message if isinstance(answer, Refused) else ""
    assert told in said
    assert bool(told) is bool(said), said


@pytest.mark.parametrize(("left", "waits"), [(1, True), (2, False)])
def test_the_rest_of_a_limit_on_resources_is_planned_around(left: int, waits: bool) -> None:
    site = Site({"a": 1}, slots=4)
    rules = replace(RULES, rooms=(Room(left=left, what="gpu", why="gpu of QOS tiny are taken"),))
    ruled(site, "a", rules, a1={"slots": 4, "resources": GPUS})
    job = site.submit(1, job={"shape": {"per_node": {"gpu:a100": 2}}})
    other = site.submit(1)
    assert (site.job(job).is_waiting, site.job(other).is_waiting) == (waits, False)


def test_it_is_told_at_submit_where_no_cluster_ever_takes_a_job() -> None:
    site = Site({"a": 2, "b": 2})
    ruled(site, "a", RULES)
    ruled(site, "b", SiteRules())
    assert refused(site, limit=7200.0, partition="short") == (
        "a: partition short allows 30 min, the job asks for 2 h; "
        "b: --partition=short cannot be honoured there"
    )
    assert refused(site, partition="short") == ""
    assert refused(site, procs=2, partition="short") == (
        "needs 2 processes; 1 slots exist (a: at most 1 node at once; "
        "b: --partition=short cannot be honoured there)"
    )
    assert "a: no node there has --constraint=a|b" in refused(site, constraint="a|b")
    ruled(site, "a", None)  # what is not known forbids nothing
    assert refused(site, limit=7200.0, partition="any") == ""


def test_memory_that_is_not_enforced_is_told_at_submit() -> None:
    site = Site({"a": 2, "b": 2})
    ruled(site, "a", SiteRules(bounds_memory=False))

    def warnings(memory_mb: int, *clusters: str, per_node: int = 0) -> Any:
        job = {
            "kind": "rigid",
            "base_time": 9.0,
            "procs": 1,
            "memory_mb_per_proc": memory_mb,
            "shape": {"memory_mb_per_node": per_node},
            "clusters": clusters or None,
        }
        launch = Launch(argv=("x",))
        token = f"{memory_mb} {clusters} {per_node}"
        answer = site.ask(Submit(token=token, job=job, launch=launch))
        assert isinstance(answer, Done)
        return answer.body["warnings"]

    told = ["memory is planned for, but not enforced on a"]
    assert warnings(1) == warnings(0, per_node=5) == told
    assert warnings(1, "b") == warnings(0) == []


def test_job_goes_to_the_cluster_and_the_nodes_that_take_it() -> None:
    site = Site({"a": 2, "b": 3}, solving=False)
    ruled(site, "a", SiteRules())
    ruled(site, "b", RULES, b1={"partitions": ("main",)}, b3={"features": ("big", "new")})
    plain = site.submit(1)
    short = site.submit(1, batch=BatchOptions(partition="short"))
    big = site.submit(1, batch=BatchOptions(constraint="big&(new|old)"))
    found = snapshot(site.state, site.now)
    jobs = {job.id: job for job in found.queue}
    assert (jobs[plain].clusters, jobs[plain].features) == (None, ())
    assert jobs[short].clusters == jobs[big].clusters == ("b",)

    def open_to(job: str) -> list[str]:
        wanted = set(jobs[job].features)
        return [n.name for _, n in found.nodes() if wanted and wanted.issubset(n.features)]

    assert open_to(short) == ["b2", "b3"]
    assert open_to(big) == ["b3"]


def test_more_nodes_than_a_partition_allows_are_not_offered() -> None:
    site = Site({"a": 3, "b": 1}, solving=False)
    rules = replace(RULES, partitions=(PartitionRules(name="main", limits=Limits(nodes=2)), SHORT))
    ruled(site, "a", rules)
    ruled(site, "b", None)
    site.submit(3)
    found = snapshot(site.state, site.now)
    (job,) = found.queue
    open_nodes = [n.name for _, n in found.nodes() if set(job.features) <= set(n.features)]
    assert open_nodes == ["a1", "a2", "b1"]


@pytest.mark.parametrize("policy", ["plain", "fcfs", "easy", "conservative"])
def test_policies_keep_to_it(policy: str) -> None:
    site = Site({"a": 2, "b": 3}, solving=False)
    ruled(site, "a", SiteRules())
    ruled(site, "b", RULES, b3={"features": ("big",)})
    job = site.submit(1, batch=BatchOptions(constraint="big|huge"))
    plan = POLICIES[policy].solve(snapshot(site.state, site.now), {}, Budget())
    assert {p.job: dict(p.nodes) for p in plan.placements} == {job: {"b3": 1}}


def test_users_without_an_account_go_elsewhere() -> None:
    site = Site({"a": 2, "b": 2})
    associations = (Association(account="chem", user="bob"),)
    ruled(site, "a", replace(RULES, associations=associations))
    job = site.submit(1)  # of ann
    assert [cluster for cluster, _ in site.orders_for(job, Prepare)] == ["b"]
    bobs = site.submit(1, user="bob")
    assert [cluster for cluster, _ in site.orders_for(bobs, Prepare)] == ["a"]


def test_closed_partition_is_waited_for() -> None:
    site = Site(
        {"a": 1},
        trigger=(TriggerConfig(kind="queue_length"), TriggerConfig(kind="cluster_returned")),
    )
    closed = replace(RULES, partitions=(PartitionRules(name="main", state="DOWN"),))
    ruled(site, "a", closed)
    job = site.submit(1)
    assert not site.orders_for(job, Prepare)
    assert site.state.findings.outlook[job].detail == "a: partition main is DOWN"
    ruled(site, "a", RULES)
    assert site.orders_for(job, Prepare)


def test_tasks_of_a_workflow_carry_what_their_workflow_asks_for() -> None:
    site = Site({"a": 1, "b": 2})
    ruled(site, "a", SiteRules())
    ruled(site, "b", RULES, b2={"partitions": ("main",)})
    flow = site.submit_workflow("x y", batch=BatchOptions(partition="short"))
    orders = [order for _, _, order in site.orders if isinstance(order, Prepare)]
    assert [(o.job, dict(o.nodes)) for o in orders] == [(f"{flow}.1", {"b1": 1})] or orders
    assert {o.batch.partition for o in orders} == {"short"}


def kept(site: Site, name: str, start: float, *nodes: str) -> None:
    """Have the cluster a read with a reservation, and rules that let no job run into it."""
    read = reading("a", site.sizes["a"])
    end = start + 600.0
    reservation = Reservation(id=f"a:{name}", nodes=nodes, start=start, end=end)
    rules = SiteRules(honoured=NAMES, limit_step_s=60.0, reservations=(f"a:{name}",))
    told = replace(read, reservations=(reservation,), rules=rules)
    site.do(StatementReceived(statement=Read(cluster="a", reading=told)))


@pytest.mark.parametrize(
    ("limit", "open_nodes", "earliest"),
    [
        (100.0, ["a1", "a2", "a3"], 0.0),
        (181.0, ["a2", "a3"], 0.0),  # its limit there is longer, and ends in the reservation
        (None, ["a2", "a3"], 0.0),
    ],
)
def test_job_is_not_planned_to_run_into_a_reservation(
    limit: float | None, open_nodes: list[str], earliest: float
) -> None:
    site = Site({"a": 3}, solving=False)
    kept(site, "maint", site.now + 200.0, "a1")
    site.submit(2, job={"base_time": 10.0, "time_limit": limit})
    found = snapshot(site.state, site.now)
    (job,) = found.queue
    wanted = set(job.features)
    assert [n.name for _, n in found.nodes() if wanted <= set(n.features)] == open_nodes
    assert job.earliest == max(earliest, site.now)


def test_job_that_has_to_wait_for_the_end_of_a_reservation_is_planned_behind_it() -> None:
    site = Site({"a": 3}, solving=False)
    kept(site, "maint", site.now + 200.0, "a1", "a2")
    site.submit(2, job={"base_time": 10.0, "time_limit": 3600.0})
    (job,) = snapshot(site.state, site.now).queue
    assert (job.earliest, job.features) == (site.now + 800.0, ())


def test_job_runs_in_the_reservation_that_it_names() -> None:
    site = Site({"a": 3, "b": 1}, solving=False)
    kept(site, "course", site.now + 200.0, "a2", "a3")
    assert "a: there is no reservation other" in refused(site, on=("a",), reservation="other")
    job = site.submit(1, job={"clusters": ["a"]}, batch=BatchOptions(reservation="course"))
    found = snapshot(site.state, site.now)
    (view,) = found.queue
    wanted = set(view.features)
    assert [n.name for _, n in found.nodes() if wanted <= set(n.features)] == ["a2", "a3"]
    assert view.earliest == site.now + 200.0
    assert [each.jobs for each in found.reservations] == [(job,)]


def test_nodes_are_those_of_the_reading_where_nothing_is_known() -> None:
    site = Site({"a": 1}, solving=False)
    site.submit(1, batch=BatchOptions(constraint="a|b"))
    (job,) = snapshot(site.state, site.now).queue
    assert isinstance(job, RigidJob)
    assert job.features == ()
    assert isinstance(site.state.clusters["a"].reading.nodes[0], NodeReading)  # type: ignore[union-attr]


def test_a_job_over_a_limit_of_the_moment_starts_elsewhere_or_waits_in_the_queue() -> None:
    """Where claims may not wait, it waits for a reading that has room."""
    full = replace(RULES, rooms=(Room(left=0, user="ann", why="2 of 2 jobs of ann run"),))

    def placed(procs: int, *on: str, queues: bool = True) -> tuple[Site, str]:
        returned = TriggerConfig(kind="cluster_returned")
        site = Site({"a": 4, "b": 2}, trigger=(TriggerConfig(kind="queue_length"), returned))
        for name, rules in (("a", full), ("b", RULES)):
            ruled(site, name, rules, queues=queues)
        return site, site.submit(procs, job={"clusters": on})

    site, job = placed(2, "a", "b")
    assert set(site.job(job).nodes) == {"b1", "b2"}
    site, job = placed(3, "a", "b")
    ((_, order),) = site.orders_for(job, Prepare)
    assert not order.queue.at_once, "Slurm would refuse it: it takes its turn"
    site, job = placed(2, "a", queues=False)
    assert not site.orders_for(job, Prepare)
    assert refused_by_all(site.state, site.job(job)) == "a: 2 of 2 jobs of ann run"
    ruled(site, "a", RULES)
    assert site.orders_for(job, Prepare)


def test_a_job_is_whole_on_a_cluster_that_takes_no_parts_or_split_over_the_others() -> None:
    site = Site({"a": 4, "b": 2, "c": 3})
    site.do(StatementReceived(statement=Hello(cluster="a", abilities=(SHAPES, WHOLE_JOBS))))
    alone = "only jobs of this cluster alone: the clocks of its nodes differ"
    assert refused(site, 6) == f"needs 6 processes; 5 slots exist (a: {alone})"
    wide, whole = site.submit(5), site.submit(4)
    assert (site.job(wide).clusters, site.job(whole).clusters) == (("b", "c"), ("a",))
    for job in (wide, whole):
        site.run(job)
    site.finish(wide)
    split, small = site.submit(4), site.submit(1)
    assert site.job(split).clusters == ("b", "c"), "it does not wait for a"
    assert site.job(small).clusters == ("c",)
    waits = site.submit(4, job={"clusters": ["a", "b"]})
    facts = why(site.job(waits), site.state, site.now).facts
    assert "not split over a, where the clocks of the nodes differ" in facts
    (view,) = snapshot(site.state, site.now).queue
    assert isinstance(view, RigidJob)
    assert (view.clusters, view.one_cluster) == (("a", "b"), True)
    site.finish(whole)
    assert site.job(waits).clusters == ("a",)
