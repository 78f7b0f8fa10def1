"""The daemon's parts made and joined, and opened in an order in which they can be closed again."""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from structlog.stdlib import BoundLogger

from coalloc.core.base.events import Caller
from coalloc.core.base.messages import Streamed
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.access.access import Access
from coalloc.daemon.access.key_table import KeyTable
from coalloc.daemon.access.own_clusters import with_own
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.effects import carry_out, costed, tell
from coalloc.daemon.heartbeats import Heartbeats
from coalloc.daemon.monitoring.metrics import DaemonMetrics
from coalloc.daemon.monitoring.notify import Notifier, UserMail
from coalloc.daemon.outbox import Delivery, Launches
from coalloc.daemon.queries.answers import Sources, find_job, whole_of
from coalloc.daemon.queries.waiters import Waiters
from coalloc.daemon.queries.why import Explainer
from coalloc.daemon.replies import Replies
from coalloc.daemon.requests import Requests
from coalloc.daemon.service import ClockSteps, Service
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writer import Writer
from coalloc.daemon.streams import Streams
from coalloc.model.settings import Config
from coalloc.runtime.key_files import kept_key
from coalloc.runtime.user import user_name
from coalloc.wire.server import OnRequest, OnStatement, Server


async def opened(config: Config, log: BoundLogger, stack: AsyncExitStack) -> Service:
    """The service with all that it needs; the stack closes it, in reverse order."""
    daemon = config.daemon
    is_shared = daemon.mode == "multi-user"
    # Where users' scripts lie in it, they must be able to pass; nothing in it can be listed.
    Path(daemon.state_dir).mkdir(parents=True, exist_ok=True, mode=0o711 if is_shared else 0o700)
    Path(daemon.runtime_dir).mkdir(parents=True, exist_ok=True, mode=0o755 if is_shared else 0o700)
    # Before the keys, which tell later that there was one.
    store = Store(Path(daemon.state_dir) / "coalloc.db")
    stack.callback(store.close)
    access = None
    if is_shared:
        folder = Path(daemon.state_dir)
        pair = kept_key(folder / "server-key.json").pair
        access = Access(pair, KeyTable(folder / "keys.json"), config.access, log)
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
    core = Coordinator(
        config if access is None else with_own(config, access.table), memory.remembered
    )
    metrics = DaemonMetrics()
    # What calls back is made before what it calls.
    loop = CoreLoop(lambda batch: service.turn(batch))
    server = _server(
        config,
        log,
        access,
        on_request=lambda origin, body: requests.take(origin, body),
        on_statement=lambda statement, peer: (
            service.streams.told(statement)
            if isinstance(statement, Streamed)
            else heartbeats.received(statement, peer)
        ),
    )
    told = partial(tell, core.state, server)
    delivery = Delivery(told, Launches(store, log).of, epoch=core.state.epoch)
    delivery.restore(memory.outbox)
    heartbeats = Heartbeats(core.state, told, delivery, loop)
    owner = Caller(user=user_name(), uid=os.getuid(), gid=os.getgid(), operator=True)
    replies = Replies(server, owner, access)
    writer = Writer(
        store,
        core,
        loop,
        log,
        time.time,
        carry_out=lambda effects, now: carry_out(service, effects, now),
        refuse=replies.send,
    )
    writer.on_commit = metrics.histogram["coalloc_store_commit_seconds"].observe
    planner = RoundPlanner(solver, loop.offer)
    planner.rounds = config.rounds
    sources = Sources(
        state=core.state,
        store=store,
        caller=owner,
        health=lambda: service.health(),
        costs=lambda: planner.costs.newest,
    )
    service = Service(
        config=config,
        log=log,
        clock=time.time,
        clock_steps=ClockSteps(),
        began=time.time(),
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
        notifier=Notifier(config.notify, log),
        user_mail=UserMail(config.notify, log, core.state.jobs, time.time()),
        replies=replies,
        sources=sources,
        streams=Streams(partial(find_job, sources), core.state, told, loop, replies, server.answer),
        waiters=Waiters(partial(whole_of, sources), server.answer, replies.send),
    )
    requests = Requests(service)
    planner.costs.on_found = partial(costed, service)
    return service


def _server(
    config: Config,
    log: BoundLogger,
    access: Access | None,
    *,
    on_request: OnRequest,
    on_statement: OnStatement,
) -> Server:
    def faulted(where: str, code: str, message: str, first: bool) -> None:
        if first:
            log.warning("message_dropped", where=where, fault=code, what=message[:200])

    return Server(
        config.daemon,
        guard=access,
        on_request=on_request,
        on_statement=on_statement,
        on_fault=faulted,
    )
