"""Clusters of one user: only their owner's jobs are planned, queued and started there."""

from __future__ import annotations

import random
from itertools import cycle

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Prepare, Read
from coalloc.core.base.requests import Refused, Submit
from coalloc.core.rounds.snapshots import snapshot
from coalloc.model.plan import Plan
from coalloc.model.sites.parts import Launch, PartReport, PartState
from coalloc.model.sites.reading import NativeJob
from coalloc.model.snapshot import Running, Snapshot
from coalloc.model.values import replace
from tests.support.core_site import Site, first_fit, reading

OWNERS = {"a@ann": "ann", "b@bob": "bob"}


def asked(site: Site, user: str, procs: int, *on: str) -> str:
    job = {"kind": "rigid", "procs": procs, "base_time": 10.0, "clusters": on or None}
    answer = site.ask(Submit(token="t", job=job, launch=Launch(argv=("x",))), user=user)
    return answer.message if isinstance(answer, Refused) else ""


def test_a_job_is_offered_no_cluster_of_another_user() -> None:
    site = Site({"open": 1, "a@ann": 2, "b@bob": 2}, owners=OWNERS, solving=False)
    job = site.submit(3, user="ann")
    (planned,) = snapshot(site.state, site.now).queue
    assert (planned.id, planned.clusters) == (job, ("a@ann", "open"))
    assert asked(site, "ann", 1, "b@bob") == "job.clusters: b@bob belongs to bob"
    assert "3 slots exist" in asked(site, "ann", 4), "another's are not counted"
    assert "1 slots exist" in asked(site, "eve", 2)


@pytest.mark.parametrize("seed", range(20))
def test_no_foreign_job_is_placed_on_an_owned_cluster(seed: int) -> None:
    """Every other plan is one of before the clusters had owners."""
    draw = random.Random(seed)
    site = Site({"open": 1, "a@ann": 3, "b@bob": 3}, owners=OWNERS)
    turns = cycle((True, False))

    def plan_of(snapshot: Snapshot) -> Plan:
        anywhere = tuple(replace(job, clusters=None) for job in snapshot.queue)
        return first_fit(replace(snapshot, queue=anywhere) if next(turns) else snapshot)

    site.plan_of = plan_of
    for _ in range(12):
        user = draw.choice(("ann", "bob", "eve"))
        site.submit(1 if user == "eve" else draw.randint(1, 2), user=user)
        site.wait(draw.choice((0.0, 30.0)))
        for cluster, _, order in site.orders:
            if isinstance(order, Prepare):
                user = site.job(order.job).user
                assert OWNERS.get(cluster, user) == user
        for job in [job for job in site.state.placed if draw.random() < 0.3]:
            site.run(job)
            site.finish(job)
    assert any(cluster == "a@ann" for cluster, *_ in site.orders)


def test_an_owners_executor_speaks_of_its_own_nodes_and_jobs_only() -> None:
    site = Site({"a@ann": 2, "b@bob": 2}, owners=OWNERS)
    read = reading("b@bob", 2)
    alien = Running(id="x", nodes={"a@ann/n1": 1}, start=0.0, end=1e9)
    handed = NativeJob(id="7", submitted=0.0, user="ann", uid=1, gid=1)
    for told in (replace(read, running=(alien,)), replace(reading("a@ann", 1), cluster="b@bob")):
        site.do(StatementReceived(statement=Read(cluster="b@bob", reading=told)))
        assert "a@ann/n1 is not named b@bob/NODE" in site.state.clusters["b@bob"].error
    site.do(
        StatementReceived(statement=Read(cluster="b@bob", reading=replace(read, handed=(handed,))))
    )
    assert not site.state.jobs, "nobody's job is made up by another user's executor"
    job = site.submit(1, user="bob")
    said = PartReport(job=job, attempt=1, part=0, state=PartState.READY, nodes={"a@ann/n1": 1})
    site.report("b@bob", said)
    assert not site.state.holding.get("a@ann/n1")
