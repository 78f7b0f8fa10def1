"""The service manager hears of the daemon for as long as its rounds make progress."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from coalloc.core.base.events import Solved, SolveFailed
from coalloc.daemon import watchdog
from coalloc.daemon.watchdog import Reachability, RoundProgress, step_of
from coalloc.model.settings import Config
from coalloc.runtime import logs
from tests.support.core_site import Site, first_fit

LIMIT_S = 40.0


def test_a_step_may_take_its_time_and_no_longer() -> None:
    progress = RoundProgress()
    assert progress.is_moving((1, "auto"), 100.0, LIMIT_S)
    assert progress.is_moving((1, "auto"), 139.0, LIMIT_S)
    assert not progress.is_moving((1, "auto"), 140.0, LIMIT_S)
    # the next policy of the chain has a limit of its own
    assert progress.is_moving((1, "easy"), 141.0, LIMIT_S)
    assert progress.is_moving(None, 900.0, LIMIT_S)
    assert progress.is_moving(None, 9000.0, LIMIT_S), "idle is not hung"


def test_what_the_rounds_are_at() -> None:
    site = Site(solving=False, fallbacks=("easy",))
    assert step_of(site.core, site.now) is None
    site.submit()
    first = step_of(site.core, site.now)
    solve = site.pending_solves[-1]
    steps = [first]
    # The policy is tried without the job, then it is the turn of the next one.
    for policy in (solve.policy, solve.policy):
        site.do(SolveFailed(round=solve.round, policy=policy, why="hung", solve_s=1.0))
        steps.append(step_of(site.core, site.now))
    assert site.pending_solves[-1].policy == "easy"
    assert len({*steps, None}) == 4
    site.do(Solved(round=solve.round, plan=first_fit(solve.snapshot), solve_s=0.0))
    assert step_of(site.core, site.now) is None


def test_a_round_that_is_due_and_does_not_begin_is_a_step() -> None:
    site = Site(min_interval_s=10.0)
    site.submit()
    site.submit()
    site.state.rounds.want("operator")
    assert step_of(site.core, site.now) is None, "it is not due yet"
    assert step_of(site.core, site.now + 11.0) == "due"


class Stub:
    """What `feed` needs of a service."""

    def __init__(self, site: Site) -> None:
        self.core, self.config = site.core, Config()
        self.site = site

    def clock(self) -> float:
        return self.site.now


def test_a_hung_round_is_told_of_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(solving=False)
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.setblocking(False)
    monkeypatch.setitem(os.environ, "NOTIFY_SOCKET", str(tmp_path / "notify"))
    # a step may take no time at all: whatever is under way at a second look has hung
    monkeypatch.setattr(watchdog, "ROUND_GRACE_S", -Config().rounds.time_limit_s + 0.05)

    async def beats(site: Site) -> None:
        loop = asyncio.get_running_loop()
        reachability = Reachability([], logs.get_logger())
        feeding = watchdog.feed(Stub(site), 0.01, reachability)  # type: ignore[arg-type]
        fed = loop.create_task(feeding)

        async def heard() -> str:
            return (await asyncio.wait_for(loop.sock_recv(manager, 4096), LIMIT_S)).decode()

        async def silence() -> None:
            while True:
                await asyncio.wait_for(loop.sock_recv(manager, 4096), 0.5)

        assert "WATCHDOG=1" in await heard()
        site.submit()
        with pytest.raises(TimeoutError):
            await silence()
        solve = site.pending_solves[-1]
        site.do(Solved(round=solve.round, plan=first_fit(solve.snapshot), solve_s=0.0))
        assert "WATCHDOG=1" in await heard(), "the round has ended"
        reachability.is_reachable = False
        with pytest.raises(TimeoutError):
            await silence()
        fed.cancel()

    asyncio.run(beats(site))
    manager.close()
