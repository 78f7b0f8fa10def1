"""Keeps the store small while the daemon serves: old events go, free space goes back to the disk.

Both are done in steps of a few milliseconds, with the loop free between two of them, so that no
submit waits for more than one.
"""

from __future__ import annotations

import asyncio

from structlog.stdlib import BoundLogger

from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.sqlite import Store

EVERY_S = 300.0
PRUNED_AT_ONCE = 500
"""Events, and as many jobs, in one step."""
PAGES_AT_ONCE = 64
PAUSE_S = 0.02
"""Between two steps, in which others are served, seconds."""


async def examine(store: Store, log: BoundLogger) -> None:
    """Look at every row and index once, since a start reads only what it needs."""
    for _ in store.examine():
        await asyncio.sleep(PAUSE_S)
    log.info("store_examined")


async def tend(
    store: Store, keep_events: int, log: BoundLogger, accounts_before: float | None = None
) -> None:
    """Forget what is too old, then release the pages that this has freed.

    Accounts of before `accounts_before` are too old; None: none is.
    """
    released = 0
    try:
        while (
            accounts_before is not None
            and store.prune_accounts(accounts_before, PRUNED_AT_ONCE) >= PRUNED_AT_ONCE
        ):
            await asyncio.sleep(PAUSE_S)
        while store.prune(keep_events, PRUNED_AT_ONCE) >= PRUNED_AT_ONCE:
            await asyncio.sleep(PAUSE_S)
        while pages := store.compact(PAGES_AT_ONCE):
            released += pages
            await asyncio.sleep(PAUSE_S)
    except StoreError as error:
        log.error("upkeep_failed", why=str(error))
    if released:
        log.info("store_compacted", pages=released)
