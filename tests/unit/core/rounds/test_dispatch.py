"""Starts between rounds: what ends or arrives is answered along the last plan, in the same turn."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

from coalloc.core.base.effects import Wake
from coalloc.core.base.events import Solved, StatementReceived, Ticked
from coalloc.core.base.messages import Read
from coalloc.core.base.plan_order import STRICT
from coalloc.core.base.records import JobState
from coalloc.core.jobs.occupation import occupation
from coalloc.core.rounds import dispatch
from coalloc.core.rounds.dispatch import MOST, Filling
from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.settings import PriorityConfig, ProjectConfig
from coalloc.model.sites.parts import PartState
from coalloc.model.snapshot import Running
from coalloc.model.values import replace
from coalloc.policies.orders.options import StrictOptions
from coalloc.policies.registry import FOR_SITES
from tests.support.core_site import Site, reading

Row = tuple[str, float, float, int]
"""Job, start and end from now on, and slots of node a1."""


def planned(
    site: Site, *rows: Row, deferred: Sequence[str] = (), policy: str = "by-hand", takes: float = 0
) -> None:
    """Answer the pending solve, after a while."""
    solve = site.pending_solves.pop()
    begun = solve.snapshot.time
    placements = tuple(
        Placement(job=job, start=begun + start, end=begun + end, nodes={"a1": slots})
        for job, start, end, slots in rows
    )
    plan = Plan(
        policy=policy,
        status=Status.HEURISTIC,
        objective=Objective(name="makespan", value=0.0),
        placements=placements,
        deferred=tuple(Deferred(job=job, reason=Reason.NOT_SELECTED) for job in deferred),
    )
    site.now += takes
    site.do(Solved(round=solve.round, plan=plan, solve_s=takes))


def end(site: Site, job: str) -> None:
    if site.job(job).state is JobState.PREPARING:
        site.run(job)
    started = site.job(job).started
    site.say(job, PartState.FINISHED, exit_code=0, started=started, ended=site.now, reason="exited")


def site_of(
    slots: int, jobs: Sequence[tuple[int, float]], *, bobs: int = 0, **settings: Any
) -> tuple[Site, list[str]]:
    """One node, on which these jobs wait (slots, seconds) for the plan of the pending solve.

    `bobs`: the last so many are another user's.
    """
    site = Site(
        {"a": 1}, slots=slots, solving=False, prepare_timeout_s=1e9, max_age_s=1e9, **settings
    )
    users = ["ann"] * (len(jobs) - bobs) + ["bob"] * bobs
    held = [
        site.submit(procs, user=user, job={"base_time": s}, hold=True)
        for user, (procs, s) in zip(users, jobs, strict=True)
    ]
    site.state.rounds.paused = True
    for job in held:
        site.state.put(site.job(job).unplaced())
    site.state.rounds.paused = False
    site.state.rounds.want("resumed")
    site.wait(0.0)
    return site, held


def test_each_end_starts_the_next_while_no_plan_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1000
    site, jobs = site_of(4, [(1, 10.0)] * count)
    planned(site, *((job, i // 4 * 10.0, i // 4 * 10.0 + 10.0, 1) for i, job in enumerate(jobs)))
    looked = 0
    place = Filling._place

    def counted(*arguments: Any) -> Placement | None:
        nonlocal looked
        looked += 1
        return place(*arguments)

    monkeypatch.setattr(Filling, "_place", counted)
    for i in range(100):
        site.now += 0.01
        end(site, jobs[i])
        assert site.job(jobs[i + 4]).is_placed, "in the turn in which the other ended"
    assert len(site.pending_solves) <= 1, "one round corrects the order meanwhile"
    assert looked <= 100 * MOST
    assert not site.notes("start_superseded")


def test_newcomers_get_their_turns_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MOST_ARRIVED", 10)
    site, (first,) = site_of(1, [(1, 10.0)])
    planned(site, (first, 0.0, 10.0, 1), takes=1.0)
    site.state.rounds.paused = True
    jobs = [site.submit() for _ in range(25)]
    site.state.rounds.paused = False
    for count in (10, 20, 25):
        site.now += 1.0
        effects = [*site.do(Ticked()), *site.do(Ticked())]
        assert [job for _, job in site.state.schedule.ranked] == jobs[:count]
        assert any(isinstance(effect, Wake) for effect in effects) is (count < 25)
    end(site, first)
    assert site.job(jobs[0]).is_placed


def test_a_plan_that_comes_after_such_starts_supersedes_nothing_and_goes_on() -> None:
    site, jobs = site_of(1, [(1, 10.0)] * 4)
    first, second, third, fourth = jobs
    planned(site, (first, 0.0, 10.0, 1), (second, 10.0, 20.0, 1), (third, 20.0, 30.0, 1))
    site.submit()
    assert site.pending_solves, "a round is under way"
    end(site, first)
    assert site.job(second).is_placed
    planned(site, (third, 0.0, 10.0, 1), (second, 10.0, 20.0, 1), (fourth, 20.0, 30.0, 1))
    assert site.job(third).state is JobState.PENDING
    assert not site.notes("start_superseded")
    end(site, second)
    assert site.job(third).is_placed


def test_what_is_left_goes_to_what_ends_before_the_planned_start() -> None:
    site, (first, other, wide, long, short) = site_of(
        2, [(1, 50.0), (1, 100.0), (2, 10.0), (1, 80.0), (1, 40.0)]
    )
    rows = (first, 0.0, 50.0, 1), (other, 0.0, 100.0, 1), (wide, 100.0, 110.0, 2)
    planned(site, *rows, deferred=(long, short), takes=1.0)
    site.now += 49.0
    end(site, first)
    assert site.job(short).is_placed, "it ends before the wide one is to start"
    assert not site.job(long).is_placed
    assert not site.job(wide).is_placed


@pytest.mark.parametrize("policy", ["fcfs", "by-hand"])
def test_nothing_overtakes_where_the_policy_lets_nothing(policy: str) -> None:
    site, (first, other, wide, short) = site_of(2, [(1, 50.0), (1, 100.0), (2, 10.0), (1, 9.0)])
    rows = (first, 0.0, 50.0, 1), (other, 0.0, 100.0, 1), (wide, 100.0, 110.0, 2)
    planned(site, *rows, (short, 110.0, 119.0, 1), policy=policy, takes=1.0)
    end(site, first)
    assert site.job(short).is_placed is (policy != "fcfs")
    end(site, other)
    assert site.job(wide).is_placed is (policy == "fcfs")


def test_the_strict_policies_are_those_of_the_registry() -> None:
    assert {row.name for row in FOR_SITES if row.options is StrictOptions} == STRICT


def flooded(shares: float | None, *others: float) -> tuple[Site, list[str], list[str]]:
    """One slot, and a plan of 300 jobs of one user before some of another one: the last first."""
    projects = {name: ProjectConfig(users=(name,)) for name in ("ann", "bob")}
    priority = PriorityConfig(shares=shares, step_s=1.0)
    lengths = [100.0] * 300 + list(others)
    ones = [(1, length) for length in lengths]
    site, jobs = site_of(1, ones, bobs=len(others), priority=priority, projects=projects)
    flood, late = jobs[:300], jobs[300:]
    line = [*zip(flood, lengths, strict=False), *zip(late[::-1], others[::-1], strict=True)]
    ends = list(accumulate(length for _, length in line))
    rows = [(job, end - length, end, 1) for (job, length), end in zip(line, ends, strict=True)]
    planned(site, *rows, takes=5.0)
    return site, flood, late


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("shares", [None, 20.0])
def test_a_flood_keeps_another_users_job_from_no_turn_of_its_own(
    shares: float | None, is_known: bool
) -> None:
    """Neither one that came after the plan, nor one that was planned late."""
    site, flood, late = flooded(shares, *([100.0] * is_known))
    other = late[0] if is_known else site.submit(user="bob")
    assert not site.pending_solves, "there is no room for it now"
    end(site, flood[0])
    assert site.job(other).is_placed is (shares is not None)
    assert site.job(flood[1]).is_placed is (shares is None)


def test_jobs_of_one_owner_take_its_turns_in_the_plans_order() -> None:
    site, flood, (first, second) = flooded(20.0, 1000.0, 10.0)
    end(site, flood[0])
    assert site.job(second).is_placed, "it is planned before the first"
    end(site, second)
    assert site.job(flood[1]).is_placed, "its owner has had a turn"
    assert not site.job(first).is_placed


def test_rounds_that_would_only_confirm_take_a_fifth_of_the_time() -> None:
    site, jobs = site_of(1, [(1, 10.0)] * 150)
    rows = [(job, i * 10.0, i * 10.0 + 10.0, 1) for i, job in enumerate(jobs)]
    planned(site, *rows, takes=2.0)
    begun = site.state.rounds.last_start or 0.0
    while not site.pending_solves:
        site.now += 0.1
        placed = next(job for job in jobs if site.job(job).is_placed)
        end(site, placed)
    assert 10.0 <= site.now - begun <= 10.5


def drawn(seed: int) -> tuple[int, list[tuple[int, float, float]]]:
    """Slots of a node, and jobs: slots, planned and real seconds, no longer than planned."""
    dice = random.Random(seed)
    slots = dice.choice([2, 3, 4, 6])
    jobs = []
    for _ in range(30):
        length = float(dice.choice([5, 10, 20, 40]))
        wide = slots if dice.random() < 0.2 else dice.randint(1, max(1, slots // 2))
        jobs.append((wide, length, length * dice.choice([0.1, 0.5, 1.0, 1.0])))
    return slots, jobs


def in_a_list(
    slots: int, jobs: Sequence[tuple[int, float, float]], names: Sequence[str]
) -> list[Row]:
    """A plan that takes the jobs in their order, each as early as the slots allow."""
    free, rows, last = [0.0] * slots, [], 0.0
    for name, (width, length, _) in zip(names, jobs, strict=True):
        taken = sorted(free)[:width]
        last = max(last, taken[-1])
        for at in taken:
            free.remove(at)
        free += [last + length] * width
        rows.append((name, last, last + length, width))
    return rows


@pytest.mark.parametrize("seed", range(40))
def test_no_start_delays_what_the_plan_has_on_time(seed: int) -> None:
    follow(seed)


def test_a_rule_that_forgets_what_is_planned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Filling, "_spare", lambda self, job, node, *_: self.turn.view.free[node])
    with pytest.raises(AssertionError, match="late"):
        deque(map(follow, range(40)))


def follow(seed: int) -> None:
    """No plan comes but the first; what ends early lets others start, and none start late."""
    slots, jobs = drawn(seed)
    site, names = site_of(slots, [(width, length) for width, length, _ in jobs])
    rows = in_a_list(slots, jobs, names)
    begun, latest = site.now, {name: start for name, start, _, _ in rows}
    dice = random.Random(seed)
    left = set(dice.sample(names, 6))
    planned(site, *(row for row in rows if row[0] not in left), deferred=sorted(left), takes=0.2)
    real = {name: seconds for name, (_, _, seconds) in zip(names, jobs, strict=True)}
    ends: list[tuple[float, str]] = []
    seen: set[str] = set()
    while len(seen) < len(names):
        for name in names:
            if name not in seen and site.job(name).is_placed:
                seen.add(name)
                site.run(name)
                heapq.heappush(ends, (site.now + real[name], name))
                late = site.now - begun - latest[name]
                assert name in left or late <= 0.2 + 1e-6, f"{name} starts {late} s late"
        if not ends:
            break
        view = occupation(site.state, site.now)
        held = sum(r.placed_slots for r in site.state.placed_records())
        assert view.free["a1"] == slots - held >= 0
        site.now, name = max(ends[0][0], site.now), heapq.heappop(ends)[1]
        end(site, name)
    assert seen >= set(names) - left


@pytest.mark.parametrize(("takes", "begins"), [(0.02, False), (3.0, True)])
def test_a_newcomer_waits_for_a_short_round_and_else_goes_where_it_ends_first(
    takes: float, begins: bool
) -> None:
    site = Site({"a": 2, "b": 1, "c": 1}, solving=False, max_age_s=1e9, min_interval_s=0.0)
    for name, power in (("a", 0.5), ("b", 1.0), ("c", 0.8)):
        told = reading(name, site.sizes[name], power=power)
        site.do(StatementReceived(statement=Read(cluster=name, reading=told)))
    first = site.submit(job={"base_time": 9.0})
    planned(site, (first, 0.0, 20.0, 1), takes=takes)
    site.submit(4, job={"base_time": 9.0})
    assert site.pending_solves, "a round is under way"
    second = site.submit(job={"base_time": 9.0})
    assert site.job(second).is_placed is begins
    assert not begins or set(site.job(second).nodes) == {"b1"}


@pytest.mark.parametrize(("nodes", "waits"), [(3, False), (MOST + 1, True)])
def test_a_process_that_waits_alone_starts_on_the_fastest_node_without_a_round(
    nodes: int, waits: bool
) -> None:
    """Unless there are more free nodes than are looked at."""
    site = Site({"a": nodes}, solving=False, max_age_s=1e9, min_interval_s=0.0)
    told = reading("a", nodes, power=0.5)
    fast = replace(told.nodes[1], power=1.0)
    told = replace(told, nodes=(told.nodes[0], fast, *told.nodes[2:]))
    site.do(StatementReceived(statement=Read(cluster="a", reading=told)))
    first = site.submit(job={"base_time": 9.0})
    planned(site, (first, 0.0, 20.0, 1))
    end(site, first)
    job = site.submit(job={"base_time": 9.0})
    assert [solve.snapshot.queue for solve in site.pending_solves] == [()] * waits  # of the end
    assert set(site.job(job).nodes) == (set() if waits else {"a2"})


def test_of_equal_nodes_the_first_is_taken_whichever_became_free_last() -> None:
    site = Site({"a": 3}, solving=False, max_age_s=1e9, min_interval_s=0.0)
    first = site.submit(job={"base_time": 9.0})
    planned(site, (first, 0.0, 20.0, 1))
    end(site, first)
    told = reading("a", 3)
    local = Running(id="local", nodes={"a1": 1}, start=site.now, end=site.now + 60, ours=False)
    for running in ((local,), ()):
        told = replace(told, running=running)
        site.do(StatementReceived(statement=Read(cluster="a", reading=told)))
    job = site.submit(job={"base_time": 9.0})
    assert set(site.job(job).nodes) == {"a1"}


def test_no_round_is_for_what_starts_and_ends_alone() -> None:
    site = Site({"a": 1}, solving=False, max_age_s=1e9, min_interval_s=0.0)
    first = site.submit(job={"base_time": 9.0})
    planned(site, (first, 0.0, 20.0, 1))
    for _ in range(2):
        end(site, first)
        site.wait(60.0)
        first = site.submit(job={"base_time": 9.0})
        assert site.job(first).is_placed
    assert not site.pending_solves
    second = site.submit(job={"base_time": 9.0})
    assert [job.id for job in site.pending_solves[0].snapshot.queue] == [second]
