"""Data of jobs on clusters, as the daemon's core follows them."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import AppendEvent
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import SHAPES, STAGES, Hello, Prepare, Staged
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Refused, Release, Submit
from coalloc.core.starts.staging import in_words, wishes
from coalloc.model.event_kinds import EventKind
from coalloc.model.sites.parts import Launch
from coalloc.model.sites.staging import Stage
from tests.support.core_site import Site

IN, OUT = (("/data/", "in/"),), (("out/", "/got/"),)


def site_of(*abilities: str) -> Site:
    site = Site()
    for name in site.sizes:
        hello = Hello(cluster=name, abilities=(SHAPES, *abilities))
        site.do(StatementReceived(statement=hello))
    return site


def wanted(site: Site, name: str) -> list[tuple[str, str]]:
    site.report(name)
    return [(each.job, each.phase) for each in wishes(site.core.state, name)]


def told(site: Site, name: str, job: str, phase: Any, state: Any = "", **fields: Any) -> None:
    stage = Stage(job=job, phase=phase, state=state, **fields)
    site.do(StatementReceived(statement=Staged(cluster=name, stages=(stage,))))


def test_a_job_waits_for_its_data_and_runs_where_they_are() -> None:
    site = site_of(STAGES)
    job = site.submit(2, stage_in=IN, stage_out=OUT)
    site.wait(5)
    assert site.job(job).state is JobState.PENDING
    assert in_words(site.core.state, site.job(job)) == "not begun"
    assert wanted(site, "a") == wanted(site, "b") == [(job, "in")]
    told(site, "a", job, "in", detail="copies /data/: 3.0 MB, 25 %")
    why = "a: copies /data/: 3.0 MB, 25 %; b: not begun"
    assert in_words(site.core.state, site.job(job)) == why
    told(site, "b", job, "in", "done", folder="/home/ann/.coalloc/b")
    site.wait(5)
    ((name, order),) = site.orders_for(job, Prepare)
    assert (name, order.folder) == ("b", "/home/ann/.coalloc/b")
    assert wanted(site, "b") == []
    site.run(job)
    site.finish(job)
    assert site.job(job).state is JobState.COMPLETED
    assert (wanted(site, "a"), wanted(site, "b")) == ([(job, "gone")], [(job, "out")])
    site = site.restarted()
    assert [each.copies for each in wishes(site.core.state, "b")] == [OUT]
    for name, phase in (("a", "gone"), ("b", "out")):
        told(site, name, job, phase, "done")
    assert (site.job(job).staged, site.core.state.marked.staging) == ({}, {})
    events = [each for each in site.effects if isinstance(each, AppendEvent)]
    assert [each.job for each in events if each.kind is EventKind.JOB_COPIED] == [job]


def test_a_job_whose_data_cannot_be_copied_goes_elsewhere_or_is_held() -> None:
    site = site_of(STAGES)
    job = site.submit(2, stage_in=IN)
    assert wanted(site, "a") == wanted(site, "b") == [(job, "in")]
    told(site, "a", job, "in", "failed", detail="No space left on device")
    assert wanted(site, "a") == [(job, "gone")]
    told(site, "a", job, "gone", "done")
    assert site.job(job).state is JobState.PENDING
    told(site, "b", job, "in", "failed", detail="No such file")
    held = site.job(job)
    assert (held.state, held.reason) == (JobState.HELD, "not_accepted")
    assert held.detail == "a: No space left on device; b: No such file"
    told(site, "b", job, "gone", "done")
    site.ask(Release(job=job))
    assert wanted(site, "a") == [(job, "in")]
    site.ask(Cancel(job=job))
    assert wanted(site, "a") == [(job, "gone")]


def test_what_could_not_be_copied_back_is_kept_and_said() -> None:
    site = site_of(STAGES)
    job = site.submit(4, stage_out=OUT)
    for name in "ab":
        site.report(name)
        told(site, name, job, "in", "done", folder=f"/home/{name}")
    site.wait(5)
    site.run(job)
    site.finish(job, 3)
    told(site, "a", job, "out", "done")
    told(site, "b", job, "out", "failed", detail="/got: Permission denied", folder="~/.coalloc/b")
    why = "exit code 3; b: not copied back, /got: Permission denied; kept there in ~/.coalloc/b"
    assert (site.job(job).detail, site.job(job).staged) == (why, {})


def test_only_an_executor_of_the_users_own_copies_files() -> None:
    answer = site_of().ask(submitted(stage_in=IN))
    assert isinstance(answer, Refused)
    assert answer.message.startswith("a: only a user's own executor copies files")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"stage_in": (("data", "in"),)}, "stage_in: 'data' is no absolute path"),
        ({"stage_in": (("/data", "/etc"),)}, "stage_in: '/etc' is not below the job's folder"),
        ({"stage_out": (("a/../../b", "/x"),)}, "is not below the job's folder"),
        ({"stage_in": IN, "array": (1, 2)}, "stage_in: is for rigid and moldable jobs that are"),
    ],
)
def test_copies_that_lead_elsewhere_are_refused(fields: dict[str, Any], why: str) -> None:
    answer = site_of(STAGES).ask(submitted(**fields))
    assert isinstance(answer, Refused)
    assert why in answer.message


def submitted(**fields: Any) -> Submit:
    job = {"kind": "rigid", "procs": 1, "base_time": 1.0}
    return Submit(token="t", job=job, launch=Launch(argv=("x",)), **fields)
