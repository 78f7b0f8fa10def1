"""The request ``backup``: a copy of the store, written beside the service's work."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from structlog.stdlib import BoundLogger

from coalloc.core.base.requests import RequestError
from coalloc.daemon.queries.caller import Caller
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.sqlite import Store
from coalloc.wire.answers import BackupAnswer
from coalloc.wire.questions import BackupQuestion


def backup_target(caller: Caller, asked: BackupQuestion) -> Path:
    """Target of a backup: a file of the daemon's host, by its whole path."""
    if not caller.is_operator:
        raise RequestError("not_allowed", "only an operator may do this")
    if not asked.path.startswith("/") or "\0" in asked.path:
        raise RequestError("bad_request", "path: is not an absolute path")
    return Path(asked.path)


async def written_backup(store: Store, path: Path, log: BoundLogger) -> BackupAnswer:
    """Write it in a thread; returns the answer once the file is on disk."""
    began = time.monotonic()
    try:
        await asyncio.to_thread(store.backup, path)
        size = path.stat().st_size
    except (StoreError, OSError) as error:
        log.error("backup_failed", path=str(path), why=str(error))
        raise RequestError("storage", str(error)) from error
    seconds = round(time.monotonic() - began, 3)
    log.info("backup_written", path=str(path), bytes=size, seconds=seconds)
    return BackupAnswer(path=str(path), bytes=size, seconds=seconds)
