"""Requests of clients: questions are answered from memory or the store, commands go to the core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from coalloc.core.base.events import Caller, Requested, TokenRecalled
from coalloc.core.base.requests import Refused, RequestError, Submit
from coalloc.daemon.queries.answers import ANSWERS, answered, estimated, explained_job
from coalloc.daemon.service import INTERNAL, Service
from coalloc.daemon.store.errors import StoreCorruptError, StoreError
from coalloc.model.values import fields_of, replace
from coalloc.wire.answers import Answer, BackupAnswer, Estimate, WhyAnswer
from coalloc.wire.codec import decode_command
from coalloc.wire.frames import WireError
from coalloc.wire.questions import BackupQuestion, OfJob, StreamQuestion, read_question
from coalloc.wire.server import Origin


class Requests:
    """Answers what clients ask, in the turn in which it arrives where that can be done."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._slow: Mapping[str, Callable[[Caller, Mapping[str, Any]], Awaitable[Answer]]] = {
            "backup": self._backup,
            "test_submit": self._estimate,
            "why": self._explain,
        }

    def take(self, origin: Origin, body: Mapping[str, Any]) -> None:
        service, kind = self._service, body["type"]
        began = time.perf_counter()
        caller = service.replies.caller(origin)
        try:
            if kind in self._slow:
                answer = self._slow[kind](caller, body)
                service.loop.spawn(self._answer_later(origin, answer, kind))
            elif kind in ANSWERS:
                sources = replace(service.sources, caller=caller)
                service.server.answer(origin, answered(sources, body, service.clock()))
            elif kind == "stream":
                service.streams.ask(origin, caller, read_question(body, StreamQuestion))
            elif kind == "wait":
                service.waiters.add(origin, read_question(body, OfJob).job, caller.user)
            else:
                self._command(origin, caller, body)
        except WireError:
            raise
        except Exception as error:
            service.replies.send(origin, self._refusal(error, kind))
        finally:
            service.replies.charge(origin, began)

    def _command(self, origin: Origin, caller: Caller, body: Mapping[str, Any]) -> None:
        service, command = self._service, decode_command(body)
        if isinstance(command, Submit):
            if service.is_stopping:
                raise RequestError("busy", "the daemon is stopping; nothing was queued")
            if not service.writer.is_writable:
                raise RequestError("storage", "the daemon cannot write to its disk now")
            if service.access is not None:
                service.access.check_submit(caller)
            # A resend of a submit whose job ended long ago is still the same job; also where the
            # core knows the token now: it may forget it before this request's turn.
            user, token = caller.user, command.token
            job = service.store.job_of_token(user, token)
            if job is not None:
                service.loop.offer(TokenRecalled(user=user, token=token, job=job))
        asked = Requested(origin=origin, command=command, **fields_of(caller, Caller))
        service.loop.offer(asked)

    def _refusal(self, error: Exception, kind: object) -> Refused:
        """The answer where there is none: one question must not keep the next from being read."""
        if isinstance(error, RequestError):
            return error.refused
        if isinstance(error, StoreError):
            if isinstance(error, StoreCorruptError):
                self._service.log.error("store_damaged", why=str(error), kind=str(kind)[:40])
            return Refused(code="storage", message=str(error))
        self._service.log.error("request_failed", kind=str(kind)[:40], exc_info=error)
        return INTERNAL

    async def _answer_later(self, origin: Origin, answer: Awaitable[Answer], kind: object) -> None:
        try:
            self._service.server.answer(origin, await answer)
        except WireError as error:
            refused = Refused(code="bad_request", message=str(error))
            self._service.replies.send(origin, refused)
        except Exception as error:
            self._service.replies.send(origin, self._refusal(error, kind))

    async def _estimate(self, caller: Caller, body: Mapping[str, Any]) -> Estimate:
        service = self._service
        sources = replace(service.sources, caller=caller)
        policy = service.config.rounds.policy
        return await estimated(service.planner, sources, body, policy, service.clock())

    async def _backup(self, caller: Caller, body: Mapping[str, Any]) -> BackupAnswer:
        """Have a copy of the store written in a thread, beside the service's work."""
        service, asked, began = self._service, read_question(body, BackupQuestion), time.monotonic()
        if not caller.operator:
            raise RequestError("not_allowed", "only an operator may do this")
        if not asked.path.startswith("/") or "\0" in asked.path:
            raise RequestError("bad_request", "path: is not an absolute path")
        path = Path(asked.path)
        try:
            await asyncio.to_thread(service.store.backup, path)
            size = path.stat().st_size
        except (StoreError, OSError) as error:
            service.log.error("backup_failed", path=asked.path, why=str(error))
            raise RequestError("storage", str(error)) from error
        seconds = round(time.monotonic() - began, 3)
        service.log.info("backup_written", path=asked.path, bytes=size, seconds=seconds)
        return BackupAnswer(path=str(path), bytes=size, seconds=seconds)

    async def _explain(self, _: Caller, body: Mapping[str, Any]) -> WhyAnswer:
        service = self._service
        asked, now = read_question(body, OfJob), service.clock()
        record = explained_job(service.sources, asked.job)
        policy = service.config.rounds.policy
        why = await service.explainer.why(record, service.core.state, policy, now)
        return WhyAnswer(why=why, time=now)
