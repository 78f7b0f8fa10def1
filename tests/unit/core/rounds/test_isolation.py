"""A policy that fails with some jobs: they are found and set aside, and the others are planned."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from coalloc.core.base.effects import Solve
from coalloc.core.base.events import (
    IncumbentFound,
    Reconfigured,
    Solved,
    SolveFailed,
    StatementReceived,
)
from coalloc.core.base.messages import Read
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, PauseRounds, ResumeRounds, RoundNow
from coalloc.core.base.round_control import PAUSE_FIRST_S
from coalloc.core.rounds import isolation as isolating
from coalloc.core.rounds import snapshots
from coalloc.daemon.queries import answers, job_views
from coalloc.model.formats.snapshot_json import read_snapshot, write_snapshot
from coalloc.model.platform import NodeState
from coalloc.model.ranges import POWER
from tests.support.core_site import Site, first_fit, reading

Failing = Callable[[Collection[str]], tuple[str, ...] | None]
"""From the jobs of a snapshot: None where they are planned, else those that the failure names."""


def answered(site: Site, failing: Failing, most: int = 60) -> list[Solve]:
    """Answer what the core asks for in a round; what was asked."""
    asked: list[Solve] = []
    number = site.pending_solves[0].round
    while site.pending_solves and site.pending_solves[0].round == number:
        solve = site.pending_solves.pop(0)
        asked.append(solve)
        assert len(asked) < most
        jobs = [job.id for job in solve.snapshot.queue]
        named = None if solve.policy == "plain" else failing(jobs)
        if named is None:
            site.do(Solved(round=solve.round, plan=first_fit(solve.snapshot), solve_s=0.0))
        else:
            site.do(
                SolveFailed(
                    round=solve.round, policy=solve.policy, why="wrong", solve_s=0.0, jobs=named
                )
            )
    return asked


def names(*bad: str) -> Failing:
    """Wrong plans for these jobs, which the checker names."""
    return lambda jobs: tuple(job for job in jobs if job in bad) or None


def dies(*bad: str) -> Failing:
    """No plan, and no word why, where one of these jobs is in the queue."""
    return lambda jobs: () if set(jobs) & set(bad) else None


def dies_of_pairs(*bad: str) -> Failing:
    """The same where all of these are."""
    return lambda jobs: () if set(bad) <= set(jobs) else None


def queued(count: int, slots: int = 20) -> tuple[Site, list[str]]:
    """A round under way, with so many jobs."""
    site = Site(
        {"a": slots},
        solving=False,
        policy="easy",
        fallbacks=("fcfs", "plain"),
        max_age_s=1e6,
    )
    site.ask(PauseRounds(), operator=True)
    jobs = [site.submit(1) for _ in range(count)]
    site.ask(ResumeRounds(), operator=True)
    assert len(site.pending_solves) == 1
    return site, jobs


def started(site: Site, jobs: Collection[str]) -> list[str]:
    return [job for job in jobs if site.job(job).state is JobState.PREPARING]


@pytest.mark.parametrize("failing", [names, dies], ids=["named", "found by halving"])
def test_one_job_is_set_aside_and_the_others_start_under_the_same_policy(
    failing: Callable[..., Failing],
) -> None:
    site, jobs = queued(9)
    bad = jobs[4]
    asked = answered(site, failing(bad))
    assert {solve.policy for solve in asked} <= {"easy", "plain"}
    assert not site.notes("policy_failed")
    assert [note["job"] for note in site.notes("job_set_aside")] == [bad]
    assert started(site, jobs) == [job for job in jobs if job != bad]


def test_the_user_is_told_why_his_job_is_set_aside() -> None:
    site, jobs = queued(3)
    answered(site, names(jobs[0]))
    record = site.job(jobs[0])
    start, reason, detail = job_views.expectation(record, site.state, site.now)
    assert (start, reason) == (None, "set_aside")
    assert detail == "left out of planning, since with it easy fails: wrong"
    assert job_views.why(record, site.state, site.now).reason == "set_aside"


def test_several_that_make_it_fail_each_by_itself_are_all_found() -> None:
    site, jobs = queued(12)
    bad = [jobs[2], jobs[3], jobs[11]]
    answered(site, dies(*bad))
    assert sorted(note["job"] for note in site.notes("job_set_aside")) == sorted(bad)
    assert started(site, jobs) == [job for job in jobs if job not in bad]


def test_of_jobs_that_fail_together_only_is_one_set_aside() -> None:
    site, jobs = queued(8)
    answered(site, dies_of_pairs(jobs[1], jobs[6]))
    assert [note["job"] for note in site.notes("job_set_aside")] == [jobs[6]]


def test_a_failure_that_is_gone_when_it_is_tried_again_is_blamed_on_no_job() -> None:
    site, jobs = queued(6)
    left = [()]
    answered(site, lambda queue: left.pop() if left and len(queue) == 6 else None)
    assert not site.notes("job_set_aside")
    assert started(site, jobs) == jobs


def test_a_solver_that_always_fails_is_blamed_on_no_job() -> None:
    site, jobs = queued(6)
    asked = answered(site, lambda queue: ())
    assert not site.notes("job_set_aside")
    assert [note["policy"] for note in site.notes("policy_failed")] == ["easy", "fcfs"]
    assert site.notes("policy_failed")[0]["cause"] == "no job was found that causes it"
    assert len(asked) <= isolating.MOST_ATTEMPTS + 3
    assert started(site, jobs) == jobs


def late(site: Site) -> str:
    """Let the time limit come before a plan; returns the policy."""
    solve = site.pending_solves.pop(0)
    site.do(
        SolveFailed(round=solve.round, policy=solve.policy, why="slow", solve_s=10.0, late=True)
    )
    return solve.policy


def test_a_time_limit_is_blamed_on_no_job_and_remembered_for_queues_as_long() -> None:
    site, jobs = queued(9, slots=1)
    assert late(site) == "easy"
    (note,) = site.notes("policy_failed")
    assert (note["fallback"], note["asked_again_in_s"]) == ("fcfs", PAUSE_FIRST_S)
    (notice,) = answers.notices(site.state, site.now)
    assert notice.startswith("easy did not plan 9 jobs in time")
    assert [solve.policy for solve in answered(site, names())] == ["fcfs"]
    site.submit(1)  # The next round does not try in vain again.
    assert [solve.policy for solve in answered(site, names())] == ["fcfs"]
    for job in jobs[2:]:
        site.ask(Cancel(job=job), operator=True)
    while site.pending_solves:
        answered(site, names())
    site.submit(1)  # A queue of half that length is another matter.
    assert [solve.policy for solve in answered(site, names())] == ["easy"]
    assert not site.notes("job_set_aside")


def test_a_policy_that_was_late_is_asked_again_after_a_pause_that_doubles() -> None:
    site, _ = queued(9, slots=1)
    for pause_s in (PAUSE_FIRST_S, 2 * PAUSE_FIRST_S):
        assert late(site) == "easy"
        assert site.notes("policy_failed")[-1]["asked_again_in_s"] == pause_s
        while site.pending_solves:
            assert [solve.policy for solve in answered(site, names())] == ["fcfs"]
        site.now += pause_s + 1.0
        site.submit(1)
    assert [solve.policy for solve in answered(site, names())] == ["easy"]
    assert not site.state.rounds.overruns


def test_a_round_that_is_asked_for_has_the_late_policy_tried() -> None:
    site, _ = queued(9, slots=1)
    late(site)
    while site.pending_solves:
        answered(site, names())
    site.ask(RoundNow(), operator=True)
    assert [solve.policy for solve in answered(site, names())] == ["easy"]


def test_there_is_an_end_to_the_search_in_time() -> None:
    site, jobs = queued(6)

    def slow(queue: Collection[str]) -> tuple[str, ...]:
        site.now += 20.0
        return ()

    asked = answered(site, slow)
    assert [solve.policy for solve in asked].count("easy") <= 3
    assert started(site, jobs) == jobs


def test_what_is_set_aside_is_left_out_until_something_changes() -> None:
    site, jobs = queued(3, slots=2)
    answered(site, names(jobs[0]))
    another = site.submit(1)
    answered(site, names(jobs[0]))
    asked = answered(site, names(jobs[0])) if site.pending_solves else []
    for solve in asked:
        assert jobs[0] not in {job.id for job in solve.snapshot.queue} or solve.policy == "plain"
    assert site.job(another).state is JobState.PENDING
    site.do(StatementReceived(statement=Read(cluster="a", reading=reading("a", 3))))
    site.submit(1)
    asked = answered(site, names())
    assert jobs[0] in {job.id for job in asked[0].snapshot.queue}
    assert site.notes("job_tried_again")
    assert not site.state.findings.aside


def test_where_nothing_else_waits_plain_starts_it() -> None:
    site, jobs = queued(2)
    answered(site, names(jobs[0]))
    assert started(site, jobs) == [jobs[1]]
    if not site.pending_solves:
        site.ask(RoundNow(), operator=True)
    asked = answered(site, names(jobs[0]))
    assert [solve.policy for solve in asked] == ["plain"]
    assert started(site, jobs) == jobs


@pytest.mark.parametrize("failing", [names, dies], ids=["named", "dies"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_where_the_policy_fails_with_all_that_waits_it_is_not_asked_again(
    failing: Callable[..., Failing], count: int
) -> None:
    site, jobs = queued(count)
    asked = answered(site, failing(*jobs))
    assert not asked[-1].snapshot.queue  # What it can plan is the empty queue.
    assert [note["job"] for note in site.notes("job_set_aside")] == jobs
    asked = answered(site, failing(*jobs))
    assert [solve.policy for solve in asked] == ["plain"]
    assert started(site, jobs) == jobs
    assert not site.notes("policy_failed")


def test_a_solver_that_fails_with_an_empty_queue_too_is_blamed_on_no_job() -> None:
    site, jobs = queued(1)
    asked = answered(site, lambda queue: ())
    assert [solve.policy for solve in asked] == ["easy", "easy", "fcfs", "fcfs", "plain"]
    assert not site.notes("job_set_aside")
    assert started(site, jobs) == jobs


def test_what_waits_for_a_job_that_is_set_aside_waits_with_it() -> None:
    site, jobs = queued(3)
    answered(site, names(jobs[0]))
    child = site.submit(1, needs=(("afterany", jobs[0]),))
    asked = answered(site, names(jobs[0]))
    assert [solve.policy for solve in asked] == ["plain"]
    assert site.job(child).state is JobState.PENDING
    assert started(site, jobs) == jobs


def test_a_job_that_is_cancelled_is_set_aside_no_more() -> None:
    site, jobs = queued(3)
    answered(site, names(jobs[0]))
    site.ask(Cancel(job=jobs[0]))
    assert not site.state.findings.aside


def test_an_incumbent_of_an_attempt_starts_nothing() -> None:
    site, jobs = queued(4)
    solve = site.pending_solves.pop(0)
    site.do(SolveFailed(round=solve.round, policy="easy", why="died", solve_s=0.0))
    attempt = site.pending_solves[0]
    assert [job.id for job in attempt.snapshot.queue] == jobs[:2]
    site.do(IncumbentFound(round=attempt.round, plan=first_fit(attempt.snapshot)))
    assert not started(site, jobs)


def test_new_settings_are_a_reason_to_try_again() -> None:
    site, jobs = queued(3, slots=2)
    answered(site, names(jobs[0]))
    assert list(site.state.findings.aside) == [jobs[0]]
    site.do(Reconfigured(settings=site.state.settings))
    assert not site.state.findings.aside
    assert jobs[0] in {job.id for job in snapshots.snapshot(site.state, site.now).queue}


def test_a_node_of_hardly_any_power_gets_no_work_and_says_why() -> None:
    weak = reading("a", 2, power=1e-6)
    site = Site({"a": 2}, smoothing=1.0)
    site.do(StatementReceived(statement=Read(cluster="a", reading=weak)))
    nodes = site.state.clusters["a"]
    view = snapshots.cluster_view("a", nodes, site.state, site.now)
    assert {(node.power, node.state) for node in view.nodes} == {(POWER.low, NodeState.DRAINING)}
    assert snapshots.weakness(nodes, weak.nodes[0]) == "its power 1e-06 is below 0.001"
    snapshot = snapshots.snapshot(site.state, site.now)
    assert read_snapshot(write_snapshot(snapshot)) == snapshot
