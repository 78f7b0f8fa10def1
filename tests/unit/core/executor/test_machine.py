"""The executor's core: orders once, in sequence, of the present epoch only."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from coalloc.core.base.messages import (
    Abort,
    Arrange,
    Forget,
    Hello,
    Numbered,
    Order,
    Ping,
    Prepare,
    Report,
    Start,
    Welcome,
)
from coalloc.core.executor.effects import (
    ArrangePart,
    ClaimPart,
    EffectFailed,
    EndPart,
    ExecutorEffect,
    ExecutorLogLine,
    ExecutorTicked,
    MessageReceived,
    PartNews,
    RemovePart,
    RenewLeases,
    SaveProgress,
    SendStatement,
    StartPart,
)
from coalloc.core.executor.machine import ExecutorCore, ExecutorState
from coalloc.core.executor.turn import _joined
from coalloc.model.sites.parts import Member, PartKey, PartReport, PartState


def prepare(job: str = "1", attempt: int = 1) -> Prepare:
    return Prepare(
        job=job, attempt=attempt, part=0, nodes={"a1": 1}, all_nodes={"a1": 1}, first_rank=0,
        size=1, uid=1, gid=1, lease_s=60.0,
    )  # fmt: skip


class Bench:
    """An executor's core with a conversation begun."""

    def __init__(self, state: ExecutorState | None = None) -> None:
        self.core = ExecutorCore(state or ExecutorState(cluster="a"))
        self.now = 100.0
        self.seq = 0
        self.hear(Welcome(store="s", epoch=5, base_seq=1, lease_s=60.0))

    def hear(self, message: Any) -> list[ExecutorEffect]:
        return self.core.handle(MessageReceived(message=message), self.now)

    def order(
        self, order: Order, *, seq: int | None = None, epoch: int = 5
    ) -> list[ExecutorEffect]:
        if seq is None:
            self.seq += 1
            seq = self.seq
        return self.hear(Numbered(epoch=epoch, seq=seq, order=order))

    def news(self, state: PartState, job: str = "1", **fields: Any) -> list[ExecutorEffect]:
        report = PartReport(job=job, attempt=1, part=0, state=state, **fields)
        return self.core.handle(PartNews(report=report), self.now)


def kinds(effects: list[ExecutorEffect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def said(effects: list[ExecutorEffect], kind: type[Any]) -> list[Any]:
    return [
        e.statement
        for e in effects
        if isinstance(e, SendStatement) and isinstance(e.statement, kind)
    ]


def test_an_order_is_carried_out_written_and_then_acknowledged() -> None:
    bench = Bench()
    effects = bench.order(prepare())
    assert kinds(effects) == ["ClaimPart", "SaveProgress", "SendStatement"]
    assert said(effects, Report)[0].last_seq == 1


def test_an_order_that_comes_again_is_only_answered() -> None:
    bench = Bench()
    bench.order(prepare())
    effects = bench.order(prepare(), seq=1)
    assert kinds(effects) == ["SendStatement"]


def test_a_prepare_under_a_new_number_does_not_claim_again() -> None:
    bench = Bench()
    bench.order(prepare())
    assert ClaimPart not in map(type, bench.order(prepare()))


def test_a_gap_is_not_stepped_over() -> None:
    bench = Bench()
    effects = bench.order(prepare(), seq=3)
    assert said(effects, Hello)
    assert "ClaimPart" not in kinds(effects)
    assert bench.core.state.last_seq == 0


@pytest.mark.parametrize("epoch", [4, 6])
def test_an_order_of_another_epoch_is_refused(epoch: int) -> None:
    bench = Bench()
    effects = bench.order(prepare(), epoch=epoch)
    assert "ClaimPart" not in kinds(effects)
    assert bench.core.state.last_seq == 0


def test_an_order_before_the_welcome_is_refused() -> None:
    core = ExecutorCore(ExecutorState(cluster="a", epoch=5))
    effects = core.handle(MessageReceived(message=Numbered(epoch=5, seq=1, order=prepare())), 1.0)
    assert "ClaimPart" not in kinds(effects)


def test_an_older_daemon_of_the_same_store_is_not_welcome() -> None:
    bench = Bench()
    bench.hear(Welcome(store="s", epoch=4, base_seq=1, lease_s=60.0))
    assert bench.core.state.epoch == 5


def test_a_new_store_begins_a_new_sequence() -> None:
    bench = Bench()
    for _ in range(4):
        bench.order(prepare())
    bench.hear(Welcome(store="t", epoch=1, base_seq=1, lease_s=60.0))
    assert (bench.core.state.epoch, bench.core.state.last_seq) == (1, 0)


def test_a_part_starts_only_on_its_own_start_order() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.READY)
    assert StartPart not in map(type, bench.order(Start(job="1", attempt=2)))
    assert StartPart not in map(type, bench.order(Start(job="2", attempt=1)))
    assert StartPart in map(type, bench.order(Start(job="1", attempt=1)))


def test_a_start_after_the_end_does_nothing() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.REFUSED, reason="expired")
    assert StartPart not in map(type, bench.order(Start(job="1", attempt=1)))


def test_an_attempt_that_a_newer_one_has_overtaken_is_refused() -> None:
    bench = Bench()
    bench.order(prepare(attempt=2))
    effects = bench.order(prepare(attempt=1))
    assert ClaimPart not in map(type, effects)
    report = next(p for p in said(effects, Report)[0].parts if p.attempt == 1)
    assert report.state is PartState.REFUSED


def test_an_end_is_final_and_told_until_it_may_be_forgotten() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.FINISHED, exit_code=0)
    bench.news(PartState.RUNNING)
    bench.now += 10.0
    told = said(bench.core.handle(ExecutorTicked(), bench.now), Report)[0]
    assert told.parts[0].state is PartState.FINISHED
    assert RemovePart in map(type, bench.order(Forget(job="1", attempt=1)))
    bench.now += 10.0
    assert said(bench.core.handle(ExecutorTicked(), bench.now), Report)[0].parts == ()


def test_a_running_part_is_not_forgotten() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.RUNNING)
    assert RemovePart not in map(type, bench.order(Forget(job="1", attempt=1)))


def test_an_abort_ends_what_has_not_ended() -> None:
    bench = Bench()
    bench.order(prepare())
    assert EndPart in map(type, bench.order(Abort(job="1", attempt=1)))
    bench.news(PartState.REFUSED, reason="aborted")
    assert EndPart not in map(type, bench.order(Abort(job="1", attempt=1)))


def test_a_claim_that_nobody_knows_is_given_up_and_what_was_let_go_goes_on() -> None:
    """That it runs may not have been heard yet, when a restored daemon asks."""
    bench = Bench()
    for job in ("1", "2", "3"):
        bench.order(prepare(job))
        bench.news(PartState.READY, job)
    bench.order(Start(job="1", attempt=1))
    bench.news(PartState.RUNNING, "2")
    for job, is_ended in (("1", False), ("2", False), ("3", True)):
        effects = bench.order(Abort(job=job, attempt=1, claim_only=True))
        assert is_ended is (EndPart in map(type, effects)), job


def test_claims_lapse_when_the_daemon_is_silent_and_running_parts_go_on() -> None:
    bench = Bench()
    bench.order(prepare("1"))
    bench.order(prepare("2"))
    bench.news(PartState.READY, "1")
    bench.news(PartState.RUNNING, "2")
    bench.now += 59.0
    assert EndPart not in map(type, bench.core.handle(ExecutorTicked(), bench.now))
    bench.now += 2.0
    ended = [e for e in bench.core.handle(ExecutorTicked(), bench.now) if isinstance(e, EndPart)]
    assert [e.key.job for e in ended] == ["1"]


def test_what_was_let_go_is_not_ended_though_its_start_was_not_heard_of() -> None:
    """The executor stood still in between; the launcher knows better whether it runs."""
    bench = Bench()
    for job in ("1", "2"):
        bench.order(prepare(job))
        bench.news(PartState.READY, job)
    bench.order(Start(job="1", attempt=1))
    bench.now += 61.0
    effects = bench.core.handle(ExecutorTicked(), bench.now)
    assert [e.key.job for e in effects if isinstance(e, EndPart)] == ["2"]


def test_a_ping_renews_the_leases_and_a_newer_epoch_asks_for_a_hello() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.now += 59.0
    assert RenewLeases in map(type, bench.hear(Ping(epoch=5)))
    bench.now += 59.0
    assert EndPart not in map(type, bench.core.handle(ExecutorTicked(), bench.now))
    assert said(bench.hear(Ping(epoch=6)), Hello)
    assert bench.hear(Ping(epoch=4)) == []


def test_a_lease_that_lapsed_in_vain_does_not_end_what_was_started_since() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.READY)
    bench.now += 61.0
    (end,) = (e for e in bench.core.handle(ExecutorTicked(), bench.now) if isinstance(e, EndPart))
    bench.core.handle(EffectFailed(effect=end, why="broken"), bench.now)
    bench.hear(Ping(epoch=5, known=True))
    assert "StartPart" in kinds(bench.order(Start(job="1", attempt=1)))
    bench.news(PartState.RUNNING, started=bench.now)
    assert "EndPart" not in kinds(bench.core.handle(ExecutorTicked(), bench.now))


def test_an_executor_that_was_given_up_as_silent_says_hello() -> None:
    bench = Bench()
    assert not said(bench.hear(Ping(epoch=5)), Hello)
    assert said(bench.hear(Ping(epoch=5, known=False)), Hello)
    assert not said(bench.hear(Ping(epoch=4, known=False)), Hello), "an old daemon"


def test_a_daemon_that_falls_silent_and_returns_is_told_of_once() -> None:
    core = ExecutorCore(ExecutorState(cluster="a"))
    told = []
    for seconds, message in ((0, True), (1, True), (70, False), (140, False), (141, True)):
        event = (
            MessageReceived(message=Welcome(store="s", epoch=5, base_seq=1, lease_s=60.0))
            if message
            else ExecutorTicked()
        )
        effects = core.handle(event, 100.0 + seconds)
        told += [(seconds, e.event) for e in effects if isinstance(e, ExecutorLogLine)]
    assert told == [(0, "daemon_connected"), (70, "daemon_silent"), (141, "daemon_connected")]


def test_after_a_restart_carried_out_orders_stay_carried_out() -> None:
    bench = Bench()
    saved = next(e for e in bench.order(prepare()) if isinstance(e, SaveProgress))
    kept = ExecutorState(cluster="a", store=saved.store, epoch=saved.epoch, last_seq=saved.last_seq)
    again = Bench(kept)
    assert ClaimPart not in map(type, again.order(prepare(), seq=1))


def test_many_orders_of_a_new_epoch_cause_one_hello() -> None:
    """Each hello has everything sent again: answering each refused order would never end."""
    bench = Bench()
    hellos = [said(bench.order(prepare(), seq=n, epoch=6), Hello) for n in range(1, 100)]
    assert sum(map(len, hellos)) == 1
    bench.now += 1.5
    assert said(bench.order(prepare(), seq=100, epoch=6), Hello)


def test_a_claim_that_waits_keeps_its_turn_while_the_daemon_is_silent() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.WAITING)
    bench.now += 1000.0
    assert EndPart not in map(type, bench.core.handle(ExecutorTicked(), bench.now))
    bench.news(PartState.PREPARING, nodes={"a3": 1})
    assert EndPart in map(type, bench.core.handle(ExecutorTicked(), bench.now))


def test_a_part_is_arranged_once_it_has_its_nodes() -> None:
    bench = Bench()
    bench.order(prepare())
    bench.news(PartState.PREPARING, nodes={"a3": 1})
    order = Arrange(job="1", attempt=1, all_nodes={"a3": 1}, rendezvous="a3:1")
    effects = bench.order(order)
    assert effects[0] == ArrangePart(key=PartKey(job="1", attempt=1, part=0), order=order)
    failed = bench.core.handle(EffectFailed(effect=effects[0], why="broken"), bench.now)
    assert [e.reason for e in failed if isinstance(e, EndPart)] == [
        "it could not be arranged: broken"
    ]


def test_members_of_one_part_are_let_go_with_the_first_and_forgotten_together() -> None:
    bench = Bench()
    members = tuple(Member(job=f"1_{n}", attempt=1, array_index=n) for n in (1, 2))
    bench.order(structs.replace(prepare("1_0"), members=members))
    keys = [PartKey(job=f"1_{n}", attempt=1, part=0) for n in range(3)]
    assert list(bench.core.state.parts) == keys
    effects = bench.order(Start(job="1_0", attempt=1))
    assert [e.key for e in effects if isinstance(e, StartPart)] == keys[:1]
    bench.now += 1000.0
    lapsed = bench.core.handle(ExecutorTicked(), bench.now)
    assert not [each for each in lapsed if isinstance(each, EndPart)], "all were told to start"
    pack = keys[0].pack
    assert not bench.news(PartState.RUNNING, "1_1", pack=pack), "the first one's start says it"
    for key in keys:
        assert bench.news(PartState.FINISHED, key.job, pack=pack, started=1.0, ended=2.0)
    others = tuple(key.start for key in keys)
    effects = bench.order(Forget(job="1_0", attempt=1, others=others))
    assert [e.key for e in effects if isinstance(e, RemovePart)] in (keys, [])
    bench.core.handle(ExecutorTicked(), bench.now)
    assert not bench.core.state.parts


def test_reports_of_one_turn_go_out_as_one() -> None:
    first, second = (
        Report(cluster="a", last_seq=n, parts=(PartKey(job="1", attempt=1, part=n).report(state),))
        for n, state in ((1, PartState.READY), (2, PartState.RUNNING))
    )
    hello = Hello(cluster="a")
    (joined, between, alone) = _joined([first, second, hello, first])
    assert isinstance(joined, Report)
    assert (joined.last_seq, joined.parts) == (2, (*first.parts, *second.parts))
    assert (between, alone) == (hello, first)
