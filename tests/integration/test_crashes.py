"""Kills, full disks and hostile messages against the real processes."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from tests.support.live_site import Running
from tests.support.loads import Load
from tests.support.small_disk import mounted

START = "prepare_timeout_s = 5.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_daemon_killed_again_and_again_loses_no_job_and_starts_none_twice(
    root: Path, kills: int
) -> None:
    """SIGKILL in mid-round, under load, with jobs split over both clusters among them."""
    dice = random.Random(7)
    with Running(root, start=START) as site:
        load = Load(site)
        load.start()
        for kill in range(kills):
            load.await_more(dice.randint(1, 8))
            site.kill("coallocd")
            site.start_daemon(wait=kill == kills - 1)
        load.end()
        load.settle(may_fail=False)


def test_executors_killed_again_and_again_start_nothing_twice(root: Path) -> None:
    dice = random.Random(11)
    with Running(root, start=START) as site:
        load = Load(site)
        load.start()
        for _ in range(6):
            load.await_more(dice.randint(1, 8))
            cluster = dice.choice(site.names)
            site.kill(cluster)
            site.start_executor(cluster)
        load.end()
        load.settle(may_fail=True)


@pytest.mark.slow
def test_a_daemon_killed_in_a_long_array_runs_no_member_twice_and_cancels_the_rest(
    root: Path,
) -> None:
    """The tasks' own marks: a folder of a member's name is made once."""
    marks = root / "marks"
    marks.mkdir()
    run = f"mkdir {marks}/$COALLOC_ARRAY_TASK_ID || touch {marks}/twice"
    with Running(root, start=START) as site:
        array = site.submit(["sh", "-c", run], array="0-999999")
        for _ in range(3):
            seen = len([*marks.iterdir()])
            site.until(lambda seen=seen: len([*marks.iterdir()]) >= seen + 8)  # type: ignore[misc]
            site.kill("coallocd")
            site.start_daemon()
        assert 900_000 < site.ask("status")["waiting"] < 1_000_000
        assert site.ask("cancel", job=array)["type"] == "done"
        ended = site.asker.ask({"type": "wait", "job": array}, timeout_s=60.0)["jobs"]
        rest = site.job(array)["rest"]
        assert not rest.get("left")
        assert sum(rest["ends"].values()) == rest["members"] == 1_000_000
        assert [each["id"] for each in ended] == [array]
        ran = {int(mark.name) for mark in marks.iterdir()}  # "twice" is no number
        assert len(ran) >= rest["ends"]["completed"]


def test_hostile_frames_are_counted_and_a_good_client_is_served(root: Path) -> None:
    site = Running(root)
    site.start_daemon()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        endpoints = [site.endpoint, f"ipc://{root}/run/executors.sock"]
        nested = b"[" * 100_000
        frames = [
            [b""],
            [b"\xff\xfe\x00"],
            [b"{"],
            [b"[1,2,3]"],
            [b'{"type": 5}'],
            [b'{"type": "frobnicate", "id": "1"}'],
            [b'{"type": "submit", "id": "1"}'],
            [b'{"type": "submit", "id": {}}'],
            [b'{"type":"hello","cluster":7}'],
            [b'{"type":"read","cluster":"nowhere"}'],
            [b"a", b"b", b"c"],
            [nested],
            [b"x" * 1_000_000],
        ]
        for endpoint in endpoints:
            for message in frames:
                dealer = context.socket(zmq.DEALER)
                dealer.setsockopt(zmq.LINGER, 1000)
                dealer.connect(endpoint)
                dealer.send_multipart(message)
                dealer.close()
        site.until(lambda: sum(site.ask("status")["faults"].values()) >= 20)
        flood = context.socket(zmq.DEALER)
        flood.setsockopt(zmq.LINGER, 0)
        flood.connect(site.endpoint)
        flood.send(b"x" * 100_000_000)
        assert site.ask("status")["type"] == "status"
        flood.close()
        answer = site.ask("submit", **site.submission(["true"]))
        assert answer["type"] == "done"
        assert site.processes["coallocd"].poll() is None
        assert 0 < len(site.lines("message_dropped")) < 100
    finally:
        context.destroy(linger=0)
        site.stop()


@pytest.fixture
def small_disk(root: Path) -> Iterator[Path]:
    with mounted(root / "state", "size=6m") as disk:
        yield disk


def test_a_full_disk_refuses_submits_and_loses_nothing(root: Path, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with Running(root) as site:
        first = site.submit(["sh", "-c", f"while [ ! -e {site.work}/go ]; do sleep 0.05; done"])
        site.until(lambda: site.job(first)["state"] == "running")
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        acknowledged = []
        for _ in range(200):
            answer = site.ask(
                "submit", **site.submission(["true"], launch={"env": {"A": "x" * 9999}})
            )
            if answer["type"] == "refused":
                break
            acknowledged.append(answer["job"])
        assert answer["code"] == "storage", answer
        assert site.ask("queue")["type"] == "queue", "it still answers"
        (site.work / "go").touch()
        ballast.unlink()
        site.until(lambda: bool(site.lines("store_returned")))
        for job in [first, *acknowledged]:
            assert site.wait(job)["state"] == "completed"
        assert site.wait(site.submit(["true"]))["state"] == "completed"


@pytest.mark.slow
def test_an_executor_that_was_given_up_too_early_is_taken_back(root: Path) -> None:
    """As after a pause of either process: it goes on talking, and has to be asked for hello."""
    site = Running(root)
    site.start()
    beta = site.processes["beta"]
    try:
        beta.send_signal(signal.SIGSTOP)
        site.until(lambda: bool(site.lines("executor_disconnected")))
        beta.send_signal(signal.SIGCONT)
        job = site.submit(["true"], 6)
        assert site.wait(job)["state"] == "completed"
        connected = [line["cluster"] for line in site.lines("executor_connected")]
        assert connected.count("beta") == 2
    finally:
        beta.send_signal(signal.SIGCONT)
        site.stop()


def test_a_killed_daemon_leaves_no_solver_behind(root: Path) -> None:
    """While it compiles a solver does not look at its life line."""
    site = Running(root, cache=root / "cache")
    site.start_daemon()
    daemon = psutil.Process(site.processes["coallocd"].pid)
    site.until(lambda: bool(daemon.children()))
    solvers = daemon.children(recursive=True)
    site.kill("coallocd")
    assert solvers
    site.until(lambda: all(is_zombie(str(solver.pid)) for solver in solvers))
    site.stop()


def test_a_second_daemon_on_the_same_state_is_refused(root: Path) -> None:
    with Running(root) as site:
        first = site.processes.pop("coallocd")
        site.start_daemon(wait=False)
        assert site.kill_when_ended("coallocd") == 1
        assert first.poll() is None
        site.processes["coallocd"] = first
        assert "in use by another process" in site.log.read_text()
        assert site.wait(site.submit(["true"], 6))["state"] == "completed"


def test_no_process_of_a_job_outlives_a_cancel(root: Path) -> None:
    with Running(root) as site:
        pids = site.work / "pids"
        away = f"setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & echo $$ >> {pids}; wait"
        job = site.submit(["sh", "-c", away])
        site.until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        site.ask("cancel", job=job)
        row = site.job(job)
        assert row["state"] == "cancelled" or row["reason"] == "cancelling"
        assert site.wait(job)["state"] == "cancelled"
        assert all(is_zombie(pid) for pid in pids.read_text().split())
        pids.unlink()
        site.submit(["sh", "-c", f"echo $$ > {pids}; exec sleep 1000"])
        site.until(lambda: pids.exists() and bool(pids.read_text()))
    # nor does what runs when the test ends outlive the test
    left = pids.read_text().strip()
    site.until(lambda: is_zombie(left))


def is_zombie(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
