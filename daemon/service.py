"""The daemon's loop: what arrives goes to the core in batches; its effects are carried out.

A batch is everything that had arrived when the loop came round. Its writes are one
transaction, and only when that is on disk do answers, orders and publications go out: that
is group commit, and why an acknowledged job cannot be lost.

While nothing can be written (disk full, read-only file system) submits are refused, no round
starts, and what happens to running work is kept in memory and written when space returns
(`coalloc.daemon.store.writer`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import to_builtins
from structlog.stdlib import BoundLogger

import coalloc
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
from coalloc.core.base.events import Event, Reconfigured, Requested, Ticked, TokenRecalled
from coalloc.core.base.messages import Numbered, Ping, Welcome
from coalloc.core.base.requests import Answer, Done, Refused, Submit
from coalloc.core.coordinator import Coordinator
from coalloc.daemon.access.access import Access
from coalloc.daemon.core_loop import CoreLoop
from coalloc.daemon.heartbeats import Heartbeats
from coalloc.daemon.launches import Launches
from coalloc.daemon.metrics import Metrics
from coalloc.daemon.notify import Notifier
from coalloc.daemon.outbox import Delivery
from coalloc.daemon.queries.answers import QUESTIONS, Health, Sources, array_of, asked_job
from coalloc.daemon.queries.backup import backup_target, written_backup
from coalloc.daemon.queries.caller import Caller, QueryRefusedError
from coalloc.daemon.queries.estimate import estimated
from coalloc.daemon.queries.waiters import Waiters
from coalloc.daemon.queries.why import Explainer
from coalloc.daemon.settings import core_settings
from coalloc.daemon.solver.planner import RoundPlanner
from coalloc.daemon.solver.pool import SolverPool
from coalloc.daemon.store.disk import free_bytes
from coalloc.daemon.store.errors import StoreError
from coalloc.daemon.store.recall import recall
from coalloc.daemon.store.sqlite import Store
from coalloc.daemon.store.writer import Writer
from coalloc.model.values import replace
from coalloc.runtime.config.schema import Config, DaemonConfig
from coalloc.wire.answers import Answer as AnswerBody
from coalloc.wire.answers import BackupAnswer, Estimate, Refusal, SolverStatus, WhyAnswer
from coalloc.wire.codec import WireError, decode_command
from coalloc.wire.rule_rows import RuleCostsRow
from coalloc.wire.server import Endpoints, ExecutorPeer, Origin, Server

INTERNAL = Refused(code="internal", message="internal error; see the daemon's log")


class Service:
    """Owns the core and everything around it.

    Parameters
    ----------
    user, uid, gid : str, int, int
        In single-user mode, everybody.
    access : Access, optional
        In multi-user mode, who everybody is.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        solver: SolverPool,
        log: BoundLogger,
        *,
        user: str,
        uid: int,
        gid: int,
        clock: Callable[[], float] = time.time,
        access: Access | None = None,
    ) -> None:
        self.access = access
        self.owner = Caller(user=user, uid=uid, gid=gid, is_operator=True)
        self.config, self.store, self.log, self.clock = config, store, log, clock
        memory = recall(store, config.daemon.keep_ended)
        self.core = Coordinator(core_settings(config), memory.remembered)
        self.solver = solver
        self.loop = CoreLoop(self._turn)
        self.planner = RoundPlanner(solver, self.loop.offer)
        self.explainer = Explainer(solver, self.planner)
        self._use_options(config)
        self.server = self._make_server(config.daemon)
        state = self.core.state
        launches = Launches(store)
        self.delivery = Delivery(
            self._tell,
            launches.of,
            epoch=state.epoch,
            task_launch_of=launches.of_task,
        )
        self.delivery.restore(memory.outbox)
        self.heartbeats = Heartbeats(state, self._tell, self.delivery, self.loop)
        self.writer = Writer(
            store,
            self.core,
            self.loop,
            log,
            clock,
            carry_out=self._carry_out,
            refuse=self._answer,
        )
        self.metrics = Metrics()
        self.notifier = Notifier(config.notify, log)
        self.writer.on_commit = self.metrics.store.commit_s.observe
        self.planner.costs.on_found = self._costed
        self.sources = Sources(state=state, store=store, caller=self.owner, health=self._health)
        self._slow: Mapping[str, Callable[[Caller, Mapping[str, Any]], Awaitable[AnswerBody]]] = {
            "backup": self._backup,
            "test_submit": self._estimate,
            "why": self._explain,
        }
        self.is_stopping = False
        self._began = clock()
        self.waiters = Waiters(
            lambda job: array_of(self.sources, job), self.server.answer, self._answer
        )

    def _make_server(self, daemon: DaemonConfig) -> Server:
        return Server(
            Endpoints(
                clients=daemon.endpoint,
                executors=daemon.executor_endpoint,
                watchers=daemon.publish_endpoint,
            ),
            guard=self.access,
            max_bytes=daemon.max_message_bytes,
            max_values=daemon.max_values,
            on_request=self._requested,
            on_statement=lambda statement, peer: self.heartbeats.received(statement, peer),
            on_fault=self._faulted,
        )

    def open(self) -> None:
        """Bind the sockets and begin; the loop must be running."""
        loop = asyncio.get_running_loop()
        self.loop.open(loop)
        self.server.open(loop)
        self.heartbeats.tick()
        self.loop.offer(Ticked())
        self.planner.costs.want()

    async def close(self) -> None:
        """Stop planning, hand in what is left, close the sockets."""
        self.is_stopping = True
        await self.planner.close()
        self.loop.close()
        self.server.close()
        self.notifier.close()

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from now on."""
        self.config, self.notifier.config = config, config.notify
        self._use_options(config)
        self.server.max_values = config.daemon.max_values
        if self.access is not None:
            self.access.configure(config.access)
        self.loop.offer(Reconfigured(settings=core_settings(config)))

    def _use_options(self, config: Config) -> None:
        rounds = config.rounds
        self.planner.time_limit_s = rounds.time_limit_s
        self.planner.options = rounds.options
        self.planner.passed_over_limit = rounds.passed_over_limit
        self.planner.commit_first_incumbent = rounds.commit_first_incumbent

    def _turn(self, batch: list[Event]) -> None:
        now = self.clock()
        effects: list[Effect] = []
        for event in batch:
            began = time.perf_counter()
            try:
                effects += (new := self.core.handle(event, now))
                spent, state = time.perf_counter() - began, self.core.state
                self.metrics.handled(event, new, spent, failed=state.round is None)
            except Exception:
                # One event must not end the service; what it did change is still written.
                self.log.exception("event_failed", kind=type(event).__name__)
                effects += self.core.take_partial()
                if isinstance(event, Requested):
                    effects.append(Reply(origin=event.origin, answer=INTERNAL))
            if isinstance(event, Requested):
                self._charge(event.origin, began)
        self.writer.write(effects, now)

    def _charge(self, origin: Any, began: float) -> None:
        """Charge the time since then to the user who asked."""
        if self.access is not None and isinstance(origin, Origin):
            self.access.charge(origin.key, time.perf_counter() - began)

    def _carry_out(self, effects: list[Effect], now: float) -> None:
        """Carry out effects that are on disk."""
        for effect in effects:
            match effect:
                case SendOrder(cluster=cluster, seq=seq, order=order):
                    self.delivery.add(cluster, seq, order)
                case DropOrders(cluster=cluster, through_seq=seq):
                    self.delivery.done(cluster, seq)
                case SendWelcome(cluster=cluster, base_seq=base):
                    state = self.core.state
                    welcome = Welcome(
                        store=state.store,
                        epoch=state.epoch,
                        base_seq=base,
                        lease_s=state.settings.lease_s,
                    )
                    self._tell(cluster, welcome)
                case AskHello(cluster=cluster, peer=ExecutorPeer() as peer):
                    ping = Ping(epoch=self.core.state.epoch, known=False)
                    self.server.tell(cluster, peer, ping)
                case TurnAway(cluster=cluster, peer=ExecutorPeer() as peer, why=why):
                    self.server.turn_away(cluster, peer, why)
                case ResendOrders(cluster=cluster, from_seq=seq):
                    self.delivery.replay(cluster, seq)
                case Reply(origin=origin, answer=answer):
                    self._answer(origin, answer)
                case AppendEvent():
                    self._recorded(effect)
                case Publish(topic=topic, body=body):
                    self.server.publish(topic, body)
                case Solve():
                    self.planner.start(effect)
                case RoundFinished():
                    self.metrics.round_finished(effect, now)
                    self.metrics.sample(
                        self.core.state, self.delivery.waiting(), self.server.faults
                    )
                case Wake(at=at):
                    self.loop.later(max(0.0, at - now), lambda: self.loop.offer(Ticked()))
                case _:
                    pass

    def _costed(self, found: RuleCostsRow) -> None:
        """Tell what the rules cost in a round."""
        self.metrics.costed(found)
        self.server.publish("rule_costs", to_builtins(found))

    def _tell(self, cluster: str, message: Numbered | Welcome | Ping) -> bool:
        """Send to the executor that speaks for a cluster; False if there is none."""
        site = self.core.state.clusters.get(cluster)
        if site is None or not isinstance(site.peer, ExecutorPeer):
            return False
        return self.server.tell(cluster, site.peer, message)

    def _recorded(self, effect: AppendEvent) -> None:
        record = self.core.state.jobs.get(effect.job)
        self.metrics.recorded(effect, record)
        self.notifier.recorded(effect, record)
        body = {
            "seq": effect.seq,
            "time": effect.time,
            "kind": effect.kind,
            "job": effect.job,
            "fields": dict(effect.fields),
        }
        self.server.publish(f"event.{effect.kind}.{effect.job}", body)
        if effect.kind == "job_ended":
            self.waiters.ended(effect.job)

    def _answer(self, origin: Any, answer: Answer) -> None:
        if not isinstance(origin, Origin):
            return
        match answer:
            case Done(body=body):
                self.server.answer(origin, {"type": "done", **body})
            case Refused(code=code, message=message):
                if code == "not_allowed" and self.access is not None:
                    self.access.request_refused(self._caller(origin), answer)
                self.server.answer(origin, Refusal(code=code, message=message))

    def _requested(self, origin: Origin, body: Mapping[str, Any]) -> None:
        kind = body["type"]
        began = time.perf_counter()
        caller = self._caller(origin)
        try:
            if kind in self._slow:
                self.loop.spawn(self._answer_later(origin, self._slow[kind](caller, body), kind))
            elif kind in QUESTIONS:
                sources = replace(self.sources, caller=caller)
                self.server.answer(origin, QUESTIONS[kind](sources, body, self.clock()))
            elif kind == "wait":
                self.waiters.add(origin, str(body.get("job") or ""), caller.user)
            else:
                self._command(origin, caller, body)
        except WireError:
            raise
        except Exception as error:
            self._answer(origin, self._refusal(error, kind))
        finally:
            self._charge(origin, began)

    def _caller(self, origin: Origin) -> Caller:
        return self.owner if self.access is None else self.access.caller(origin.key)

    def _command(self, origin: Origin, caller: Caller, body: Mapping[str, Any]) -> None:
        command = decode_command(body)
        if isinstance(command, Submit):
            if self.is_stopping:
                raise QueryRefusedError("busy", "the daemon is stopping; nothing was queued")
            if not self.writer.is_writable:
                raise QueryRefusedError("storage", "the daemon cannot write to its disk now")
            if self.access is not None:
                self.access.check_submit(caller)
            self._recall_token(caller.user, command.token)
        self.loop.offer(
            Requested(
                origin=origin,
                user=caller.user,
                uid=caller.uid,
                gid=caller.gid,
                operator=caller.is_operator,
                command=command,
            )
        )

    def _recall_token(self, user: str, token: str) -> None:
        """A resend of a submit whose job ended long ago is still the same job.

        Also where the core knows the token now: it may forget it before this request's turn.
        """
        job = self.store.job_of_token(user, token)
        if job is not None:
            self.loop.offer(TokenRecalled(user=user, token=token, job=job))

    def _refusal(self, error: Exception, kind: object) -> Refused:
        """The answer where there is none: one question must not keep the next from being read."""
        if isinstance(error, QueryRefusedError):
            return error.refused
        if isinstance(error, StoreError):
            return Refused(code="storage", message=str(error))
        self.log.error("request_failed", kind=str(kind)[:40], exc_info=error)
        return INTERNAL

    async def _answer_later(
        self, origin: Origin, answer: Awaitable[AnswerBody], kind: object
    ) -> None:
        try:
            self.server.answer(origin, await answer)
        except Exception as error:
            self._answer(origin, self._refusal(error, kind))

    async def _estimate(self, caller: Caller, body: Mapping[str, Any]) -> Estimate:
        sources = replace(self.sources, caller=caller)
        policy = self.config.rounds.policy
        return await estimated(self.planner, sources, body, policy, self.clock())

    async def _backup(self, caller: Caller, body: Mapping[str, Any]) -> BackupAnswer:
        return await written_backup(self.store, backup_target(caller, body), self.log)

    async def _explain(self, _: Caller, body: Mapping[str, Any]) -> WhyAnswer:
        record, now = asked_job(self.sources, body), self.clock()
        why = await self.explainer.why(record, self.core.state, self.config.rounds.policy, now)
        return WhyAnswer(why=why, time=now)

    def _faulted(self, where: str, code: str, message: str, first: bool) -> None:
        if first:
            self.log.warning("message_dropped", where=where, fault=code, what=message[:200])

    def _health(self) -> Health:
        return Health(
            writable=self.writer.is_writable,
            faults=self.server.faults,
            orders_waiting=self.delivery.waiting(),
            solver=SolverStatus(is_warm=self.solver.is_warm, **self.solver.progress()),
            version=coalloc.__version__,
            began=self._began,
            policy=self.config.rounds.policy,
            disk_free_bytes=free_bytes(self.store.path.parent),
            costs=self.planner.costs.newest,
        )
