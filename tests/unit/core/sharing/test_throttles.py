"""Throttles of job arrays: so many members at once, whatever is planned, changed or restarted."""

from __future__ import annotations

import pytest

from coalloc.core.base.requests import Cancel, Done, Refused, Submit, Update
from coalloc.core.rounds.snapshots import snapshot
from coalloc.core.sharing.limits import held_back
from coalloc.daemon.queries.job_views import expectation
from coalloc.model.settings import LimitsConfig
from coalloc.model.sites.parts import Launch
from tests.support.core_site import Site


def placed(site: Site) -> list[str]:
    return sorted(site.state.placed)


def test_so_many_members_run_at_once_and_the_others_say_why() -> None:
    site = Site({"a": 8})
    number = site.submit(array=tuple(range(6)), throttle=2)
    assert placed(site) == [f"{number}_0", f"{number}_1"]
    for member in range(2, 6):
        _, reason, detail = expectation(site.job(f"{number}_{member}"), site.state, site.now)
        assert reason == "array_limit"
        assert detail == "its array runs 2 of 2 jobs; it starts when one has ended"
    for member in range(6):
        site.run(f"{number}_{member}")
        site.finish(f"{number}_{member}", code=member % 2)
        assert len(placed(site)) == min(2, 5 - member)
    assert not site.state.marked.throttled


def test_members_that_are_held_back_keep_no_room_from_others() -> None:
    site = Site({"a": 2})
    first = site.submit(array=(0, 1, 2), throttle=1)
    other = site.submit(user="bob")
    assert placed(site) == [f"{first}_0", other]
    assert site.state.findings.passed_over == {}
    assert {
        job.id for job in snapshot(site.state, site.now, without=site.state.findings.limited).queue
    } == (set())


def test_the_throttles_of_two_arrays_are_apart_and_limits_hold_beside_them() -> None:
    users = {"*": LimitsConfig(max_procs=3)}
    site = Site({"a": 8}, users=users)
    first = site.submit(array=(0, 1, 2), throttle=2)
    second = site.submit(array=(0, 1, 2), throttle=2)
    assert placed(site) == [f"{first}_0", f"{first}_1", f"{second}_0"]
    _, reason, _ = expectation(site.job(f"{second}_1"), site.state, site.now)
    assert reason == "limit"
    # What the site's limits cost is judged with the throttles in force.
    assert set(held_back(site.state, site.now, of_site=False)) == {f"{first}_2"}


def test_a_member_that_waits_for_another_job_holds_up_no_other_member() -> None:
    site = Site({"a": 4})
    ahead = site.submit(array=(0, 1), job={"clusters": ["a"]})
    number = site.submit(array=(0, 1), throttle=1, needs=(("aftercorr", ahead),))
    site.run(f"{ahead}_1")
    site.finish(f"{ahead}_1")
    assert site.job(f"{number}_1").state == "preparing"
    assert site.job(f"{number}_0").state == "pending"


def test_a_throttle_is_raised_lowered_and_taken_away() -> None:
    site = Site({"a": 8})
    number = site.submit(array=tuple(range(6)), throttle=1)
    site.run(f"{number}_0")
    assert isinstance(site.ask(Update(job=number, throttle=3)), Done)
    assert len(placed(site)) == 3
    assert site.job(f"{number}_0").throttle == 3
    assert site.notes("job_updated")[-1]["changes"] == "throttle=3"
    site.ask(Update(job=number, throttle=2))
    _, _, detail = expectation(site.job(f"{number}_5"), site.state, site.now)
    assert detail == "its array runs 3 of 2 jobs; it starts when 2 have ended"
    site.finish(f"{number}_0")
    assert len(placed(site)) == 2
    site.ask(Update(job=number, throttle=0))
    assert len(placed(site)) == 5
    assert not site.state.marked.throttled


@pytest.mark.parametrize(
    ("job", "throttle", "told"),
    [
        ("1_2", 2, "throttle: is one for the whole array; change job 1"),
        ("1", -1, "throttle: -1 is below 0"),
        ("2", 2, "throttle: job 2 is no array"),
    ],
)
def test_a_throttle_is_one_of_a_whole_array(job: str, throttle: int, told: str) -> None:
    site = Site({"a": 1})
    site.submit(array=(0, 1, 2))
    site.submit()
    answer = site.ask(Update(job=job, throttle=throttle))
    assert answer == Refused(code="bad_request", message=told)


@pytest.mark.parametrize(("array", "throttle"), [((), 2), ((0, 1), -1)])
def test_a_submit_with_a_wrong_throttle_is_refused(array: tuple[int, ...], throttle: int) -> None:
    job = {"kind": "rigid", "procs": 1}
    command = Submit(token="t", job=job, launch=Launch(argv=("x",)), array=array, throttle=throttle)
    answer = Site({"a": 1}).ask(command)
    assert isinstance(answer, Refused)
    assert answer.message.startswith("throttle: ")


def test_a_throttle_survives_a_restart() -> None:
    site = Site({"a": 4})
    number = site.submit(array=(0, 1, 2, 3), throttle=1)
    after = site.restarted()
    assert after.state.marked.throttled == {f"{number}_{n}" for n in (1, 2, 3)}
    after.state.rounds.want("test")
    after.wait(1.0)
    assert placed(after) == [f"{number}_0"]
    after.ask(Cancel(job=f"{number}_0"))
    after.state.rounds.want("test")
    after.wait(1.0)
    assert placed(after) == [f"{number}_1"]


def test_an_array_is_told_how_to_run_one_at_a_time() -> None:
    job = {"kind": "rigid", "procs": 1}
    command = Submit(
        token="t",
        job=job,
        launch=Launch(argv=("x",)),
        array=(0, 1),
        needs=(("singleton", ""),),
    )
    answer = Site({"a": 1}).ask(command)
    assert isinstance(answer, Refused)
    assert "--array=...%1" in answer.message
