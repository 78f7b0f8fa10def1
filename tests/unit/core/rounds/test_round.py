"""Commits of rounds: what starts, failures of a policy, and the words for what does not start."""

from __future__ import annotations

import pytest

from coalloc.core.base.effects import RoundFinished, SavePlan, Solve, Wake
from coalloc.core.base.events import (
    Disconnected,
    IncumbentFound,
    Requested,
    Solved,
    SolveFailed,
    SolverWarm,
    StatementReceived,
    StorageLost,
    StorageReturned,
    Ticked,
    Together,
)
from coalloc.core.base.messages import Hello, Prepare, Read
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import (
    Drain,
    PauseRounds,
    Refused,
    Resume,
    ResumeRounds,
    RoundNow,
    Submit,
)
from coalloc.core.rounds import round as rounds
from coalloc.model.plan import Placement
from coalloc.model.platform import NodeState
from coalloc.model.settings import TriggerConfig
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.values import replace
from tests.support.core_site import HOUR, Site, first_fit, reading, solves


def test_what_happens_during_a_solve_causes_one_following_round() -> None:
    site = Site(solving=False)
    site.submit()
    for _ in range(5):
        site.submit()
    assert len(solves(site)) == 1
    current = site.pending_solves.pop()
    site.do(Solved(round=current.round, plan=first_fit(current.snapshot), solve_s=0.0))
    assert len(solves(site)) == 2
    assert len(solves(site)[1].snapshot.queue) == 5


def test_a_long_queue_is_taken_in_after_the_step_that_commits_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "LONG", 4)
    site = Site(solving=False)
    for _ in range(8):
        site.submit()
    current = site.pending_solves.pop()
    plan = first_fit(current.snapshot)
    effects = site.do(Solved(round=current.round, plan=plan, solve_s=0.0))
    assert Wake(at=site.now) in effects
    assert len(solves(site)) == 1
    site.do(Ticked())
    assert len(solves(site)[1].snapshot.queue) == 7


def test_what_a_long_plan_tells_of_those_that_wait_is_kept_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "LONG", 3)
    monkeypatch.setattr(rounds, "TOLD", 3)
    site = Site(solving=False)
    for _ in range(9):
        site.submit()
    asked = site.pending_solves.pop()
    site.do(Solved(round=asked.round, plan=first_fit(asked.snapshot), solve_s=0.0))
    site.do(Ticked())
    asked = site.pending_solves.pop()
    later = replace(first_fit(asked.snapshot), placements=(), deferred=())
    ends = (Placement(job=j.id, start=2e3, end=3e3, nodes={"a1": 1}) for j in asked.snapshot.queue)
    plan = replace(later, placements=tuple(ends))
    effects = site.do(Solved(round=asked.round, plan=plan, solve_s=0.0))
    site.ask(RoundNow(), operator=True)
    told = []
    assert any(isinstance(effect, SavePlan) for effect in effects)
    while not site.pending_solves:
        told.append(len(site.state.findings.outlook))
        assert Wake(at=site.now) in effects, "the next step is asked for"
        assert len(site.state.learning.promises) == told[-1]
        effects = site.do(Ticked())
    assert told == [0, 3, 6, 8]


def test_an_operator_may_pause_resume_and_ask_for_rounds() -> None:
    site = Site()
    assert isinstance(site.ask(PauseRounds()), Refused)
    site.ask(PauseRounds(), operator=True)
    site.submit()
    assert not solves(site)
    site.ask(RoundNow(), operator=True)
    assert site.notes("round_finished")[0]["trigger"] == "operator"
    site.submit()
    assert len(solves(site)) == 1
    site.ask(ResumeRounds(), operator=True)
    assert len(solves(site)) == 2


def test_a_failed_policy_makes_way_for_the_next_and_each_fallback_is_logged() -> None:
    site = Site(solving=False, policy="auto", fallbacks=("easy", "fcfs", "plain"))
    job = site.submit()
    tried = []
    while site.pending_solves:
        current = site.pending_solves.pop()
        tried.append(current.policy)
        if current.policy == "plain":
            site.do(Solved(round=current.round, plan=first_fit(current.snapshot), solve_s=0.0))
        else:
            failure = SolveFailed(
                round=current.round, policy=current.policy, why="crashed", solve_s=0.1
            )
            site.do(failure)
    # Each is tried without the job, too: it is not the job's fault.
    assert tried == ["auto", "auto", "easy", "easy", "fcfs", "fcfs", "plain"]
    assert site.job(job).state is JobState.PREPARING
    assert [note["fallback"] for note in site.notes("policy_failed")] == ["easy", "fcfs", "plain"]


def test_a_round_in_which_everything_fails_ends_and_the_next_one_runs() -> None:
    site = Site(solving=False, policy="easy", fallbacks=())
    site.submit()
    for _ in range(2):
        current = site.pending_solves.pop()
        site.do(SolveFailed(round=current.round, policy="easy", why="crashed", solve_s=0.1))
    assert site.notes("round_failed")
    site.submit()
    assert len(site.pending_solves) == 1


def test_the_first_incumbent_is_committed_and_the_final_plan_adds_to_it() -> None:
    site = Site(solving=False)
    one, two = site.submit(), site.submit()
    current = site.pending_solves.pop()
    assert [job.id for job in current.snapshot.queue] == [one]
    site.do(IncumbentFound(round=current.round, plan=first_fit(current.snapshot)))
    assert site.job(one).state is JobState.PREPARING
    assert site.job(two).state is JobState.PENDING
    site.do(Solved(round=current.round, plan=first_fit(current.snapshot), solve_s=0.0))
    assert len(site.orders_for(one, Prepare)) == 1, "committed once, not twice"
    assert site.notes("round_finished")[0]["started"] == 1


def test_a_start_that_no_longer_fits_goes_back_as_superseded() -> None:
    site = Site({"a": 1}, solving=False)
    job = site.submit()
    current = site.pending_solves.pop()
    site.ask(Drain(target="a1"), operator=True)
    site.do(Solved(round=current.round, plan=first_fit(current.snapshot), solve_s=0.0))
    assert site.job(job).state is JobState.PENDING
    assert site.state.findings.outlook[job].reason == "superseded"
    assert "a1" in site.state.findings.outlook[job].detail


def test_an_answer_to_an_older_round_is_ignored() -> None:
    site = Site(solving=False)
    job = site.submit()
    current = site.pending_solves.pop()
    site.do(Solved(round=current.round - 1, plan=first_fit(current.snapshot), solve_s=0.0))
    site.do(Solved(round=current.round + 1, plan=first_fit(current.snapshot), solve_s=0.0))
    assert site.job(job).state is JobState.PENDING


def test_a_silent_executor_makes_its_cluster_stale_and_not_idle() -> None:
    site = Site({"a": 1, "b": 1})
    job = site.submit()
    site.run(job)
    where = site.job(job).parts[0].cluster
    site.do(Disconnected(cluster=where))
    other = site.submit()
    third = site.submit()
    snapshot = solves(site)[-1].snapshot
    assert {c.name: c.stale for c in snapshot.clusters} == {"a": where == "a", "b": where == "b"}
    assert [r.id for r in snapshot.running if r.id == job], "its job still occupies the node"
    assert site.job(job).state is JobState.RUNNING, "unknown is not failed"
    assert site.job(other).is_placed
    assert not site.job(third).is_placed
    site.do(StatementReceived(statement=Hello(cluster=where)))
    site.finish(job)
    assert site.job(third).is_placed


def test_an_old_reading_makes_a_cluster_stale() -> None:
    site = Site({"a": 1}, max_age_s=30.0)
    site.now += 31.0
    job = site.submit()
    assert solves(site)[-1].snapshot.clusters[0].stale
    assert site.job(job).state is JobState.PENDING


def test_a_failed_reading_is_logged_once_and_keeps_the_last_one() -> None:
    site = Site({"a": 1})
    for _ in range(5):
        site.do(StatementReceived(statement=Read(cluster="a", error="slurmctld does not answer")))
    assert len(site.notes("reading_failed")) == 1
    site.submit()
    assert len(solves(site)[-1].snapshot.clusters[0].nodes) == 1


def test_a_drained_node_gets_nothing_new_and_a_resumed_one_does() -> None:
    site = Site(
        {"a": 1},
        trigger=(TriggerConfig(kind="queue_length"), TriggerConfig(kind="cluster_returned")),
    )
    site.ask(Drain(target="a1", reason="fan"), operator=True)
    job = site.submit()
    assert solves(site)[-1].snapshot.clusters[0].nodes[0].state is NodeState.DRAINING
    assert site.job(job).state is JobState.PENDING
    site.ask(Resume(target="a1"), operator=True)
    assert site.job(job).is_placed


@pytest.mark.parametrize("target", ["nowhere", ""])
def test_draining_what_does_not_exist_is_refused(target: str) -> None:
    answer = Site().ask(Drain(target=target), operator=True)
    assert isinstance(answer, Refused)
    assert answer.code == "not_found"


def test_powers_reach_the_snapshot_in_steps() -> None:
    site = Site({"a": 2}, step=0.05)
    nodes = tuple(replace(n, power=0.83) for n in reading("a", 2).nodes)
    site.do(
        StatementReceived(
            statement=Read(cluster="a", reading=replace(reading("a", 2), nodes=nodes))
        )
    )
    site = Site({"a": 2}, step=0.05)
    site.state.clusters["a"].powers.clear()
    site.do(
        StatementReceived(
            statement=Read(cluster="a", reading=replace(reading("a", 2), nodes=nodes))
        )
    )
    site.submit()
    assert {n.power for n in solves(site)[-1].snapshot.clusters[0].nodes} == {0.8}


def test_committed_work_counts_as_running_before_it_starts() -> None:
    site = Site({"a": 1})
    first = site.submit()
    second = site.submit()
    assert site.job(first).state is JobState.PREPARING
    assert [r.id for r in solves(site)[-1].snapshot.running] == [first]
    assert site.job(second).state is JobState.PENDING


def test_jobs_that_were_passed_over_are_counted() -> None:
    site = Site({"a": 2})
    small = site.submit(1)
    wide = site.submit(2)
    assert site.job(small).is_placed
    later = site.submit(1)
    assert site.job(later).is_placed
    assert site.state.findings.passed_over[wide] == 1
    site.finish(small)
    assert solves(site)[-1].snapshot.queue[0].passed_over == 1


def test_jobs_that_may_not_start_yet_are_not_passed_over() -> None:
    site = Site({"a": 2})
    early = site.submit(2, job={"earliest": site.now + HOUR})
    small = site.submit(1)
    child = site.submit(2, needs=(("afterok", small),))
    later = site.submit(1)
    assert site.job(small).is_placed
    assert site.job(later).is_placed
    assert early not in site.state.findings.passed_over
    assert child not in site.state.findings.passed_over


def test_a_round_line_carries_all_its_figures() -> None:
    site = Site()
    site.submit(3)
    line = site.notes("round_finished")[0]
    assert list(line) == [
        "round", "trigger", "policy", "status", "queued", "placed", "started", "between",
        "coallocated", "stale", "objective", "bound", "gap", "solve_s", "total_s",
    ]  # fmt: skip
    assert line["coallocated"] == 1
    assert line["started"] == 1


def test_a_tick_without_anything_due_does_nothing() -> None:
    site = Site()
    assert site.do(Ticked()) == []
    job = site.submit()
    site.say(job, PartState.READY)
    assert not [e for e in site.do(Ticked()) if isinstance(e, Solve)]


def test_two_clusters_with_a_node_of_the_same_name_are_told_apart_by_refusing_one() -> None:
    site = Site({"a": 2, "b": 2})
    clash = replace(reading("b", 2), nodes=reading("a", 2).nodes)
    for _ in range(3):
        site.do(StatementReceived(statement=Read(cluster="b", reading=clash)))
    assert len(site.notes("reading_refused")) == 1
    assert site.notes("reading_refused")[0]["why"] == (
        "node a1 is a node of a too; names must differ"
    )


def test_held_jobs_ask_for_no_round_and_are_not_carried_along() -> None:
    site = Site({"a": 2}, trigger=(TriggerConfig(kind="queue_length", at_least=2),))
    for _ in range(5):
        site.submit(hold=True)
    site.submit()
    assert not solves(site)
    site.submit()
    assert [job.id for job in solves(site)[0].snapshot.queue] == ["6", "7"]
    assert site.state.pending.jobs == 0


def test_no_round_starts_while_nothing_can_be_written() -> None:
    site = Site()
    site.do(StorageLost())
    site.submit()
    site.wait(HOUR)
    assert not solves(site)
    site.do(StorageReturned())
    assert len(solves(site)) == 1


def test_a_warm_solver_plans_again_what_a_round_without_it_left_waiting() -> None:
    site = Site({"a": 1}, min_interval_s=0.0)
    site.do(SolverWarm())
    assert not solves(site), "there was no round without it"
    first = site.submit()
    site.run(first)
    before = len(solves(site))
    site.do(SolverWarm())
    assert len(solves(site)) == before, "nothing waits"
    site.submit()
    before = len(solves(site))
    site.do(SolverWarm())
    assert len(solves(site)) == before + 1
    assert site.notes("round_finished")[-1]["trigger"] == "solver_warm"


def test_a_round_that_ends_is_counted_once() -> None:
    site = Site({"a": 4})
    site.submit(2)
    counted = [effect for effect in site.effects if isinstance(effect, RoundFinished)]
    lines = site.notes("round_finished")
    assert [(c.policy, c.status, c.stale) for c in counted] == [
        (line["policy"], line["status"], line["stale"]) for line in lines
    ]
    assert counted


def test_events_of_one_instant_are_planned_together() -> None:
    site = Site({"a": 4}, solving=False)
    submits = tuple(
        Requested(
            origin=number,
            user="ann",
            uid=1,
            gid=1,
            operator=False,
            command=Submit(
                token=str(number),
                job={"kind": "rigid", "procs": 1, "base_time": 100.0},
                launch=Launch(argv=("work",)),
            ),
        )
        for number in (1, 2)
    )
    site.do(Together(events=(*submits, Ticked())))
    (solve,) = site.pending_solves
    assert [job.id for job in solve.snapshot.queue] == ["1", "2"]
