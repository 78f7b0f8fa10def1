"""The two-phase start: all parts or none, never twice, whatever is repeated or lost."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import Abort, Forget, Hello, Prepare, Read, Report, Start
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Done, Hold, Refused, Release
from coalloc.model.sites.parts import PartReport, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from tests.support.core_site import Site


def test_nobody_starts_before_every_part_is_ready() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    assert [c for c, _ in site.orders_for(job, Prepare)] == ["a", "b"]
    site.say(job, PartState.READY, cluster="a")
    assert not site.orders_for(job, Start)
    site.say(job, PartState.READY, cluster="b")
    assert [c for c, _ in site.orders_for(job, Start)] == ["a", "b"]
    assert site.saved()[job].state is JobState.STARTING


def test_parts_of_which_one_is_told_ahead_start_at_one_time() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY, cluster="a", lead_s=0.5)
    site.say(job, PartState.READY, cluster="b")
    assert {order.at - site.now for _, order in site.orders_for(job, Start)} == {0.5}
    lone = Site({"a": 2})
    whole = lone.submit(2)
    lone.say(whole, PartState.READY, lead_s=0.5)
    assert [order.at for _, order in lone.orders_for(whole, Start)] == [0.0]


def test_ranks_run_on_through_the_parts() -> None:
    site = Site({"a": 2, "b": 2}, slots=2)
    job = site.submit(7)
    orders = [order for _, order in site.orders_for(job, Prepare)]
    assert [(o.first_rank, dict(o.nodes)) for o in orders] == [
        (0, {"a1": 2, "a2": 2}),
        (4, {"b1": 2, "b2": 1}),
    ]
    assert all(o.size == 7 for o in orders)


def test_the_parts_of_a_job_meet_where_no_other_job_does() -> None:
    site = Site({"a": 2, "b": 2})
    wide, other = site.submit(3), site.submit(1)
    places = {order.rendezvous for _, order in site.orders_for(wide, Prepare)}
    assert places == {"a1:20001"}
    assert site.orders_for(other, Prepare)[0][1].rendezvous == "b2:20002"
    assert site.restarted().state.meeting == {"a1:20001", "b2:20002"}
    site.run(wide)
    site.finish(wide)
    assert site.state.meeting == {"b2:20002"}


def test_a_place_to_meet_that_is_taken_is_passed_by() -> None:
    site = Site({"a": 1})
    site.state.meeting.update({"a1:20001", "a1:20002"})
    job = site.submit()
    assert site.job(job).rendezvous == "a1:20003"


@pytest.mark.parametrize(
    ("address", "place"), [("10.0.0.5", "10.0.0.5:20001"), ("fe80::1", "[fe80::1]:20001")]
)
def test_ranks_meet_at_the_address_that_was_read(address: str, place: str) -> None:
    site = Site({"a": 1})
    nodes = (NodeReading(name="a1", address=address),)
    site.do(
        StatementReceived(
            statement=Read(cluster="a", reading=ClusterReading(cluster="a", nodes=nodes))
        )
    )
    assert site.job(site.submit()).rendezvous == place


def test_a_job_runs_to_its_end_and_the_skew_is_kept() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY)
    site.say(job, PartState.RUNNING, cluster="a", started=site.now + 1.000)
    assert site.job(job).state is JobState.STARTING
    site.say(job, PartState.RUNNING, cluster="b", started=site.now + 1.002)
    assert site.job(job).state is JobState.RUNNING
    assert site.job(job).skew_s == pytest.approx(0.002)
    assert site.notes("job_started")[0]["skew_ms"] == pytest.approx(2.0)
    site.finish(job)
    assert site.job(job).state is JobState.COMPLETED
    assert len(site.orders_for(job, Forget)) == 2


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param(PartState.READY, id="ready again before the start"),
        pytest.param(PartState.RUNNING, id="running again"),
        pytest.param(PartState.FINISHED, id="finished again"),
    ],
)
def test_every_report_may_be_repeated(repeated: PartState) -> None:
    site = Site({"a": 2})
    job = site.submit(2)
    for state in (PartState.READY, PartState.RUNNING, PartState.FINISHED):
        fields: dict[str, Any] = (
            {"exit_code": 0, "started": site.now} if state is PartState.FINISHED else {}
        )
        site.say(job, state, **fields)
        if state is repeated:
            for _ in range(3):
                site.say(job, state, **fields)
    assert len(site.orders_for(job, Start)) == 1
    assert site.job(job).state is JobState.COMPLETED


def test_a_refusal_releases_every_claim_and_the_job_waits_with_back_off() -> None:
    site = Site({"a": 2, "b": 2}, backoff_first_s=1.0, backoff_max_s=3.0)
    job = site.submit(4)
    pauses = []
    for _ in range(4):
        site.say(job, PartState.READY, cluster="a")
        detail = "b1 is busy"
        site.say(job, PartState.REFUSED, cluster="b", reason="nodes_taken", detail=detail)
        record = site.job(job)
        assert record.state is JobState.PENDING
        assert record.detail == "b: b1 is busy"
        pauses.append(record.not_before - site.now)
        aborted = [c for c, o in site.orders_for(job, Abort) if o.attempt == record.attempt]
        assert "a" in aborted
        site.wait(pauses[-1] + 0.01)
        assert site.job(job).state is JobState.PREPARING
    assert pauses == pytest.approx([1.0, 2.0, 3.0, 3.0])
    assert site.job(job).attempt == 5


def test_a_refusal_that_no_attempt_can_mend_ends_the_job_with_its_reason() -> None:
    site = Site({"a": 2})
    job = site.submit(1)
    site.say(job, PartState.REFUSED, reason="not_found", detail="frobnicate: no such command")
    record = site.job(job)
    assert record.state is JobState.FAILED
    assert record.reason == "not_found"
    assert record.detail == "a: frobnicate: no such command"


def refused(
    site: Site, job: str, cluster: str, reason: str, detail: str = "Invalid account"
) -> None:
    """The job's part on this cluster is refused, as soon as it is tried there."""
    while site.job(job).state is not JobState.PREPARING:
        site.wait(400.0)
    assert [part.cluster for part in site.job(job).parts] == [cluster]
    site.say(job, PartState.REFUSED, reason=reason, detail=detail)


def test_a_refusal_that_lasts_sends_the_job_to_another_cluster_and_then_holds_it() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(2)
    refused(site, job, "a", "not_permitted")
    refused(site, job, "b", "not_permitted", "Invalid qos")
    held = site.job(job)
    assert (held.state, held.reason) == (JobState.HELD, "not_accepted")
    assert held.detail == "a: Invalid account; b: Invalid qos"
    assert site.saved()[job].barred == {"a": "Invalid account", "b": "Invalid qos"}
    assert isinstance(site.ask(Release(job=job)), Done)
    refused(site, job, "a", "nodes_taken")


def test_job_that_the_other_clusters_cannot_hold_is_held_with_both_reasons() -> None:
    site = Site({"a": 4, "b": 2})
    job = site.submit(3, job={"clusters": ["a", "b"]})
    site.wait(1.0)
    site.say(job, PartState.REFUSED, cluster="a", reason="not_permitted", detail="Invalid account")
    held = site.job(job)
    assert held.state is JobState.HELD
    assert (
        held.detail == "a: Invalid account; without a it needs 3 processes; 2 suitable slots exist"
    )


def test_a_limit_of_the_moment_is_tried_again_when_a_job_ends_there_and_never_held() -> None:
    site = Site({"a": 2, "b": 2}, backoff_max_s=100.0)
    first = site.submit(1, job={"clusters": ["a"]})
    site.say(first, PartState.READY)
    site.say(first, PartState.RUNNING, started=site.now)
    job = site.submit(1, job={"clusters": ["a"]})
    for _ in range(5):
        refused(site, job, "a", "over_limit", "QOSMaxJobsPerUserLimit")
        assert site.job(job).state is JobState.PENDING
        assert "QOSMaxJobsPerUserLimit" in site.job(job).detail
        site.wait(99.0)
        assert site.job(job).state is JobState.PENDING, "no sooner than anything has changed"
    refused(site, job, "a", "over_limit")
    site.say(first, PartState.FINISHED, exit_code=0, started=site.now)
    site.wait(1.0)
    assert site.job(job).state is JobState.PREPARING


def test_a_part_that_is_not_ready_in_time_gives_the_start_up() -> None:
    site = Site({"a": 2, "b": 2}, prepare_timeout_s=10.0)
    job = site.submit(4)
    site.say(job, PartState.READY, cluster="a")
    site.wait(9.9)
    assert site.job(job).state is JobState.PREPARING
    site.wait(0.2)
    assert site.job(job).state is JobState.PENDING
    assert site.job(job).detail == "b: not ready within 10 s"
    assert {c for c, _ in site.orders_for(job, Abort)} == {"a", "b"}


def test_news_of_an_earlier_attempt_cannot_start_anything() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.REFUSED, cluster="b", reason="nodes_taken")
    site.wait(5.0)
    assert site.job(job).attempt == 2
    for cluster, part in (("a", 0), ("b", 1)):
        site.report(cluster, PartReport(job=job, attempt=1, part=part, state=PartState.READY))
    assert not site.orders_for(job, Start)
    assert [o.attempt for c, o in site.orders_for(job, Abort)].count(1) >= 3


def test_a_part_that_never_started_beside_one_that_did_ends_the_job_and_is_not_retried() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY)
    site.say(job, PartState.RUNNING, cluster="a", started=site.now)
    site.say(job, PartState.REFUSED, cluster="b", reason="expired", detail="the lease was over")
    assert "a" in {c for c, _ in site.orders_for(job, Abort)}
    site.say(job, PartState.FINISHED, cluster="a", exit_code=143, started=site.now)
    record = site.job(job)
    assert record.state is JobState.FAILED
    assert record.reason == "part_missing"
    site.wait(1000.0)
    assert len(site.orders_for(job, Prepare)) == 2


def test_if_no_part_started_the_job_waits_again() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY)
    site.say(job, PartState.REFUSED, reason="expired", detail="the lease was over")
    assert site.job(job).state is JobState.PENDING


def test_a_failing_part_ends_the_others() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.run(job)
    site.say(job, PartState.FINISHED, cluster="a", exit_code=3, started=site.now, reason="exited")
    assert {c for c, _ in site.orders_for(job, Abort)} == {"b"}
    ended: dict[str, Any] = {"exit_code": 143, "started": site.now, "reason": "aborted"}
    site.say(job, PartState.FINISHED, cluster="b", **ended)
    assert site.job(job).state is JobState.FAILED
    assert site.job(job).exit_code == 3, "not that of the part we ended ourselves"


@pytest.mark.parametrize("requeue", [True, False])
def test_a_preempted_job_runs_again_where_it_says_so(requeue: bool) -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4, requeue=requeue)
    site.run(job)
    preempted: dict[str, Any] = {"exit_code": 143, "started": site.now, "reason": "preempted"}
    site.say(job, PartState.FINISHED, cluster="a", **preempted)
    assert {c for c, _ in site.orders_for(job, Abort)} == {"b"}
    site.say(job, PartState.FINISHED, cluster="b", exit_code=143, started=site.now)
    if not requeue:
        assert site.job(job).state is JobState.FAILED
        return
    record = site.job(job)
    assert (record.state, record.exit_code, record.skew_s) == (JobState.PENDING, None, None)
    site.wait(1000.0)
    assert site.job(job).attempt == 2
    site.run(job)
    assert site.job(job).state is JobState.RUNNING


def test_a_preempted_job_that_is_cancelled_meanwhile_stays_so() -> None:
    site = Site({"a": 1})
    job = site.submit(1, requeue=True)
    site.run(job)
    site.ask(Cancel(job=job))
    site.say(job, PartState.FINISHED, exit_code=143, started=site.now, reason="preempted")
    assert site.job(job).state is JobState.CANCELLED


def test_a_part_that_succeeds_first_leaves_the_others_alone() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.run(job)
    site.say(job, PartState.FINISHED, cluster="a", exit_code=0, started=site.now)
    assert not site.orders_for(job, Abort)
    assert site.job(job).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("fields", "state", "reason"),
    [
        pytest.param({"exit_code": 1}, JobState.FAILED, "exit", id="exit code"),
        pytest.param(
            {"exit_code": 143, "reason": "time_limit"}, JobState.TIMEOUT, "time_limit", id="limit"
        ),
    ],
)
def test_the_end_says_why(fields: dict[str, Any], state: JobState, reason: str) -> None:
    site = Site({"a": 1})
    job = site.submit()
    site.run(job)
    site.say(job, PartState.FINISHED, started=site.now, **fields)
    assert site.job(job).state is state
    assert site.job(job).reason == reason


def test_a_lost_part_is_lost_and_not_completed() -> None:
    site = Site({"a": 1})
    job = site.submit()
    site.run(job)
    site.say(job, PartState.LOST, started=site.now, detail="its runner was killed")
    assert site.job(job).state is JobState.LOST


def test_cancel_while_waiting() -> None:
    site = Site({"a": 1})
    site.submit()
    job = site.submit()
    assert isinstance(site.ask(Cancel(job=job)), Done)
    assert site.job(job).state is JobState.CANCELLED


def test_cancel_while_preparing_starts_nothing() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY, cluster="a")
    site.ask(Cancel(job=job))
    assert site.job(job).state is JobState.CANCELLED
    site.report("b", PartReport(job=job, attempt=1, part=1, state=PartState.READY))
    assert not site.orders_for(job, Start)


def test_cancel_while_running_ends_it_through_the_executors() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.run(job)
    site.ask(Cancel(job=job))
    assert site.job(job).state is JobState.RUNNING
    assert {c for c, _ in site.orders_for(job, Abort)} == {"a", "b"}
    site.say(job, PartState.FINISHED, exit_code=143, started=site.now)
    assert site.job(job).state is JobState.CANCELLED
    assert site.job(job).detail == "cancelled by ann"


def test_only_the_owner_and_an_operator_may_touch_a_job() -> None:
    site = Site({"a": 1})
    site.submit()
    job = site.submit()
    for command in (Cancel(job=job), Hold(job=job), Release(job=job)):
        answer = site.ask(command, user="eve")
        assert isinstance(answer, Refused)
        assert answer.code == "not_allowed"
    assert isinstance(site.ask(Cancel(job=job), user="root", operator=True), Done)


def test_cancel_of_an_ended_or_unknown_job_is_refused() -> None:
    site = Site({"a": 1})
    job = site.submit()
    site.run(job)
    site.finish(job)
    codes = []
    for name in (job, "99", "99_1", "x"):
        answer = site.ask(Cancel(job=name))
        assert isinstance(answer, Refused)
        codes.append(answer.code)
    assert codes == ["wrong_state", "not_found", "not_found", "not_found"]


def test_work_of_an_unknown_job_is_left_alone_and_logged() -> None:
    site = Site({"a": 1})
    site.report("a", PartReport(job="77", attempt=1, part=0, state=PartState.RUNNING))
    assert site.notes("unknown_part_found")
    assert not site.orders_for("77", Abort)


def test_an_ended_part_of_an_unknown_job_is_forgotten() -> None:
    site = Site({"a": 1})
    site.report("a", PartReport(job="77", attempt=1, part=0, state=PartState.FINISHED))
    assert len(site.orders_for("77", Forget)) == 1


def test_a_restarted_daemon_takes_up_where_it_was() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY, cluster="a")
    again = site.restarted()
    assert again.job(job).state is JobState.PREPARING
    assert not again.orders_for(job, Prepare), "the claims stand; they are not made twice"
    again.say(job, PartState.READY)
    assert len(again.orders_for(job, Start)) == 2


def test_an_executor_that_returns_tells_what_it_has() -> None:
    site = Site({"a": 1})
    job = site.submit()
    site.say(job, PartState.READY)
    done = PartReport(
        job=job, attempt=1, part=0, state=PartState.FINISHED, exit_code=0, started=1.0, ended=2.0
    )
    site.do(StatementReceived(statement=Hello(cluster="a", parts=(done,))))
    assert site.job(job).state is JobState.COMPLETED


def test_what_an_executor_repeats_does_not_fill_its_outbox() -> None:
    """An ended part is reported until it is forgotten; the order to forget is under way once."""
    site = Site({"a": 1})
    ended = PartReport(job="77", attempt=1, part=0, state=PartState.FINISHED)
    for _ in range(5):
        site.do(StatementReceived(statement=Report(cluster="a", last_seq=0, parts=(ended,))))
    assert len(site.orders_for("77", Forget)) == 1
    site.report("a")
    site.report("a", ended)
    assert len(site.orders_for("77", Forget)) == 2, (
        "it was carried out, and the part is still there"
    )


def test_a_part_that_is_over_before_the_other_is_seen_running_still_gives_a_skew() -> None:
    site = Site({"a": 2, "b": 2})
    job = site.submit(4)
    site.say(job, PartState.READY)
    site.say(job, PartState.FINISHED, cluster="a", exit_code=0, started=5.000, ended=5.001)
    assert site.job(job).state is JobState.STARTING
    site.say(job, PartState.FINISHED, cluster="b", exit_code=0, started=5.004, ended=5.005)
    assert site.job(job).state is JobState.COMPLETED
    assert site.job(job).skew_s == pytest.approx(0.004)
    assert len(site.notes("job_started")) == 1
