"""Copies of the store, made while it is in use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from coalloc.adapters.runner import durable
from coalloc.daemon.store.disk import make_private
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.schema import APPLICATION_ID

PAGES_AT_ONCE = 100
PAUSE_S = 0.002
"""Between two runs of pages, in which the daemon has its store for itself, seconds."""
HEADER_BYTES = 100


def write_copy(source: sqlite3.Connection, path: Path) -> None:
    """Write a consistent copy of a store in use; `path` appears only when complete.

    It may run in a thread of its own: between runs of pages the connection is free for others, and
    what they write meanwhile is in the copy. Raises `StoreError` where `path` is there and is no
    store, `sqlite3.Error` or `OSError` where it cannot be written.
    """
    if path.exists() and not is_store(path):
        raise StoreError(f"{path}: exists, and is no backup of a store; nothing was written")
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    make_private(partial)
    try:
        with closing(sqlite3.connect(partial)) as target:
            # once, at the end: syncs of the copy would hold up those of the daemon's commits
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target, pages=PAGES_AT_ONCE, sleep=PAUSE_S)
            target.execute("PRAGMA journal_mode = DELETE")
        durable.put(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def is_store(path: Path) -> bool:
    """It is marked as ours; says nothing of its pages."""
    try:
        with open(path, "rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError:
        return False
    return header[:6] == b"SQLite" and header[68:72] == APPLICATION_ID.to_bytes(4, "big")
