"""State that an earlier version wrote is read, and what waited there goes on."""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from coalloc.adapters.local.launcher import LocalLauncher
from coalloc.adapters.local.settings import read_settings
from coalloc.core.base.records import JobState
from coalloc.core.executor.state import ExecutorState
from coalloc.daemon.store.recall import RecalledStore, recall
from coalloc.daemon.store.sqlite import Store
from coalloc.executor.actions import ProgressFile, kept_identity
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.model.parts import PartState
from tests.support.live_site import Running

DATA = Path(__file__).parent / "data" / "earlier"
CLUSTERS = {"alpha": 6, "beta": 6}
STATES = {
    "1": "completed",
    "2": "failed",
    "3": "cancelled",
    "4": "running",
    "4.1": "completed",
    "4.2": "running",
    "5": "running",
    "6": "running",
    "6.1": "running",
    "7": "pending",
    "8": "held",
    "9": "pending",
    "10_3": "pending",
    "10_5": "pending",
    "10_8": "pending",
}
USER, UID, GID = getpass.getuser(), os.getuid(), os.getgid()
PARTS = {"alpha": {("4.2", 0), ("5", 0), ("6.1", 0)}, "beta": {("5", 1)}}


def write_store(path: Path) -> None:
    """Put the store there; its jobs are those of the user who runs the tests."""
    text = (DATA / "coalloc.sql").read_text()
    owner = '"user":"root","uid":0,"gid":0'
    assert owner in text
    text = text.replace(owner, f'"user":"{USER}","uid":{UID},"gid":{GID}')
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with closing(sqlite3.connect(path)) as store:
        store.executescript(text)
        store.execute("PRAGMA journal_mode = WAL")
    path.chmod(0o600)


def write_executor(cluster: str, folder: Path) -> None:
    """Put an executor's folder there, with the locks and FIFOs that no repository holds."""
    shutil.copytree(DATA / "executors" / cluster, folder)
    for part in folder.glob("part+*"):
        os.mkfifo(part / "barrier", 0o600)
        (part / "lock").touch(0o600)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[RecalledStore]:
    write_store(tmp_path / "coalloc.db")
    store = Store(tmp_path / "coalloc.db")
    yield recall(store, keep_ended=100)
    store.close()


def test_every_job_of_an_earlier_store_is_there_in_its_state(memory: RecalledStore) -> None:
    jobs = {job.id: job for job in memory.remembered.jobs}
    assert {name: str(job.state) for name, job in jobs.items()} == STATES
    assert jobs["9"].needs == (("afterok", "7"),)
    assert [jobs[f"10_{n}"].array_index for n in (3, 5, 8)] == [3, 5, 8]
    assert [part.cluster for part in jobs["5"].parts] == ["alpha", "beta"]
    assert isinstance(jobs["4"].job, WorkflowJob)
    assert isinstance(jobs["6"].job, DivisibleJob)
    assert jobs["8"].state is JobState.HELD
    remembered = memory.remembered
    assert (remembered.epoch, remembered.last_job) == (2, 10)
    assert remembered.seqs == {"alpha": 16, "beta": 3}
    assert remembered.identities.keys() == {"alpha", "beta"}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_an_earlier_executor_kept_is_adopted(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / cluster
    write_executor(cluster, folder)
    assert kept_identity(folder) == (DATA / "executors" / cluster / "identity").read_text()
    kept = ProgressFile(folder / "progress.json", structlog.get_logger()).kept
    assert kept is not None
    state = ExecutorState(cluster=cluster, identity="")
    state.recall(kept)
    assert (state.epoch, state.last_seq) == (1, {"alpha": 15, "beta": 2}[cluster])

    settings = read_settings({"nodes": [f"{cluster}[1-6]"], "slots": 1}, cluster)
    locks = [open(path, "rb") for path in folder.glob("part+*/lock")]  # noqa: SIM115
    for lock in locks:  # as the runner of each holds it while it lives
        fcntl.flock(lock, fcntl.LOCK_EX)
    launcher = LocalLauncher(settings, folder)
    try:
        reports = launcher.adopt()
        assert {(report.key.job, report.key.part) for report in reports} == PARTS[cluster]
        assert {report.state for report in reports} == {PartState.RUNNING}
        for lock in locks:
            lock.close()
        assert {report.state for report in launcher.adopt()} == {PartState.LOST}
    finally:
        launcher.close()


def test_the_jobs_of_an_earlier_store_go_on(root: Path) -> None:
    site = Running(root, clusters=CLUSTERS, rounds="piece_s = 5.0")
    write_store(root / "state" / "coalloc.db")
    for cluster in CLUSTERS:
        write_executor(cluster, root / "state" / "executors" / cluster)
    try:
        site.start_daemon()
        found = {name: site.job(name)["state"] for name in STATES}
        assert found == STATES
        # The first to come has lost a piece, before the other could be given more of that job.
        site.start_executor("alpha")
        site.until(lambda: site.job("6")["reason"] == "piece_failed")
        site.start_executor("beta")
        site.until(site.is_complete)
        # The runners are gone: what they ran is lost, and no job asked for another attempt.
        assert site.wait("5")["state"] == "lost"
        assert site.wait("4")["state"] == site.wait("6")["state"] == "failed"
        assert site.job("4")["progress"]["completed"] == 1
        assert site.ask("release", job="8")["type"] == "done"
        for name in ("7", "8", "9", "10_3", "10_5", "10_8"):
            assert site.wait(name)["state"] == "completed", site.job(name)
        assert int(site.submit(["true"])) == 11
        assert site.wait("11")["state"] == "completed"
    finally:
        site.stop()
