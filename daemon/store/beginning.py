"""A new store, made only where there has never been one."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from coalloc.adapters.runner import durable
from coalloc.daemon.store.disk import make_private
from coalloc.daemon.store.mark import ENDING
from coalloc.daemon.store.schema import migrate, prepare

BESIDE = (ENDING, "-wal")
KEYS = ("keys.json", "server-key.json")


def new_store(path: Path) -> None:
    """Make an empty store under another name, whole and on disk, and have it take its own.

    A store that somebody else has made meanwhile is left as it is.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    make_private(fresh)
    try:
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            prepare(connection)
            migrate(connection, fresh)
        durable.synchronise(fresh)
        with suppress(FileExistsError):
            os.link(fresh, path)
        durable.synchronise(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def former_store(path: Path) -> Path | None:
    """A file beside a store's place that is only there where it has been used; None: there is none.

    Keys are made after the store; an executor writes down which store it serves.
    """
    beside = [Path(f"{path}{ending}") for ending in BESIDE]
    beside += [path.parent / name for name in KEYS]
    beside += [
        file
        for file in sorted(path.parent.glob("executors/*/progress.json"))
        if _names_a_store(file)
    ]
    return next((file for file in beside if os.path.lexists(file)), None)


def _names_a_store(progress: Path) -> bool:
    try:
        return bool(json.loads(progress.read_bytes())["store"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
