"""Turns of the daemon's loop."""

from __future__ import annotations

import asyncio

from coalloc.core.base.events import CoreEvent, Ticked
from coalloc.daemon.core_loop import CoreLoop


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
