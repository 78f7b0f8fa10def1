"""Files that are promised to be on disk on return, on a disk that forgets unsynchronised names."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog

from coalloc.adapters.runner import durable
from coalloc.adapters.runner.batch.supervisor import PartSupervisor
from coalloc.adapters.runner.status import StatusFile, status_size
from coalloc.adapters.slurm.native.part import NativePart
from coalloc.core.executor.effects import SaveProgress
from coalloc.daemon.access.key_table import Grant, KeyTable
from coalloc.daemon.store.backup import write_copy
from coalloc.daemon.store.restore import restore
from coalloc.daemon.store.sqlite import Store
from coalloc.executor.actions import ProgressFile, kept_identity
from coalloc.runtime.key_files import KeyFile, write_key
from coalloc.wire.curve import new_pair
from tests.support.forgetful_disk import ForgetfulDisk

Writer = Callable[[Path], str]
"""Writes below a folder; returns the path from there of what it promised to keep."""


def write_progress(root: Path) -> str:
    progress = ProgressFile(root / "progress.json", structlog.stdlib.get_logger())
    progress.write(SaveProgress(store="s", epoch=2, last_seq=7))
    return "progress.json"


def write_identity(root: Path) -> str:
    kept_identity(root)
    return "identity"


def write_native_part(root: Path) -> str:
    part = NativePart(job="7", attempt=1, part=0, foreign="12", nodes=["n1"])
    part.write(root / "native")
    return f"native/{part.key.folder}"


def write_users_key(root: Path) -> str:
    write_key(root / "ada" / "coalloc" / "key.json", KeyFile(pair=new_pair()))
    return "ada/coalloc/key.json"


def write_claim(root: Path) -> str:
    part = PartSupervisor.__new__(PartSupervisor)
    part._folder = str(root)
    part._barrier = SimpleNamespace(port=4000)  # type: ignore[assignment]
    part._job = SimpleNamespace(number="12", is_parked=True, asked_s=60.0)  # type: ignore[assignment]
    part._is_waiting = False
    part._keep()
    return "claim.json"


def write_key_table(root: Path) -> str:
    grant = Grant(key=new_pair().public, user="ada", uid=1000, gid=1000)
    KeyTable(root / "keys.json").authorize(grant)
    return "keys.json"


def write_status(root: Path) -> str:
    status = StatusFile(str(root))
    status.preallocate(1)
    status.synchronise()
    return "status"


def write_backup(root: Path) -> str:
    with closing(sqlite3.connect(root / "coalloc.db")) as source:
        write_copy(source, root / "copy.db")
    return "copy.db"


def write_restored(root: Path) -> str:
    restored = restore(root / "backup.db", root / "coalloc.db", 0.0)
    assert restored.kept is not None
    return restored.kept.name


WRITERS = (
    write_progress,
    write_identity,
    write_native_part,
    write_users_key,
    write_claim,
    write_key_table,
    write_status,
    write_backup,
    write_restored,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a store and a copy of it."""
    folder = tmp_path / "state"
    folder.mkdir()
    Store(folder / "coalloc.db").close()
    with closing(sqlite3.connect(folder / "coalloc.db")) as source:
        write_copy(source, folder / "backup.db")
    return folder


@pytest.fixture(params=[True, False], ids=["synchronised", "left_out"])
def hears_folders(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, hears_folders: bool
) -> Iterator[ForgetfulDisk]:
    found = ForgetfulDisk(root, monkeypatch, hears_folders=hears_folders)
    yield found
    found.close()


@pytest.mark.parametrize("write", WRITERS)
def test_what_was_promised_is_on_disk(
    write: Writer, root: Path, disk: ForgetfulDisk, hears_folders: bool
) -> None:
    """And would not be if its folder were not synchronised: so the model sees that."""
    kept = write(root)
    left = disk.after_power_loss()
    if hears_folders:
        assert left[kept] == (root / kept).read_bytes()
    else:
        assert kept not in left


def test_what_a_file_held_stays_until_the_new_content_is_there(
    root: Path, disk: ForgetfulDisk, hears_folders: bool
) -> None:
    durable.write(root / "backup.db", b"new")
    left = disk.after_power_loss()["backup.db"]
    assert (left == b"new") == hears_folders
    assert left == b"new" or left.startswith(b"SQLite")


def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "progress.json"
    durable.write(path, b"1")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        durable.write(path, b"2")
    assert [found.name for found in tmp_path.iterdir()] == ["progress.json"]
    assert json.loads(path.read_bytes()) == 1


def test_status_files_have_their_size_on_disk(root: Path, disk: ForgetfulDisk) -> None:
    StatusFile(str(root)).preallocate(3)
    assert (root / "status").stat().st_size == status_size(3)


def test_only_the_folder_itself_is_closed_to_others(tmp_path: Path) -> None:
    durable.make_folder(tmp_path / "executors" / "alpha")
    assert (tmp_path / "executors" / "alpha").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "executors").stat().st_mode & 0o111 == 0o111
