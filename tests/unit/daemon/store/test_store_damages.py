"""A damaged store is noticed, whatever was done to it, or serves all that was acknowledged."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from coalloc.daemon.outbox import Launches
from coalloc.daemon.store.errors import StoreCorruptError, StoreError
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.restore import NUMBERS_AHEAD, restore
from coalloc.daemon.store.schema import LASTING, PUTS
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.tables import TABLES
from coalloc.runtime import logs
from tests.support.damages import JOBS, damage, fill, served

FILES = ("", "-wal", "-mark")


@pytest.mark.parametrize(
    "seeds",
    [range(14), pytest.param(range(14, 210), marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_a_damage_is_noticed_or_harms_nothing(tmp_path: Path, seeds: range) -> None:
    store = Store(tmp_path / "live.db")
    fill(store)
    for end in FILES:  # as a killed daemon leaves them
        shutil.copyfile(tmp_path / f"live.db{end}", tmp_path / f"killed.db{end}")
    store.close()

    def copied(name: str) -> Path:
        for end in FILES:
            shutil.copyfile(tmp_path / f"killed.db{end}", tmp_path / f"{name}.db{end}")
        return tmp_path / f"{name}.db"

    acknowledged = served(copied("whole"))
    wrong = []
    for seed in seeds:
        path = copied(str(seed))
        how = damage(path, seed)
        fault = _fault(path, acknowledged)
        if fault:
            wrong.append(f"{how}: {fault}")
        for end in FILES:
            Path(f"{path}{end}").unlink(missing_ok=True)
    assert not wrong, "\n".join(wrong)


def _fault(path: Path, acknowledged: Any) -> str:
    try:
        found = served(path)
    except StoreError as error:
        said = str(error)
        is_clear = str(path) in said and "restore" in said and "\n" not in said
        return "" if is_clear else said
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if found == acknowledged else "served in silence"


def changed(path: Path, *statements: str) -> None:
    """Change a store with other means than ours."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in statements:
            raw.execute(statement)


def filled(path: Path) -> Path:
    store = Store(path)
    fill(store)
    store.close()
    return path


@pytest.mark.parametrize(
    ("beside", "content"),
    [
        ("keys.json", ""),
        ("server-key.json", "{}"),
        ("coalloc.db-wal", ""),
        ("coalloc.db-mark", ""),
        ("executors/a/progress.json", '{"store": "s", "epoch": 3, "last_seq": 1}'),
    ],
)
def test_a_store_that_is_missing_beside_what_has_served_is_not_made(
    tmp_path: Path, beside: str, content: str
) -> None:
    witness = tmp_path / beside
    witness.parent.mkdir(parents=True, exist_ok=True)
    witness.write_text(content)
    path = tmp_path / "coalloc.db"
    with pytest.raises(StoreCorruptError, match=r"is missing, and .* coalloc restore --empty"):
        Store(path)
    assert not path.exists()
    restore(path, path, source="empty")
    Store(path).close()


def test_what_has_not_served_is_no_reason_to_miss_a_store(tmp_path: Path) -> None:
    """An executor that was started first, or nothing at all."""
    folder = tmp_path / "executors" / "a"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text('{"store": "", "epoch": 0, "last_seq": 0}')
    (folder / "key.json").write_text("{}")
    Store(tmp_path / "coalloc.db").close()
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"executors", "coalloc.db"}, "nothing is left of how it was made"


def test_an_older_copy_put_in_its_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "coalloc.db"
    Store(path).close()
    older = path.read_bytes()
    filled(path)
    path.write_bytes(older)
    with pytest.raises(StoreCorruptError, match=f"lacks the last {JOBS + 1} of its"):
        Store(path)
    (tmp_path / "coalloc.db-mark").write_text("gone bad")
    Store(path).close()  # a mark that says nothing is no false alarm


def test_what_is_read_later_is_refused_and_the_rest_is_served(tmp_path: Path) -> None:
    path = filled(tmp_path / "coalloc.db")
    changed(
        path,
        "UPDATE jobs SET body = '{}' WHERE id = '3'",
        "UPDATE launches SET body = '{\"argv\": [\"rm\"]}' WHERE job = '4'",
        "UPDATE events SET job = '9' WHERE seq = 8",
    )
    store = Store(path)
    recall(store, keep_ended=0)
    for read in (lambda: store.job("3"), lambda: store.launch("4"), lambda: store.events(0, 9)):
        with pytest.raises(StoreCorruptError, match="is not as it was written"):
            read()
    assert Launches(store, logs.get_logger()).of_job("4") is None
    assert store.job("4") is not None
    with pytest.raises(StoreCorruptError, match="row '3' of table jobs"):
        list(store.examine())
    store.close()


def test_what_is_whole_of_a_damaged_store_is_salvaged(tmp_path: Path) -> None:
    path = filled(tmp_path / "coalloc.db")
    before = served(copy := Path(shutil.copy(path, tmp_path / "copy.db")))
    copy.unlink()
    changed(
        path, "UPDATE jobs SET body = '{}' WHERE id = '3'", "DELETE FROM meta", "DROP TABLE plans"
    )
    content = bytearray(path.read_bytes())
    content[-3 * 4096 :] = bytes(3 * 4096)
    path.write_bytes(content)
    restored = restore(path, path, source="damaged")
    assert restored.left_out >= 1
    assert restored.next_job > JOBS + NUMBERS_AHEAD // 2, "by the jobs themselves"
    store = Store(path)
    past = recall(store, keep_ended=0).remembered
    for _ in store.examine():
        pass
    store.close()
    known = {job.id: job for job in before[0][0]}
    assert len(list(past.jobs)) > JOBS / 3
    assert all(known[job.id] == job for job in past.jobs)


def test_every_effect_of_a_row_fits_its_table(tmp_path: Path) -> None:
    """Columns are declared once more, in the script of a version, which never changes."""
    store = Store(tmp_path / "coalloc.db")
    store.close()
    with closing(sqlite3.connect(tmp_path / "coalloc.db")) as raw:
        for table in TABLES:
            columns = {row[1] for row in raw.execute(f"PRAGMA table_info({table.name})")}
            asked = table.select.removeprefix("SELECT ").split(" FROM ")[0].split(", ")
            assert columns == set(asked)
    assert set(PUTS) < set(LASTING)
