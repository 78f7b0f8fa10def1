"""Carries out an executor's effects: on the launcher, on disk, and on the wire."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from structlog.stdlib import BoundLogger

from coalloc.adapters.base import Adapter, AdapterError, ClaimRefusedError, Launcher
from coalloc.adapters.runner import durable
from coalloc.core.base.messages import Prepare, Statement
from coalloc.core.executor.effects import (
    ArrangePart,
    ClaimPart,
    DismissJob,
    EndPart,
    ExecutorEffect,
    ExecutorLogLine,
    HastenPart,
    LimitPart,
    PartEffect,
    PartNews,
    RemovePart,
    RenewLeases,
    SaveProgress,
    SendStatement,
    StartPart,
    TellStarted,
)
from coalloc.core.executor.machine import ExecutorState
from coalloc.executor.access import ExecutorAccess
from coalloc.executor.started import StartedFile
from coalloc.model.formats.nodeset import fold
from coalloc.model.output_names import pattern_of_ranks
from coalloc.model.sites.parts import JobPart, Launch, PartSpec, PartState
from coalloc.model.values import replace
from coalloc.runtime.logs import RateLimit

FAILURES_TOLD_S = 60.0
"""Between two log lines on one effect that fails again and again, seconds."""


def in_words(error: Exception) -> str:
    """Say an error to a user, who need not know its class where it was foreseen."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, AdapterError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class ProgressFile:
    """The number of the last order carried out, on disk; `kept` is None where it is not known."""

    def __init__(self, path: Path, log: BoundLogger) -> None:
        self._path = path
        self.kept: SaveProgress | None = None
        try:
            self.kept = msgspec.json.decode(path.read_bytes(), type=SaveProgress)
        except FileNotFoundError:
            pass
        except msgspec.DecodeError as error:
            log.error("progress_unreadable", path=str(path), why=str(error))

    def write(self, progress: SaveProgress) -> None:
        """Durable on return: what follows tells the daemon that orders were carried out."""
        if progress == self.kept:
            return
        durable.write(self._path, msgspec.json.encode(progress))
        self.kept = progress


def kept_identity(state_dir: Path) -> str:
    """The identity of a state folder, which is made with it and on disk on return."""
    path = state_dir / "identity"
    try:
        found = path.read_text(encoding="ascii", errors="replace").strip()
        path.chmod(0o600)  # one of long ago may be open
    except FileNotFoundError:
        found = ""
    if not found:
        found = uuid.uuid4().hex
        durable.write(path, found.encode())
    return found


class LauncherActions:
    """The hands of one cluster's executor (`core.executor.turn`); `send` is to the daemon."""

    def __init__(
        self,
        adapter: Adapter,
        launcher: Launcher,
        state: ExecutorState,
        progress: ProgressFile,
        started: StartedFile,
        access: ExecutorAccess,
        send: Callable[[Statement], None],
        log: BoundLogger,
    ) -> None:
        self._launcher, self._handover = launcher, adapter.handover
        self._state, self._progress, self._started = state, progress, started
        self._may_run, self._send, self._log = access.may_run, send, log
        self._failures = RateLimit(FAILURES_TOLD_S)
        self._is_unwritten = False

    @property
    def kept(self) -> SaveProgress | None:
        return self._progress.kept

    def perform(self, effect: ExecutorEffect) -> list[PartNews]:
        launcher = self._launcher
        match effect:
            case ClaimPart(order=order):
                return self._claim(order)
            case ArrangePart(key=key, order=order):
                launcher.arrange(key, order.all_nodes, order.rendezvous)
            case HastenPart(key=key):
                launcher.hasten(key)
            case LimitPart(key=key, limit_s=limit_s):
                launcher.limit(key, limit_s)
            case StartPart(key=key, at=at):
                launcher.go(key, at)
            case EndPart(key=key, reason=reason):
                launcher.abort(key, reason=reason)
            case RemovePart(key=key, how=how):
                if how:
                    self._started.add(self._state.store, key, how)
                launcher.forget(key)
            case TellStarted(owed=owed):
                for statement in self._started.told(self._state.store, self._state.cluster, owed):
                    self._send(statement)
            case DismissJob(foreign=foreign):
                self._dismiss(foreign)
            case RenewLeases():
                launcher.renew()
            case ExecutorLogLine(event=event, fields=fields, level=level):
                (self._log.warning if level == "warning" else self._log.info)(event, **fields)
        return []

    def save(self, progress: SaveProgress) -> None:
        """Write the progress, and what was started of what is gone; durable on return."""
        self._started.synchronise()
        self._progress.write(progress)
        if self._is_unwritten:
            self._is_unwritten = False
            self._log.info("progress_written")

    def say(self, statement: Statement) -> None:
        self._send(statement)

    def explain(self, effect: ExecutorEffect, error: Exception) -> str:
        why = in_words(error)
        job = effect.order.job if isinstance(effect, ClaimPart) else ""
        if isinstance(effect, PartEffect):
            job = effect.key.job
        self._is_unwritten |= isinstance(effect, SaveProgress)
        if count := self._failures.once_per(f"{type(effect).__name__} {job}"):
            fields: dict[str, Any] = {"job": job} if job else {}
            if isinstance(effect, DismissJob):
                fields["job_there"] = effect.foreign
            if not isinstance(error, AdapterError | OSError):
                fields["exc_info"] = error
            self._log.error(
                "effect_failed", effect=_VERBS[type(effect)], why=why, count=count, **fields
            )
        return why

    def _claim(self, order: Prepare) -> list[PartNews]:
        def refused(reason: str, detail: str) -> list[PartNews]:
            told = {"reason": reason, "detail": detail}
            return [PartNews(report=key.report(PartState.REFUSED, **told)) for key in order.keys]

        if fault := self._may_run(order):
            self._log.warning("order_refused", audit=True, job=order.job, uid=order.uid, why=fault)
            return refused("user_unknown", fault)
        try:
            self._launcher.claim(spec_of(order, self._state.cluster, self._state.epoch))
        except ClaimRefusedError as error:
            return refused(error.reason, error.detail)
        fields: dict[str, Any] = {"attempt": order.attempt, "nodes": fold(order.nodes)}
        self._log.info("part_claimed", job=order.job, **fields)
        return []

    def _dismiss(self, foreign: str) -> None:
        """Cancel a handed job; where that fails, the daemon asks again with a later reading."""
        if self._handover is None:
            self._log.error("handover_unknown", job_there=foreign)
            return
        self._handover.dismiss(foreign)
        self._log.info("handed_job_dismissed", job_there=foreign)


_VERBS = {
    ClaimPart: "claim",
    ArrangePart: "arrange",
    HastenPart: "hasten",
    LimitPart: "limit",
    StartPart: "start",
    EndPart: "end",
    RemovePart: "remove",
    DismissJob: "dismiss",
    RenewLeases: "renew",
    TellStarted: "tell what was started",
    SaveProgress: "write progress",
    SendStatement: "say",
    ExecutorLogLine: "log",
}


def spec_of(order: Prepare, cluster: str, epoch: int) -> PartSpec:
    """Specification of a part, for the launcher."""
    shared = {name: getattr(order, name) for name in JobPart.__struct_fields__}
    if order.launch is not None:
        launch = replace(order.launch, cwd=order.folder or order.launch.cwd)
        shared["launch"] = _filled_in(launch, order)
        shared["members"] = tuple(
            replace(each, stdout=out, stderr=err)
            for each in order.members
            for out, err in [_outputs(order.launch, each.job, order)]
        )
    return PartSpec(
        **shared,
        cluster=cluster,
        epoch=epoch,
        # Its groups are those of the account when it starts, not those of the enrolment.
        uid=None if order.uid in {os.getuid(), -1} else order.uid,
        chunks=(order.chunk_first, order.chunks, order.chunks_total) if order.chunks else None,
    )


def _filled_in(launch: Launch, order: Prepare) -> Launch:
    """The command with our variables, and with output files of which only ranks are left open."""
    env = dict(launch.env)
    if order.array_index is not None:
        env["COALLOC_ARRAY_TASK_ID"] = str(order.array_index)
        env["COALLOC_ARRAY_JOB_ID"] = order.job.partition("_")[0]
    if order.name:
        env["COALLOC_JOB_NAME"] = order.name
    if order.task:
        env["COALLOC_TASK"] = order.task
        env["COALLOC_WORKFLOW"] = order.job.partition(".")[0]
    out, err = _outputs(launch, order.job, order)
    return replace(launch, env=env, stdout=out, stderr=err)


def _outputs(launch: Launch, job: str, order: Prepare) -> tuple[str, str]:
    of = job, order.name, order.user
    out = pattern_of_ranks(launch.stdout, *of, once=order.once)
    return out, pattern_of_ranks(launch.stderr, *of, once=order.once)
