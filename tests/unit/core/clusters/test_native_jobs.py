"""Jobs that were submitted in a cluster's own batch system, as the daemon's core sees them."""

from __future__ import annotations

from typing import Any

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Abort, Dismiss, Hello, Prepare, Read, Start
from coalloc.core.base.records import JobRecord, JobState
from coalloc.core.base.requests import Cancel, Done, Hold, Refused
from coalloc.core.base.state_tables import LastNumbers, Presence
from coalloc.core.coordinator import StoredState
from coalloc.core.jobs.after_restore import OVERTAKEN
from coalloc.daemon.store.records_json import read_record, write_object
from coalloc.model.jobs import RigidJob
from coalloc.model.sites.parts import CANCELLED_THERE, PartReport, PartState
from coalloc.model.sites.reading import NativeJob
from coalloc.model.snapshot import Reservation
from coalloc.model.values import replace
from tests.support.core_site import HOUR, Site, reading


def entry(**fields: Any) -> NativeJob:
    given: dict[str, Any] = {
        "id": "70",
        "submitted": 900.0,
        "name": "sim",
        "user": "eve",
        "uid": 7,
        "gid": 8,
    }
    return NativeJob(**(given | {"procs": 2, "time_limit": HOUR} | fields))


def see(site: Site, *entries: NativeJob, cluster: str = "b", **fields: Any) -> None:
    """A reading in which these jobs wait for us."""
    seen = replace(reading(cluster, site.sizes[cluster]), handed=entries)
    site.do(StatementReceived(statement=Read(cluster=cluster, reading=seen, **fields)))


def only(site: Site) -> JobRecord:
    (record,) = site.state.jobs.values()
    return record


def test_it_joins_the_queue_and_runs_where_it_was_submitted() -> None:
    site = Site({"a": 4, "b": 2})
    see(site, entry())
    record = only(site)
    assert (record.origin, record.foreign, record.user, record.uid) == ("b", "70", "eve", 7)
    assert isinstance(record.job, RigidJob)
    assert (record.job.procs, record.job.time_limit, record.job.clusters) == (2, HOUR, ("b",))
    ((cluster, order),) = site.orders_for(record.id, Prepare)
    assert cluster == "b"
    assert order.foreign == "70"
    site.run(record.id)
    assert site.orders_for(record.id, Start)
    assert site.job(record.id).state is JobState.RUNNING
    site.finish(record.id)
    assert site.job(record.id).state is JobState.COMPLETED


def test_it_is_one_job_however_often_it_is_read() -> None:
    site = Site()
    for _ in range(3):
        see(site, entry())
    first = only(site).id
    site.run(first)
    see(site, entry())  # an old reading, in which it still waits
    site.finish(first)
    see(site, entry())
    assert list(site.state.jobs) == [first]
    again = site.restarted()
    see(again, entry())
    assert list(again.state.jobs) == [first]
    # The same number at another time is another job.
    see(again, entry(submitted=5000.0))
    assert len(again.state.jobs) == 2


def test_it_is_cancelled_there() -> None:
    site = Site(solving=False)
    see(site, entry())
    job = only(site).id
    see(site)
    assert site.job(job).state is JobState.PENDING, "one reading may be older than it"
    see(site)
    assert site.job(job).state is JobState.CANCELLED
    assert "b" in site.job(job).detail
    assert not site.orders_for(job, Dismiss)


def test_an_absence_that_does_not_last_ends_nothing() -> None:
    site = Site(solving=False)
    see(site, entry())
    for _ in range(3):
        see(site)
        see(site, entry())
    assert only(site).state is JobState.PENDING


def test_readings_from_before_a_restart_end_nothing() -> None:
    site = Site(solving=False)
    see(site, entry())
    again = site.restarted()
    job, epoch = only(again).id, again.state.epoch
    for at in (90.0, 91.0):
        see(again, at=at, epoch=epoch - 1)
    assert again.job(job).is_waiting
    for at in (92.0, 93.0):
        see(again, at=at, epoch=epoch)
    assert again.job(job).state is JobState.CANCELLED


def test_a_late_reading_is_dropped_however_late_it_is() -> None:
    site = Site(solving=False)
    see(site, entry(), at=100.0, run="r")
    site.now += HOUR
    for at in (98.0, 99.0):
        see(site, at=at, run="r")
    assert only(site).is_waiting
    for at in (101.0, 102.0):
        see(site, at=at, run="r")
    assert only(site).state is JobState.CANCELLED


def test_a_placed_job_is_not_looked_for() -> None:
    site = Site()
    see(site, entry())
    for _ in range(3):
        see(site)
    assert only(site).state is JobState.PREPARING


def test_it_is_cancelled_here() -> None:
    site = Site(solving=False)
    see(site, entry())
    job = only(site).id
    assert isinstance(site.ask(Cancel(job=job), operator=True), Done)
    ((cluster, order),) = site.orders_for(job, Dismiss)
    assert (cluster, order.foreign) == ("b", "70")
    # The order was carried out, and has failed: the job is still there.
    site.report("b")
    see(site, entry())
    assert len(site.orders_for(job, Dismiss)) == 2
    assert site.job(job).state is JobState.CANCELLED


def test_only_its_user_or_an_operator_cancels_it() -> None:
    site = Site(solving=False)
    see(site, entry())
    job = only(site).id
    assert isinstance(site.ask(Cancel(job=job), user="mallory"), Refused)
    assert isinstance(site.ask(Cancel(job=job), user="eve"), Done)


def test_cancelled_while_it_is_prepared() -> None:
    site = Site()
    see(site, entry())
    job = only(site).id
    site.ask(Cancel(job=job), user="eve")
    orders = [type(order) for _, _, order in site.orders if order.job == job]
    assert orders == [Prepare, Abort, Dismiss]


def test_it_is_cancelled_there_while_it_is_prepared_or_runs() -> None:
    for state in (PartState.REFUSED, PartState.FINISHED):
        site = Site()
        see(site, entry())
        job = only(site).id
        started = None
        if state is PartState.FINISHED:
            site.run(job)
            started = site.now
        site.say(job, state, reason="cancelled_there", detail="by eve", started=started)
        assert site.job(job).state is JobState.CANCELLED
        assert "cancelled in b" in site.job(job).detail
        assert not site.orders_for(job, Dismiss)


def test_a_requeued_job_waits_again() -> None:
    site = Site()
    see(site, entry())
    job = only(site).id
    site.run(job)
    site.say(job, PartState.FINISHED, reason="requeued", started=site.now)
    record = site.job(job)
    assert record.state is JobState.PENDING
    assert record.started is None
    see(site, entry())
    # Slurm counts it as submitted anew.
    see(site, entry(submitted=site.now))
    assert list(site.state.jobs) == [job]
    site.wait(5.0)
    assert site.job(job).state is JobState.PREPARING
    assert site.job(job).attempt == 2
    site.run(job)
    site.finish(job)
    see(site, entry(submitted=site.now - 5.0))
    assert list(site.state.jobs) == [job]


def test_readings_from_before_it_was_put_back_end_nothing() -> None:
    site = Site()
    see(site, entry(), at=10.0)
    job = only(site).id
    site.run(job)
    site.say(job, PartState.FINISHED, reason="requeued", started=20.0, ended=50.0)
    for at in (40.0, 45.0, 50.0):  # it ran when that was read, and the answers came late
        see(site, at=at)
        assert site.job(job).is_waiting
    see(site, at=51.0)
    assert site.job(job).is_waiting
    see(site, at=52.0)
    assert site.job(job).state is JobState.CANCELLED


def test_a_cancelled_job_that_is_requeued_meanwhile_is_not_taken_in_anew() -> None:
    site = Site({"a": 4, "b": 2})
    see(site, entry())
    job = only(site).id
    site.run(job)
    site.ask(Cancel(job=job), user="eve")
    site.say(job, PartState.FINISHED, reason="requeued", started=site.now)
    assert site.job(job).state is JobState.CANCELLED
    see(site, entry(submitted=site.now))
    assert only(site).id == job
    assert [order.foreign for _, order in site.orders_for(job, Dismiss)] == ["70"]


def test_a_requeued_job_that_is_cancelled_while_it_waits_is_not_taken_in_anew() -> None:
    site = Site({"a": 4, "b": 2})
    see(site, entry())
    job = only(site).id
    site.run(job)
    site.say(job, PartState.FINISHED, reason="requeued", started=site.now)
    assert site.job(job).is_waiting
    site.ask(Cancel(job=job), user="eve")
    assert site.job(job).state is JobState.CANCELLED
    # Slurm counts it as submitted anew; that was read before it was cancelled there.
    see(site, entry(submitted=site.now))
    assert only(site).id == job
    assert [order.foreign for _, order in site.orders_for(job, Dismiss)][-1] == "70"


def test_what_the_batch_system_holds_is_held() -> None:
    site = Site()
    see(site, entry(waits="Dependency"))
    job = only(site).id
    assert site.job(job).state is JobState.HELD
    assert site.job(job).detail == "b says Dependency"
    see(site, entry())
    assert site.job(job).state is JobState.PREPARING


def test_what_we_hold_stays_held() -> None:
    site = Site(solving=False)
    see(site, entry())
    job = only(site).id
    site.ask(Hold(job=job), user="eve")
    see(site, entry())
    assert site.job(job).state is JobState.HELD


def test_a_change_of_its_time_limit_is_followed() -> None:
    site = Site(solving=False)
    see(site, entry(), entry(id="71", time_limit=None))
    first, second = site.state.jobs
    see(site, entry(time_limit=60.0, procs=1), entry(id="71", time_limit=None))
    job = site.job(first).job
    assert isinstance(job, RigidJob)
    assert (job.time_limit, job.base_time, job.procs, job.id) == (60.0, 60.0, 1, first)
    assert site.job(second).job.time_limit is None
    saved = len(site.effects)
    see(site, entry(time_limit=60.0, procs=1), entry(id="71", time_limit=None))
    assert not any(type(effect).__name__ == "SaveJob" for effect in site.effects[saved:])


def test_wider_than_its_cluster() -> None:
    site = Site()
    see(site, entry(procs=5))
    record = only(site)
    assert (record.state, record.reason) == (JobState.HELD, "infeasible")
    assert "needs 5 processes" in record.detail


def test_a_claimed_job_nobody_knows_is_left_alone() -> None:
    site = Site()
    see(site, entry(claimed=True))
    assert not site.state.jobs


def test_the_record_survives_the_store() -> None:
    site = Site()
    see(site, entry())
    record = only(site)
    assert read_record(write_object(record)) == record


def test_reservations_and_unknown_words_of_a_reading() -> None:
    site = Site(solving=False)
    kept = Reservation(id="b:maint", nodes=("b1",), start=site.now, end=site.now + HOUR)
    strange = replace(reading("b", 2), reservations=(kept,), unknown={"node state HUMMING": 3})
    for _ in range(2):
        site.do(StatementReceived(statement=Read(cluster="b", reading=strange)))
    assert [n["words"] for n in site.notes("unknown_words_read")] == [{"node state HUMMING": 3}]
    site.submit()
    assert site.pending_solves[-1].snapshot.reservations == (kept,)


def test_a_stranger_token_of_a_client_is_no_handed_job() -> None:
    site = Site(solving=False)
    site.submit(token="handed:b/70/900", user="eve")
    see(site, entry())
    assert len(site.state.jobs) == 2


def test_a_part_of_an_unknown_handed_job_is_reported() -> None:
    site = Site()
    report = PartReport(job="99", attempt=1, part=0, state=PartState.RUNNING)
    site.report("b", report)
    assert site.notes("unknown_part_found")


def test_a_job_that_began_after_the_copy_is_not_taken_for_gone() -> None:
    """Its batch system does not list it as waiting, because it runs there."""
    before = Site(solving=False)
    see(before, entry())
    record = only(before)
    past = StoredState(
        jobs=(record,),
        tokens=dict(before.state.tokens),
        seqs={"b": 1_000_050},
        presence=Presence(unreconciled={"b"}),
        paused=True,
        last=LastNumbers(job=before.state.last.job),
    )
    site = Site(remembered=past)
    report = PartReport(job=record.id, attempt=1, part=0, state=PartState.RUNNING)
    site.report("b", report)
    see(site)
    see(site)
    site.report("b", report)
    assert site.job(record.id).reason == OVERTAKEN
    assert not site.orders_for(record.id, Abort)


def restored(before: Site) -> Site:
    """The daemon on a copy in which the only job runs; its executor knows nothing of it."""
    past = StoredState(
        jobs=(only(before),),
        tokens=dict(before.state.tokens),
        seqs={"a": 1_000_050, "b": 1_000_050},
        store=before.state.store,
        presence=Presence(unreconciled={"b"}),
        paused=True,
        last=LastNumbers(job=before.state.last.job),
    )
    site = Site(before.sizes, remembered=past)
    site.do(StatementReceived(statement=Hello(cluster="b", store=before.state.store, last_seq=60)))
    return site


def running() -> Site:
    site = Site({"a": 4, "b": 2})
    see(site, entry())
    site.run(only(site).id)
    return site


def test_a_job_that_was_put_back_after_the_copy_is_the_same_job() -> None:
    site = restored(running())
    see(site, entry(submitted=5000.0))
    assert only(site).state is JobState.PENDING


def test_a_job_that_ran_on_after_the_copy_and_has_gone_ends() -> None:
    site = restored(running())
    for _ in range(2):
        see(site)
    assert (only(site).state, only(site).reason) == (JobState.CANCELLED, CANCELLED_THERE)
