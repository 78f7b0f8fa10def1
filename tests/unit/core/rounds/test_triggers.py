"""When a round starts: submits, the timer, the distance between rounds."""

from __future__ import annotations

from coalloc.core.base.events import (
    Solved,
    TimerFired,
)
from coalloc.model.settings import TriggerConfig
from tests.support.core_site import HOUR, Site, first_fit, solves


def test_the_nth_submit_starts_a_round_and_not_the_one_before() -> None:
    triggers = (
        TriggerConfig(kind="timer", every_s=HOUR),
        TriggerConfig(kind="queue_length", at_least=3),
    )
    site = Site(trigger=triggers)
    site.submit()
    site.submit()
    assert not solves(site)
    site.submit()
    assert len(solves(site)) == 1
    assert site.notes("round_finished")[0]["trigger"] == "queue_length"


def test_with_no_submits_the_timer_starts_a_round() -> None:
    site = Site(
        trigger=(
            TriggerConfig(kind="timer", every_s=HOUR),
            TriggerConfig(kind="queue_length", at_least=3),
        )
    )
    site.do(TimerFired(trigger=0))
    assert len(solves(site)) == 1
    assert site.notes("round_finished")[0]["trigger"] == "timer"


def test_a_timer_that_is_not_a_timer_any_more_does_nothing() -> None:
    site = Site(trigger=(TriggerConfig(kind="queue_length", at_least=3),))
    site.do(TimerFired(trigger=0))
    site.do(TimerFired(trigger=7))
    assert not solves(site)


def test_a_queue_that_stays_above_the_threshold_does_not_spin() -> None:
    site = Site({"a": 1}, trigger=(TriggerConfig(kind="queue_length", at_least=2),))
    blocker = site.submit(1)
    site.submit(1)
    site.run(blocker)
    for _ in range(3):
        site.submit(1)
    count = len(solves(site))
    for _ in range(50):
        site.wait(10.0)
    assert len(solves(site)) == count
    assert len(site.state.waiting) >= 2


def test_the_threshold_looks_again_after_a_round_that_placed_something() -> None:
    site = Site({"a": 1}, trigger=(TriggerConfig(kind="queue_length", at_least=2),), solving=False)
    for _ in range(4):
        site.submit(1)
    first = site.pending_solves.pop()
    site.do(Solved(round=first.round, plan=first_fit(first.snapshot), solve_s=0.0))
    assert len(solves(site)) == 2, "one job was placed and three still wait"
    second = site.pending_solves.pop()
    site.do(Solved(round=second.round, plan=first_fit(second.snapshot), solve_s=0.0))
    assert len(solves(site)) == 2, "nothing was placed: no further round"


def test_a_threshold_may_count_processes() -> None:
    site = Site(trigger=(TriggerConfig(kind="queue_length", at_least=4, count="procs"),))
    site.submit(3)
    assert not solves(site)
    site.submit(1)
    assert len(solves(site)) == 1


def test_a_trigger_may_name_its_own_policy() -> None:
    site = Site(trigger=(TriggerConfig(kind="queue_length", policy="sjf"),), policy="easy")
    site.submit()
    assert solves(site)[0].policy == "sjf"


def test_rounds_keep_their_distance() -> None:
    site = Site({"a": 1}, min_interval_s=5.0)
    for _ in range(3):
        site.submit()
    assert len(solves(site)) == 1
    site.wait(4.9)
    assert len(solves(site)) == 1
    site.wait(0.2)
    assert len(solves(site)) == 2
    assert len(site.state.waiting) == 2
