"""What executors, batch systems and clients say besides starts and ends, and what follows."""

from __future__ import annotations

import pytest

from coalloc.core.base.effects import ResendOrders, SaveLaunch
from coalloc.core.base.events import (
    Disconnected,
    Reconfigured,
    SolveFailed,
    StatementReceived,
    StorageLost,
)
from coalloc.core.base.messages import Goodbye, Prepare, Read, Report
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Done, Refused, RoundNow, Submit
from coalloc.core.clusters.presence import STALLED_S, UNKNOWN_CLUSTERS_NAMED
from coalloc.core.rounds import snapshots
from coalloc.model.settings import ClusterConfig, TriggerConfig
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.sites.reading import ClusterReading, NodeReading
from coalloc.model.snapshot import Running
from coalloc.model.values import replace
from tests.support.core_site import HOUR, Site, reading, solves, workflow

ENDS = (TriggerConfig(kind="job_finished"),)


def test_a_notice_of_a_batch_system_is_logged_when_it_is_new() -> None:
    site = Site()
    for notices in (("full",), ("full",), ("full", "slow"), (), ("full",)):
        seen = replace(reading("a", 2), notices=notices)
        site.do(StatementReceived(statement=Read(cluster="a", reading=seen)))
    told = [(note["cluster"], note["what"]) for note in site.notes("cluster_noticed")]
    assert told == [("a", "full"), ("a", "slow"), ("a", "full")]


def test_a_job_of_the_batch_systems_own_that_ends_is_a_finished_job() -> None:
    site = Site({"a": 1}, trigger=ENDS)
    other = Running(id="x", nodes={"a1": 1}, start=0.0, end=1e9, ours=False)
    taken = replace(reading("a", 1), running=(other,))
    site.do(StatementReceived(statement=Read(cluster="a", reading=taken)))
    job = site.submit()
    assert not solves(site)
    site.do(StatementReceived(statement=Read(cluster="a", reading=reading("a", 1))))
    assert len(solves(site)) == 1
    assert site.job(job).is_placed


def test_strangers_are_named_once_each_and_not_without_end() -> None:
    site = Site()
    for n in range(UNKNOWN_CLUSTERS_NAMED + 5):
        for _ in range(2):
            site.do(StatementReceived(statement=Goodbye(cluster=f"x{n}")))
    named = [note["cluster"] for note in site.notes("unknown_cluster_spoke")]
    assert named == [f"x{n}" for n in range(UNKNOWN_CLUSTERS_NAMED)]


def test_an_executor_that_says_goodbye_is_gone_once() -> None:
    site = Site()
    for _ in range(2):
        site.do(StatementReceived(statement=Goodbye(cluster="a")))
    site.do(Disconnected(cluster="a"))
    site.do(Disconnected(cluster="nowhere"))
    (note,) = site.notes("executor_disconnected")
    assert (note["cluster"], note["why"]) == ("a", "executor stopped")
    assert site.state.clusters["a"].error == "executor stopped"
    assert not site.state.clusters["a"].connected


def resends(site: Site) -> list[tuple[str, int | None]]:
    return [(e.cluster, e.from_seq) for e in site.effects if isinstance(e, ResendOrders)]


def test_the_newest_order_is_sent_again_to_an_executor_that_stays_behind() -> None:
    site = Site({"a": 1})
    job = site.submit()
    assert site.orders_for(job, Prepare)
    behind = StatementReceived(statement=Report(cluster="a", last_seq=0))
    before = len(resends(site))
    site.do(behind)
    site.now += STALLED_S - 1.0
    site.do(behind)
    assert len(resends(site)) == before
    site.now += 1.0
    site.do(behind)
    assert resends(site)[before:] == [("a", None)]
    site.now += STALLED_S
    site.do(behind)
    assert resends(site)[before:] == [("a", None)] * 2


def test_an_executor_that_catches_up_counts_as_behind_from_then_on() -> None:
    site = Site({"a": 2})
    first, second = site.submit(), site.submit()
    assert site.orders_for(first, Prepare)
    assert site.orders_for(second, Prepare)
    before = len(resends(site))
    for seq in (0, 1):
        site.do(StatementReceived(statement=Report(cluster="a", last_seq=seq)))
        site.now += STALLED_S - 1.0
    site.do(StatementReceived(statement=Report(cluster="a", last_seq=1)))
    assert len(resends(site)) == before
    site.now += 1.0
    site.do(StatementReceived(statement=Report(cluster="a", last_seq=1)))
    assert resends(site)[before:] == [("a", None)]


def test_while_it_is_behind_the_clock_may_be_set_back() -> None:
    site = Site({"a": 1})
    site.submit()
    behind = StatementReceived(statement=Report(cluster="a", last_seq=0))
    site.do(behind)
    site.now -= HOUR
    before = len(resends(site))
    site.do(behind)
    site.now += STALLED_S
    site.do(behind)
    assert resends(site)[before:] == [("a", None)]


def test_a_submit_that_was_not_written_was_none() -> None:
    site = Site({"a": 1}, solving=False)
    first = site.submit(token="mine")
    site.do(StorageLost(jobs=(first,)))
    assert first not in site.state.jobs
    again = site.submit(token="mine")
    assert again != first
    assert site.submit(token="mine") == again


def test_what_was_wanted_before_a_fault_is_kept_for_the_caller() -> None:
    site = Site()
    site.state.log("half_done")
    (note,) = site.core.take_partial()
    assert getattr(note, "event", "") == "half_done"
    assert site.core.take_partial() == []


def test_a_cluster_that_is_configured_no_more_is_planned_on_no_more() -> None:
    site = Site({"a": 1, "b": 1}, solving=False)
    job = site.submit(job={"clusters": ["a", "b"]})
    site.do(Reconfigured(settings=replace(site.settings, clusters=(ClusterConfig(name="b"),))))
    snapshot = snapshots.snapshot(site.state, site.now)
    assert {cluster.name for cluster in snapshot.clusters} == {"b"}
    assert next(one for one in snapshot.queue if one.id == job).clusters == ("b",)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"clusters": ["x"]}, "job.clusters: there is no cluster 'x'"),
        ({"procs": 0}, "job.procs"),
    ],
)
def test_a_submit_that_cannot_be_planned_is_refused(job: dict[str, object], message: str) -> None:
    fields = {"kind": "rigid", "procs": 1, "base_time": 1.0, **job}
    answer = Site().ask(Submit(token="t", job=fields, launch=Launch(argv=("w",))))
    assert isinstance(answer, Refused)
    assert (answer.code, answer.message[: len(message)]) == ("bad_request", message)


def test_a_job_that_was_submitted_as_a_workflow_is_one() -> None:
    rigid = {"kind": "rigid", "procs": 1, "base_time": 1.0, "tasks": None, "edges": None}
    answer = Site().ask(workflow("t", "a", job=rigid))
    assert isinstance(answer, Refused)
    assert answer.code == "bad_request"


def test_each_task_may_have_a_command_of_its_own() -> None:
    site = Site(solving=False)
    commands = {"a": ("cut", "in"), "b": ("paste", "out")}
    job = site.submit_workflow("a b", "a>b", launch=Launch(argv=()), commands=commands)
    saved = {e.job: e.launch.argv for e in site.effects if isinstance(e, SaveLaunch)}
    assert saved[f"{job}.1"] == ("cut", "in")
    assert saved[f"{job}.2"] == ("paste", "out")


def test_no_job_is_planned_before_now() -> None:
    site = Site(solving=False)
    job = site.submit(job={"earliest": 5.0})
    assert site.job(job).job.earliest == site.now
    later = site.submit(job={"earliest": site.now + 50.0})
    assert site.job(later).job.earliest == site.now + 50.0


def test_a_cancelled_workflow_takes_tasks_with_it_that_rest() -> None:
    site = Site({"a": 1}, prepare_timeout_s=1e9, backoff_first_s=1000.0)
    job = site.submit_workflow("a b", "a>b", retries=1)
    site.run(f"{job}.1")
    site.say(f"{job}.1", PartState.FINISHED, exit_code=1, started=site.now, ended=site.now)
    assert site.job(f"{job}.1").state is JobState.PENDING
    site.ask(Cancel(job=job))
    task = site.job(f"{job}.1")
    assert (task.state, task.ended) == (JobState.CANCELLED, site.now)
    assert task.detail == "its workflow was stopped"
    assert site.job(job).state is JobState.CANCELLED
    site.wait(2000.0)
    assert site.job(f"{job}.1").attempt == 1
    assert site.job(job).cancelled_by == "ann"


def test_times_that_were_repaired_are_told_with_the_submit() -> None:
    job = {"kind": "moldable", "times": [10.0, 12.0, 4.0]}
    answer = Site(solving=False).ask(Submit(token="t", job=job, launch=Launch(argv=("w",))))
    assert isinstance(answer, Done)
    (warning,) = answer.body["warnings"]
    assert warning.startswith(f"job {answer.body['job']}: ")


def test_a_round_that_is_asked_for_during_a_solve_follows_it() -> None:
    site = Site(solving=False)
    job = site.submit()
    solve = site.pending_solves.pop()
    site.ask(RoundNow(), operator=True)
    assert site.pending_solves == []
    site.do(SolveFailed(round=solve.round, policy=solve.policy, why="late", solve_s=1.0))
    while site.pending_solves:
        solve = site.pending_solves.pop()
        site.do(SolveFailed(round=solve.round, policy=solve.policy, why="late", solve_s=1.0))
        if solve.round > 1:
            break
    assert solve.round == 2
    assert site.job(job).state is JobState.PENDING


@pytest.mark.parametrize(("memory_mb", "refused"), [(100, False), (101, True)])
def test_memory_that_no_node_has_for_each_process_is_refused(memory_mb: int, refused: bool) -> None:
    site = Site({"a": 1}, solving=False)
    seen = ClusterReading(cluster="a", nodes=(NodeReading(name="a1", slots=4, memory_mb=300),))
    site.do(StatementReceived(statement=Read(cluster="a", reading=seen)))
    job = {"kind": "rigid", "procs": 3, "base_time": 1.0, "memory_mb_per_proc": memory_mb}
    answer = site.ask(Submit(token="t", job=job, launch=Launch(argv=("w",))))
    assert isinstance(answer, Refused) is refused


def test_a_task_of_another_user_is_not_cancelled() -> None:
    site = Site({"a": 1}, prepare_timeout_s=1e9)
    job = site.submit_workflow("a b", "a>b")
    answer = site.ask(Cancel(job=f"{job}.1"), user="eve")
    assert isinstance(answer, Refused)
    assert (answer.code, answer.message) == ("not_allowed", f"job {job} belongs to ann")
    assert site.job(f"{job}.1").is_placed


def test_a_job_that_is_cancelled_twice_is_cancelled_once() -> None:
    site = Site({"a": 1})
    job = site.submit()
    site.run(job)
    for _ in range(2):
        site.ask(Cancel(job=job))
    assert len(site.notes("job_cancelling")) == 1
    assert site.job(job).cancelled_by == "ann"
