"""Members taken ahead: which, when all of them start or none, and who holds the slot."""

from __future__ import annotations

from typing import Any

import pytest

from coalloc.core.base.effects import LogLine
from coalloc.core.base.events import StatementReceived
from coalloc.core.base.messages import ABILITIES, SLOW_CLAIMS, Abort, Forget, Hello, Prepare, Start
from coalloc.core.base.projects import Usage
from coalloc.core.base.records import JobState
from coalloc.core.base.requests import Cancel, Done, Submit
from coalloc.core.rounds.snapshots import snapshot
from coalloc.model.plan import Plan
from coalloc.model.settings import LimitsConfig, PriorityConfig
from coalloc.model.sites.parts import Launch, PartKey, PartReport, PartState
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from tests.support.core_site import Site
from tests.unit.core.starts.test_negotiation import Crowded

SHORT = {"kind": "rigid", "procs": 1}


def array(
    job: dict[str, Any] = SHORT, abilities: tuple[str, ...] = ABILITIES, **settings: Any
) -> tuple[Site, list[str]]:
    """A node of one slot, and an array whose first member has just ended there.

    `ago_s`: so long after the last job of another user.
    """
    throttle, ran_s = settings.pop("throttle", 0), settings.pop("ran_s", 0.02)
    ago_s: float | None = settings.pop("ago_s", None)
    site = Site({"a": 1}, min_interval_s=1e6, **settings)
    site.do(StatementReceived(statement=Hello(cluster="a", abilities=abilities)))
    if ago_s is not None:
        site.state.sharing.usage["", "bob"] = Usage(1.0, site.now - ago_s)
    launch = Launch(argv=("true",))
    command = Submit(token="t", job=job, launch=launch, array=tuple(range(6)), throttle=throttle)
    answer = site.ask(command)
    assert isinstance(answer, Done)
    members: list[str] = answer.body["jobs"]
    site.run(members[0])
    ended = {"started": site.now, "ended": site.now + ran_s, "exit_code": 0}
    site.say(members[0], PartState.FINISHED, **ended)
    return site, members


def behind(site: Site) -> list[str]:
    """The members that the last order takes along."""
    order = [order for _, _, order in site.orders if isinstance(order, Prepare)][-1]
    return [member.job for member in order.members]


def told(site: Site, job: str, state: PartState, **fields: Any) -> PartReport:
    key = PartKey(job=job, attempt=site.job(job).attempt, part=0)
    return key.report(state, **fields)


def states(site: Site, members: list[str]) -> list[str]:
    return [str(site.job(member).state) for member in members]


def slots(site: Site, members: list[str]) -> list[int]:
    return [sum(part.held.values()) for m in members for part in site.job(m).parts]


def test_the_next_members_are_prepared_and_started_with_the_first() -> None:
    site, (_, first, *others) = array()
    assert behind(site) == others
    assert states(site, [first, *others]) == ["preparing"] * 5
    assert slots(site, [first, *others]) == [1, 0, 0, 0, 0]
    site.say(first, PartState.READY)
    assert states(site, [first, *others]) == ["starting"] * 5
    starts = [o.job for _, _, o in site.orders if isinstance(o, Start)]
    assert starts[1:] == [first], "its executor starts them all"
    assert {site.saved()[job].state for job in others} == {JobState.STARTING}


def test_the_slot_goes_from_one_that_ends_to_one_that_lives() -> None:
    site, (_, first, second, third, *_) = array()
    site.say(first, PartState.READY)
    times = {"started": site.now, "ended": site.now, "exit_code": 0}
    site.report("a", told(site, first, PartState.FINISHED, **times))
    assert slots(site, [second, third]) == [1, 0]
    ends = [told(site, job, PartState.FINISHED, **times) for job in (second, third)]
    running = told(site, site.job(third).id, PartState.RUNNING, started=site.now)
    site.report("a", running, *ends)
    assert states(site, [first, second, third]) == ["completed"] * 3
    together = [o for _, _, o in site.orders if isinstance(o, Forget)][-1]
    assert {job for job, _ in together.others} == {second, third}
    assert site.restarted().state.packs == site.state.packs


def test_before_the_start_one_that_is_cancelled_takes_all_out() -> None:
    site, (_, first, second, *others) = array()
    site.ask(Cancel(job=second))
    assert site.job(second).state is JobState.CANCELLED
    assert site.orders_for(first, Abort)
    again = [order for _, order in site.orders_for(first, Prepare)]
    assert [order.attempt for order in again] in ([1], [1, 2])
    site.say(first, PartState.READY)
    assert all(site.job(job).attempt <= 2 for job in others)


def test_after_the_start_only_a_report_gives_one_back() -> None:
    site, (_, first, second, third, *_) = array()
    site.say(first, PartState.READY)
    site.ask(Cancel(job=second))
    site.wait(3600.0)
    assert states(site, [first, second, third]) == ["starting"] * 3
    site.report(
        "a",
        told(site, first, PartState.LOST, started=site.now),
        told(site, second, PartState.REFUSED, reason="not_begun"),
        told(site, third, PartState.REFUSED, reason="not_begun"),
    )
    ended = states(site, [first, second])
    assert ended == ["lost", "cancelled"]
    assert site.job(third).state in {JobState.PENDING, JobState.PREPARING}
    assert site.job(third).attempt <= 2
    assert site.job(third).refusals == 0
    lines = [line for line in site.effects if isinstance(line, LogLine)]
    (line,) = (
        each for each in lines if each.event == "job_requeued" and each.fields["job"] == third
    )
    assert line.level == "info"
    assert line.fields["detail"] == "was taken ahead, and did not begin"


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        ({}, {"ran_s": 0.4}),  # not short
        ({"procs": 1, "proc_gbps": 0.1}, {}),  # loads a link
        ({}, {"throttle": 3}),
        ({}, {"members_s": 0.0}),
        ({}, {"users": {"ann": LimitsConfig(max_running_jobs=4)}}),
        ({}, {"abilities": ()}),  # an older executor
    ],
)
def test_nothing_is_taken_ahead_of_what_may_not_be(
    job: dict[str, Any], settings: dict[str, Any]
) -> None:
    site, _ = array({**SHORT, **job}, **settings)
    assert not behind(site)


def test_as_many_are_taken_as_make_a_second_of_work() -> None:
    site, _ = array(ran_s=0.24)
    assert len(behind(site)) == 3


@pytest.mark.parametrize(("ago_s", "taken"), [(30.0, 1), (90.0, 3)])
def test_half_as_many_are_taken_where_others_have_had_jobs_lately(ago_s: float, taken: int) -> None:
    shares = PriorityConfig(shares=8.0)
    site, _ = array(ran_s=0.24, priority=shares, ago_s=ago_s)
    assert len(behind(site)) == taken


def test_where_claims_cost_seconds_more_are_taken_and_longer_ones() -> None:
    slow = (*ABILITIES, SLOW_CLAIMS)
    site, _ = array(SHORT, slow, ran_s=9.0)
    assert len(behind(site)) == 2
    site, _ = array(SHORT, slow, ran_s=11.0)
    assert not behind(site)


def short_ones_later(snapshot: Snapshot) -> Plan:
    plan = Crowded.plan_of(snapshot)
    ends = [replace(each, end=each.start + 0.02) for each in plan.placements]
    return replace(plan, placements=tuple(ends))


def test_a_pack_whose_claim_waits_has_one_place_and_follows_its_nodes() -> None:
    """It has no siblings elsewhere; where it is granted another node, it has one slot there."""
    site = Crowded({"a": 2, "b": 2})
    site.plan_of = staticmethod(short_ones_later)
    for name in "ab":
        site.do(StatementReceived(statement=Hello(cluster=name, abilities=ABILITIES)))
    job = {**SHORT, "base_time": 0.02}
    command = Submit(token="t", job=job, launch=Launch(argv=("true",)), array=tuple(range(6)))
    answer = site.ask(command)
    assert isinstance(answer, Done)
    members: list[str] = answer.body["jobs"]
    ((cluster, order),) = site.orders_for(members[0], Prepare)
    pack = [members[0], *(member.job for member in order.members)]
    assert order.queue is not None
    assert len(pack) > 1
    site.waits(pack[0], cluster)
    site.waits(pack[1], cluster)
    other = next(n for n in (f"{cluster}1", f"{cluster}2") if n not in order.nodes)
    for job in pack[:2]:
        site.grants(job, cluster, other)
    assert slots(site, pack) == [1, *(0 for _ in pack[1:])]
    assert {site.job(job).siblings for job in pack} == {0}
    assert dict(site.job(pack[1]).parts[0].nodes) == {other: 1}
    site.tell(pack[0], cluster, PartState.READY, nodes={other: 1})
    assert set(states(site, pack)) == {"starting"}


def test_members_of_unknown_length_wait_for_the_first_end() -> None:
    """So many as the cluster has slots have a place in its queue, the others for 30 s at most."""

    def tried(ahead: str = SLOW_CLAIMS) -> tuple[Crowded, list[str]]:
        site = Crowded({"a": 2})
        site.do(StatementReceived(statement=Hello(cluster="a", abilities=(*ABILITIES, ahead))))
        launch = Launch(argv=("true",))
        answer = site.ask(Submit(token="t", job=SHORT, launch=launch, array=tuple(range(6))))
        assert isinstance(answer, Done)
        return site, answer.body["jobs"]

    def claimed(site: Site) -> list[str]:
        return [order.job for _, _, order in site.orders if isinstance(order, Prepare)]

    site, members = tried("")
    assert claimed(site) == members, "where a claim costs little, all are sent"
    site, members = tried()
    assert claimed(site) == members[:2]
    site.read("a", waiting=1, busy=False)
    site.wait(1.0)
    assert claimed(site) == members[:2], "nor between rounds, onto nodes that look free"
    site.grants(members[0], "a", "a1")
    site.run(members[0])
    site.finish(members[0])
    assert claimed(site)[2:] == [members[2]], "the others run behind it"
    assert behind(site) == members[3:]
    site, members = tried()
    site.wait(31.0)
    site.submit(1, program="other")
    assert claimed(site)[:6] == members


def test_a_round_sees_the_slot_of_a_pack_once() -> None:
    site, (_, first, *_) = array()
    (busy,) = snapshot(site.state, site.now).running
    assert (busy.id, dict(busy.nodes)) == (first, {"a1": 1})
