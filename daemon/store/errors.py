"""Errors of the store, one for each remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class StoreError(Exception):
    """The store cannot do what was asked; the message is one line."""


class StoreFullError(StoreError):
    """No space left. Nothing of the batch was written; the same commit may work later."""


class StoreReadOnlyError(StoreError):
    """The file system or the file cannot be written. The same commit may work later."""


class StoreBusyError(StoreError):
    """Another process uses the file: only one daemon may."""


class StoreCorruptError(StoreError):
    """The file is damaged or not ours; the message says how to restore it."""


def error_of(code: int, what: str) -> StoreError:
    """The error for an ``errno``; 0 where the disk takes writes after all."""
    if code in FULL_ERRNOS:
        return StoreFullError(f"{what} ({os.strerror(code)})")
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnlyError(f"{what} ({os.strerror(code)})")
    return StoreError(f"{what} ({os.strerror(code)})" if code else what)


def unusable(path: Path, what: str) -> StoreCorruptError:
    """The error for a store that is not used, with the ways out."""
    return StoreCorruptError(
        f"{path}: {what}; stop the daemon, then put a backup in its place with: coalloc restore"
        " FILE (without a backup: what can be read of it, with coalloc restore --salvage, or an"
        " empty one, with coalloc restore --empty)"
    )
