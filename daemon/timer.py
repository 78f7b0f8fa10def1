"""The timer triggers: APScheduler calls back, and does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC

from apscheduler.schedulers.asyncio import AsyncIOScheduler


class Timers:
    """Periodic calls on the event loop; `fire` gets the timer's number, and returns at once.

    With APScheduler's defaults a call that is more than a second late is dropped. Here it is late,
    and several late ones are one (``misfire_grace_time=None``, ``coalesce=True``).
    """

    def __init__(self, fire: Callable[[int], None]) -> None:
        self._fire = fire
        self._periods: dict[int, float] = {}
        self._scheduler = AsyncIOScheduler(
            timezone=UTC,
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )

    def start(self, periods: Mapping[int, float]) -> None:
        """Begin; call it on the running event loop."""
        self._scheduler.start()
        self.configure(periods)

    def configure(self, periods: Mapping[int, float]) -> None:
        """Replace the timers; one whose period stays the same goes on undisturbed."""
        for number in set(self._periods) - set(periods):
            self._scheduler.remove_job(str(number))
        for number, seconds in periods.items():
            if self._periods.get(number) != seconds:
                self._scheduler.add_job(
                    self._call,
                    "interval",
                    seconds=seconds,
                    args=(number,),
                    id=str(number),
                    replace_existing=True,
                )
        self._periods = dict(periods)

    async def stop(self) -> None:
        """End; no call comes after it returns."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            # APScheduler puts the shutdown itself on the loop
            while self._scheduler.running:
                await asyncio.sleep(0)
        self._periods = {}

    # A coroutine function: APScheduler would run a plain one in a thread.
    async def _call(self, number: int) -> None:
        if number in self._periods:
            self._fire(number)
