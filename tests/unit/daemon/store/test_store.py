"""The store: what is written comes back, whole, in order, and only to its owner."""

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coalloc.core.base.effects import (
    DropOrders,
    Effect,
    LogLine,
    SaveHistory,
    SaveJob,
    SaveMeta,
    SaveNotes,
    SavePlan,
    SaveToken,
    SendOrder,
    Wake,
)
from coalloc.core.base.messages import Abort
from coalloc.core.base.state_tables import ClaimWait
from coalloc.core.coordinator import Coordinator
from coalloc.core.starts.waits import WAITS_KEY
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.store import tables
from coalloc.daemon.store.errors import StoreBusyError, StoreCorruptError, StoreError
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.records_json import read_record, write_object
from coalloc.daemon.store.schema import MIGRATIONS
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writer import Writer
from coalloc.model.settings import Config
from coalloc.runtime.logs import get_logger
from coalloc.wire.codec import encode_order
from tests.support.stored import event, saved_launch
from tests.support.stored import saved_job as job


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "coalloc.db"


def order(cluster: str, seq: int) -> SendOrder:
    return SendOrder(cluster=cluster, seq=seq, order=Abort(job=str(seq), attempt=1))


def ids(store: Store) -> list[str]:
    return [row.id for row in store.active_jobs()]


def test_everything_is_there_after_a_restart(path: Path) -> None:
    effects: list[Effect] = [
        job("1"),
        saved_launch("1", "hostname"),
        SaveToken(user="ann", token="t1", job="1"),
        order("alpha", 2),
        order("alpha", 1),
        event(7, job="1"),
        SavePlan(round=3, time=1.5, body={}),
        SaveMeta(key="epoch", value="4"),
        SaveNotes(policy="oas", notes={"seed": 2}),
        SaveHistory(key="ann hostname", values=(1.0,), ratios=(0.5,), runs=((2, 1.0),)),
    ]
    store = Store(path)
    assert store.commit(effects)
    store.close()

    store = Store(path)
    rows = list(store.active_jobs())
    assert [(row.id, row.ended) for row in rows] == [("1", None)]
    assert SaveJob(record=read_record(rows[0].body)) == job("1")
    assert store.rows(tables.TOKENS) == [("ann", "t1", "1")]
    orders = [("alpha", n, encode_order(order("alpha", n).order).decode()) for n in (1, 2)]
    assert store.rows(tables.OUTBOX) == orders
    assert {row.key: row[1] for row in store.rows(tables.META)} == {
        "epoch": "4",
        "notes.oas": '{"seed":2}',
    }
    assert {row.key: row[1] for row in store.rows(tables.HISTORY)} == {
        "ann hostname": '{"base_times":[1.0],"ratios":[0.5],"runs":[[2,1.0]]}'
    }
    assert [row.seq for row in store.events(0, 10)] == [7]
    assert store.plan() == (3, 1.5, "{}")
    assert store.launch("1") == write_object(saved_launch("1", "hostname").launch)
    store.close()


def test_effects_that_do_not_last_are_not_written(path: Path) -> None:
    store = Store(path)
    assert not store.commit([Wake(at=1.0), LogLine(event="round_finished", fields={})])
    values = [SaveMeta(key="paused", value=value) for value in ("0", "1")]
    assert store.commit([Wake(at=1.0), *values])
    assert {row.key: row[1] for row in store.rows(tables.META)} == {"paused": "1"}
    store.close()


def test_of_a_job_in_a_batch_only_the_last_record_is_written(path: Path) -> None:
    store = Store(path)
    store.commit([job("b"), job("a"), job("b", state="running"), job("c")])
    assert [(row.id, read_record(row.body).state) for row in store.active_jobs()] == [
        ("b", "running"),
        ("a", "pending"),
        ("c", "pending"),
    ]
    store.close()


def test_jobs_keep_their_place_when_written_again(path: Path) -> None:
    store = Store(path)
    store.commit([job("b"), job("a"), job("c")])
    store.commit([job("a", state="running"), job("b", state="held")])
    assert ids(store) == ["b", "a", "c"]
    row = store.job("a")
    assert row is not None
    assert read_record(row.body).state == "running"
    store.close()


def test_many_jobs_come_back_page_by_page(path: Path) -> None:
    store = Store(path)
    names = [str(i) for i in range(4001)]  # two full pages and one row
    store.commit([job(name) for name in names])
    assert ids(store) == names
    store.close()


def test_ended_jobs_are_read_on_demand(path: Path) -> None:
    store = Store(path)
    store.commit([job("1"), job("2"), job("3"), SaveToken(user="ann", token="t", job="2")])
    store.commit([job("2", state="completed", ended=20.0), job("1", state="failed", ended=30.0)])
    assert ids(store) == ["3"]
    assert [row.id for row in store.finished(10)] == ["1", "2"]
    assert [row.id for row in store.finished(1)] == ["1"]
    assert recall(store, 0).remembered.tokens == {}
    # a late resend is still the same job
    assert store.job_of_token("ann", "t") == "2"
    assert store.job_of_token("bob", "t") is None
    assert store.job("4") is None
    store.close()


def test_with_a_job_goes_what_belongs_to_it(path: Path) -> None:
    store = Store(path)
    ended = job("1", state="completed", ended=1.0)
    token = SaveToken(user="a", token="t", job="1")
    store.commit([ended, saved_launch("1"), token, event(1, time=5.0)])
    store.prune(keep_events=1)
    assert store.job("1") is None
    assert store.launch("1") is None
    assert store.job_of_token("a", "t") is None
    store.close()


def test_outbox_is_dropped_up_to_a_number_on_one_cluster(path: Path) -> None:
    store = Store(path)
    store.commit([order(c, n) for c in ("a", "b") for n in (1, 2, 3)])
    store.commit([DropOrders(cluster="a", through_seq=2)])
    kept = [(row.cluster, row.seq) for row in store.rows(tables.OUTBOX)]
    assert kept == [("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    store.close()


def test_that_orders_were_carried_out_is_written_with_what_comes_next(path: Path) -> None:
    store, done = Store(path), list[Effect]()
    writer = Writer(
        store,
        Coordinator(Config()),
        CoreLoop(lambda batch: None),
        get_logger(),
        lambda: 0.0,
        carry_out=lambda effects, now: done.extend(effects),
        refuse=lambda origin, refused: None,
    )
    dropped = DropOrders(cluster="a", through_seq=1)
    commits = list[float]()
    writer.on_commit = commits.append
    for batch in ([order("a", n) for n in (1, 2)], [dropped], [event(1)]):
        writer.write([*batch], 0.0)
        assert done[-1] is batch[-1]
        if batch == [dropped]:
            assert [row.seq for row in store.rows(tables.OUTBOX)] == [1, 2]
    assert [row.seq for row in store.rows(tables.OUTBOX)] == [2]
    assert len(commits) == 2
    store.close()


def test_effects_of_a_batch_apply_in_order(path: Path) -> None:
    store = Store(path)
    dropped = DropOrders(cluster="a", through_seq=2)
    orders = [order("a", n) for n in (1, 2)]
    store.commit([orders[0], dropped, orders[1], orders[0], dropped, orders[0]])
    assert [(row.cluster, row.seq) for row in store.rows(tables.OUTBOX)] == [("a", 1)]
    store.close()


def test_a_batch_is_written_whole_or_not_at_all(path: Path) -> None:
    store = Store(path)
    store.commit([event(1)])
    with pytest.raises(StoreError, match="UNIQUE constraint failed"):
        store.commit([job("1"), event(1)])
    with pytest.raises(UnicodeEncodeError):  # a lone surrogate is no text
        store.commit([job("1"), SaveMeta(key="k", value="\ud800")])
    assert ids(store) == []
    store.commit([job("1"), event(2)])
    assert ids(store) == ["1"]
    store.close()


def test_events_are_read_by_number_and_by_job(path: Path) -> None:
    store = Store(path)
    store.commit([event(n, job="1" if n % 2 else "") for n in range(1, 8)])
    assert [row.seq for row in store.events(2, 3)] == [3, 4, 5]
    assert [row.seq for row in store.events(1, 10, "1")] == [3, 5, 7]
    assert store.events(7, 10) == []
    store.close()


def test_prune_keeps_the_newest_events(path: Path) -> None:
    store = Store(path)
    store.commit([event(n, time=float(n)) for n in range(1, 101)])
    store.commit([job("early", ended=50.0), job("late", ended=95.0), job("active")])
    assert store.prune(10, at_most=60) == 60
    assert store.prune(10, at_most=60) == 30
    assert store.prune(10, at_most=60) == 0
    assert [row.seq for row in store.events(0, 100)] == list(range(91, 101))
    # a job goes with its events, unless it is active
    assert [row.id for row in store.finished(10)] == ["late"]
    assert ids(store) == ["active"]
    assert store.prune(0) == 9
    assert [row.seq for row in store.events(0, 10)] == [100]
    store.close()


def test_prune_of_an_empty_store(path: Path) -> None:
    store = Store(path)
    assert store.prune(10) == 0
    store.close()


def test_old_plans_are_forgotten(path: Path) -> None:
    store = Store(path, keep_plans=2)
    for number in (1, 2, 3):
        store.commit([SavePlan(round=number, time=0.0, body={"number": number})])
    assert store.plan(1) is None
    for row, expected in ((store.plan(2), 2), (store.plan(3), 3), (store.plan(), 3)):
        assert row is not None
        assert row.body == f'{{"number":{expected}}}'
    store.close()


def test_a_second_process_is_refused(path: Path) -> None:
    store = Store(path)
    store.commit([job("1")])
    code = (
        "import sys, pathlib; from coalloc.daemon.store import sqlite, errors\n"
        "try: sqlite.Store(pathlib.Path(sys.argv[1]))\n"
        "except errors.StoreBusyError as error: print(error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == f"{path}: is in use by another process\n", shown.stderr
    store.commit([job("2")])
    store.close()


def test_a_second_connection_is_refused(path: Path) -> None:
    store = Store(path)
    with pytest.raises(StoreBusyError):
        Store(path)
    store.close()
    Store(path).close()


def test_another_thread_is_refused(path: Path) -> None:
    store = Store(path)
    errors: list[Exception] = []

    def foreign() -> None:
        for action in (lambda: store.commit([job("1")]), store.plan, store.close):
            try:
                action()
            except StoreError as error:
                errors.append(error)

    thread = threading.Thread(target=foreign)
    thread.start()
    thread.join(timeout=30)
    assert len(errors) == 3
    assert "thread" in str(errors[0])
    store.commit([job("2")])
    assert ids(store) == ["2"]
    store.close()


def test_the_file_is_private(path: Path) -> None:
    store = Store(path)
    store.commit([job("1")])
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file
    store.close()


def test_a_backup_is_a_store(path: Path, tmp_path: Path) -> None:
    store = Store(path)
    store.commit([job("1"), event(1)])
    copy = tmp_path / "backup.db"
    store.backup(copy)
    store.commit([job("2")])
    store.backup(copy)  # replaces the former one
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir() if "backup" in file.name) == [copy.name]
    restored = Store(copy)
    assert ids(restored) == ["1", "2"]
    assert [row.seq for row in restored.events(0, 10)] == [1]
    restored.close()
    store.close()


def test_a_backup_that_cannot_be_written_leaves_the_store_usable(
    path: Path, tmp_path: Path
) -> None:
    store = Store(path)
    with pytest.raises(StoreError, match="missing"):
        store.backup(tmp_path / "missing" / "backup.db")
    store.commit([job("1")])
    assert ids(store) == ["1"]
    store.close()


def test_the_schema_version_is_recorded(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert raw.execute("SELECT version FROM migrations").fetchall() == [
            (number + 1,) for number in range(len(MIGRATIONS))
        ]
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()


def test_a_store_is_brought_up_to_a_later_version(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path)
    store.commit([job("1")])
    store.close()
    later = (*MIGRATIONS, ("ALTER TABLE jobs ADD COLUMN place TEXT",))
    monkeypatch.setattr("coalloc.daemon.store.schema.MIGRATIONS", later)
    for _ in ("brought up to it", "opened again"):
        store = Store(path)
        assert ids(store) == ["1"]
        store.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(later),)
        assert raw.execute("SELECT count(*) FROM migrations").fetchone() == (len(later),)
        assert raw.execute("SELECT place FROM jobs").fetchall() == [(None,)]
    raw.close()


def test_a_migration_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).close()
    broken = (*MIGRATIONS, ("CREATE TABLE more (a TEXT)", "CREATE TABLE jobs (a TEXT)"))
    monkeypatch.setattr("coalloc.daemon.store.schema.MIGRATIONS", broken)
    with pytest.raises(StoreError, match="already exists"):
        Store(path)
    monkeypatch.undo()
    store = Store(path)
    store.commit([job("1")])
    store.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'more'").fetchall()
    raw.close()


def test_a_newer_schema_is_refused(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreError, match=r"has schema 99, this coalloc knows up to \d+"):
        Store(path)


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE bookmarks (url TEXT)")
    raw.close()
    with pytest.raises(StoreCorruptError, match="another program"):
        Store(path)


@pytest.mark.parametrize("damage", ["header", "page"])
def test_a_damaged_file_is_refused_with_the_way_out(path: Path, damage: str) -> None:
    store = Store(path)
    store.commit([job(str(i)) for i in range(2000)])
    store.close()
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[:16] = b"not a database!!"
    else:
        for page in range(4, len(content) // 4096, 2):
            content[page * 4096 : page * 4096 + 512] = b"\xff" * 512
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError) as caught:
        Store(path)
    assert "coalloc restore FILE" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_killed_writer_loses_nothing_it_acknowledged(path: Path) -> None:
    code = (
        "import sys, pathlib; from coalloc.daemon.store.sqlite import Store\n"
        "from coalloc.core.base.effects import SaveMeta\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "for n in range(10**9):\n"
        "    store.commit([SaveMeta(key=str(n), value='')])\n"
        "    print(n, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(50):
            child.stdout.readline()
        child.kill()
        acknowledged = 50 + len(child.stdout.read().split())
    store = Store(path)
    found = {row.key: row[1] for row in store.rows(tables.META)}
    assert len(found) in (acknowledged, acknowledged + 1)  # a commit whose line was cut
    assert set(found) == {str(n) for n in range(len(found))}
    store.close()


def test_waits_of_claims_outlive_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    try:
        store.commit([SaveMeta(key=f"{WAITS_KEY}a", value="[[12.0, 3, false, 2.0]]")])
        kept = recall(store, keep_ended=0).remembered.learning.waits
    finally:
        store.close()
    assert kept == {"a": (ClaimWait(12.0, ahead=3, width=2.0),)}
