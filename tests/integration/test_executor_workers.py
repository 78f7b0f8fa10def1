"""Warm workers of `coalloc.Executor` against a real daemon and real executors."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from coalloc import Executor
from coalloc.client.futures import workers
from coalloc.client.futures.future import JobFailedError
from tests.integration import jobs_called as called
from tests.integration.test_executor_futures import LIMIT_S, executor
from tests.support.live_site import Running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("w"), clusters={"alpha": 2}) as running:
        yield running


def one_worker(site: Running, folder: Path) -> Executor:
    """With a warm worker."""
    pool = executor(site, folder, workers=1)
    assert len(set(pool.map(called.nap, [0.0] * 20))) == 1
    return pool


def pid(site: Running, mark: Path) -> int:
    """The process that has left a mark."""
    site.until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    return int(mark.read_text())


def test_many_calls_are_few_jobs_and_outputs_stay_apart(site: Running, tmp_path: Path) -> None:
    before = site.ask("events", since=0, limit=0)["last"]
    with executor(site, tmp_path) as pool:
        assert list(pool.map(called.square, range(300))) == [n * n for n in range(300)]
        shouts = [pool.submit(called.shout, number) for number in range(4)]
        errors = [future.exception(LIMIT_S) for future in shouts]
        assert [type(error) for error in errors] == [ValueError, type(None)] * 2
        kept = sorted(pool.folder.glob("call-*.out"))
        for number, path in zip((0, 2), kept, strict=True):
            printed = path.read_text()
            assert {f"{how} {number}" for how in ("printed", "written", "echoed")} <= {
                *printed.splitlines()
            }
            assert printed.count("echoed") == 1
            assert "ValueError" in printed
        for code, state in ((0, "completed"), (3, "failed")):
            with pytest.raises(JobFailedError, match="ended its process") as caught:
                pool.submit(called.leave, code).result(LIMIT_S)
            assert (caught.value.state, caught.value.exit_code) == (state, code)
        assert (pool.folder / "workers.json").stat().st_mode & 0o77 == 0
    events = site.ask("events", since=before)["events"]
    assert 1 <= sum(event["kind"] == "job_submitted" for event in events) <= 24


def test_a_killed_worker_takes_no_other_call_with_it(site: Running, tmp_path: Path) -> None:
    with one_worker(site, tmp_path) as pool:
        marks = [tmp_path / f"mark-{number}" for number in range(8)]
        long = pool.submit(called.nap, 1000.0, str(marks[0]))
        others = [pool.submit(called.nap, 0.0, str(mark)) for mark in marks[1:]]
        killed = pid(site, marks[0])
        assert others[0].cancel()
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(JobFailedError, match="failed, exit code 137") as caught:
            long.result(LIMIT_S)
        assert caught.value.job == long.job
        (other,) = {future.result(LIMIT_S) for future in others[1:]}
        assert other != killed
        assert [mark.read_text().count("\n") for mark in marks[2:]] == [1] * 6
        assert not marks[1].exists()


def test_an_ended_call_takes_no_other_with_it(site: Running, tmp_path: Path) -> None:
    with one_worker(site, tmp_path) as pool:
        mark = tmp_path / "mark"
        long = pool.submit(called.nap, 1000.0, str(mark))
        others = [pool.submit(called.nap, 0.0) for _ in range(3)]
        ended = pid(site, mark)
        assert not long.cancel()
        long.end()
        with pytest.raises(JobFailedError, match="cancelled"):
            long.result(LIMIT_S)
        assert ended not in {future.result(LIMIT_S) for future in others}


def test_a_call_may_wait_for_one_that_was_behind_it(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path, workers=2) as pool:
        gate, there = str(tmp_path / "gate"), str(tmp_path)
        list(pool.map(called.after, [there] * 20))
        waiting = pool.submit(called.after, gate)
        others = [pool.submit(called.after, there, gate if n == 0 else "") for n in range(12)]
        assert waiting.result(LIMIT_S) == gate
        assert {future.result(LIMIT_S) for future in others} == {there}


def test_workers_go_on_while_the_daemon_is_away(site: Running, tmp_path: Path) -> None:
    with one_worker(site, tmp_path) as pool:
        site.kill("coallocd")
        assert list(pool.map(called.square, range(20))) == [n * n for n in range(20)]
        site.start_daemon()


def test_an_idle_worker_leaves_and_a_turn_ends(
    site: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "IDLE_S", 0.1)
    monkeypatch.setattr(workers, "TICK_S", 0.1)
    monkeypatch.setattr(workers, "TURN_S", 0.5)
    with executor(site, tmp_path, workers=1) as pool:
        first = pool.submit(called.square, 1)
        assert first.result(LIMIT_S) == 1
        site.until(lambda: site.ask("queue")["jobs"] == [])
        assert site.job(first.job)["state"] == "completed"
        assert len(set(pool.map(called.nap, [0.2] * 6))) > 1


def test_a_call_over_its_time_limit(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path, time_limit=0.5) as pool:
        with pytest.raises(JobFailedError, match="timeout") as caught:
            pool.submit(called.nap, 1000.0).result(LIMIT_S)
        assert site.job(caught.value.job)["job"]["time_limit"] == 1.0


def test_workers_that_cannot_reach_us(
    site: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(workers, "own_hosts", lambda: ["nowhere.invalid"])
    with caplog.at_level(logging.WARNING), executor(site, tmp_path) as pool:
        assert list(pool.map(called.square, range(3))) == [0, 1, 4]
        alone = pool.submit(called.square, 4)
        assert alone.result(LIMIT_S) == 16
        assert site.job(alone.job)["name"].endswith("square")
    (line,) = caplog.messages
    assert "calls go by files" in line
