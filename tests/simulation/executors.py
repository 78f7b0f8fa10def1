"""An executor: the real core, its progress file, its clock and its crashes."""

from __future__ import annotations

import random

from coalloc.core.base.messages import Hello, Read, Started, Statement
from coalloc.core.executor.effects import (
    ArrangePart,
    ClaimPart,
    DismissJob,
    EndPart,
    ExecutorEffect,
    ExecutorTicked,
    HastenPart,
    MessageReceived,
    PartNews,
    RemovePart,
    SaveProgress,
    StartPart,
    TellStarted,
)
from coalloc.core.executor.machine import ExecutorCore, ExecutorState
from coalloc.core.executor.turn import carry_out
from coalloc.model.sites.reading import ClusterReading
from coalloc.model.snapshot import Running
from coalloc.model.values import replace
from tests.simulation.batch import Batch
from tests.simulation.network import Down, Network
from tests.simulation.troubles import Troubles

FULL_S = 36_000.0
"""Jobs of others began so long ago, and run so long, whatever clock is off, seconds."""
SLACK_S = 3.0
"""Between two looks at the lease, and what a beat takes, seconds."""


OF_NODES = (ClaimPart, StartPart, EndPart)
"""Effects that only the newest daemon may cause."""


class CrashError(BaseException):
    """The executor's process is gone."""


class BrokenError(BaseException):
    """A promise was broken, which no guard may hide."""


class ExecutorHost:
    """One cluster's executor between the network and its batch system.

    Attributes
    ----------
    core : ExecutorCore or None
        None while its process is down.
    steady_since : float
        Its process started at this true time, seconds.
    remembered : dict of (job, attempt) to how it ended
        Starts of parts that are removed, on disk.
    restored : int
        Epoch of the last restored daemon; 0: there was none.
    frozen_until : float
        Stopped, as by SIGSTOP or a hanging disk, until then.
    """

    def __init__(
        self,
        cluster: str,
        batch: Batch,
        network: Network,
        reading: ClusterReading,
        troubles: Troubles,
    ) -> None:
        self.cluster, self.batch, self.network, self.reading = cluster, batch, network, reading
        self.troubles = troubles
        self.core: ExecutorCore | None = None
        self.frozen_until = 0.0
        self.steady_since = 0.0
        self._progress = [SaveProgress(store="", epoch=0, last_seq=0)]
        self.remembered: dict[tuple[str, int], str] = {}
        self.restored = 0
        self._states = 1
        self._now = 0.0
        self._dice: random.Random = batch.dice

    @property
    def identity(self) -> str:
        """Of its state, which it may lose."""
        return f"{self.cluster} {self._states}"

    def is_up(self, now: float) -> bool:
        return self.core is not None and self.frozen_until <= now

    def boot(self, now: float, *, rolled_back: bool = False) -> None:
        """Start from the progress file, or an older copy of it, and the parts' folders."""
        if rolled_back:
            del self._progress[1 + self._dice.randrange(len(self._progress)) :]
        state = ExecutorState(cluster=self.cluster, identity=self.identity)
        state.recall(self.kept)
        state.parts = {r.key: r for r in self.batch.reports()}
        self.core = ExecutorCore(state)
        self.frozen_until = 0.0
        self.steady_since = now
        self._carry_out(self.core.hello(now), now)

    def crash(self) -> None:
        self.core = None

    def lose_state(self) -> None:
        """Its folder is gone, and with it what it knew; what comes next is another executor."""
        self.crash()
        self._states += 1
        self.remembered.clear()
        self._progress = [SaveProgress(store="", epoch=0, last_seq=0)]
        self.network.reconnect(self.cluster)
        if not any(part.order.foreign for part in self.batch.parts.values()):
            self.batch.parts.clear()

    def hear(self, message: Down, now: float) -> None:
        """A message arrives.

        Raises
        ------
        AssertionError
            If an order of a daemon that has been replaced is carried out.
        """
        if self.core is None:
            return
        newest = self.core.state.epoch
        effects = self.core.handle(MessageReceived(message=message), now)
        if message.epoch < newest:
            done = [e for e in effects if isinstance(e, OF_NODES)]
            assert not done, f"{self.cluster} obeys epoch {message.epoch} in {newest}: {done}"
        self._carry_out(effects, now)

    def tick(self, now: float) -> None:
        """A second passed: the core looks at its leases, and the cluster is read."""
        if self.core is None:
            return
        epoch = self.core.state.epoch
        self._carry_out(self.core.handle(ExecutorTicked(), now), now)
        self._check_lease(now)
        seen = replace(
            self.reading, handed=self.batch.guests.handed(), waiting=self.batch.strangers()
        )
        if self.batch.is_full:
            seen = replace(seen, running=(self._work_of_others(now),))
        run = f"{self.steady_since:.9f}"
        read = Read(cluster=self.cluster, reading=seen, at=now, run=run, epoch=epoch)
        self.network.send_up(self.cluster, read)

    def _work_of_others(self, now: float) -> Running:
        """A job of others that has all the slots."""
        return Running(
            id="x",
            nodes={name: node.slots for name, node in self.batch.nodes.items()},
            start=now - FULL_S,
            end=now + FULL_S,
            ours=False,
        )

    def _check_lease(self, now: float) -> None:
        if self.core is None:
            return
        silent = now - max(
            self.core.state.last_heard,
            self.steady_since,
            self.frozen_until,
            self.troubles.quiet_since,
        )
        if silent > self.core.state.lease_s + SLACK_S:
            since = now - SLACK_S
            held = [p.key for p in self.batch.held() if p.granted is None or p.granted < since]
            assert not held, f"{self.cluster}: the daemon is silent for {silent:.0f} s: {held}"

    def look(self, now: float) -> None:
        """Take in what the launcher knows."""
        for report in self.batch.reports():
            if self.core is not None:
                news = PartNews(report=report)
                self._carry_out(self.core.handle(news, now), now)

    def _carry_out(self, effects: list[ExecutorEffect], now: float) -> None:
        """It may crash before any of them."""
        if self.core is None:
            return
        self._now = now
        try:
            carry_out(self.core, effects, self, now)
        except CrashError:
            self.crash()
        except BrokenError as broken:
            raise AssertionError(str(broken.__cause__)) from broken

    def perform(self, effect: ExecutorEffect) -> list[PartNews]:
        self._pass()
        now = self._now
        self.troubles.strike("launcher", now)
        match effect:
            case ClaimPart(order=order):
                self.batch.claim(order, now)
            case ArrangePart(key=key, order=order):
                self.batch.arrange(order, key)
            case HastenPart(key=key):
                self.batch.hasten(key, now)
            case StartPart(key=key):
                self.batch.start(key, now)
            case EndPart(key=key, reason=reason):
                # Of a claim that failed nobody hears any more: it is ended with its folder.
                self.batch.end(key, now, may_be_lost=reason != "its claim failed")
            case RemovePart(key=key, how=how):
                if how:
                    self.remembered[key.start] = how
                elif self.core is not None and self.core.state.epoch < self.restored:
                    self.batch.never_claimed(key)  # the restored daemon cannot know of it
                self.batch.forget(key)
            case TellStarted(owed=owed):
                starts = tuple((*start, how) for start, how in self.remembered.items())
                self.say(Started(cluster=self.cluster, starts=(*starts, *owed), is_last=True))
            case DismissJob(foreign=foreign):
                self.batch.guests.dismiss(foreign)
        self.troubles.strike("launcher", now)
        return []

    def save(self, progress: SaveProgress) -> None:
        self._pass()
        if progress != self.kept:
            self.troubles.strike("disk", self._now)
            self._progress = [*self._progress[-3:], progress]

    def say(self, statement: Statement) -> None:
        self._pass()
        if isinstance(statement, Hello) and self.batch.is_older:
            statement = replace(statement, abilities=())
        self.network.send_up(self.cluster, statement)

    def explain(self, effect: ExecutorEffect, error: Exception) -> str:
        """Only what was to fail may have failed."""
        if error is not self.troubles.last:
            raise BrokenError from error
        return str(error)

    @property
    def kept(self) -> SaveProgress:
        return self._progress[-1]

    def _pass(self) -> None:
        if self._dice.random() < 0.05 * self.batch.faults:
            raise CrashError
