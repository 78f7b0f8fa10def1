"""Moves in the store: a mark and a count that a restart and a backup keep."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from coalloc.core.coordinator import Coordinator
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.restore import restore
from coalloc.daemon.store.sqlite import Store
from tests.unit.core.starts.test_late_moves import open_up, waiting


def test_the_order_and_its_mark_are_recalled_together(tmp_path: Path) -> None:
    site, job = waiting()
    open_up(site, "b")
    path = tmp_path / "own.db"
    store = Store(path)
    store.commit(site.effects)
    found = recall(store, 10)
    store.close()
    record = Coordinator(site.settings, found.remembered).state.jobs[job]
    assert (record.leaving, record.moves) == ("a", 1)
    with sqlite3.connect(path) as raw:
        kept = [json.loads(body) for (body,) in raw.execute("SELECT body FROM outbox")]
    raw.close()
    assert [order["job"] for order in kept if order["type"] == "withdraw"] == [job]


def test_a_restored_copy_has_no_move_under_way(tmp_path: Path) -> None:
    """Its job waits again, and the attempt that was to leave is nobody's."""
    site, job = waiting()
    open_up(site, "b")
    paths = [tmp_path / name for name in ("own.db", "copy.db", "fresh.db")]
    store = Store(paths[0])
    store.commit(site.effects)
    store.backup(paths[1])
    store.close()
    restore(paths[1], paths[2], now=site.now)
    store = Store(paths[2])
    record = Coordinator(site.settings, recall(store, 10).remembered).state.jobs[job]
    store.close()
    assert record.is_waiting
    assert (record.leaving, record.moves) == ("", 1)
