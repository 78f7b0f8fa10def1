"""What a submit makes, what it is refused for, and what stands in for what users leave out."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import AppendEvent, SaveJob
from coalloc.core.base.events import StatementReceived, StorageLost, StorageReturned
from coalloc.core.base.messages import Prepare, Read
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Done, Hold, Refused, Release, Submit
from coalloc.daemon.queries import answers
from coalloc.daemon.store.writer import without_submits
from coalloc.model.settings import DaemonConfig
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import Launch
from coalloc.model.sites.reading import ClusterReading, NodeReading
from tests.support.core_site import Site

LAUNCH = Launch(argv=("/usr/bin/solver", "-x"))


def submit(site: Site, token: str = "t", **fields: Any) -> Done | Refused:
    body = {"kind": "rigid", "procs": 1, "base_time": 10.0, **fields.pop("job", {})}
    return site.ask(Submit(token=token, job=body, launch=LAUNCH, **fields))


def test_the_same_token_of_the_same_user_is_the_same_job() -> None:
    site = Site()
    first, again = submit(site), submit(site)
    assert isinstance(first, Done)
    assert isinstance(again, Done)
    assert first.body["job"] == again.body["job"]
    other = site.ask(
        Submit(token="t", job={"kind": "rigid", "procs": 1}, launch=LAUNCH), user="bob"
    )
    assert isinstance(other, Done)
    assert other.body["job"] != first.body["job"]


def test_job_numbers_do_not_depend_on_what_is_still_remembered() -> None:
    site = Site({"a": 1}, keep_ended=1)
    for number in range(1, 6):
        job = site.submit(1)
        assert job == str(number)
        site.run(job)
        site.finish(job)
    assert len(site.state.ended) == 1


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        pytest.param(
            {"job": {"procs": 5}}, "infeasible", "needs 5 processes; 4 slots exist", id="wide"
        ),
        pytest.param({"job": {"features": ["gpu"]}}, "infeasible", "no node has gpu", id="feature"),
        pytest.param(
            {"job": {"procs": 3, "clusters": ["a"]}}, "infeasible", "2 suitable slots", id="cluster"
        ),
        pytest.param({"job": {"id": "7"}}, "bad_request", "job.id: is set by the daemon", id="id"),
        pytest.param(
            {"job": {"kind": "odd"}}, "bad_request", "job.kind: 'odd' is not one of", id="kind"
        ),
        pytest.param(
            {"job": {"sigma": -1}}, "bad_request", "job.sigma: -1 is outside 0..1", id="sigma"
        ),
        pytest.param({"needs": (("since", "1"),)}, "bad_request", "dependency: 'since'", id="need"),
        pytest.param({"needs": (("afterok", "9"),)}, "not_found", "there is no job 9", id="no job"),
        pytest.param({"array": (1, 1)}, "bad_request", "indices must differ", id="doubles"),
        pytest.param({"array": (-1,)}, "bad_request", "not be negative", id="negative"),
        pytest.param(
            {"array": tuple(range(11))}, "too_many", "array has 11 jobs, at most 10", id="array"
        ),
    ],
)
def test_a_submit_is_refused_for_one_stated_reason(
    fields: dict[str, Any], code: str, words: str
) -> None:
    site = Site({"a": 2, "b": 2}, max_array=10)
    answer = submit(site, **fields)
    assert isinstance(answer, Refused)
    assert (answer.code, words in answer.message) == (code, True), answer
    assert not site.state.jobs


def test_a_limit_per_user_counts_only_their_own() -> None:
    site = Site({"a": 1}, max_jobs_per_user=2)
    for _ in range(3):
        site.submit(1)
    answer = submit(site, token="one more")
    assert isinstance(answer, Refused)
    assert answer.message == "ann has 2 waiting jobs, at most 2"
    (notice,) = answers.notices(site.state, site.now)
    assert notice.startswith("ann has 2 waiting jobs")
    site.submit(1, user="bob")


def test_an_array_is_one_of_the_waiting_jobs_of_its_user() -> None:
    site = Site({"a": 1}, solving=False, max_jobs_per_user=2)
    array = str(site.submit(1, array=tuple(range(5))))
    site.submit(1)
    assert isinstance(submit(site, token="third"), Refused)
    assert site.state.pending.entries == {"ann": 2}
    site.ask(Cancel(job=f"{array}_1"))
    assert isinstance(submit(site, token="third"), Refused)
    site.ask(Cancel(job=array))
    assert site.state.pending.entries == {"ann": 1}
    assert isinstance(submit(site, token="third"), Done)


def test_one_user_may_not_fill_the_queue_by_default() -> None:
    assert DaemonConfig().max_jobs_per_user > 0


def test_what_does_not_exist_yet_is_not_taken_for_impossible() -> None:
    """Before the first reading nothing is known of a cluster."""
    site = Site({"a": 1})
    site.state.clusters["a"].reading = None
    site.state.suitable.clear()
    assert isinstance(submit(site, job={"procs": 99}), Done)


def test_new_nodes_make_a_refused_job_possible() -> None:
    site = Site({"a": 1})
    assert isinstance(submit(site, job={"procs": 2}), Refused)
    nodes = tuple(NodeReading(name=f"a{i}") for i in range(2))
    site.do(
        StatementReceived(
            statement=Read(cluster="a", reading=ClusterReading(cluster="a", nodes=nodes))
        )
    )
    assert isinstance(submit(site, job={"procs": 2}), Done)


def test_an_impossible_job_may_be_kept_held() -> None:
    site = Site({"a": 1})
    answer = submit(site, job={"procs": 2}, hold_infeasible=True)
    assert isinstance(answer, Done)
    record = site.job(answer.body["job"])
    assert (record.state, record.reason) == (JobState.HELD, "infeasible")


def test_hold_and_release_change_only_waiting_jobs() -> None:
    site = Site({"a": 1})
    running, waiting = site.submit(), site.submit()
    assert isinstance(site.ask(Hold(job=running)), Refused)
    assert isinstance(site.ask(Hold(job=waiting)), Done)
    assert isinstance(site.ask(Hold(job=waiting)), Done), "again is harmless"
    site.run(running)
    site.finish(running)
    assert site.job(waiting).state is JobState.HELD
    site.ask(Release(job=waiting))
    assert site.job(waiting).is_placed


def test_an_array_is_cancelled_by_its_number() -> None:
    site = Site({"a": 1})
    answer = submit(site, array=(1, 2, 3))
    assert isinstance(answer, Done)
    assert answer.body["jobs"] == ["1_1", "1_2", "1_3"]
    site.ask(Cancel(job="1"))
    assert {site.job(job).state for job in answer.body["jobs"]} == {JobState.CANCELLED}


def test_dependencies_end_with_what_they_wait_for() -> None:
    site = Site({"a": 1})
    first = site.submit()
    chain = [first]
    for _ in range(3):
        chain.append(site.submit(needs=(("afterok", chain[-1]),)))
    fails = site.submit(needs=(("afternotok", first),))
    site.run(first)
    site.finish(first, code=1)
    assert [site.job(job).state for job in chain[1:]] == [JobState.CANCELLED] * 3
    assert site.job(chain[1]).detail == f"afterok:{first} cannot be met: job {first} is failed"
    assert site.job(fails).is_placed


def test_who_depends_on_a_job_is_known_as_long_as_they_wait() -> None:
    site = Site({"a": 1})
    first = site.submit()
    later = site.submit(needs=(("afterok", first), ("afterany", first)))
    both = site.submit(needs=(("afterok", first), ("afterok", later)))
    assert site.state.dependents == {first: {later: None, both: None}, later: {both: None}}
    assert site.restarted().state.dependents == site.state.dependents
    site.ask(Cancel(job=first), operator=True)
    site.finish(first, code=1)
    assert {site.job(job).state for job in (first, later, both)} == {JobState.CANCELLED}
    assert not site.state.dependents


def test_a_job_that_ends_without_having_run_is_logged_too() -> None:
    site = Site({"a": 1})
    running, waiting = site.submit(), site.submit()
    site.run(running)
    for job in (running, waiting):
        site.ask(Cancel(job=job))
    assert [note["job"] for note in site.notes("job_cancelling")] == [running]
    assert [(n["job"], n["detail"]) for n in site.notes("job_ended")] == [
        (waiting, "cancelled by ann")
    ]


def test_the_reason_of_a_cancellation_is_kept() -> None:
    site = Site({"a": 1})
    running, waiting = site.submit(), site.submit()
    site.run(running)
    for job in (running, waiting):
        assert isinstance(site.ask(Cancel(job=job, reason="wrong input")), Done)
    assert [note["reason"] for note in site.notes("job_cancelling")] == ["wrong input"]
    assert site.restarted().job(running).cancel_reason == "wrong input"
    # a second cancel does not take its place
    site.ask(Cancel(job=running, reason="late"))
    site.finish(running, code=143)
    for job in (running, waiting):
        assert site.job(job).detail == "cancelled by ann: wrong input"


def test_the_reason_of_a_workflow_s_cancellation_is_its_tasks_too() -> None:
    site = Site({"a": 1})
    job = site.submit_workflow("a b", "a>b")
    site.run(f"{job}.1")
    site.ask(Cancel(job=job, reason="wrong input"))
    site.finish(f"{job}.1", code=143)
    assert site.job(f"{job}.1").detail == "cancelled by ann: wrong input"
    assert site.job(job).detail.startswith("cancelled by ann: wrong input; 0 of 2")


@pytest.mark.parametrize("reason", ["x" * 501, "two\nlines", "\x1b[31mred"])
def test_a_reason_that_is_no_line_is_refused(reason: str) -> None:
    site = Site({"a": 1})
    job = site.submit()
    answer = site.ask(Cancel(job=job, reason=reason))
    assert isinstance(answer, Refused)
    assert answer.message == "reason: is not one line of at most 500 characters"
    assert not site.job(job).is_ended


def test_a_long_chain_of_dependents_ends_as_a_whole() -> None:
    site = Site({"a": 1}, keep_ended=2000)
    chain = [site.submit()]
    for _ in range(1500):
        chain.append(site.submit(needs=(("afterok", chain[-1]),), hold=True))
    assert isinstance(site.ask(Cancel(job=chain[0])), Done)
    site.finish(chain[0], code=1)
    assert {site.job(job).state for job in chain} == {JobState.CANCELLED}


def test_a_dependency_on_a_job_that_has_ended_is_met_or_refused() -> None:
    site = Site({"a": 1})
    ends = {}
    for code in (0, 1):
        ends[code] = site.submit()
        site.run(ends[code])
        site.finish(ends[code], code=code)
    for kind, code in (("afterok", 0), ("afternotok", 1), ("afterany", 0), ("afterany", 1)):
        job = site.submit(needs=((kind, ends[code]),))
        assert site.job(job).is_placed, (kind, code)
        site.run(job)
        site.finish(job)
    refused = submit(site, needs=(("afterok", ends[1]),))
    assert isinstance(refused, Refused)
    assert refused.message == "dependency: afterok:2 cannot be met: job 2 is failed"
    refused = submit(site, needs=(("afternotok", ends[0]),))
    assert isinstance(refused, Refused)
    assert refused.message == "dependency: afternotok:1 cannot be met: job 1 is completed"


def test_a_dependency_on_an_array_waits_for_each_of_its_members() -> None:
    site = Site({"a": 3})
    submit(site, array=(1, 2))
    later = site.submit(needs=(("afterok", "1"),))
    assert site.job(later).needs == (("afterok", "1_1"), ("afterok", "1_2"))
    for job in ("1_1", "1_2"):
        assert site.job(later).state is JobState.PENDING
        site.run(job)
        site.finish(job)
    assert site.job(later).is_placed


def test_a_met_dependency_stays_met_when_its_job_is_forgotten() -> None:
    site = Site({"a": 1}, keep_ended=0)
    first = site.submit()
    later = site.submit(needs=(("afterok", first),))
    site.run(first)
    site.finish(first)
    assert site.job(later).is_placed


def test_submits_that_could_not_be_written_leave_no_trace() -> None:
    site = Site({"a": 1})
    site.submit()
    lost = site.submit(token="lost")
    site.do(StorageLost(jobs=(lost,)))
    assert lost not in site.state.jobs
    assert (site.state.pending.jobs, site.state.pending.procs) == (0, 0)
    again = submit(site, token="lost")
    assert isinstance(again, Done)
    assert again.body["job"] != lost


def test_an_array_that_could_not_be_written_is_submitted_anew() -> None:
    site = Site({"a": 1})
    lost = site.submit(token="lost", array=(1, 2))
    site.do(StorageLost(jobs=(f"{lost}_1", f"{lost}_2")))
    again = submit(site, token="lost", array=(1, 2))
    assert isinstance(again, Done)
    assert not again.body["again"]
    assert again.body["jobs"] == [f"{again.body['job']}_{index}" for index in (1, 2)]
    assert set(again.body["jobs"]) <= site.state.jobs.keys()


def test_a_task_goes_with_its_workflow_that_could_not_be_written() -> None:
    """Its start is of the same batch; alone it would wait for ever, or run."""
    site = Site({"a": 1})
    before = len(site.effects)
    flow = site.submit_workflow("a")
    task = f"{flow}.1"
    assert site.job(task).is_placed
    kept, lost, origins = without_submits(site.effects[before:])
    assert (lost, origins) == ([flow, task], ["client"])
    assert not [effect for effect in kept if isinstance(effect, AppendEvent | SaveJob)]
    site.do(StorageLost(jobs=tuple(lost)))
    assert not site.state.jobs
    assert (site.state.pending.jobs, site.state.pending.procs) == (0, 0)
    assert site.job(site.submit()).is_waiting, "nothing starts until the store returns"
    site.do(StorageReturned())
    assert [record.is_placed for record in site.state.jobs.values()] == [True]


def test_what_batch_systems_are_told_is_kept_and_sent_with_each_part() -> None:
    site = Site({"a": 2})
    asked = BatchOptions(account="chem", passed=("--exclude=n1", "--contiguous"))
    answer = submit(site, job={"procs": 2, "clusters": ["a"]}, batch=asked)
    assert isinstance(answer, Done)
    job = answer.body["job"]
    assert site.job(job).account == "chem"
    assert [order.batch for _, order in site.orders_for(job, Prepare)] == [asked]


@pytest.mark.parametrize(
    ("passed", "why"),
    [
        (("--exclude=n1",), "batch.passed: --exclude=n1 is for jobs of one cluster: name it, or"),
        (("--uid=0",), "batch.passed: '--uid=0' is not one of --acctg-freq=, --contiguous,"),
        (("--contiguous=1",), "batch.passed: '--contiguous=1' is not one of"),
        (("--exclude=",), "batch.passed: '--exclude=' is not one of"),
        (("exclude=n1",), "batch.passed: 'exclude=n1' is not one of"),
        (("--exclude=n1 --uid=0",), "batch.passed: '--exclude=n1 --uid=0' holds a blank"),
    ],
)
def test_options_that_one_cluster_judges_are_of_a_table(passed: tuple[str, ...], why: str) -> None:
    site, batch = Site({"a": 2, "b": 2}), BatchOptions(passed=passed)
    clusters = None if "of one cluster" in why else ["a"]
    answer = submit(site, job={"clusters": clusters}, batch=batch)
    assert isinstance(answer, Refused)
    assert answer.message.startswith(why)
    once = submit(site, batch=BatchOptions(passed=("--exclude=n1",)), once=True, token="once")
    assert isinstance(once, Done)


@pytest.mark.parametrize("value", ["a b", "x\n", "y" * 300])
def test_what_is_no_value_of_an_option_is_refused(value: str) -> None:
    answer = submit(Site(), batch=BatchOptions(qos=value))
    assert isinstance(answer, Refused)
    assert answer.code == "bad_request"
    assert answer.message.startswith("batch.qos: ")
