"""Time limits of placed jobs: ordered, refused there, or changed there."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.messages import Limit
from coalloc.core.base.requests import Done, Refused, Update
from coalloc.model.sites.parts import PartReport, PartState
from tests.support.core_site import Site


def running(procs: int = 1) -> tuple[Site, str]:
    site = Site({"a": 2, "b": 2})
    job = site.submit(procs, job={"time_limit": 600.0})
    site.run(job)
    return site, job


def told(site: Site, job: str, cluster: str, **fields: Any) -> None:
    record = site.job(job)
    part = next(p for p in record.parts if p.cluster == cluster)
    report = PartReport(
        job=job, attempt=record.attempt, part=part.index, state=part.state, **fields
    )
    site.report(cluster, report)


def orders(site: Site, job: str) -> list[tuple[str, float]]:
    return [(cluster, order.time_limit) for cluster, order in site.orders_for(job, Limit)]


@pytest.mark.parametrize(
    ("limit", "operator", "fields", "refused"),
    [
        (300.0, False, {}, ""),
        (1200.0, True, {}, ""),
        (1200.0, False, {}, "only an operator extends it"),
        (None, True, {}, "needs a time limit"),
        (0.0, True, {}, "needs a time limit"),
        (300.0, True, {"procs": 2}, "only a waiting job can be changed"),
    ],
)
def test_who_may_change_what_of_a_job_that_runs(
    limit: float | None, operator: bool, fields: dict[str, Any], refused: str
) -> None:
    site, job = running()
    command = Update(job=job, fields={"time_limit": limit, **fields})
    answer = site.ask(command, operator=operator)
    if refused:
        assert isinstance(answer, Refused)
        assert refused in answer.message
        assert not orders(site, job)
        return
    assert isinstance(answer, Done)
    assert orders(site, job) == [("a", limit)]
    assert site.job(job).job.time_limit == limit


def test_what_is_changed_there_holds_for_the_other_parts() -> None:
    site, job = running(3)
    told(site, job, "a", time_limit=900.0)
    told(site, job, "a", time_limit=900.0)
    assert site.job(job).job.time_limit == 900.0
    assert orders(site, job) == [("b", 900.0)]
    told(site, job, "b", time_limit=120.0)  # before it had the order
    told(site, job, "a")
    told(site, job, "b", time_limit=120.0)
    assert orders(site, job) == [("b", 900.0), ("a", 120.0)], "no part is told what it said"
    assert site.saved()[job].job.time_limit == 120.0
    site.finish(job)
    assert not site.state.placed


def test_what_is_refused_there_is_as_before() -> None:
    site, job = running(3)
    site.ask(Update(job=job, fields={"time_limit": 900.0}), operator=True)
    told(site, job, "b", time_limit=600.0, limit_refused="scontrol: Access/permission denied")
    assert site.job(job).job.time_limit == 600.0
    assert orders(site, job) == [("a", 900.0), ("b", 900.0)], "the others are not told back"
    assert site.notes("job_limit_changed")[-1]["refused"] == "scontrol: Access/permission denied"


def test_a_claim_that_waits_is_given_another_limit_too() -> None:
    site, _ = running()
    job = site.submit(1, job={"time_limit": 600.0})
    site.say(job, PartState.WAITING)
    assert isinstance(site.ask(Update(job=job, fields={"time_limit": 1200.0})), Done)
    assert site.job(job).job.time_limit == 1200.0
