"""Expected starts and their errors in the store: kept by a restart, a backup and a restoration."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from coalloc.core.base.start_intervals import FIRST
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.restore import restore
from coalloc.daemon.store.sqlite import Store
from tests.support.core_site import HOUR
from tests.unit.core.learning.test_start_intervals import Promising


@pytest.fixture
def learnt(tmp_path: Path) -> tuple[Promising, Path]:
    """A site where many jobs started later than expected and one waits, and its store, closed."""
    site = Promising({"a": 1})
    job = site.submit()
    for _ in range(30):
        site.run(job)
        following = site.submit()
        site.wait(HOUR)
        site.finish(job)
        job = following
    site.run(job)
    site.submit()
    path = tmp_path / "coalloc.db"
    store = Store(path)
    store.commit(site.effects)
    store.close()
    return site, path


def test_promises_and_errors_are_recalled_as_they_were(
    learnt: tuple[Promising, Path], tmp_path: Path
) -> None:
    site, path = learnt
    copy, fresh = tmp_path / "copy.db", tmp_path / "fresh.db"
    store = Store(path)
    store.backup(copy)
    store.close()
    restore(copy, fresh, now=site.now)
    expected = site.state.learning.calibration.interval(site.now + HOUR, site.now, FIRST)
    assert expected is not None
    for kept in (path, copy, fresh):
        store = Store(kept)
        memory = recall(store, 100)
        store.close()
        state = Coordinator(site.settings, memory.remembered).state
        assert state.learning.promises == site.state.learning.promises != {}
        assert state.learning.calibration == site.state.learning.calibration
        assert state.learning.calibration.interval(site.now + HOUR, site.now, FIRST) == expected


def test_what_a_forgotten_job_was_promised_is_forgotten(learnt: tuple[Promising, Path]) -> None:
    site, path = learnt
    (job,) = site.state.learning.promises
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM jobs WHERE id = ?", (job,))
        assert raw.execute("SELECT count(*) FROM promises").fetchone() == (0,)
    raw.close()
