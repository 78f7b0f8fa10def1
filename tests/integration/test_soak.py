"""Days of a real log in virtual time, on a real store, under random faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.daemon.soak import DAY_S, drawn, growth, logged, losses, soaked
from benchmarks.daemon.soak_site import SoakSite

LOG = "data/swf/KTH-SP2-1996-2.1-cln.swf.gz"


@pytest.mark.parametrize(
    "days", [pytest.param(2, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.nightly)]
)
def test_days_of_a_log_lose_and_double_nothing(
    tmp_path: Path, shared_file: Callable[[str], Path], days: int
) -> None:
    jobs = logged(shared_file(LOG), days, 112)
    path = tmp_path / "coalloc.db"
    site = SoakSite(path, jobs, {"a": 64, "b": 48}, keep_events=800, seed=7)
    rows = list(soaked(site, tmp_path, days))
    site.is_calm = True
    while len(site.ends) < len(jobs) and site.now < 2 * days * DAY_S:
        site.run_until(site.now + DAY_S / 4.0)
    site.store.close()
    assert losses(site, len(jobs)) == []
    if days == 30:
        assert growth(rows, 800) == []
    assert max(row.fds for row in rows) == rows[0].fds
    assert site.faults["crashes of the daemon"] > 0
    assert site.faults["messages lost"] > 0


def test_a_full_disk_in_the_soak_is_a_full_disk(tmp_path: Path) -> None:
    jobs = drawn(1, 30, 3)
    site = SoakSite(tmp_path / "coalloc.db", jobs, {"a": 24}, keep_events=500, seed=3)
    site.run_until(0.1 * DAY_S)
    site._full_until = 0.3 * DAY_S
    site.run_until(0.5 * DAY_S)
    assert site.faults["commits refused"] > 0
    assert site.faults["submits refused"] > 0
    site.is_calm = True
    site.run_until(2 * DAY_S)
    site.store.close()
    assert losses(site, len(jobs)) == []


def test_what_grows_is_named(tmp_path: Path) -> None:
    site = SoakSite(tmp_path / "coalloc.db", [], {"a": 2}, keep_events=500, seed=1)
    rows = [
        replace(row, rss_mb=30.0 + 5.0 * day, fds=8 + day, store_mb=2.0 * day + 2.0)
        for day, row in enumerate(soaked(site, tmp_path, 4))
    ]
    found = growth(rows, 500)
    site.store.close()
    assert [line.split(":")[0] for line in found] == [
        "rss_mb grows",
        "fds grows",
        "the store outgrows what it keeps",
    ]
    assert losses(site, 1) == ["1 jobs were never acknowledged"]
