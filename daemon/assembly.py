"""The daemon's parts made and joined, and opened in an order in which they can be closed again."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from structlog.stdlib import BoundLogger

from coalloc.core.base.effects import Effect
from coalloc.core.base.events import CoreEvent
from coalloc.core.base.messages import Numbered, Ping, Statement, Welcome
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.enrolment import opened_access
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.effects import Effects, tell
from coalloc.daemon.heartbeats import Heartbeats
from coalloc.daemon.launches import Launches
from coalloc.daemon.metrics import DaemonMetrics
from coalloc.daemon.notify import Notifier
from coalloc.daemon.outbox import Delivery
from coalloc.daemon.queries.answers import Sources, array_of
from coalloc.daemon.queries.caller import Caller
from coalloc.daemon.queries.waiters import Waiters
from coalloc.daemon.queries.why import Explainer
from coalloc.daemon.replies import Replies
from coalloc.daemon.requests import Requests
from coalloc.daemon.service import Service
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writer import Writer
from coalloc.model.settings import Config
from coalloc.wire.server import Endpoints, ExecutorPeer, Origin, Server


async def opened(config: Config, log: BoundLogger, stack: AsyncExitStack) -> Service:
    """The service with all that it needs; the stack closes it, in reverse order."""
    daemon = config.daemon
    is_shared = daemon.mode == "multi-user"
    # Where users' scripts lie in it, they must be able to pass; nothing in it can be listed.
    Path(daemon.state_dir).mkdir(parents=True, exist_ok=True, mode=0o711 if is_shared else 0o700)
    Path(daemon.runtime_dir).mkdir(parents=True, exist_ok=True, mode=0o755 if is_shared else 0o700)
    access = opened_access(config, log) if is_shared else None
    store = Store(Path(daemon.state_dir) / "coalloc.db")
    stack.callback(store.close)
    solver = SolverPool(
        cache_dir=cache_dir(config),
        nice=config.solver.nice,
        memory_mb=config.solver.memory_mb,
    )
    service = assembled(config, log, store, solver, access)
    if daemon.metrics_address:
        service.metrics.serve(daemon.metrics_address)
        stack.callback(service.metrics.close)
    await solver.start()
    stack.push_async_callback(solver.stop)
    service.open()
    stack.push_async_callback(service.close)
    return service


def cache_dir(config: Config) -> Path:
    """Folder of the solver's compiled code."""
    return Path(config.solver.cache_dir or config.daemon.state_dir)


def assembled(
    config: Config, log: BoundLogger, store: Store, solver: SolverPool, access: Access | None
) -> Service:
    """Make every part, and join them."""
    memory = recall(store, config.daemon.keep_ended)
    core = Coordinator(config, memory.remembered)
    state = core.state
    metrics, notifier = DaemonMetrics(), Notifier(config.notify, log)

    # What calls back is made before what it calls.
    def turn(batch: list[CoreEvent]) -> None:
        service.turn(batch)

    def requested(origin: Origin, body: Mapping[str, Any]) -> None:
        requests.take(origin, body)

    def stated(statement: Statement, peer: ExecutorPeer) -> None:
        heartbeats.received(statement, peer)

    def faulted(where: str, code: str, message: str, first: bool) -> None:
        if first:
            log.warning("message_dropped", where=where, fault=code, what=message[:200])

    def told(cluster: str, message: Numbered | Welcome | Ping) -> bool:
        return tell(state, server, cluster, message)

    def carry_out(effects: list[Effect], now: float) -> None:
        carrier.carry_out(effects, now)

    loop = CoreLoop(turn)
    server = Server(
        Endpoints(
            clients=config.daemon.endpoint,
            executors=config.daemon.executor_endpoint,
            watchers=config.daemon.publish_endpoint,
        ),
        guard=access,
        max_bytes=config.daemon.max_message_bytes,
        max_values=config.daemon.max_values,
        on_request=requested,
        on_statement=stated,
        on_fault=faulted,
    )
    launches = Launches(store)
    delivery = Delivery(told, launches.of, epoch=state.epoch, task_launch_of=launches.of_task)
    delivery.restore(memory.outbox)
    heartbeats = Heartbeats(state, told, delivery, loop)
    owner = Caller(user=getpass.getuser(), uid=os.getuid(), gid=os.getgid(), is_operator=True)
    replies = Replies(server, owner, access)
    writer = Writer(store, core, loop, log, time.time, carry_out=carry_out, refuse=replies.send)
    writer.on_commit = metrics.histogram["coalloc_store_commit_seconds"].observe
    planner = RoundPlanner(solver, loop.offer)
    planner.rounds = config.rounds
    sources = Sources(state=state, store=store, caller=owner, health=lambda: service.health())
    waiters = Waiters(partial(array_of, sources), server.answer, replies.send)
    carrier = Effects(
        state,
        server,
        loop,
        delivery=delivery,
        planner=planner,
        replies=replies,
        waiters=waiters,
        metrics=metrics,
        notifier=notifier,
    )
    planner.costs.on_found = carrier.costed
    service = Service(
        config=config,
        log=log,
        clock=time.time,
        began=time.time(),
        owner=owner,
        access=access,
        store=store,
        core=core,
        loop=loop,
        solver=solver,
        planner=planner,
        explainer=Explainer(solver, planner),
        server=server,
        delivery=delivery,
        heartbeats=heartbeats,
        writer=writer,
        metrics=metrics,
        notifier=notifier,
        replies=replies,
        sources=sources,
        waiters=waiters,
    )
    requests = Requests(service)
    return service
