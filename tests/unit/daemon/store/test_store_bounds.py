"""Throttles and deadlines in the store: kept by a restart, a backup and a restoration."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from coalloc.core.coordinator import Coordinator
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.restore import restore
from coalloc.daemon.store.schema import APPLICATION_ID, CREATE_MIGRATIONS, MIGRATIONS
from coalloc.daemon.store.sqlite import Store
from tests.support.core_site import Site

BEFORE = 5
"""The schema whose records had neither."""


def bounded() -> tuple[Site, str]:
    """A site where an array of three waits, one member at a time, for a job that runs."""
    site = Site({"a": 1})
    site.run(site.submit())
    return site, site.submit(array=(0, 1, 2), throttle=1, finish_by=9000.0)


def test_both_are_recalled_from_a_store_a_backup_and_a_restoration(tmp_path: Path) -> None:
    site, number = bounded()
    paths = [tmp_path / name for name in ("own.db", "copy.db", "fresh.db")]
    store = Store(paths[0])
    store.commit(site.effects)
    store.backup(paths[1])
    store.close()
    restore(paths[1], paths[2], now=site.now)
    for path in paths:
        store = Store(path)
        state = Coordinator(site.settings, recall(store, 100).remembered).state
        store.close()
        members = {f"{number}_{n}" for n in range(3)}
        assert state.throttled == members
        assert {state.jobs[job].throttle for job in members} == {1}
        assert state.latest_starts == dict.fromkeys(members, 8900.0)


def test_a_store_of_the_version_before_goes_on(tmp_path: Path) -> None:
    site = Site({"a": 1})
    number = site.submit(array=(0, 1))
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as raw:
        raw.execute(CREATE_MIGRATIONS)
        for version, script in enumerate(MIGRATIONS[:BEFORE], start=1):
            for statement in script:
                raw.execute(statement)
            raw.execute("INSERT INTO migrations VALUES (?, ?, 'test')", (version, time.time()))
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute(f"PRAGMA user_version = {BEFORE}")
    raw.close()
    store = Store(path)
    # Such jobs are written as they were before: what equals its default is left out.
    store.commit(site.effects)
    assert "throttle" not in store.job(f"{number}_0").body  # type: ignore[union-attr]
    jobs = {job.id: job for job in recall(store, 10).remembered.jobs}
    store.close()
    assert (jobs[f"{number}_1"].throttle, jobs[f"{number}_1"].finish_by) == (0, None)
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    raw.close()
