"""A store that is an older copy of itself: what executors know is neither ended nor repeated."""

from __future__ import annotations

import pytest

from coalloc.core.base.effects import SaveMeta
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Abort, Forget, Hello, Prepare, Report, Start, Started
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Cancel, PauseRounds, Release, ResumeRounds, Submit
from coalloc.core.base.state_tables import LastNumbers, Presence
from coalloc.core.coordinator import StoredState
from coalloc.core.jobs.after_restore import MARK, OVERTAKEN, TOLD, is_untold
from coalloc.daemon.store.restore import unprepared
from coalloc.model.sites.parts import Launch, PartReport, PartState
from tests.support.core_site import Site


def copy_of(site: Site, *jobs: JobRecord, unreconciled: str = "ab") -> StoredState:
    """What the daemon remembers whose store is a copy with these jobs in it."""
    return StoredState(
        jobs=jobs,
        seqs={"a": 1_000_050, "b": 1_000_050},
        epoch=site.state.epoch + 1_000,
        store=site.state.store,
        last=LastNumbers(job=site.state.last.job),
        presence=Presence(unreconciled=set(unreconciled)),
        paused=True,
    )


def part(job: str, attempt: int, state: PartState, index: int = 0) -> PartReport:
    code = 0 if state is PartState.FINISHED else None
    return PartReport(job=job, attempt=attempt, part=index, state=state, exit_code=code)


def hello(site: Site, cluster: str, *parts: PartReport) -> None:
    store = site.state.store
    site.do(
        StatementReceived(statement=Hello(cluster=cluster, store=store, last_seq=60, parts=parts))
    )


def waiting(site: Site) -> JobRecord:
    site.ask(PauseRounds(), operator=True)
    return site.job(site.submit(1))


def test_a_part_that_lapsed_does_not_hide_the_one_that_runs() -> None:
    """They are of one attempt, and the first to be heard of is the one that was never started."""
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    site.state.presence.restored = "7"  # neither has said yet what it had started
    hello(site, "a", part(record.id, 2, PartState.REFUSED))
    hello(site, "b", part(record.id, 2, PartState.RUNNING, 1))
    assert not site.orders_for(record.id, Abort)
    assert (site.job(record.id).state, site.job(record.id).reason) == (JobState.HELD, OVERTAKEN)


@pytest.mark.parametrize("state", [PartState.RUNNING, PartState.READY, PartState.FINISHED])
def test_a_job_that_was_started_after_the_copy_is_held_and_not_ended(state: PartState) -> None:
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    hello(site, "b", part(record.id, 2, state))
    held = site.job(record.id)
    assert (held.state, held.reason, held.attempt) == (JobState.HELD, OVERTAKEN, 2)
    assert str(state) in held.detail
    hello(site, "b", part(record.id, 2, state))
    assert site.job(record.id) == held, "said again, it changes nothing"
    assert not site.orders_for(record.id, Abort)


def test_released_it_starts_under_a_later_attempt_and_the_older_one_is_ended() -> None:
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    hello(site, "b", part(record.id, 2, PartState.RUNNING))
    site.ask(ResumeRounds(), operator=True)
    assert not site.orders_for(record.id, Prepare)
    site.ask(Release(job=record.id))
    assert [order.attempt for _, order in site.orders_for(record.id, Prepare)] == [3]
    site.report("b", part(record.id, 2, PartState.RUNNING))
    assert [(c, o.attempt) for c, o in site.orders_for(record.id, Abort)] == [("b", 2)]


def test_what_an_executor_remembers_is_held_and_its_numbers_are_not_given_again() -> None:
    before = Site()
    records = [waiting(before) for _ in range(2)]
    copy = copy_of(before, *records)
    copy.presence.restored = "77"
    site = Site(remembered=copy)
    starts = ((records[0].id, 1, "finished"), ("900_3", 1, "lost"), (records[1].id, 0, "lost"))
    for is_last in (False, True):
        told = Started(cluster="b", starts=starts, is_last=is_last)
        site.do(StatementReceived(statement=told, peer=site.state.clusters["b"].peer))
        assert is_untold(site.state, "b") is not is_last
    assert is_untold(site.state, "a")
    held = site.job(records[0].id)
    assert (held.state, held.reason, held.attempt) == (JobState.HELD, OVERTAKEN, 1)
    assert held.detail == "attempt 1 on b is finished; the store is an older copy"
    assert site.job(records[1].id).state is JobState.PENDING
    assert site.state.last.job == 900
    assert SaveMeta(key=f"{TOLD}b", value="77") in site.effects
    assert not site.orders_for(records[0].id, Abort)
    assert not site.orders_for(records[0].id, Forget), "there is no part of it"


def test_a_refused_later_attempt_only_moves_the_number() -> None:
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    hello(site, "b", part(record.id, 4, PartState.REFUSED))
    assert site.job(record.id).state is JobState.PENDING
    site.state.presence.unreconciled.add("a")
    site.ask(ResumeRounds(), operator=True)
    assert not site.orders_for(record.id, Prepare), "a sibling may run in a"
    hello(site, "a")
    site.ask(ResumeRounds(), operator=True)
    assert [order.attempt for _, order in site.orders_for(record.id, Prepare)] == [5]


def test_a_sibling_that_runs_is_found_whatever_the_others_say_before() -> None:
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    hello(site, "b", part(record.id, 2, PartState.REFUSED))
    hello(site, "a", part(record.id, 2, PartState.RUNNING, index=1))
    assert site.job(record.id).reason == OVERTAKEN
    assert not site.orders_for(record.id, Abort)


def test_claims_that_only_wait_are_released_and_their_jobs_wait_again() -> None:
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    for index, name in enumerate("ab"):
        hello(site, name, part(record.id, 1, PartState.WAITING, index))
        assert not site.orders_for(record.id, Abort)[index:], "it may not follow us yet"
        site.report(name, part(record.id, 1, PartState.WAITING, index))
    assert [c for c, _ in site.orders_for(record.id, Abort)] == ["a", "b"]
    site.ask(ResumeRounds(), operator=True)
    assert [order.attempt for _, order in site.orders_for(record.id, Prepare)] == [2]


def test_a_part_that_its_executor_does_not_know_is_lost() -> None:
    before = Site()
    job = before.submit(3)
    before.run(job)
    site = Site(remembered=copy_of(before, before.job(job)))
    ended = site.job(job)
    assert ended.state is JobState.LOST
    assert "older copy" in ended.detail
    assert {e.key for e in site.effects if isinstance(e, SaveMeta) and e.value == ""} >= {
        f"{MARK}a",
        f"{MARK}b",
    }


def test_a_part_that_its_executor_has_goes_on() -> None:
    before = Site({"a": 2})
    job = before.submit(1)
    before.run(job)
    record = before.job(job)
    core = Site({"c": 1}, remembered=copy_of(before, record, unreconciled="a"))
    index = record.parts[0].index
    hello(core, "a", part(job, record.attempt, PartState.RUNNING, index))
    assert core.job(job).state is JobState.RUNNING


def test_a_start_that_the_copy_held_back_is_told_again() -> None:
    before = Site({"a": 2})
    job = before.submit(1)
    before.say(job, PartState.READY)
    record = before.job(job)
    assert record.state is JobState.STARTING
    site = Site({"c": 1}, remembered=copy_of(before, record, unreconciled="a"))
    hello(site, "a", part(job, record.attempt, PartState.READY, record.parts[0].index))
    assert [c for c, _ in site.orders_for(job, Start)] == ["a"]


def test_a_number_that_an_executor_knows_is_not_given_again() -> None:
    site = Site()
    hello(site, "a", part("41", 1, PartState.RUNNING))
    assert int(site.submit(1)) == 42
    assert site.notes("unknown_part_found")[0]["job"] == "41"


def test_a_workflow_is_held_of_which_a_task_has_begun_unseen() -> None:
    before = Site()
    before.ask(PauseRounds(), operator=True)
    record = before.job(before.submit_workflow("a b", "a>b"))
    site = Site(remembered=copy_of(before, record))
    hello(site, "a", part(f"{record.id}.1", 1, PartState.RUNNING))
    held = site.job(record.id)
    assert (held.state, held.reason) == (JobState.HELD, OVERTAKEN)
    assert f"task {record.id}.1" in held.detail


def test_claims_that_nobody_will_start_are_released() -> None:
    """Of a job that came after the copy; what runs of another goes on."""
    site = Site(remembered=copy_of(Site()))
    hello(site, "b", part("41", 1, PartState.READY))
    assert not site.orders_for("41", Abort), "an executor not yet welcomed may be told to start it"
    site.report("b", part("41", 1, PartState.READY), part("42", 1, PartState.RUNNING))
    assert [c for c, _ in site.orders_for("41", Abort)] == ["b"]
    assert not site.orders_for("42", Abort)


def test_a_late_report_releases_nothing() -> None:
    site = Site(remembered=copy_of(Site()))
    hello(site, "b", part("41", 1, PartState.READY))
    report = Report(cluster="b", last_seq=60, parts=(part("41", 1, PartState.READY),))
    site.do(StatementReceived(statement=report))
    assert not site.orders_for("41", Abort)


def test_a_claim_of_a_later_attempt_of_what_has_ended_is_released() -> None:
    before = Site()
    job = before.submit(1)
    before.run(job)
    before.finish(job, code=1)
    site = Site(remembered=copy_of(before, before.job(job)))
    site.report("b", part(job, 2, PartState.READY))
    assert [(c, o.attempt) for c, o in site.orders_for(job, Abort)] == [("b", 2)]


def test_a_part_of_a_job_that_was_cancelled_before_it_was_heard_of_is_ended() -> None:
    before = Site()
    record = waiting(before)
    site = Site(remembered=copy_of(before, record))
    site.ask(Cancel(job=record.id))
    site.report("b", part(record.id, 2, PartState.RUNNING))
    assert [(c, o.attempt) for c, o in site.orders_for(record.id, Abort)] == [("b", 2)]


def restored_workflow() -> tuple[Site, str]:
    """A site whose executor b runs a task that its store takes for waiting."""
    before = Site()
    before.ask(PauseRounds(), operator=True)
    record = before.job(before.submit_workflow("a b", "a>b"))
    site = Site(remembered=copy_of(before, record))
    task = f"{record.id}.1"
    hello(site, "b", part(task, 1, PartState.RUNNING))
    return site, record.id


def test_a_task_that_runs_unseen_is_left_alone_while_its_workflow_is_held() -> None:
    site, flow = restored_workflow()
    site.report("b", part(f"{flow}.1", 1, PartState.RUNNING))
    assert not site.orders_for(f"{flow}.1", Abort)


def test_a_released_workflow_gives_its_task_another_attempt() -> None:
    site, flow = restored_workflow()
    task = f"{flow}.1"
    site.ask(ResumeRounds(), operator=True)
    site.ask(Release(job=flow))
    assert [order.attempt for _, order in site.orders_for(task, Prepare)] == [2]
    site.report("b", part(task, 1, PartState.RUNNING))
    assert [(c, o.attempt) for c, o in site.orders_for(task, Abort)] == [("b", 1)]


def test_a_workflow_stays_held_for_somebody_to_decide_when_another_task_is_lost() -> None:
    before = Site({"a": 1, "b": 1})
    flow = before.submit_workflow("a b", "", keep_going=True)
    before.run(f"{flow}.1")
    records = (before.job(flow), before.job(f"{flow}.1"))
    site = Site({"a": 1, "b": 1}, remembered=copy_of(before, *records, unreconciled="b"))
    hello(site, "b", part(f"{flow}.2", 1, PartState.RUNNING))
    site.report("a", part(f"{flow}.1", 1, PartState.LOST))
    assert site.job(f"{flow}.1").state is JobState.LOST
    assert (site.job(flow).state, site.job(flow).reason) == (JobState.HELD, OVERTAKEN)


def test_a_refused_task_only_moves_the_number() -> None:
    before = Site()
    before.ask(PauseRounds(), operator=True)
    record = before.job(before.submit_workflow("a b", "a>b"))
    site = Site(remembered=copy_of(before, record))
    hello(site, "b", part(f"{record.id}.1", 3, PartState.REFUSED))
    assert site.job(record.id).state is JobState.PENDING
    assert site.job(f"{record.id}.1").attempt == 3


def test_a_refused_piece_keeps_its_number_from_others() -> None:
    before = Site()
    before.ask(PauseRounds(), operator=True)
    job = {"kind": "divisible", "work": 4.0, "chunk_s": 1.0}
    launch = Launch(argv=("work",))
    before.ask(Submit(token="d", job=job, launch=launch))
    (record,) = before.state.jobs.values()
    site = Site(remembered=copy_of(before, record))
    hello(site, "b", part(f"{record.id}.1", 1, PartState.REFUSED))
    site.ask(ResumeRounds(), operator=True)
    assert not site.orders_for(f"{record.id}.1", Prepare)
    assert site.orders_for(f"{record.id}.2", Prepare)


@pytest.mark.parametrize(
    ("unreconciled", "states"),
    [
        ("ab", (JobState.FAILED, JobState.CANCELLED)),
        ("abc", (JobState.RUNNING, JobState.PENDING)),  # c was not heard of: some of it may run
    ],
)
def test_a_workflow_that_was_stopping_ends_once_every_cluster_was_heard_of(
    unreconciled: str, states: tuple[JobState, JobState]
) -> None:
    """Its task that was being prepared in the copy waits again, and will never be started."""
    before = Site({"a": 1, "b": 1})
    flow = before.submit_workflow("a b", "")
    before.run(f"{flow}.1")
    before.finish(f"{flow}.1", code=3)
    kept = (before.job(flow), before.job(f"{flow}.1"), unprepared(before.job(f"{flow}.2")))
    site = Site({"a": 1, "b": 1}, remembered=copy_of(before, *kept, unreconciled=unreconciled))
    assert (site.job(flow).state, site.job(f"{flow}.2").state) == states


def test_a_workflow_that_was_stopping_ends_when_it_is_released() -> None:
    before = Site({"a": 1, "b": 1})
    flow = before.submit_workflow("a b", "")
    before.run(f"{flow}.1")
    before.finish(f"{flow}.1", code=3)
    kept = (before.job(flow), before.job(f"{flow}.1"), unprepared(before.job(f"{flow}.2")))
    site = Site({"a": 1, "b": 1}, remembered=copy_of(before, *kept, unreconciled="abc"))
    site.report("b", part(f"{flow}.2", 1, PartState.RUNNING))
    assert (site.job(flow).state, site.job(flow).reason) == (JobState.HELD, OVERTAKEN)
    site.ask(Release(job=flow))
    assert site.job(flow).state is JobState.FAILED
    site.report("b", part(f"{flow}.2", 1, PartState.RUNNING))
    assert [(c, o.attempt) for c, o in site.orders_for(f"{flow}.2", Abort)] == [("b", 1)]


def test_a_released_workflow_that_cannot_end_in_time_takes_its_tasks_along() -> None:
    before = Site({"a": 1}, solving=False)
    flow = before.submit_workflow("a b", "", finish_by=5000.0)
    site = Site(
        {"a": 1}, remembered=copy_of(before, before.job(flow), unreconciled="a"), solving=False
    )
    site.report("a", part(f"{flow}.2", 1, PartState.RUNNING))
    site.ask(Release(job=flow))
    assert site.job(f"{flow}.2").state is JobState.PENDING
    site.wait(5000.0)
    assert (site.job(flow).state, site.job(flow).reason) == (JobState.CANCELLED, "deadline")
    assert site.job(f"{flow}.2").state is JobState.CANCELLED
