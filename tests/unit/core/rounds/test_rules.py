"""Snapshots without each rule, for what rules cost in a round."""

from __future__ import annotations

from coalloc.core.base.effects import Solve
from coalloc.core.base.events import CostsWanted, TimerFired
from coalloc.model.settings import PriorityConfig, ProjectConfig, TriggerConfig
from tests.support.core_site import HOUR, Site, solves

TIMER = TriggerConfig(kind="timer", every_s=HOUR)
LIMITED = {"p": ProjectConfig(users=("ann",), max_procs=2)}


def round_of(site: Site) -> Solve:
    site.wait(HOUR)
    site.do(TimerFired(trigger=0))
    return solves(site)[-1]


def limited_site() -> Site:
    """One job of two fills its project's limit; the clusters have room for both."""
    site = Site({"a": 4}, slots=1, trigger=(TIMER,), projects=LIMITED)
    for _ in range(2):
        site.submit(2, user="ann")
    return site


def test_a_round_brings_what_is_wanted_once_and_of_its_own_instant() -> None:
    site = limited_site()
    assert not round_of(site).lifted, "nobody asked"
    assert len(site.state.findings.limited) == 1
    site.do(CostsWanted())
    found = round_of(site)
    assert list(found.lifted) == ["limits"]
    without = found.lifted["limits"]
    assert without.time == found.snapshot.time
    assert without.running == found.snapshot.running
    held = {job.id for job in without.queue} - {job.id for job in found.snapshot.queue}
    assert held == set(site.state.findings.limited)
    assert not round_of(site).lifted, "asked once"


def test_nothing_is_assembled_where_nothing_waits_and_the_wish_stays() -> None:
    site = Site({"a": 4}, slots=1, trigger=(TIMER,), projects=LIMITED)
    site.do(CostsWanted())
    assert not round_of(site).lifted
    site.submit(2, user="ann")
    assert list(round_of(site).lifted) == ["limits"]


def test_nothing_is_assembled_where_no_rule_is_in_force() -> None:
    site = Site({"a": 1}, slots=1, trigger=(TIMER,))
    site.submit(1)
    site.submit(1)
    site.do(CostsWanted())
    assert not round_of(site).lifted
    assert site.state.rounds.costs_wanted


def test_shares_are_lifted_from_weights() -> None:
    site = Site(
        {"a": 1},
        slots=1,
        trigger=(TIMER,),
        projects={"p": ProjectConfig(users=("ann",)), "q": ProjectConfig(users=("bob",))},
        priority=PriorityConfig(shares=8.0),
    )
    for user in ("ann", "ann", "bob"):
        site.submit(1, user=user)
    round_of(site)
    site.do(CostsWanted())
    found = round_of(site)
    assert list(found.lifted) == ["shares"]
    weights = {job.id: job.weight for job in found.snapshot.queue}
    plain = {job.id: job.weight for job in found.lifted["shares"].queue}
    assert plain == dict.fromkeys(weights, 1.0)
    assert min(weights.values()) < 1.0
