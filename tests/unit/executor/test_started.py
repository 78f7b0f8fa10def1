"""Starts that an executor remembers: told of one store, whole lines only, bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from coalloc.executor import started
from coalloc.executor.started import StartedFile
from coalloc.model.sites.parts import PartKey


def key(job: str, attempt: int = 1) -> PartKey:
    return PartKey(job=job, attempt=attempt, part=0)


def jobs(file: StartedFile, store: str = "store-of-ours") -> list[str]:
    told = list(file.told(store, "a"))
    assert [page.is_last for page in told] == [False] * (len(told) - 1) + [True]
    return [job for page in told for job, _, _ in page.starts]


def test_a_start_is_told_to_the_daemon_of_its_store_after_a_crash_too(tmp_path: Path) -> None:
    path = tmp_path / "started"
    file = StartedFile(path)
    assert jobs(file) == []
    file.add("store-of-ours", key("17_3", 2), "finished")
    file.synchronise()
    file.add("other-store", key("18"), "lost")
    with path.open("ab") as torn:
        torn.write(b"\nstore-of 19 1 fin")
    file = StartedFile(path)
    file.add("store-of-ours", key("20.2"), "lost")
    file.add("store-of-ours", key("20.2"), "lost")
    assert jobs(file) == ["17_3", "19", "20.2"], "a start that is told too much only holds its job"
    assert jobs(file, "other-store") == ["18"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_newest_are_kept_within_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started, "MOST_BYTES", 1_000)
    monkeypatch.setattr(started, "TOLD_AT_ONCE", 7)
    file = StartedFile(tmp_path / "started")
    for n in range(300):
        file.add("s", key(str(n)), "finished")
    kept = jobs(file, "s")
    assert kept == [str(n) for n in range(300 - len(kept), 300)]
    assert 50 < len(kept) < 150
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 2_200
