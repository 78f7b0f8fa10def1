"""The store and its disk: network file systems, no space, read-only."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from coalloc.core.base.effects import SaveJob
from coalloc.daemon.store import database
from coalloc.daemon.store.disk import Mount, mount_of, write_error
from coalloc.daemon.store.errors import StoreError, StoreFullError, StoreReadOnlyError
from coalloc.daemon.store.sqlite import Store
from tests.support.small_disk import mounted
from tests.support.stored import saved_job

MOUNTS = [
    ("/", "ext4"),
    ("/home", "nfs4"),
    ("/mnt/with space", "cifs"),
    ("/srv", "ext4"),
    ("/srv", "fuse.sshfs"),
    ("/overlay", "fuse.fuse-overlayfs"),
    ("/disk", "fuseblk"),
]


def mount(monkeypatch: pytest.MonkeyPatch, mounts: list[tuple[str, str]]) -> None:
    parts = [SimpleNamespace(mountpoint=point, fstype=kind) for point, kind in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)


@pytest.mark.parametrize(
    ("path", "type", "network"),
    [
        ("/var/lib/coalloc", "ext4", False),
        ("/home/ann/.local/state", "nfs4", True),
        ("/homely", "ext4", False),  # a prefix, not a folder
        ("/mnt/with space/x", "cifs", True),
        ("/srv/x", "fuse.sshfs", True),  # mounted over another
        ("/overlay/x", "fuse.fuse-overlayfs", False),
        ("/disk/x", "fuseblk", False),
        ("/", "ext4", False),
    ],
)
def test_mount_is_found(
    path: str, type: str, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(monkeypatch, MOUNTS)
    found = mount_of(Path(path))
    assert found is not None
    assert (found.type, found.is_network) == (type, network)


def test_no_mount_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mount(monkeypatch, [])
    assert mount_of(Path("/var")) is None


def test_own_mount_is_found(tmp_path: Path) -> None:
    found = mount_of(tmp_path)
    assert found is not None
    assert str(tmp_path).startswith(found.point)


def test_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nfs = Mount(point="/home", type="nfs4")
    monkeypatch.setattr(database, "mount_of", lambda path: nfs)
    with pytest.raises(StoreError, match=r"network file system \(nfs4 at /home\)"):
        Store(tmp_path / "coalloc.db")
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        Store(tmp_path / "missing" / "coalloc.db")


def test_probe_writes_and_leaves_nothing(tmp_path: Path) -> None:
    assert write_error(tmp_path) == 0
    assert not list(tmp_path.iterdir())
    assert write_error(tmp_path / "missing") == errno.ENOENT


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=2m") as disk:
        yield disk


def job(name: str, size: int = 1000) -> SaveJob:
    return saved_job(name, size=size)


def fill(store: Store) -> list[str]:
    """Commit until the disk is full; return what was acknowledged."""
    for count in range(100_000):
        try:
            store.commit([job(str(count))])
        except StoreFullError:
            return [str(n) for n in range(count)]
    raise AssertionError("the disk never filled up")


def fill_rest(path: Path) -> None:
    """Leave no space on a file system."""
    with path.open("wb", buffering=0) as rest:
        try:
            while rest.write(b"\0" * 4096):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def ids(store: Store) -> list[str]:
    return [row.id for row in store.active_jobs()]


def test_full_disk_loses_nothing_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    store = Store(small_disk / "coalloc.db")
    done = fill(store)
    assert ids(store) == done  # readable while full
    for _ in range(3):
        with pytest.raises(StoreFullError):
            store.commit([job("refused", size=200_000)])
    ballast.unlink()
    store.commit([job("after")])
    store.close()
    store = Store(small_disk / "coalloc.db")
    assert ids(store) == [*done, "after"]
    store.close()


def test_start_on_a_full_disk_reads_what_is_there(small_disk: Path) -> None:
    store = Store(small_disk / "coalloc.db")
    done = fill(store)
    store.close()
    fill_rest(small_disk / "rest")
    store = Store(small_disk / "coalloc.db")
    assert ids(store) == done
    with pytest.raises(StoreFullError):
        store.commit([job("refused", size=200_000)])
    (small_disk / "rest").unlink()
    store.close()


def test_read_only_disk_is_told_and_recovers(small_disk: Path) -> None:
    store = Store(small_disk / "coalloc.db")
    store.commit([job("1")])
    store.close()
    remount = ["mount", "-o", "remount"]
    subprocess.run([*remount, "-r", str(small_disk)], check=True)
    with pytest.raises(StoreReadOnlyError):
        Store(small_disk / "coalloc.db").commit([job("2")])
    subprocess.run([*remount, "-w", str(small_disk)], check=True)
    store = Store(small_disk / "coalloc.db")
    store.commit([job("3")])
    assert ids(store) == ["1", "3"]
    store.close()


def test_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    """What a user without root can meet: EFBIG, which SQLite calls an I/O error."""
    script = tmp_path / "limited.py"
    script.write_text(
        "import resource, sys, pathlib\n"
        "from coalloc.daemon.store.sqlite import Store\n"
        "from coalloc.daemon.store.errors import StoreFullError\n"
        "from tests.support.stored import saved_job\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "job = lambda n, size: saved_job(str(n), size=size)\n"
        "store.commit([job(0, 1000)])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))\n"
        "try: store.commit([job(1, 300_000)])\n"
        "except StoreFullError as error: print('full')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "store.commit([job(2, 300_000)])\n"
        "print([row.id for row in store.active_jobs()])\n"
    )
    shown = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "coalloc.db")],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stdout == "full\n['0', '2']\n", shown.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
