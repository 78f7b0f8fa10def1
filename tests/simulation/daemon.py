"""The daemon: the real core and the real outbox, around a disk that may fail.

The order of things is that of `daemon.service`: a batch of events is handled, what is persistent
goes into one transaction, and only then does anybody hear of it. A crash may come before the
transaction, after it, or between any two messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

from coalloc.core.base.effects import (
    AskHello,
    DropOrders,
    Effect,
    Publish,
    Reply,
    ResendOrders,
    SendOrder,
    SendWelcome,
    Solve,
    Wake,
)
from coalloc.core.base.events import (
    CoreEvent,
    Disconnected,
    Requested,
    StatementReceived,
    StorageLost,
    StorageReturned,
    Ticked,
    TimerFired,
)
from coalloc.core.base.messages import Numbered, Ping, Prepare, Statement, Welcome
from coalloc.core.base.requests import Refused, Submit, SubmitWorkflow
from coalloc.core.coordinator import Coordinator
from coalloc.core.jobs.after_restore import is_untold
from coalloc.daemon.outbox import Delivery, number_of
from coalloc.daemon.store.writer import without_submits
from coalloc.model.settings import Config
from coalloc.model.sites.parts import Launch
from tests.simulation.bounded import BoundsKept
from tests.simulation.disk import Disk, FullError
from tests.simulation.network import Network
from tests.simulation.planning import Planner
from tests.simulation.wider import KeptNodes

BEAT_S = 2.0
SILENT_S = 10.0
RETRY_WRITES_S = 1.0


class DaemonHost:
    """The daemon's process, its disk and its clock.

    Attributes
    ----------
    core : Coordinator or None
        None while its process is down.
    offset : float
        Its wall clock less the true time, seconds.
    frozen_until : float
        Stopped, or waiting for its disk, until then; what arrives meanwhile waits.
    answers : list of (origin, answer)
        Replies that have left it, for the users to find.
    turns : int
        How often the core may have changed.
    on_commit : callable
        Looks at the disk after each transaction.
    """

    def __init__(
        self,
        settings: Config,
        network: Network,
        dice: random.Random,
        on_commit: Callable[[], None],
    ) -> None:
        self.settings, self.network, self._dice = settings, network, dice
        self.disk = Disk()
        self.planner = Planner(dice)
        self.kept = KeptNodes()
        self.bounds = BoundsKept()
        self.core: Coordinator | None = None
        self.offset = 0.0
        self.frozen_until = 0.0
        self.faults = 0.0
        self.answers: list[tuple[object, object]] = []
        self.turns = 0
        self._on_commit = on_commit
        self._inbox: list[CoreEvent] = []
        self._unwritten: list[Effect] = []
        self._retry_at = 0.0
        self._beat_at = 0.0
        self._timer_at = 0.0
        self._wakes: list[float] = []
        self._heard: dict[str, float] = {}
        self._names = tuple(site.name for site in settings.clusters)

    def is_up(self, now: float) -> bool:
        return self.core is not None and self.frozen_until <= now

    def boot(self, now: float) -> None:
        """Start from the disk."""
        past = self.disk.recall(self._names)
        self.core = Coordinator(self.settings, past)
        self.turns += 1
        self.kept.begin(self.disk)
        self.bounds.begin(self.disk)
        self.frozen_until = 0.0
        self._delivery = Delivery(self._tell, self._launch_of, epoch=self.disk.epoch)
        self._delivery.restore({name: dict(box) for name, box in self.disk.outbox.items()})
        self._inbox, self._unwritten, self._wakes = [], [], []
        self._heard = {}
        self._beat_at = self._timer_at = now
        self.planner.forget()

    def _launch_of(self, order: Prepare) -> Launch | None:
        return self.disk.launches.get(number_of(order.job))

    def crash(self) -> None:
        """Whatever was not written is lost, and nobody has heard of it."""
        self.core = None
        self.network.daemon_died()

    def offer(self, event: CoreEvent) -> None:
        """An event for the next step; a submit is refused at the door while nothing is written."""
        if self.core is None:
            return
        match event:
            case Requested(origin=origin, command=Submit() | SubmitWorkflow()) if self._unwritten:
                self.answers.append((origin, Refused(code="storage", message="disk full")))
            case _:
                self._inbox.append(event)

    def hear(self, statement: Statement, speaker: str, now: float) -> None:
        """A statement arrives."""
        self._heard[speaker] = now
        self.offer(StatementReceived(statement=statement, peer=speaker))

    def step(self, now: float) -> None:
        """Handle what has come, as one transaction."""
        if not self.is_up(now):
            return
        self._retry(now)
        if self.core is not None:
            self._timers(now)
        if not self._inbox or self.core is None:
            return
        batch, self._inbox = self._inbox, []
        self.turns += 1
        effects: list[Effect] = []
        for event in batch:
            made = self.core.handle(event, now + self.offset)
            self.kept.look(made, now + self.offset)
            self.bounds.look(made, now + self.offset)
            effects += made
        self._carry_out(effects, now)

    def _timers(self, now: float) -> None:
        if now >= self._beat_at:
            self._beat_at = now + BEAT_S
            self._beat(now)
        if now >= self._timer_at:
            self._timer_at = now + 30.0
            self.offer(TimerFired(trigger=0))
        if any(at <= now for at in self._wakes):
            self._wakes = [at for at in self._wakes if at > now]
            self.offer(Ticked())
        answer = self.planner.answer(now)
        if answer is not None:
            self.offer(answer)

    def _beat(self, now: float) -> None:
        assert self.core is not None
        for name, cluster in self.core.state.clusters.items():
            if not cluster.connected:
                continue
            if now - self._heard.get(str(cluster.peer), -inf) > SILENT_S:
                self.offer(Disconnected(cluster=name))
                continue
            self._say(name, Ping(epoch=self.disk.epoch))
            if name in self._delivery.waiting():
                self._delivery.pump(name)

    def _carry_out(self, effects: list[Effect], now: float) -> None:
        if self._crashes():
            return
        if self._unwritten:
            self._unwritten += effects
            return
        try:
            self.disk.commit(effects)
        except FullError:
            self._cannot_write(effects, now)
            return
        self._on_commit()
        self._speak(effects, now)

    def _cannot_write(self, effects: list[Effect], now: float) -> None:
        assert self.core is not None
        kept, lost, origins = without_submits(effects)
        self.answers += [(o, Refused(code="storage", message="disk full")) for o in origins]
        kept += self.core.handle(StorageLost(jobs=tuple(lost)), now + self.offset)
        self._unwritten = [Publish(topic="storage", body={"writable": False}), *kept]
        self._retry_at = now + RETRY_WRITES_S

    def _retry(self, now: float) -> None:
        if not self._unwritten or now < self._retry_at or self.core is None:
            return
        try:
            self.disk.commit(self._unwritten)
        except FullError:
            self._retry_at = now + RETRY_WRITES_S
            return
        effects, self._unwritten = self._unwritten, []
        self._on_commit()
        self._speak(effects, now)
        self.offer(StorageReturned())

    def _speak(self, effects: list[Effect], now: float) -> None:
        """Messages, after the commit; it may crash between any two of them."""
        for effect in effects:
            if self._crashes() or self.core is None:
                return
            match effect:
                case SendOrder(cluster=cluster, seq=seq, order=order):
                    self._delivery.add(cluster, seq, order)
                case DropOrders(cluster=cluster, through_seq=seq):
                    self._delivery.done(cluster, seq)
                case SendWelcome(cluster=cluster, base_seq=base):
                    lease = self.settings.start.lease_s
                    epoch = self.disk.epoch
                    self._say(
                        cluster,
                        Welcome(
                            store="s",
                            epoch=epoch,
                            base_seq=base,
                            lease_s=lease,
                            recall=is_untold(self.core.state, cluster),
                        ),
                    )
                case AskHello(cluster=cluster):
                    self._say(cluster, Ping(epoch=self.disk.epoch, known=False))
                case ResendOrders(cluster=cluster, from_seq=seq):
                    self._delivery.replay(cluster, seq)
                case Reply(origin=origin, answer=answer):
                    self.answers.append((origin, answer))
                case Solve():
                    self.planner.ask(effect, now)
                case Wake(at=at):
                    self._wakes.append(now + max(0.0, at - now - self.offset))
                case _:
                    pass

    def _crashes(self) -> bool:
        if self.core is not None and self._dice.random() < 0.02 * self.faults:
            self.crash()
        return self.core is None

    def _tell(self, cluster: str, message: Numbered) -> bool:
        self._say(cluster, message)
        return True

    def _say(self, cluster: str, message: Numbered | Welcome | Ping) -> None:
        self.network.send_down(cluster, message)
