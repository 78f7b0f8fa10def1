"""Daemon and executors that are killed, or stopped for longer than a lease, under load."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.live_site import Running
from tests.support.loads import Load

START = "prepare_timeout_s = 3.0\nlease_s = 4.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(20, marks=pytest.mark.slow),
        # what docs/GUARANTEES.md promises
        pytest.param(200, marks=pytest.mark.nightly),
    ],
)
def test_kills_of_anybody_under_load_lose_no_job_and_start_none_twice(
    root: Path, kills: int
) -> None:
    site = Running(root, start=START, daemon="keep_ended = 100000")
    site.start()
    load = Load(site, pause_s=0.05)
    load.start()
    dice = random.Random(kills)
    try:
        for kill in range(kills):
            load.await_more(dice.randint(1, 6))
            victim = dice.choice(["coallocd", *site.names])
            site.kill(victim)
            if victim == "coallocd":
                site.start_daemon(wait=kill == kills - 1)
            else:
                site.start_executor(victim)
        load.end()
        site.until(site.is_complete)
        ends = load.settle(may_fail=True, limit_s=180.0)
        assert ends["completed"] >= 0.8 * sum(ends.values()), ends
    finally:
        site.stop()


@pytest.mark.slow
def test_an_executor_stopped_for_longer_than_its_lease_starts_nothing_late(root: Path) -> None:
    """Its claims are over when it goes on, and the daemon has placed the jobs elsewhere."""
    site = Running(root, start=START)
    site.start()
    load = Load(site, pause_s=0.1)
    load.start()
    try:
        load.await_more(5)
        site.processes["beta"].send_signal(signal.SIGSTOP)
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            load.await_more(1)
        site.processes["beta"].send_signal(signal.SIGCONT)
        load.await_more(5)
        load.end()
        load.settle(may_fail=True)
    finally:
        site.processes["beta"].send_signal(signal.SIGCONT)
        site.stop()


@pytest.mark.slow
def test_a_daemon_stopped_for_longer_than_the_lease_goes_on_where_it_was(root: Path) -> None:
    site = Running(root, start=START)
    site.start()
    load = Load(site, pause_s=0.02)
    load.start()
    try:
        load.await_more(5)
        site.processes["coallocd"].send_signal(signal.SIGSTOP)
        logs = [site.root / f"{name}.log" for name in site.names]
        site.until(lambda: all('"daemon_silent"' in log.read_text() for log in logs))
        site.processes["coallocd"].send_signal(signal.SIGCONT)
        load.await_more(5)
        load.end()
        load.settle(may_fail=True)
    finally:
        site.processes["coallocd"].send_signal(signal.SIGCONT)
        site.stop()
