"""`coalloc.Executor` against a real daemon and real executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from coalloc import Client, Executor
from coalloc.client import events as client_events
from coalloc.client.client import NoAnswerError, RefusedError
from coalloc.client.futures.future import JobFailedError, JobFuture
from coalloc.wire.client import RequestConnection
from tests.integration import jobs_called as called
from tests.support.live_site import Running

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("x"), daemon="max_jobs_per_user = 60") as running:
        yield running


def executor(
    site: Running, folder: Path, *, timeout_s: float = LIMIT_S, **fields: object
) -> Executor:
    def client() -> Client:
        return Client(timeout_s=timeout_s, config=site.config)

    options = {"base_time": 5.0, "patience_s": LIMIT_S, **fields}
    return Executor(client=client, folder=folder, **options)  # type: ignore[arg-type]


def test_functions_map_over_the_clusters_and_leave_nothing(site: Running, tmp_path: Path) -> None:
    wider = executor(site, tmp_path, procs=6, proc_gbps=0.0)
    with executor(site, tmp_path) as pool, wider:
        single = pool.submit(called.square, 7)
        wide = wider.submit(called.size_and_rank)
        squares = list(pool.map(called.square, range(20), chunksize=5))
        assert single.result(LIMIT_S) == 49
        assert list(wide.result(LIMIT_S)) == [6, 0]
        assert squares == [value * value for value in range(20)]
        assert site.job(single.job)["name"].endswith("jobs_called:square")
    assert not pool.folder.exists()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(called.square, 1)


def test_what_a_function_raises_is_raised_here(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path) as pool:
        values = pool.map(called.odd_only, [1, 3, 4, 5], chunksize=2)
        assert [next(values), next(values)] == [1, 3]
        with pytest.raises(ValueError, match="4 is even") as caught:
            next(values)
        assert "in job" in caught.value.__notes__[0]
        with pytest.raises(JobFailedError, match="failed, exit code 9") as failed:
            pool.submit(called.die).result(LIMIT_S)
        assert failed.value.state == "failed"


def test_commands_end_limits_and_refusals(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path) as pool:
        done = pool.run(["sh", "-c", "echo $COALLOC_JOB_ID; exit 3"]).result(LIMIT_S)
        assert (done.exit_code, done.text()) == (3, f"{done.job}\n")
        late = pool.run(["sleep", "1000"], time_limit=0.3)
        with pytest.raises(JobFailedError, match=r"job \d+ timeout") as caught:
            late.result(LIMIT_S)
        assert caught.value.job == late.job
        with pytest.raises(RefusedError, match="needs 99 processes"):
            pool.run(["true"], procs=99).result(LIMIT_S)
        with pytest.raises(TypeError, match="unknown option 'nodes'"):
            pool.run(["true"], nodes=2)  # type: ignore[call-arg]


def test_waiting_and_running_jobs_are_taken_back(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path) as pool:
        blocker = pool.run(["sleep", "1000"], procs=8, proc_gbps=0.0)
        site.until(blocker.running)
        assert not blocker.cancel()
        waiting = [pool.submit(called.square, value) for value in range(3)]
        site.until(lambda: all(future.job for future in waiting))
        assert waiting[0].cancel()
        assert futures.wait(waiting, 0.0).done == {waiting[0]}
        site.until(lambda: site.job(waiting[0].job)["state"] == "cancelled")
        site.ask("cancel", job=waiting[1].job)
        with pytest.raises(JobFailedError, match="cancelled"):
            waiting[1].result(LIMIT_S)
        with pytest.raises(TimeoutError):
            waiting[2].result(0.01)
        pool.shutdown(wait=False, cancel_futures=True)
        assert waiting[2].cancelled()
        blocker.end()
        with pytest.raises(JobFailedError, match="cancelled by"):
            blocker.result(LIMIT_S)
    assert site.ask("queue")["jobs"] == []


def test_a_lost_job_is_an_error_that_names_it(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path) as pool:
        told = tmp_path / "runner"
        future = pool.submit(called.tell_parent_and_stay, str(told))
        site.until(told.exists)
        os.kill(int(told.read_text()), signal.SIGKILL)
        with pytest.raises(JobFailedError, match=rf"job {future.job} lost: (alpha|beta): "):
            future.result(LIMIT_S)


def test_many_futures_ask_no_more_than_few(
    site: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[str] = []
    send = RequestConnection.send

    def counted(asker: RequestConnection, body: Mapping[str, Any]) -> str:
        kinds.append(body["type"])
        return send(asker, body)

    with executor(site, tmp_path) as pool:
        monkeypatch.setattr(RequestConnection, "send", counted)
        assert {
            future.result(LIMIT_S).exit_code for future in [pool.run(["true"]) for _ in range(50)]
        } == {0}
        monkeypatch.undo()
    assert kinds.count("submit") == 50
    assert len(kinds) <= 60


def test_leaving_by_an_exception_ends_all(site: Running, tmp_path: Path) -> None:
    pool = executor(site, tmp_path)
    both: list[JobFuture[Any]] = [pool.run(["sleep", "1000"]), pool.submit(called.nap, 1000.0)]
    site.until(lambda: all(future.running() for future in both))
    with pytest.raises(KeyError), pool:
        raise KeyError
    for future in both:
        assert isinstance(future.exception(0.0), JobFailedError)
        assert site.job(future.job)["state"] == "cancelled"


def test_more_jobs_than_a_user_may_queue(site: Running, tmp_path: Path) -> None:
    with executor(site, tmp_path) as pool:
        gate = tmp_path / "gate"
        held = [pool.submit(called.after, str(gate)) for _ in range(8)]
        site.until(lambda: all(future.running() for future in held))
        many = [pool.run(["true"]) for _ in range(70)]
        site.until(lambda: sum(bool(future.job) for future in many) >= 60)
        gate.touch()
        assert {future.result(LIMIT_S).exit_code for future in many} == {0}


@pytest.mark.slow
def test_a_daemon_that_is_killed_and_comes_back(root: Path) -> None:
    # It forgets most of these jobs before anybody can ask for them.
    with Running(root, daemon="keep_ended = 2") as site:
        # A submit that is sent as the daemon dies is lost, and sent again when no answer comes.
        with executor(site, root, timeout_s=10.0) as pool:
            gate = root / "gate"
            waiting = [pool.submit(called.after, str(gate)) for _ in range(12)]
            site.until(lambda: sum(future.running() for future in waiting) == 8)
            site.kill("coallocd")
            gate.touch()
            more = pool.run(["true"])
            site.start_daemon()
            assert {future.result(LIMIT_S) for future in waiting} == {str(gate)}
            assert more.result(LIMIT_S).exit_code == 0
        assert len(site.ask("queue", all=True)["jobs"]) <= 3
        kinds = [event["kind"] for event in site.ask("events")["events"]]
        assert 8 < kinds.count("job_submitted") <= 13


@pytest.mark.slow
def test_a_daemon_that_stays_away_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_events, "QUIET_S", 0.5)
    with Running(root) as site:
        pool = executor(site, root, timeout_s=3.0, patience_s=0.2)
        future = pool.run(["sleep", "1000"])
        site.until(future.running)
        site.kill("coallocd")
        with pytest.raises(NoAnswerError, match="no daemon listens"):
            future.result(LIMIT_S)
        with pytest.raises(NoAnswerError):
            pool.run(["true"]).result(LIMIT_S)
        pool.shutdown()
        with pytest.raises(NoAnswerError):
            executor(site, root, timeout_s=3.0)


SCRIPT = """
import sys
from coalloc import Executor

def cube(value):
    return value ** 3

if __name__ == "__main__":
    with Executor(base_time=5.0) as pool:
        print(*pool.map(cube, [1, 2, 3]))
"""


def test_the_functions_of_a_script(site: Running) -> None:
    path = site.work / "cubes.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=site.work,
        env={**os.environ, "COALLOC_CONFIG": str(site.config)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("1 8 27\n", 0), done.stderr


UNGUARDED = """\
from coalloc import Client, Executor

def double(value):
    return 2 * value

with Executor(base_time=5.0, folder="calls") as pool:
    try:
        print(pool.submit(double, 4).result(60.0))
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.parametrize("first", ["", 'Client().submit(["true"], base_time=1.0)\n'])
def test_a_script_without_a_guard_submits_nothing_from_its_jobs(
    site: Running, tmp_path: Path, first: str
) -> None:
    script = tmp_path / "unguarded.py"
    head, rest = UNGUARDED.split("with ", 1)
    script.write_text(f"{head}{first}with {rest}")
    before = site.ask("events", since=0, limit=0)["last"]
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "COALLOC_CONFIG": str(site.config)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    called_there = "Client.submit" if first else "Executor"
    assert done.stdout.startswith(f"{called_there} was called while a job imports {script}.")
    assert 'if __name__ == "__main__":' in done.stdout
    events = site.ask("events", since=before)["events"]
    submitted = [event for event in events if event["kind"] == "job_submitted"]
    assert len(submitted) == (2 if first else 1)
