"""A batch of effects is on disk before it has any effect, or is kept until there is room.

While nothing can be written, the submits of the batch are taken back, and what happens to running
work is kept in memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence

from structlog.stdlib import BoundLogger

from coalloc.core.base.effects import (
    AppendEvent,
    DropOrders,
    Effect,
    LogLine,
    Publish,
    Reply,
    SaveJob,
    SaveLaunch,
    SaveToken,
)
from coalloc.core.base.events import StorageLost, StorageReturned
from coalloc.core.base.requests import Done, Refused
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.outbox import number_of
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.schema import LASTING
from coalloc.daemon.store.sqlite import Store

RETRY_WRITES_S = 1.0
LEVELS = {"warning": logging.WARNING, "error": logging.ERROR}


class Writer:
    """Commits batches of effects, one after the other, and has them carried out then.

    `loop` takes the event that space has returned, and sets the timer of the next try; `refuse`
    refuses the request of an origin.
    """

    def __init__(
        self,
        store: Store,
        core: Coordinator,
        loop: CoreLoop,
        log: BoundLogger,
        clock: Callable[[], float],
        *,
        carry_out: Callable[[list[Effect], float], None],
        refuse: Callable[[Hashable, Refused], None],
    ) -> None:
        self._store, self._core, self._loop, self._log = store, core, loop, log
        self._clock, self._carry_out, self._refuse = clock, carry_out, refuse
        self._unwritten: list[Effect] = []
        self._carried_out: list[Effect] = []
        self.on_commit: Callable[[float], None] | None = None
        """Told how long each commit took, seconds."""

    @property
    def is_writable(self) -> bool:
        """The last batch is on disk."""
        return not self._unwritten

    def write(self, effects: list[Effect], now: float) -> None:
        """Carry out a batch once it is on disk; log lines do not wait for it."""
        effects = logged(effects, self._log)
        if self._unwritten:
            self._unwritten += effects
            return
        try:
            self._commit(effects)
        except StoreError as error:
            self._keep(effects, error)
            return
        self._carry_out(effects, now)

    def _commit(self, effects: Sequence[Effect]) -> None:
        """Commit what lasts; orders that were carried out are dropped with whatever comes next.

        Until then a restart would send them again, and the executor skip them.
        """
        began = time.perf_counter()
        lasting = [effect for effect in effects if type(effect) in LASTING]
        if all(isinstance(effect, DropOrders) for effect in lasting):
            self._carried_out += lasting
            return
        if self._store.commit([*self._carried_out, *lasting]) and self.on_commit is not None:
            self.on_commit(time.perf_counter() - began)
        self._carried_out.clear()

    def _keep(self, effects: list[Effect], error: StoreError) -> None:
        """Take back the submits of this batch, and keep the rest for later."""
        self._log.error("store_failed", why=str(error))
        kept, lost, origins = without_submits(effects)
        for origin in origins:
            self._refuse(origin, Refused(code="storage", message=str(error)))
        kept += logged(self._core.handle(StorageLost(jobs=tuple(lost)), self._clock()), self._log)
        self._unwritten = [Publish(topic="storage", body={"writable": False}), *kept]
        self._loop.later(RETRY_WRITES_S, self._write_again)

    def _write_again(self) -> None:
        now = self._clock()
        try:
            self._commit(self._unwritten)
        except StoreError:
            self._loop.later(RETRY_WRITES_S, self._write_again)
            return
        effects, self._unwritten = self._unwritten, []
        self._log.info("store_returned", effects=len(effects))
        self._carry_out(effects, now)
        self._loop.offer(StorageReturned())


def logged(effects: Iterable[Effect], log: BoundLogger) -> list[Effect]:
    """Write the log lines among effects; returns the others."""
    others: list[Effect] = []
    for effect in effects:
        if isinstance(effect, LogLine):
            level = LEVELS.get(effect.level, logging.INFO)
            log.log(level, effect.event, **effect.fields)
        else:
            others.append(effect)
    return others


def without_submits(effects: Iterable[Effect]) -> tuple[list[Effect], list[str], list[Hashable]]:
    """Take the new jobs out of effects that could not be written.

    Returns what happened to other jobs, to be written later; the new jobs, of which nobody has been
    told; and the origins that must be told that theirs were not queued.
    """
    effects = list(effects)
    new = {effect.job for effect in effects if isinstance(effect, SaveLaunch)}
    kept: list[Effect] = []
    lost: dict[str, None] = {}
    origins: list[Hashable] = []
    for effect in effects:
        match effect:
            case SaveLaunch() | SaveToken():
                pass
            case SaveJob(record=record) if number_of(record.id) in new:
                lost[record.id] = None
            case AppendEvent(job=job) if number_of(job) in new:
                pass
            case Reply(origin=origin, answer=Done(body=body)) if body.get("job") in new:
                origins.append(origin)
            case _:
                kept.append(effect)
    return kept, list(lost), origins
