"""What a plan starts once it comes: only what still fits, and is still to be started."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.events import (
    IncumbentFound,
    Reconfigured,
    Solved,
    SolveFailed,
    StatementReceived,
)
from coalloc.core.base.messages import Prepare, Read
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Drain
from coalloc.model.history import NO_HISTORY
from coalloc.model.plan import Objective, Placement, Plan, Status
from coalloc.model.settings import ClusterConfig
from coalloc.model.sites.reading import NativeJob
from coalloc.model.snapshot import Running
from coalloc.model.values import replace
from tests.support.core_site import Site, reading


def plan_of(start: float, *placements: tuple[str, str | None, dict[str, int]]) -> Plan:
    return Plan(
        policy="by-hand",
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=tuple(
            Placement(job=job, task=task, start=start, end=start + 100.0, nodes=nodes)
            for job, task, nodes in placements
        ),
    )


def answer(site: Site, *placements: tuple[str, str | None, dict[str, int]]) -> None:
    """The pending solve's plan, whose placements start at the snapshot's time."""
    solve = site.pending_solves.pop()
    plan = plan_of(solve.snapshot.time, *placements)
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))


def linked(gbps: float, site: Site) -> None:
    clusters = tuple(ClusterConfig(name=name, link_gbps=gbps) for name in site.sizes)
    site.do(Reconfigured(settings=replace(site.settings, clusters=clusters)))


def busy(site: Site, **loads: float) -> None:
    """Node a1 is taken by work of the batch system's own, which may load links."""
    other = Running(id="x", nodes={"a1": 1}, start=0.0, end=1e9, ours=False, link_gbps=loads)
    seen = replace(reading("a", site.sizes["a"]), running=(other,))
    site.do(StatementReceived(statement=Read(cluster="a", reading=seen)))


def test_a_start_on_a_drained_node_goes_back() -> None:
    site = Site(solving=False)
    job = site.submit(2)
    site.ask(Drain(target="a1"), operator=True)
    answer(site, (job, None, {"a1": 1, "b1": 1}))
    assert site.job(job).state is JobState.PENDING
    assert site.state.findings.outlook[job].detail == "node a1 no longer takes work"


def test_a_start_on_a_slot_that_was_taken_goes_back() -> None:
    site = Site(solving=False)
    job = site.submit(2)
    busy(site)
    answer(site, (job, None, {"a1": 1, "b1": 1}))
    assert site.job(job).state is JobState.PENDING
    outlook = site.state.findings.outlook[job]
    assert (outlook.reason, outlook.detail) == (
        "superseded",
        "node a1 has 0 free slots, 1 were planned",
    )


@pytest.mark.parametrize(
    ("gbps", "load", "why"),
    [
        (0.5, 0.0, ""),
        (0.4, 0.0, "link of a has 0.4 Gbit/s left, 0.5 were planned"),
        (1.0, 0.6, "link of a has 0.4 Gbit/s left, 0.5 were planned"),
        (1.0, 0.5, ""),
    ],
)
def test_a_start_beyond_what_a_link_has_left_goes_back(gbps: float, load: float, why: str) -> None:
    site = Site(solving=False)
    linked(1.0, site)
    job = site.submit(2, job={"proc_gbps": 0.5})
    linked(gbps, site)
    busy(site, a=load)
    answer(site, (job, None, {"a2": 1, "b1": 1}))
    assert site.job(job).state is (JobState.PENDING if why else JobState.PREPARING)
    assert not why or site.state.findings.outlook[job].detail == why


def test_links_of_jobs_that_were_placed_before_are_booked() -> None:
    site = Site({"a": 4, "b": 4}, solving=False)
    linked(1.0, site)
    first = site.submit(2, job={"proc_gbps": 0.7})
    answer(site, (first, None, {"a1": 1, "b1": 1}))
    second = site.submit(2, job={"proc_gbps": 0.5})
    answer(site, (second, None, {"a2": 1, "b2": 1}))
    assert site.job(first).state is JobState.PREPARING
    assert (
        site.state.findings.outlook[second].detail
        == "link of a has 0.3 Gbit/s left, 0.5 were planned"
    )


def test_a_plan_starts_nothing_that_is_not_there_to_be_started() -> None:
    site = Site(solving=False)
    job, gone = site.submit(), site.submit()
    flow = site.submit_workflow("a b", "a>b")
    site.ask(Cancel(job=gone))
    answer(
        site,
        ("999", None, {"a1": 1}),
        (gone, None, {"a1": 1}),
        (flow, None, {"a1": 1}),
        (job, "t", {"a1": 1}),
        (flow, "b", {"a1": 1}),
        (flow, "a", {"a2": 1}),
    )
    assert [order.job for _, _, order in site.orders if isinstance(order, Prepare)] == [f"{flow}.1"]
    assert site.job(job).state is JobState.PENDING
    assert site.job(gone).state is JobState.CANCELLED


def test_answers_of_a_policy_that_was_given_up_change_nothing() -> None:
    site = Site(solving=False)
    job = site.submit()
    solve = site.pending_solves[-1]
    before = len(site.effects)
    site.do(SolveFailed(round=solve.round + 1, policy=solve.policy, why="late", solve_s=1.0))
    site.do(SolveFailed(round=solve.round, policy="another", why="late", solve_s=1.0))
    late = plan_of(solve.snapshot.time, (job, None, {"a1": 1}))
    site.do(IncumbentFound(round=solve.round + 1, plan=late))
    site.do(Solved(round=solve.round + 1, plan=late, solve_s=0.0))
    assert site.effects[before:] == []
    assert site.job(job).state is JobState.PENDING


def test_a_solve_has_the_history_of_what_waits_and_runs() -> None:
    plain = Site(solving=False)
    plain.submit()
    assert plain.pending_solves[-1].history == NO_HISTORY
    site = Site(solving=False)
    site.state.learning.ratios |= {"ann\ncfd": (0.5, 0.75), "eve\ncfd": (2.0,)}
    known, other = site.submit(program="cfd"), site.submit(2, program="new")
    # the solve that runs has the snapshot of the first alone
    assert dict(site.pending_solves[-1].history.of) == {known: 0}
    answer(site, (known, None, {"a1": 1}))
    history = site.pending_solves[-1].history
    assert history.samples == ((0.5, 0.75),)
    assert history.pool == (0.5, 0.75, 2.0)
    assert dict(history.of) == {known: 0}
    assert other in {job.id for job in site.pending_solves[-1].snapshot.queue}


def handed(**fields: Any) -> NativeJob:
    given: dict[str, Any] = {"id": "70", "submitted": 900.0, "user": "eve", "uid": 7, "gid": 8}
    return NativeJob(**(given | {"procs": 2, "time_limit": 60.0} | fields))


def see(site: Site, *entries: NativeJob) -> None:
    seen = replace(reading("b", site.sizes["b"]), handed=entries)
    site.do(StatementReceived(statement=Read(cluster="b", reading=seen)))


def test_a_handed_job_that_cannot_be_planned_is_refused_once() -> None:
    site = Site(solving=False)
    see(site, handed(procs=0), handed(id="71"))
    see(site, handed(procs=0), handed(id="71"))
    (note,) = site.notes("handed_job_refused")
    assert (note["cluster"], note["job_there"]) == ("b", "70")
    assert "procs" in note["why"]
    assert [record.foreign for record in site.state.jobs.values()] == ["71"]


def test_a_change_that_cannot_be_planned_is_not_followed() -> None:
    site = Site(solving=False)
    see(site, handed())
    see(site, handed(procs=0))
    (record,) = site.state.jobs.values()
    assert getattr(record.job, "procs", None) == 2
    see(site, handed(procs=1, features=("big",), memory_mb_per_proc=5))
    (record,) = site.state.jobs.values()
    assert (getattr(record.job, "procs", None), record.job.memory_mb_per_proc) == (1, 5)
    assert record.job.features == ("big",)
