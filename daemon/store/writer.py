"""A batch of effects is on disk before it has any effect, or is kept until there is room.

While nothing can be written, the submits of the batch are taken back, and what happens to running
work is kept in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from structlog.stdlib import BoundLogger

from coalloc.core.coordinator import Coordinator
from coalloc.core.effects import Effect, Publish, Record, Reply, SaveJob, SaveLaunch, SaveToken
from coalloc.core.events import Event, StorageLost, StorageReturned
from coalloc.core.requests import Done, Refused
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.sqlite import Store

RETRY_WRITES_S = 1.0


class Writer:
    """Commits batches of effects, one after the other.

    Parameters
    ----------
    clock : callable
        The wall clock, seconds.
    noted : callable
        Writes the log lines among effects, which wait for no disk; returns the others.
    committed : callable
        Carries out effects that are on disk, at this time.
    refuse : callable
        Answers whoever asked.
    offer : callable
        Puts an event before the core.
    later : callable
        Calls something after so many seconds.
    """

    def __init__(
        self,
        store: Store,
        core: Coordinator,
        log: BoundLogger,
        clock: Callable[[], float],
        *,
        noted: Callable[[list[Effect]], list[Effect]],
        committed: Callable[[list[Effect], float], None],
        refuse: Callable[[Any, Refused], None],
        offer: Callable[[Event], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._store, self._core, self._log, self._clock = store, core, log, clock
        self._noted, self._committed, self._refuse = noted, committed, refuse
        self._offer, self._later = offer, later
        self._unwritten: list[Effect] = []
        self.on_commit: Callable[[float], None] | None = None
        """Told how long each commit took, seconds."""

    @property
    def is_writable(self) -> bool:
        """The last batch is on disk."""
        return not self._unwritten

    def write(self, effects: list[Effect], now: float) -> None:
        """Carry out a batch once it is on disk."""
        if self._unwritten:
            self._unwritten += self._noted(effects)
            return
        try:
            self._commit(effects)
        except StoreError as error:
            self._keep(effects, error)
            return
        self._committed(effects, now)

    def _commit(self, effects: Sequence[Effect]) -> None:
        began = time.perf_counter()
        if self._store.commit(effects) and self.on_commit is not None:
            self.on_commit(time.perf_counter() - began)

    def _keep(self, effects: list[Effect], error: StoreError) -> None:
        """Take back the submits of this batch, and keep the rest for later."""
        self._log.error("store_failed", why=str(error))
        kept, lost, origins = without_submits(effects)
        for origin in origins:
            self._refuse(origin, Refused(code="storage", message=str(error)))
        kept += self._core.handle(StorageLost(jobs=tuple(lost)), self._clock())
        self._unwritten = [Publish(topic="storage", body={"writable": False})]
        self._unwritten += self._noted(kept)
        self._later(RETRY_WRITES_S, self._write_again)

    def _write_again(self) -> None:
        now = self._clock()
        try:
            self._commit(self._unwritten)
        except StoreError:
            self._later(RETRY_WRITES_S, self._write_again)
            return
        effects, self._unwritten = self._unwritten, []
        self._log.info("store_returned", effects=len(effects))
        self._committed(effects, now)
        self._offer(StorageReturned())


def without_submits(effects: Iterable[Effect]) -> tuple[list[Effect], list[str], list[Hashable]]:
    """Take the new jobs out of effects that could not be written.

    Returns
    -------
    kept : list of Effect
        What happened to other jobs, to be written later.
    lost : list of str
        The new jobs; nobody has been told of them.
    origins : list of hashable
        Who must be told that they were not queued.
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
            case SaveJob(record=record) if record.id.partition("_")[0] in new:
                lost[record.id] = None
            case Record(job=job) if job.partition("_")[0] in new:
                pass
            case Reply(origin=origin, answer=Done(body=body)) if body.get("job") in new:
                origins.append(origin)
            case _:
                kept.append(effect)
    return kept, list(lost), origins
