"""The disk under the store: which file system it is, and whether it takes writes."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import Struct

NETWORK_TYPES = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "ceph"),
        *("lustre", "gpfs", "beegfs", "panfs", "pvfs2", "orangefs", "glusterfs", "gfs2", "ocfs2"),
    }
)
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.mergerfs"})
"""Every other ``fuse.*`` is taken for a network file system (sshfs, glusterfs, s3fs, ...)."""

PROBE_BYTES = 65536


class Mount(Struct, frozen=True, kw_only=True):
    """A mounted file system."""

    point: str
    type: str

    @property
    def is_network(self) -> bool:
        """Locks and write order cannot be relied on."""
        if self.type.startswith("fuse."):
            return self.type not in LOCAL_FUSE
        return self.type in NETWORK_TYPES


def mount_of(path: Path) -> Mount | None:
    """The mount that a path lies on; None where the system does not tell."""
    real, found = Path(os.path.realpath(path)), None
    with suppress(OSError):
        for part in psutil.disk_partitions(all=True):
            # of equal points the later one is mounted on top
            if real.is_relative_to(part.mountpoint) and (
                found is None or len(part.mountpoint) >= len(found.point)
            ):
                found = Mount(point=part.mountpoint, type=part.fstype)
    return found


def write_error(folder: Path) -> int:
    """Try to write a little into a folder: the ``errno`` of what failed, or 0.

    It tells what SQLite's own error codes do not: ``ENOSPC``, ``EDQUOT``, ``EROFS``...
    """
    try:
        handle, name = tempfile.mkstemp(prefix=".probe-", dir=folder)
    except OSError as error:
        return error.errno or errno.EIO
    try:
        if os.write(handle, b"\0" * PROBE_BYTES) < PROBE_BYTES:
            return errno.ENOSPC
        os.fsync(handle)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        os.close(handle)
        os.unlink(name)
    return 0


def disk_of(folder: Path) -> tuple[int, int] | None:
    """Bytes of a folder's disk, and those that an unprivileged process may still write there.

    None: it cannot be told.
    """
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.total, usage.free


def make_private(path: Path) -> None:
    """Make an empty file with mode 0600 where there is none; SQLite gives its WAL the same."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
