"""What is answered about workflows and their tasks."""

from __future__ import annotations

from coalloc.core.base.requests import Cancel
from coalloc.daemon.queries import job_views, workflow_views
from coalloc.model.sites.parts import PartState
from coalloc.wire.job_rows import Progress
from tests.support.core_site import Site


def rows(site: Site, job: str) -> dict[str, tuple[str, str]]:
    """State and reason of each task."""
    known = {r.task: r for r in site.state.jobs.values() if r.flow == job}
    return {
        row.task: (row.state, row.reason)
        for row in workflow_views.task_rows(site.job(job), known, site.state)
    }


def test_each_task_has_a_state_and_a_reason() -> None:
    site = Site({"a": 1})
    job = site.submit_workflow("a b c d", "a>b c>d", keep_going=True)
    site.run(f"{job}.1")
    assert rows(site, job) == {
        "a": ("running", ""),
        "b": ("pending", "parents"),
        "c": ("pending", "planned"),
        "d": ("pending", "parents"),
    }
    site.ask(Cancel(job=f"{job}.c"))
    assert rows(site, job)["c"] == ("cancelled", "cancelled")
    assert rows(site, job)["d"] == ("not_run", "not_run")


def test_the_queue_has_one_row_for_a_workflow_with_its_progress() -> None:
    site = Site({"a": 2})
    job = site.submit_workflow("a b c", "a>c")
    site.run(f"{job}.1")
    page, more = job_views.queue_page(
        site.state, everything=True, user="", now=site.now, after="", limit=10
    )
    assert not more
    (row,) = page
    assert (row.id, row.state, row.procs) == (job, "running", 2)
    assert (row.nodes, row.clusters) == ({"a1": 1, "a2": 1}, ("a",))
    assert row.progress == Progress(total=3, running=2)
    site.finish(f"{job}.1")
    progress = workflow_views.progress(site.job(job), site.state)
    assert progress == Progress(total=3, completed=1, running=2)


def test_progress_of_a_workflow_that_has_ended_is_that_of_its_tasks() -> None:
    site = Site({"a": 1})
    job = site.submit_workflow("a b c", "a>b b>c")
    site.run(f"{job}.1")
    site.finish(f"{job}.1")
    site.run(f"{job}.2")
    site.finish(f"{job}.2", code=1)
    progress = workflow_views.progress(site.job(job), site.state)
    assert progress == Progress(total=3, completed=1, failed=1)


def test_a_workflow_of_which_nothing_runs_says_why() -> None:
    site = Site({"a": 1})
    job = site.submit_workflow("a b", "a>b")
    assert job_views.expectation(site.job(job), site.state, site.now) == (None, "", "")
    site.run(f"{job}.1")
    site.state.clusters["a"].drained = True
    site.say(f"{job}.1", PartState.FINISHED, exit_code=0, started=site.now, ended=site.now)
    assert not site.state.composites[job].placed
    _, reason, detail = job_views.expectation(site.job(job), site.state, site.now)
    assert reason in {"planned", "insufficient"}
    assert detail


def test_a_failure_is_told_while_the_rest_still_runs() -> None:
    site = Site({"a": 2})
    job = site.submit_workflow("a b")
    site.run(f"{job}.1")
    site.run(f"{job}.2")
    site.finish(f"{job}.1", code=4)
    _, reason, detail = job_views.expectation(site.job(job), site.state, site.now)
    assert (reason, detail) == ("task_failed", "task a failed: exit code 4")
