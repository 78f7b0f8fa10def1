"""Turns of the daemon's loop."""

from __future__ import annotations

import asyncio
from typing import Any

from coalloc.core.base.events import CoreEvent, Requested, SolverWarm, Ticked, TokenRecalled
from coalloc.core.base.requests import RoundNow
from coalloc.daemon.core_loop import MOST_ASKED, CoreLoop


def test_a_turn_gets_one_tick_however_many_are_due() -> None:
    turns: list[list[CoreEvent]] = []

    async def run() -> None:
        done = asyncio.Event()

        def turn(batch: list[CoreEvent]) -> None:
            turns.append(batch)
            if len(turns) == 1:
                for at in (1.0, 1.0, 2.0):  # as often as events of a turn have asked
                    loop.wake(at, 0.0)
            elif len(turns) == 2:
                loop.wake(1.0, 60.0)
                loop.wake(1.0, 0.0)  # the clock was set forward
            else:
                done.set()

        loop = CoreLoop(turn)
        loop.open(asyncio.get_running_loop())
        loop.offer(Ticked())
        await done.wait()
        loop.close()

    asyncio.run(run())
    assert turns == [[Ticked()], [Ticked()], [Ticked()], []]


def test_requests_come_behind_all_else_and_so_many_in_a_turn() -> None:
    turns: list[list[CoreEvent]] = []
    whose: dict[str, Any] = {"user": "ann", "uid": 1, "gid": 1, "operator": False}
    asked: list[CoreEvent] = [TokenRecalled(user="ann", token="t", job="1")]
    asked += (Requested(origin=n, command=RoundNow(), **whose) for n in range(3 * MOST_ASKED))

    async def run() -> None:
        first = asyncio.Event()

        def turn(batch: list[CoreEvent]) -> None:
            turns.append(batch)
            if len(turns) == 1:
                loop.offer(Ticked())
                first.set()

        loop = CoreLoop(turn)
        for event in (*asked, SolverWarm()):
            loop.offer(event)
        loop.open(asyncio.get_running_loop())
        await first.wait()
        loop.close()

    asyncio.run(run())
    assert turns[0] == [SolverWarm(), *asked[:MOST_ASKED]]
    assert turns[1] == [Ticked(), *asked[MOST_ASKED : 2 * MOST_ASKED]]
    assert turns[2] == asked[2 * MOST_ASKED :], "the end takes in what is left"
    assert not any(turns[3:])
