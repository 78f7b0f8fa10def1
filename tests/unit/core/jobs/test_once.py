"""Jobs whose command is started once: one cluster, and only where the executor can do that."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.messages import Prepare
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Done, Refused, Submit, Update
from coalloc.core.rounds.snapshots import snapshot
from coalloc.daemon.store.records_json import read_record, write_object
from coalloc.model.jobs import MoldableJob, RigidJob
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget
from coalloc.policies.options import read_known
from coalloc.policies.registry import POLICIES
from tests.support.core_site import Site


class PlannedSite(Site):
    """Clusters a of two nodes and b of three, and a policy that knows the rules of jobs."""

    def __init__(self) -> None:
        super().__init__({"a": 2, "b": 3})

    @staticmethod
    def plan_of(state: Snapshot) -> Plan:
        return POLICIES["plain"].solve(state, {}, Budget())


def refusal(site: Site, job: dict[str, Any], **fields: Any) -> str:
    command = Submit(token="x", job=job, launch=Launch(argv=("x",)), once=True, **fields)
    answer = site.ask(command)
    assert isinstance(answer, Refused), answer
    return f"{answer.code}: {answer.message}"


def test_it_is_planned_on_one_cluster_where_the_executor_can() -> None:
    site = PlannedSite()
    split, whole = site.submit(4), site.submit(3, once=True)
    assert len(site.job(split).parts) == 2
    assert site.job(whole).state is JobState.PENDING, "no cluster has three slots free"
    site.run(split)
    site.finish(split)
    assert [part.cluster for part in site.job(whole).parts] == ["b"]
    (order,) = (order for _, order in site.orders_for(whole, Prepare))
    assert order.once
    assert not any(order.once for _, order in site.orders_for(split, Prepare))


def test_it_stays_so_after_a_refusal_and_a_restart() -> None:
    site = PlannedSite()
    job = site.submit(2, once=True)
    first = site.job(job)
    assert read_record(write_object(first)) == first
    for part in first.parts:
        site.say(job, PartState.REFUSED, cluster=part.cluster, reason="nodes_taken")
    site.wait(100.0)
    assert [order.attempt for _, order in site.orders_for(job, Prepare)] == [1, 2]
    assert all(order.once for _, order in site.orders_for(job, Prepare))


def test_what_cannot_be_started_once_is_refused() -> None:
    site = PlannedSite()
    chunks = {"kind": "divisible", "work": 100.0, "chunk_s": 10.0}
    assert refusal(site, chunks) == "bad_request: once: is for rigid and moldable jobs"
    rigid = {"kind": "rigid", "procs": 4, "base_time": 10.0}
    lacking = "infeasible: needs 4 processes on one cluster; the largest has 3 slots"
    assert refusal(site, rigid) == lacking


def test_it_cannot_be_split_later() -> None:
    site = PlannedSite()
    site.submit(3, once=True)
    job = site.submit(3, once=True)
    refused = site.ask(Update(job=job, fields={"one_cluster": False}))
    assert isinstance(refused, Refused)
    assert "one_cluster: cannot be changed" in refused.message
    assert isinstance(site.ask(Update(job=job, fields={"procs": 2})), Done)
    changed = site.job(job).job
    assert isinstance(changed, RigidJob)
    assert (changed.procs, changed.one_cluster) == (2, True)


@pytest.mark.parametrize("policy", ["plain", "easy", "auto", "oas"])
def test_policies_keep_it_on_one_cluster(policy: str) -> None:
    site = PlannedSite()
    site.solving = False
    bends = {"kind": "moldable", "times": [90.0, 45.0, 30.0, 22.5, 18.0], "proc_gbps": 0.0}
    site.submit(3, once=True)
    command = Submit(token="bends", job=bends, launch=Launch(argv=("x",)), once=True)
    assert isinstance(site.ask(command), Done)
    seen = snapshot(site.state, site.now)
    options = read_known({"coallocate_moldable": True}, POLICIES[policy].options)
    plan = POLICIES[policy].solve(seen, options, Budget(work=200))
    assert len(plan.placements) == 2, plan.deferred
    for placement in plan.placements:
        assert len({name[0] for name in placement.nodes}) == 1
    assert {type(job) for job in seen.queue} == {RigidJob, MoldableJob}
