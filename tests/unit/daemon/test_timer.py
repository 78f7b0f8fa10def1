"""The timers: late calls come, many late ones are one, a stop is a stop."""

import asyncio
import time

import pytest

from coalloc.daemon.timer import Timers


class Calls:
    """Collects calls, and lets a test wait for them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._changed = asyncio.Event()

    def __call__(self, number: int) -> None:
        self.numbers.append(number)
        self._changed.set()

    async def wait_for(self, count: int, number: int | None = None) -> None:
        async with asyncio.timeout(20):
            while sum(number in (None, n) for n in self.numbers) < count:
                self._changed.clear()
                await self._changed.wait()


def test_each_timer_fires_with_its_number() -> None:
    async def run() -> None:
        calls = Calls()
        timers = Timers(calls)
        timers.start({3: 0.02, 5: 0.03})
        await calls.wait_for(2, 3)
        await calls.wait_for(2, 5)
        await timers.stop()

    asyncio.run(run())


def test_a_blocked_loop_makes_one_late_call() -> None:
    async def run() -> None:
        calls = Calls()
        timers = Timers(calls)
        timers.start({0: 0.3})
        await calls.wait_for(1)
        calls.numbers.clear()
        time.sleep(1.5)  # longer than the grace time that APScheduler has by default
        await calls.wait_for(1)
        assert len(calls.numbers) == 1
        await timers.stop()

    asyncio.run(run())


def test_nothing_fires_after_a_stop() -> None:
    async def run() -> None:
        calls = Calls()
        timers = Timers(calls)
        timers.start({0: 0.01})
        await calls.wait_for(1)
        await timers.stop()
        calls.numbers.clear()
        await asyncio.sleep(0.05)  # time in which it would have fired
        assert calls.numbers == []
        await timers.stop()

    asyncio.run(run())


def test_timers_can_be_replaced() -> None:
    async def run() -> None:
        calls = Calls()
        timers = Timers(calls)
        timers.start({0: 3600.0, 1: 0.01})
        await calls.wait_for(1, 1)
        timers.configure({0: 0.01})
        await calls.wait_for(2, 0)
        calls.numbers.clear()
        await calls.wait_for(2)
        assert set(calls.numbers) == {0}
        timers.configure({})
        await timers.stop()

    asyncio.run(run())


def test_an_unchanged_timer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        calls = Calls()
        timers = Timers(calls)
        timers.start({0: 3600.0})
        before = timers._scheduler.get_job("0").next_run_time
        timers.configure({0: 3600.0, 1: 3600.0})
        assert timers._scheduler.get_job("0").next_run_time == before
        timers.configure({0: 1800.0})
        assert timers._scheduler.get_job("0").next_run_time < before
        assert timers._scheduler.get_job("1") is None
        await timers.stop()

    asyncio.run(run())
