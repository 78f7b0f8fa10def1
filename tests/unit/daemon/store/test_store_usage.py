"""Usage and accounts in the store: kept by a restart and a backup, added to, and not lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coalloc.core.base.effects import AddUsage, SaveUsage
from coalloc.core.base.projects import Usage
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.model.settings import PriorityConfig, ProjectConfig
from tests.support.core_site import Site
from tests.unit.core.base.test_usage import run

RULE: dict[str, Any] = {
    "priority": PriorityConfig(shares=8.0, half_life_s=3600.0),
    "projects": {"p": ProjectConfig(users=("ann",))},
}


@pytest.fixture
def used(tmp_path: Path) -> tuple[Site, Path]:
    """A site where a job of Ann's has ended, and its store, closed."""
    site = Site({"a": 2, "b": 2}, **RULE)
    run(site, site.submit(3), 50.0)
    path = tmp_path / "coalloc.db"
    store = Store(path)
    store.commit(site.effects)
    store.close()
    return site, path


def test_usage_is_recalled_as_it_was(used: tuple[Site, Path], tmp_path: Path) -> None:
    site, path = used
    copy = tmp_path / "copy.db"
    store = Store(path)
    store.backup(copy)
    store.close()
    for kept in (path, copy):
        store = Store(kept)
        memory = recall(store, 10)
        store.close()
        state = Coordinator(site.settings, memory.remembered).state
        assert state.sharing.usage == site.state.sharing.usage
        assert state.sharing.days == site.state.sharing.days


def test_days_add_up_and_decayed_usage_is_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "coalloc.db")
    for n in (1, 2):
        add = AddUsage(day=7, project="p", user="ann", cluster="a", proc_s=5.0, jobs=1, wait_s=2.0)
        other = AddUsage(day=7, project="p", user="ann", cluster="b", proc_s=1.0)
        store.commit([add, other, SaveUsage(project="p", user="ann", proc_s=n, at=10.0 * n)])
    remembered = recall(store, 10).remembered
    store.close()
    assert remembered.sharing.days == {("p", "ann"): {7: 12.0}}
    assert remembered.sharing.usage == {("p", "ann"): Usage(2.0, 20.0)}


def test_the_account_of_a_job_says_where_it_ran(used: tuple[Site, Path]) -> None:
    import sqlite3

    _, path = used
    with sqlite3.connect(path) as raw:
        rows = raw.execute("SELECT id, project, user, state, body ->> 'proc_s' FROM accounts")
        assert rows.fetchall() == [("1", "p", "ann", "completed", 150.0)]
    raw.close()
