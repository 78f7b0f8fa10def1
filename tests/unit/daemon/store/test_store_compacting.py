"""Free pages of the store go back to the file system, in steps that hold nobody up."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from coalloc.daemon.store import upkeep
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.schema import INCREMENTAL, SPARE_SHARE
from coalloc.daemon.store.sqlite import Store
from coalloc.runtime import logs
from tests.support.stored import event, saved_job

EVENTS = 4000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "coalloc.db"


def filled(path: Path) -> Store:
    store = Store(path)
    store.commit([saved_job("1")])
    store.commit([event(n, size=1000) for n in range(1, EVENTS + 1)])
    return store


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def test_what_was_pruned_goes_back_to_the_file_system(path: Path) -> None:
    store = filled(path)
    assert store.compact() == 0, "nothing is free"
    store.prune(10, at_most=EVENTS)
    steps = []
    while released := store.compact(100):
        steps.append(released)
    assert max(steps) <= 100
    assert sum(steps) > 500
    assert path.stat().st_size < 500_000, "without a stop"
    assert [row.id for row in store.active_jobs()] == ["1"]
    assert len(store.events(0, EVENTS)) == 10
    store.close()
    assert pragma(path, "freelist_count") <= pragma(path, "page_count") // SPARE_SHARE
    assert pragma(path, "auto_vacuum") == INCREMENTAL


def test_the_daemon_tends_its_store_in_steps(path: Path) -> None:
    store = filled(path)
    asyncio.run(upkeep.tend(store, 10, logs.get_logger()))
    assert len(store.events(0, EVENTS)) == 10
    assert path.stat().st_size < 500_000
    store.close()


def test_a_store_that_cannot_be_written_is_tended_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(path)

    def failing(*_: object) -> int:
        raise StoreError("database or disk is full")

    monkeypatch.setattr(store, "prune", failing)
    asyncio.run(upkeep.tend(store, 10, logs.get_logger()))
    monkeypatch.undo()
    asyncio.run(upkeep.tend(store, 10, logs.get_logger()))
    assert len(store.events(0, EVENTS)) == 10
    store.close()
