"""Throttles and deadlines in the store: kept by a restart, a backup and a restoration."""

from __future__ import annotations

from pathlib import Path

from coalloc.core.coordinator import Coordinator
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.restore import restore
from coalloc.daemon.store.sqlite import Store
from tests.support.core_site import Site


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
        assert state.marked.throttled == members
        assert {state.jobs[job].throttle for job in members} == {1}
        assert state.deadlines.latest_starts == dict.fromkeys(members, 8900.0)
