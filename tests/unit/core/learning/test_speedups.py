"""The daemon's core keeps runs by size, and plans ranges of processes from them."""

from __future__ import annotations

from typing import Any

from coalloc.core.base.effects import SaveHistory
from coalloc.core.base.requests import Done, Refused, Submit
from coalloc.model.jobs import MoldableJob
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.speedup import AmdahlSpeedup
from tests.support.core_site import Site

RANGE = {"kind": "moldable", "min_procs": 1, "max_procs": 4}


def run_for(site: Site, job: str, seconds: float) -> None:
    started = site.now
    site.run(job)
    site.wait(seconds)
    site.say(
        job,
        PartState.FINISHED,
        exit_code=0,
        started=started,
        ended=site.now,
        reason="exited",
    )


def ask(site: Site, fields: dict[str, Any]) -> Done | Refused:
    launch = Launch(argv=("/usr/bin/work", "x"))
    return site.ask(Submit(token=f"t{len(site.answers)}", job=fields, launch=launch))


def test_two_sizes_of_a_rigid_job_make_a_range_plannable() -> None:
    site = Site({"a": 4})
    refused = ask(site, RANGE)
    assert isinstance(refused, Refused)
    assert refused.message.startswith("job.speedup: is missing, and runs of 'work' at 0 sizes")
    for procs, seconds in ((1, 100.0), (2, 60.0)):
        run_for(site, site.submit(procs, program="work"), seconds)
    answer = ask(site, RANGE)
    assert isinstance(answer, Done)
    record = site.job(answer.body["job"])
    assert isinstance(record.job, MoldableJob)
    assert isinstance(record.job.speedup, AmdahlSpeedup)
    # 100 s and 60 s: 20 s are sequential
    assert abs(record.job.speedup.parallel_fraction - 0.8) < 1e-6
    assert record.sources["speedup"] == "history"


def test_runs_of_moldable_jobs_count_by_the_size_that_was_chosen() -> None:
    site = Site({"a": 4})
    table = {"model": "table", "procs": [1, 2], "times": [50.0, 30.0]}
    done = ask(site, {**RANGE, "speedup": table})
    assert isinstance(done, Done)
    job = done.body["job"]
    run_for(site, job, 40.0)
    saved = [effect for effect in site.effects if isinstance(effect, SaveHistory)]
    # the planner of these tests gives it one process, and a second of planned time
    assert saved[-1].runs == ((1, 40.0 * 50.0 / site.job(job).planned),)
    assert saved[-1].values == ()


def test_a_table_that_rises_is_repaired_and_named() -> None:
    site = Site({"a": 4})
    done = ask(site, {"kind": "moldable", "times": [10.0, 12.0, 4.0]})
    assert isinstance(done, Done)
    (warning,) = done.body["warnings"]
    assert warning.startswith(f"job {done.body['job']}: time rises or work falls at 2")
    assert "nearest smaller" in site.job(done.body["job"]).sources["repaired"]
