"""Effects of the core that are on disk, carried out: orders, answers, events, plans, timers."""

from __future__ import annotations

from msgspec import to_builtins
from msgspec.structs import asdict

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
from coalloc.core.base.messages import Numbered, Ping, Welcome
from coalloc.core.base.state import State
from coalloc.core.jobs.after_restore import is_untold
from coalloc.daemon.service import Service
from coalloc.model.event_kinds import EventKind
from coalloc.wire.answers import RuleCostsRow
from coalloc.wire.codec import ToExecutor
from coalloc.wire.server import ExecutorPeer, Server

TO_EXECUTORS = SendWelcome | AskHello | TurnAway | SendOrder | DropOrders | ResendOrders


def carry_out(service: Service, effects: list[Effect], now: float) -> None:
    """Carry out effects that are on disk, in their order: what executors are told, then the rest.

    A part that is to start waits, and an answer takes longer to write than an order.
    """
    state = service.core.state
    for effect in sorted(effects, key=lambda effect: not isinstance(effect, TO_EXECUTORS)):
        match effect:
            case SendOrder(cluster=cluster, seq=seq, order=order):
                service.delivery.add(cluster, seq, order)
            case DropOrders(cluster=cluster, through_seq=seq):
                service.delivery.done(cluster, seq)
            case SendWelcome(cluster=cluster, base_seq=base):
                welcome = Welcome(
                    store=state.store,
                    epoch=state.epoch,
                    base_seq=base,
                    lease_s=state.settings.start.lease_s,
                    recall=is_untold(state, cluster),
                )
                tell(state, service.server, cluster, welcome)
            case AskHello(cluster=cluster, peer=ExecutorPeer() as peer):
                ping = Ping(epoch=state.epoch, known=False)
                service.server.tell(cluster, peer, ping)
            case TurnAway(cluster=cluster, peer=ExecutorPeer() as peer, why=why):
                service.server.turn_away(cluster, peer, why)
            case ResendOrders(cluster=cluster, from_seq=seq):
                service.delivery.replay(cluster, seq)
            case Reply(origin=origin, answer=answer):
                service.replies.send(origin, answer)
            case AppendEvent():
                _recorded(service, effect)
            case Publish(topic=topic, body=body):
                service.server.publish(topic, body)
            case Solve():
                service.planner.start(effect)
            case RoundFinished():
                service.metrics.round_finished(effect, now)
                waiting = service.delivery.waiting()
                service.metrics.sample(state, waiting, service.server.faults)
            case Wake(at=at):
                service.loop.wake(at, max(0.0, at - now))
            case _:
                pass


def _recorded(service: Service, effect: AppendEvent) -> None:
    """Count an event, notify of it, publish it, and answer those who have waited for it."""
    record = service.core.state.jobs.get(effect.job)
    if record is None or record.rest is None:  # each member is counted
        service.metrics.recorded(effect, record)
        service.notifier.recorded(effect, record)
    service.user_mail.recorded(effect, record)
    service.streams.recorded(effect, record)
    service.server.publish(f"event.{effect.kind}.{effect.job}", asdict(effect))
    is_copying = record is not None and record.staged
    if effect.kind in {EventKind.JOB_ENDED, EventKind.JOB_COPIED} and not is_copying:
        service.waiters.ended(effect.job)


def costed(service: Service, found: RuleCostsRow) -> None:
    """Tell what the site's rules cost in a round."""
    service.metrics.costed(found)
    service.server.publish("rule_costs", to_builtins(found))


def tell(state: State, server: Server, cluster: str, message: Numbered | ToExecutor) -> bool:
    """Send to the executor that speaks for a cluster; False if there is none."""
    site = state.clusters.get(cluster)
    if site is None or not isinstance(site.peer, ExecutorPeer):
        return False
    return server.tell(cluster, site.peer, message)
