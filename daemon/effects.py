"""Effects of the core that are on disk, carried out: orders, answers, events, plans, timers."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from coalloc.core.base.effects import (
    AppendEvent,
    AskHello,
    DropOrders,
    Effect,
    Publish,
    Reply,
    ResendOrders,
    RoundFinished,
    SendOrder,
    SendWelcome,
    Solve,
    TurnAway,
    Wake,
)
from coalloc.core.base.events import Ticked
from coalloc.core.base.messages import Numbered, Ping, Welcome
from coalloc.core.base.state import State
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.metrics import DaemonMetrics
from coalloc.daemon.notify import Notifier
from coalloc.daemon.outbox import Delivery
from coalloc.daemon.queries.waiters import Waiters
from coalloc.daemon.replies import Replies
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.model.event_kinds import EventKind
from coalloc.wire.rule_rows import RuleCostsRow
from coalloc.wire.server import ExecutorPeer, Server


class Effects:
    """Carries out what the core has decided, each effect by the part of the daemon that can.

    Parameters
    ----------
    state : State
        Of the core, to be read only.
    """

    def __init__(
        self,
        state: State,
        server: Server,
        loop: CoreLoop,
        *,
        delivery: Delivery,
        planner: RoundPlanner,
        replies: Replies,
        waiters: Waiters,
        metrics: DaemonMetrics,
        notifier: Notifier,
    ) -> None:
        self._state, self._server, self._loop = state, server, loop
        self._delivery, self._planner = delivery, planner
        self._replies, self._waiters = replies, waiters
        self._metrics, self._notifier = metrics, notifier

    def carry_out(self, effects: list[Effect], now: float) -> None:
        """Carry out effects that are on disk, in their order."""
        for effect in effects:
            match effect:
                case SendOrder(cluster=cluster, seq=seq, order=order):
                    self._delivery.add(cluster, seq, order)
                case DropOrders(cluster=cluster, through_seq=seq):
                    self._delivery.done(cluster, seq)
                case SendWelcome(cluster=cluster, base_seq=base):
                    self._welcome(cluster, base)
                case AskHello(cluster=cluster, peer=ExecutorPeer() as peer):
                    ping = Ping(epoch=self._state.epoch, known=False)
                    self._server.tell(cluster, peer, ping)
                case TurnAway(cluster=cluster, peer=ExecutorPeer() as peer, why=why):
                    self._server.turn_away(cluster, peer, why)
                case ResendOrders(cluster=cluster, from_seq=seq):
                    self._delivery.replay(cluster, seq)
                case Reply(origin=origin, answer=answer):
                    self._replies.send(origin, answer)
                case AppendEvent():
                    self._recorded(effect)
                case Publish(topic=topic, body=body):
                    self._server.publish(topic, body)
                case Solve():
                    self._planner.start(effect)
                case RoundFinished():
                    self._metrics.round_finished(effect, now)
                    waiting = self._delivery.waiting()
                    self._metrics.sample(self._state, waiting, self._server.faults)
                case Wake(at=at):
                    self._loop.later(max(0.0, at - now), lambda: self._loop.offer(Ticked()))
                case _:
                    pass

    def _welcome(self, cluster: str, base: int) -> None:
        state = self._state
        lease_s = state.settings.start.lease_s
        welcome = Welcome(store=state.store, epoch=state.epoch, base_seq=base, lease_s=lease_s)
        tell(state, self._server, cluster, welcome)

    def _recorded(self, effect: AppendEvent) -> None:
        """Count an event, notify of it, publish it, and answer those who have waited for it."""
        record = self._state.jobs.get(effect.job)
        self._metrics.recorded(effect, record)
        self._notifier.recorded(effect, record)
        body: dict[str, Any] = {
            "seq": effect.seq,
            "time": effect.time,
            "kind": effect.kind,
            "job": effect.job,
            "fields": dict(effect.fields),
        }
        self._server.publish(f"event.{effect.kind}.{effect.job}", body)
        if effect.kind is EventKind.JOB_ENDED:
            self._waiters.ended(effect.job)

    def costed(self, found: RuleCostsRow) -> None:
        """Tell what the site's rules cost in a round."""
        self._metrics.costed(found)
        self._server.publish("rule_costs", to_builtins(found))


def tell(state: State, server: Server, cluster: str, message: Numbered | Welcome | Ping) -> bool:
    """Send to the executor that speaks for a cluster; False if there is none."""
    site = state.clusters.get(cluster)
    if site is None or not isinstance(site.peer, ExecutorPeer):
        return False
    return server.tell(cluster, site.peer, message)
