"""Run times learnt from what the same user ran, and those that a site gives."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import DropHistory
from coalloc.core.base.requests import Cancel, Done, Submit
from coalloc.core.jobs import ends
from coalloc.core.learning.estimates import (
    KEPT,
    UserProgram,
    completed,
    predicted,
    remembered,
)
from coalloc.model.jobs import RigidJob
from coalloc.model.settings import JobMatchConfig, JobsConfig
from coalloc.model.sites.parts import Launch, PartState
from tests.support.core_site import Site


def test_run_times_are_learnt_from_what_the_same_user_ran() -> None:
    site = Site({"a": 1})
    for seconds in (40.0, 60.0):
        job = site.submit(1, program="solver", job={"base_time": 1000.0})
        site.run(job)
        begun = site.now
        site.wait(seconds)
        site.say(job, PartState.FINISHED, exit_code=0, started=begun, ended=site.now)
    answer = site.ask(
        Submit(token="x", job={"kind": "rigid", "procs": 1}, launch=Launch(argv=("solver",)))
    )
    assert isinstance(answer, Done)
    record = site.job(answer.body["job"])
    assert record.sources["base_time"] == "history"
    assert isinstance(record.job, RigidJob)
    assert record.job.base_time == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("fields", "history", "value", "source"),
    [
        pytest.param({"base_time": 5.0, "time_limit": 9.0}, (7.0,), 5.0, "user", id="user first"),
        pytest.param({"time_limit": 9.0}, (7.0,), 7.0, "history", id="history before limit"),
        pytest.param({"time_limit": 9.0}, (70.0,), 9.0, "history", id="never above the limit"),
        pytest.param({"time_limit": 9.0}, (), 9.0, "time_limit", id="limit"),
        pytest.param({}, (), 3600.0, "built-in", id="nothing known"),
    ],
)
def test_where_a_run_time_comes_from(
    fields: dict[str, float], history: tuple[float, ...], value: float, source: str
) -> None:
    out, sources = completed(
        {"kind": "rigid", **fields},
        UserProgram(user="ann", command="solver"),
        JobsConfig(),
        history=history,
    )
    assert (out["base_time"], sources["base_time"]) == (value, source)


def test_site_defaults_apply_to_the_first_matching_user_and_command() -> None:
    defaults = (
        JobMatchConfig(user="ann", command="sol*", sigma=0.3),
        JobMatchConfig(sigma=0.7, proc_gbps=0.1, base_time_s=5.0),
    )
    out, sources = completed(
        {"kind": "rigid"},
        UserProgram(user="ann", command="solver"),
        JobsConfig(match=defaults),
        history=(9.0,),
    )
    assert (out["sigma"], out["proc_gbps"], out["base_time"]) == (0.3, 0.1, 5.0)
    assert set(sources.values()) == {"defaults"}


def test_site_defaults_may_name_the_interpreter_or_the_program() -> None:
    for pattern in ("python*", "train.py"):
        out, _ = completed(
            {"kind": "rigid"},
            UserProgram(user="ann", command="train.py", launcher="python3"),
            JobsConfig(match=(JobMatchConfig(command=pattern, base_time_s=5.0),)),
        )
        assert out["base_time"] == 5.0


def ran(site: Site, seconds: float, **kind: Any) -> None:
    job = site.submit(**kind)
    site.run(job)
    site.wait(seconds)
    site.finish(job)


def expected(site: Site, name: str) -> float:
    launch = Launch(argv=("python", "-u", "train.py"))
    answer = site.ask(
        Submit(token=name, job={"kind": "rigid", "procs": 1}, launch=launch, name=name)
    )
    assert isinstance(answer, Done)
    job = site.job(answer.body["job"]).job
    site.ask(Cancel(job=job.id))
    assert isinstance(job, RigidJob)
    return job.base_time


def test_runs_of_the_jobs_name_count_before_those_of_its_program() -> None:
    site = Site({"a": 4})
    ran(site, 30.0, program="train.py", name="small-1")
    ran(site, 900.0, program="train.py", name="large-1")
    assert expected(site, "small-2") == pytest.approx(30.0)
    assert expected(site, "large-77") == pytest.approx(900.0)
    assert expected(site, "") == pytest.approx(465.0)


def test_the_program_that_ran_longest_ago_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ends, "MOST_KEYS", 2)
    site = Site({"a": 1})
    for program in ("x", "y", "x", "z"):
        ran(site, 5.0, program=program)
    assert (
        set(site.state.learning.ratios) == set(site.state.learning.history) == {"ann\nx", "ann\nz"}
    )
    assert [e.key for e in site.effects if isinstance(e, DropHistory)] == ["ann\ny"]


def test_the_history_forgets_old_runs() -> None:
    values: tuple[float, ...] = ()
    for number in range(40):
        values = remembered(values, float(number))
    assert len(values) == KEPT
    assert predicted(values) == 38.5
    assert predicted(()) is None
    apart = [UserProgram(user="a", command="b"), UserProgram(user="a b", command="")]
    assert apart[0].history_keys != apart[1].history_keys
