"""Copies of the store: complete, checked, and put back as its successor."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from coalloc.cli import main as cli
from coalloc.core.base.effects import Effect, SaveJob, SaveMeta, SendOrder
from coalloc.core.base.messages import Abort
from coalloc.core.base.records import JobRecord, JobState, PartRecord
from coalloc.daemon.store import backup
from coalloc.daemon.store.errors import StoreBusyError, StoreCorruptError, StoreError
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.restore import NUMBERS_AHEAD, ORDERS_AHEAD, restore
from coalloc.daemon.store.sqlite import Store
from coalloc.model.jobs import RigidJob
from coalloc.model.sites.parts import PartState
from tests.support.stored import event

NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "coalloc.db"


def put(job: str, state: JobState = JobState.PENDING, *, attempt: int = 0) -> SaveJob:
    part = PartRecord(cluster="a", index=0, nodes={"a1": 1}, first_rank=0, state=PartState.READY)
    record = JobRecord(
        id=job,
        job=RigidJob(id=job, procs=1, base_time=1.0),
        name=job,
        user="ann",
        state=state,
        attempt=attempt,
        parts=(part,) if attempt else (),
    )
    return SaveJob(record=record)


def filled(path: Path) -> Store:
    store = Store(path)
    effects: list[Effect] = [
        *(put(str(n)) for n in range(1, 6)),
        put("6", JobState.PREPARING, attempt=2),
        put("7", JobState.RUNNING, attempt=1),
        event(40, time=1.0, job="1"),
        SaveMeta(key="epoch", value="3"),
        SaveMeta(key="store", value="s"),
        SaveMeta(key="last_job", value="7"),
        SaveMeta(key="seq.a", value="12"),
        SendOrder(cluster="a", seq=11, order=Abort(job="6", attempt=1)),
    ]
    store.commit(effects)
    return store


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def test_a_restored_store_is_ahead_of_what_anybody_has_seen(path: Path, tmp_path: Path) -> None:
    store = filled(path)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    store.commit(
        [
            SaveMeta(key="epoch", value="9"),
            SaveMeta(key="last_job", value="800"),
            SaveMeta(key="seq.a", value="500"),
            event(900, time=2.0, job="8"),
        ]
    )
    store.close()
    restored = restore(copy, path, NOW)
    assert (restored.active, restored.unprepared) == (7, 1)
    store = Store(path)
    memory = recall(store, 100)
    store.close()
    past = memory.remembered
    assert past.epoch == int(NOW) + 1
    assert past.store == "s", "executors take it for the same store, and refuse its older epochs"
    assert past.last.job == 800 + NUMBERS_AHEAD
    assert past.last.event == 900 + NUMBERS_AHEAD
    assert past.seqs == {"a": 500 + ORDERS_AHEAD}
    assert past.presence.unreconciled == {"a"}
    assert past.paused
    assert not memory.outbox, "what may have been carried out is not sent again"
    jobs = {job.id: job for job in past.jobs}
    assert (jobs["6"].state, jobs["6"].attempt, jobs["6"].parts) == (JobState.PENDING, 1, ())
    assert jobs["7"].state is JobState.RUNNING


def test_each_restoration_of_one_copy_has_an_epoch_of_its_own(path: Path, tmp_path: Path) -> None:
    filled(path).close()
    store = Store(path)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    store.close()
    first = restore(copy, path, NOW).epoch
    again = restore(copy, path, NOW).epoch
    damage(path)
    blind = restore(copy, path, NOW + 60.0).epoch
    assert first < again < blind


def test_a_damaged_store_is_replaced_and_kept(path: Path, tmp_path: Path) -> None:
    store = filled(path)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    store.close()
    damage(path)
    spoilt = path.read_bytes()
    with pytest.raises(StoreCorruptError, match="coalloc restore FILE"):
        Store(path)
    kept = restore(copy, path, NOW).kept
    assert kept is not None
    assert kept.read_bytes() == spoilt
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_store_in_use_is_not_replaced(path: Path, tmp_path: Path) -> None:
    store = filled(path)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    with pytest.raises(StoreBusyError, match="stop coallocd first"):
        restore(copy, path, NOW)
    store.commit([put("9")])
    store.close()
    store = Store(path)
    assert store.job("9") is not None
    store.close()


def test_a_store_is_no_place_for_its_own_backup(path: Path) -> None:
    store = filled(path)
    with pytest.raises(StoreError, match="is the store itself"):
        store.backup(path)
    with pytest.raises(StoreBusyError):
        Store(path)  # it has not let go of its lock
    store.close()


@pytest.mark.parametrize("what", ["missing", "text", "foreign", "damaged", "newer"])
def test_a_wrong_copy_leaves_the_store_as_it_was(path: Path, tmp_path: Path, what: str) -> None:
    store = filled(path)
    copy = tmp_path / "copy.db"
    if what in {"damaged", "newer"}:
        store.backup(copy)
    store.close()
    if what == "text":
        copy.write_text("no database")
    elif what == "foreign":
        with closing(sqlite3.connect(copy)) as raw:
            raw.execute("CREATE TABLE bookmarks (url TEXT)")
    elif what == "damaged":
        damage(copy)
    elif what == "newer":
        with closing(sqlite3.connect(copy)) as raw:
            raw.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"copy\.db: ") as caught:
        restore(copy, path, NOW)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*restoring*")) + list(tmp_path.glob("*probe*"))


def test_the_former_wal_is_not_taken_for_the_new_ones(path: Path, tmp_path: Path) -> None:
    """A killed daemon leaves one, with commits that the copy does not have."""
    store = filled(path)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    store.commit([put("8")])
    wal, main = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    store.close()
    path.write_bytes(main)
    Path(f"{path}-wal").write_bytes(wal)
    kept = restore(copy, path, NOW).kept
    assert kept is not None
    for file, there in ((path, False), (kept, True)):
        opened = Store(file)
        assert (opened.job("8") is not None) is there
        opened.close()


def test_a_file_that_is_no_backup_is_not_overwritten(path: Path, tmp_path: Path) -> None:
    store = filled(path)
    other = tmp_path / "thesis.tex"
    other.write_text("years of work")
    with pytest.raises(StoreError, match="is no backup of a store"):
        store.backup(other)
    assert other.read_text() == "years of work"
    store.close()


class BetweenSteps:
    """A connection whose backup commits something after each of its steps."""

    def __init__(self, connection: sqlite3.Connection, commit: Callable[[], None]) -> None:
        self.connection, self.commit = connection, commit

    def backup(self, target: sqlite3.Connection, *, pages: int, sleep: float) -> None:
        self.connection.backup(target, pages=pages, sleep=sleep, progress=lambda *_: self.commit())


def test_a_backup_goes_on_beside_commits(path: Path, tmp_path: Path) -> None:
    store = Store(path)
    store.commit([put(str(n)) for n in range(1, 3_001)])
    steps = 0

    def commit() -> None:
        nonlocal steps
        if steps < 50:
            steps += 1
            store.commit([put(str(3_000 + steps))])

    copy = tmp_path / "copy.db"
    source = BetweenSteps(store.open(), commit)
    backup.write_copy(cast(sqlite3.Connection, source), copy)
    assert steps > 1, "all was copied in one step"
    store.close()
    opened = Store(copy)
    names = [row.id for row in opened.active_jobs()]
    opened.close()
    assert len(names) >= 3_000
    assert names == [str(n) for n in range(1, len(names) + 1)], "a state that there was"


def test_the_commands_without_a_daemon(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(path).close()
    config = tmp_path / "coallocd.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\nruntime_dir = "{tmp_path}/run"\n')
    copy = tmp_path / "copy.db"
    assert cli.main(["backup", str(copy), "--config", str(config)]) == 0
    assert f"{copy}: " in capsys.readouterr().out
    damage(path)
    assert cli.main(["restore", str(copy), "--config", str(config)]) == 0
    out = capsys.readouterr()
    assert "7 jobs have not ended" in out.out
    assert "coalloc resume rounds" in out.err
    store = Store(path)
    assert cli.main(["restore", str(copy), "--config", str(config)]) == 1
    assert "is in use; stop coallocd first" in capsys.readouterr().err
    store.close()
