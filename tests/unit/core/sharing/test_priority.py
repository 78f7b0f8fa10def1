"""Effective weights: each term, the tree of shares, and what rounds are told."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.events import Solved
from coalloc.core.base.projects import Factors, ProjectTree, Usage
from coalloc.core.base.requests import Done, Refused, ResumeRounds, SetPriority, Submit
from coalloc.core.base.state import arrival
from coalloc.core.sharing.priority import Turns, beside_slots, charged_proc_s, factors
from coalloc.model.jobs import Job, RigidJob
from coalloc.model.settings import LimitsConfig, PriorityConfig, ProjectConfig
from coalloc.model.shape import Shape
from coalloc.model.sites.batch_options import BatchOptions
from coalloc.model.sites.parts import Launch, PartState
from coalloc.model.values import replace
from tests.support.core_site import Site, first_fit

SHARES = PriorityConfig(shares=16.0, step_s=100.0, ahead_s=50.0, half_life_s=1e9)
TREE = {
    "science": ProjectConfig(share=3.0),
    "physics": ProjectConfig(parent="science", share=2.0, users=("ann", "bob")),
    "biology": ProjectConfig(parent="science", share=1.0, users=("cy",)),
    "trade": ProjectConfig(share=1.0, users=("dee",)),
}


def site(**settings: Any) -> Site:
    """A busy site of four slots that plans nothing by itself."""
    return Site({"a": 2, "b": 2}, solving=False, **settings)


def shared(**settings: Any) -> Site:
    return site(priority=SHARES, projects=TREE, **settings)


def found(site: Site) -> dict[str, Factors]:
    """Factors of all waiting jobs by id."""
    made = factors(site.state, site.state.waiting_records(), site.now)
    return {record.id: row for record, row in made}


def planned(site: Site) -> dict[str, Job]:
    """The queue of the next round."""
    from coalloc.core.rounds.snapshots import snapshot

    return {job.id: job for job in snapshot(site.state, site.now).queue}


def test_without_factors_weights_are_as_submitted() -> None:
    one = site()
    job = one.submit(job={"weight": 3.5})
    assert planned(one)[job] is one.job(job).job


def test_what_a_job_asks_for_beside_its_slots_is_charged_as_weighed() -> None:
    weights = {"gpu": 8.0, "gpu:a100": 16.0, "mem_gb": 0.25, "licence": 0.5}
    shape = Shape(per_proc={"gpu:a100": 1}, per_node={"gpu:t4": 2}, per_job={"licence": 4})
    asked = RigidJob(id="j", procs=2, base_time=10.0, memory_mb_per_proc=4096, shape=shape)
    beside = 2 * 16.0 + 8.0 * 2 + 4 * 0.5 + 2 * 4 * 0.25
    assert beside_slots(PriorityConfig(weights=weights), asked, 2, 1) == beside
    assert beside_slots(SHARES, asked, 2, 1) == 0.0
    whole = replace(shape, memory_mb_per_node=8192)
    on_nodes = replace(asked, shape=whole, memory_mb_per_proc=0)
    assert beside_slots(PriorityConfig(weights={"mem_gb": 1.0}), on_nodes, 2, 3) == 24.0


def test_a_weighed_job_costs_its_user_more_while_it_runs_and_after() -> None:
    one = Site({"a": 2}, priority=replace(SHARES, weights={"mem_gb": 0.5}), projects=TREE)
    job = one.submit(1, user="ann", job={"memory_mb_per_proc": 2048})
    one.say(job, PartState.READY)
    one.say(job, PartState.RUNNING, started=one.now)
    one.wait(10.0)
    owner = ("physics", "ann")
    ahead = charged_proc_s(one.state, one.now)[owner]
    one.say(job, PartState.FINISHED, exit_code=0, started=one.now - 10.0)
    assert one.state.sharing.usage[owner].proc_s == pytest.approx(20.0, rel=1e-6)
    assert 20.0 < ahead <= 2.0 * (10.0 + SHARES.ahead_s)


def test_shares_multiply_down_the_tree() -> None:
    tree = ProjectTree(TREE, others_share=1.0)
    assert tree.shares == pytest.approx(
        {"science": 0.6, "physics": 0.4, "biology": 0.2, "trade": 0.2, "": 0.2}
    )
    assert tree.path("physics") == ("science", "physics")
    assert tree.path("gone") == ("",)
    assert tree.of_user("bob") == "physics"
    assert tree.of_user("eve") == ""


def test_the_sibling_that_is_behind_goes_first() -> None:
    one = shared()
    ann, cy, dee = (one.submit(user=user) for user in ("ann", "cy", "dee"))
    # physics has had 80 s of 1.6 slots, biology none; science 53 s of 2.4 slots, trade none
    one.state.sharing.usage["physics", "ann"] = Usage(128.0, one.now)
    rows = found(one)
    assert [lead.seconds for lead in rows[ann].leads] == pytest.approx([128 / 2.4, 80.0, 0.0])
    assert rows[ann].shares == pytest.approx(-(128 / 2.4 + 80.0) / 100.0, rel=1e-6)
    assert rows[cy].shares == pytest.approx(-(128 / 2.4) / 100.0, rel=1e-6)
    assert rows[dee].shares == 0.0
    assert rows[ann].weight < rows[cy].weight < rows[dee].weight == 1.0


def test_users_of_one_project_take_turns() -> None:
    one = shared()
    ann, bob = (one.submit(user=user) for user in ("ann", "bob"))
    one.state.sharing.usage["physics", "ann"] = Usage(40.0, one.now)
    rows = found(one)
    assert rows[ann].leads[-1].name == "ann"
    assert rows[ann].leads[-1].seconds == pytest.approx(50.0)  # of 0.8 slots
    assert rows[bob].leads[-1].seconds == 0.0


def test_a_flood_of_one_user_keeps_no_other_of_the_project_behind_all_of_it() -> None:
    one = shared()
    flood = [one.submit(user="ann") for _ in range(20)]
    bob = one.submit(user="bob")
    rows = found(one)
    assert rows[bob].shares == rows[flood[0]].shares == 0.0
    # 50 s of a slot, of half of what the project is entitled to
    leads = [rows[job].ahead_s for job in flood[:3]]
    assert leads == pytest.approx([0.0, leads[1], 2.0 * leads[1]])
    assert rows[flood[1]].shares < rows[bob].shares
    alone = shared()
    one_of, other = (alone.submit(user="ann") for _ in range(2))
    assert leads[1] == pytest.approx(2.0 * found(alone)[other].ahead_s)
    assert found(alone)[one_of].ahead_s == 0.0


def test_one_that_comes_after_the_round_takes_its_turn_by_the_same_measure() -> None:
    one = shared()
    one.state.sharing.usage["physics", "ann"] = Usage(40.0, one.now)
    flood = [one.submit(user="ann") for _ in range(3)]
    turns = Turns(one.state, one.now)
    rows = [row for _, row in factors(one.state, one.state.waiting_records(), one.now, turns)]
    assert rows[0].ahead_s == rows[0].shares == 0.0, "nobody else waits"
    others = [one.job(one.submit(user=user)) for user in ("bob", "dee")]
    behind = one.job(one.submit(user="ann"))
    places = [turns.precedence(record) for record in others]
    assert max(places) < (-rows[0].precedence, -rows[0].weight, arrival(flood[0]))
    assert turns.precedence(behind) > (-rows[2].precedence, -rows[2].weight, arrival(flood[2]))


def test_usage_is_forgotten_by_its_half_life() -> None:
    rule = replace(SHARES, half_life_s=1000.0)
    one = site(priority=rule, projects=TREE)
    ann = one.submit(user="ann")
    one.submit(user="dee")
    one.state.sharing.usage["physics", "ann"] = Usage(128.0, one.now)
    before = found(one)[ann].shares
    one.now += 1000.0
    assert found(one)[ann].shares == pytest.approx(before / 2)


def test_earlier_jobs_of_a_project_go_before_later_ones() -> None:
    one = shared()
    first, second = (one.submit(2, user="dee") for _ in range(2))
    rows = found(one)
    # 2 processes for the 50 s that are charged ahead, of a fifth of four slots
    assert rows[first].ahead_s == 0.0
    assert rows[second].ahead_s == pytest.approx(125.0)
    assert rows[second].shares == pytest.approx(-1.25)


def test_running_jobs_are_charged_ahead_and_no_more_when_they_end() -> None:
    one = Site({"a": 1}, priority=SHARES, projects=TREE)
    running = one.submit(user="ann")
    waiting = one.submit(user="ann")
    assert one.job(running).is_placed
    one.submit(user="dee")
    lead = found(one)[waiting].leads[0]
    assert lead.usage_proc_s == pytest.approx(50.0)
    one.run(running)
    one.now += 10.0
    assert found(one)[waiting].leads[0].usage_proc_s == pytest.approx(60.0)
    one.finish(running)
    assert ("physics", "ann") not in one.state.sharing.usage


def test_shares_take_no_more_than_their_limit() -> None:
    one = shared()
    ann = one.submit(user="ann", job={"weight": 2.0})
    one.submit(user="dee")
    one.state.sharing.usage["physics", "ann"] = Usage(1e9, one.now)
    row = found(one)[ann]
    assert row.shares == -16.0
    assert row.weight == 2.0 * 2.0**-16
    assert planned(one)[ann].weight == row.weight
    assert planned(one)[ann].priority == -16.0


def test_age_and_size_count() -> None:
    rule = PriorityConfig(age=2.0, age_full_s=1000.0, size=-1.0)
    one = site(priority=rule)
    narrow, wide = one.submit(1), one.submit(4)
    one.now += 500.0
    rows = found(one)
    assert (rows[narrow].age, rows[narrow].size) == (1.0, -0.25)
    assert (rows[wide].age, rows[wide].size) == (1.0, -1.0)
    one.now += 5000.0
    assert found(one)[wide].age == 2.0
    # neither changes the order of those that have waited too long
    assert planned(one)[wide].priority == 0.0


def test_a_weight_counts_for_as_much_as_is_allowed() -> None:
    users = {
        "ann": LimitsConfig(max_weight=2.0),
        "*": LimitsConfig(max_weight=1.0),
    }
    one = site(users=users)
    ann, bob = (one.submit(user=user, job={"weight": 50.0}) for user in ("ann", "bob"))
    assert {job.id: job.weight for job in planned(one).values()} == {ann: 2.0, bob: 1.0}


def test_an_operator_sets_a_priority() -> None:
    one = site()
    job = one.submit()
    assert one.ask(SetPriority(job=job, priority=3.0), operator=True) == Done(body={"jobs": [job]})
    assert planned(one)[job].weight == 8.0
    assert planned(one)[job].priority == 3.0
    again = one.restarted(solving=False)
    assert planned(again)[job].weight == 8.0
    one.ask(SetPriority(job=job, priority=0.0), operator=True)
    assert planned(one)[job].weight == 1.0
    assert not one.state.marked.prioritised


@pytest.mark.parametrize(
    ("priority", "operator", "code"),
    [
        (1.0, False, "not_allowed"),  # even of one's own job
        (31.0, True, "bad_request"),  # it would be all there is
        (float("nan"), True, "bad_request"),
    ],
)
def test_a_priority_may_be_refused(priority: float, operator: bool, code: str) -> None:
    one = site()
    job = one.submit()
    answer = one.ask(SetPriority(job=job, priority=priority), operator=operator)
    assert isinstance(answer, Refused)
    assert answer.code == code


def test_a_running_job_has_no_priority() -> None:
    one = Site({"a": 1})
    job = one.submit()
    answer = one.ask(SetPriority(job=job, priority=1.0), operator=True)
    assert isinstance(answer, Refused)
    assert answer.code == "wrong_state"


def start_of(site: Site, job: str) -> None:
    """A round that starts one job and no other."""
    solve = site.pending_solves.pop()
    queue = tuple(one for one in solve.snapshot.queue if one.id == job)
    plan = first_fit(replace(solve.snapshot, queue=queue))
    site.do(Solved(round=solve.round, plan=plan, solve_s=0.0))


@pytest.mark.parametrize(
    ("usage", "times"),
    [
        ({}, 1),  # nobody is ahead: the later job has overtaken
        ({("physics", "ann"): Usage(128.0, 1000.0)}, 0),  # it was the turn of the later one
    ],
)
def test_a_job_whose_turn_it_was_passes_nobody_over(
    usage: dict[tuple[str, str], Usage], times: int
) -> None:
    one = shared()
    one.state.sharing.usage.update(usage)
    one.state.rounds.paused = True
    early, later = (one.submit(user=user) for user in ("ann", "dee"))
    one.ask(ResumeRounds(), operator=True)
    start_of(one, later)
    assert one.job(later).is_placed
    assert one.state.findings.passed_over.get(early, 0) == times


def test_a_job_is_charged_to_the_project_it_names() -> None:
    one = shared()
    plain = one.submit(user="ann")
    named = one.submit(user="ann", batch=BatchOptions(account="science"))
    rows = found(one)
    assert [lead.name for lead in rows[plain].leads] == ["science", "physics", "ann"]
    assert [lead.name for lead in rows[named].leads] == ["science", "ann"]


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ("physic", "there is no project 'physic'"),
        ("trade", "ann is not a user of project trade"),
    ],
)
def test_a_submit_names_a_project_of_its_user(account: str, words: str) -> None:
    one = shared()
    body = {"kind": "rigid", "procs": 1}
    launch = Launch(argv=("x",))
    batch = BatchOptions(account=account)
    answer = one.ask(Submit(token="t", job=body, launch=launch, batch=batch), user="ann")
    assert isinstance(answer, Refused)
    assert answer.code == "not_allowed"
    assert words in answer.message


def test_without_projects_an_account_is_the_batch_systems_alone() -> None:
    one = site(priority=SHARES)
    job = one.submit(batch=BatchOptions(account="a17"))
    assert [lead.name for lead in found(one)[job].leads] == ["", "ann"]
