"""Kills, full disks and hostile messages against the real processes."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import uuid
from collections import Counter
from pathlib import Path

import psutil
import pytest
import zmq

from coalloc.wire.client import NoAnswerError, RequestConnection
from tests.support.live_site import ENDED, Running


class Submitter(threading.Thread):
    """Submits without pause; a submit without an answer is sent again with its token."""

    def __init__(self, site: Running, sizes: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self.site, self.sizes = site, sizes
        self.acknowledged: dict[str, str] = {}
        self.enough = threading.Event()
        self.progress = threading.Condition()

    def run(self) -> None:
        asker = RequestConnection(self.site.endpoint, timeout_s=1.0)
        number = 0
        while not self.enough.is_set():
            token = uuid.uuid4().hex
            size = self.sizes[number % len(self.sizes)]
            script = f'[ "$COALLOC_RANK" != 0 ] || echo {token} >> {self.site.work}/ran'
            body = self.site.submission(["sh", "-c", script], size, token=token)
            while True:
                try:
                    answer = asker.ask({"type": "submit", **body})
                    break
                except NoAnswerError:
                    asker.close()
                    asker = RequestConnection(self.site.endpoint, timeout_s=1.0)
            assert answer["type"] == "done", answer
            with self.progress:
                self.acknowledged[token] = answer["job"]
                self.progress.notify_all()
            number += 1
        asker.close()

    def wait_for(self, count: int) -> None:
        """Until so many submits were acknowledged."""
        with self.progress:
            assert self.progress.wait_for(lambda: len(self.acknowledged) >= count, 60.0)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_daemon_killed_again_and_again_loses_no_job_and_starts_none_twice(
    root: Path, kills: int
) -> None:
    """SIGKILL in mid-round, under load, with jobs split over both clusters among them."""
    site = Running(
        root, start="prepare_timeout_s = 5.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"
    )
    site.start()
    submitter = Submitter(site, sizes=(1, 6, 2))
    submitter.start()
    dice = random.Random(7)
    try:
        for kill in range(kills):
            submitter.wait_for(len(submitter.acknowledged) + dice.randint(1, 8))
            site.kill("coallocd")
            site.start_daemon(wait=kill == kills - 1)
        submitter.enough.set()
        submitter.join(60.0)
        jobs = submitter.acknowledged
        site.until(lambda: all_ended(site, list(jobs.values())), 120.0)
        ran = Counter((site.work / "ran").read_text().split())
        assert len(set(jobs.values())) == len(jobs), "every token has its own job"
        states = {token: site.job(job)["state"] for token, job in jobs.items()}
        lost = [t for t, s in states.items() if s == "completed" and ran[t] == 0]
        assert not lost
        assert {t: n for t, n in ran.items() if n > 1} == {}, "started twice"
        assert Counter(states.values())["completed"] == len(jobs)
    finally:
        submitter.enough.set()
        site.stop()


def test_executors_killed_again_and_again_start_nothing_twice(root: Path) -> None:
    site = Running(
        root, start="prepare_timeout_s = 5.0\nbackoff_first_s = 0.1\nbackoff_max_s = 1.0"
    )
    site.start()
    submitter = Submitter(site, sizes=(1, 6, 2))
    submitter.start()
    dice = random.Random(11)
    try:
        for _ in range(6):
            submitter.wait_for(len(submitter.acknowledged) + dice.randint(1, 8))
            cluster = dice.choice(site.names)
            site.kill(cluster)
            site.start_executor(cluster)
        submitter.enough.set()
        submitter.join(60.0)
        jobs = submitter.acknowledged
        site.until(lambda: all_ended(site, list(jobs.values())), 120.0)
        ran = Counter((site.work / "ran").read_text().split())
        assert {t: n for t, n in ran.items() if n > 1} == {}, "started twice"
        for token, job in jobs.items():
            details = site.job(job)
            if details["state"] == "completed":
                assert ran[token] == 1
            else:
                # The one honest other end: a part was ready, its executor died, its claim lapsed.
                assert details["reason"] in {"part_missing", "lost"}, details
    finally:
        submitter.enough.set()
        site.stop()


def all_ended(site: Running, jobs: list[str]) -> bool:
    rows = {row["id"]: row["state"] for row in site.ask("queue", all=True)["jobs"]}
    return all(rows.get(job, "completed") in ENDED for job in jobs)


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
def small_disk(root: Path) -> Path:
    """A file system of a few megabytes, where this user may mount one."""
    disk = root / "state"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {done.stderr.decode().strip()}")
    return disk


def test_a_full_disk_refuses_submits_and_loses_nothing(root: Path, small_disk: Path) -> None:
    site = Running(root, policy="plain")
    ballast = small_disk / "ballast"
    try:
        site.start()
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
    finally:
        site.stop()
        subprocess.run(["umount", "-l", str(small_disk)], check=False)


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
    site = Running(root)
    site.start_daemon()
    try:
        first = site.processes.pop("coallocd")
        site.start_daemon(wait=False)
        assert site.kill_when_ended("coallocd") == 1
        assert first.poll() is None
        site.processes["coallocd"] = first
        assert "in use by another process" in site.log.read_text()
    finally:
        site.stop()


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
