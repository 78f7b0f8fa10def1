"""The store as commands use it that work on its files themselves: the one door from outside."""

from __future__ import annotations

from pathlib import Path

from coalloc.daemon.store.disk import mount_of
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.restore import Source, restore
from coalloc.daemon.store.sqlite import Store

__all__ = ["Source", "StoreError", "copy_stopped", "mount_of", "restore"]


def copy_stopped(store: Path, path: Path) -> None:
    """Copy the store of a daemon that does not run. Raises `StoreError`."""
    opened = Store(store)
    try:
        opened.backup(path)
    finally:
        opened.close()
