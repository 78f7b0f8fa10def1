"""Jobs of `coalloc.Executor` that make calls: workers, and jobs that read their calls in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from coalloc.client.futures.connection import DaemonConnection
from coalloc.client.futures.future import Call, JobFuture
from coalloc.client.futures.results import pattern, returned
from coalloc.client.futures.workers import TURN_S, PooledCall, WorkerPool
from coalloc.client.submission import JobOptions, submission
from coalloc.wire.answers import EndedJob
from coalloc.wire.curve import is_supported

BY_FILE = frozenset({"speedup", "times", "work", "requeue", "retries", "stream"})
"""Options with which a call is a job of its own: they are about what becomes of one."""


class CallJobs:
    """Makes calls by jobs that have the same fields; `stop` ends the connection, too."""

    def __init__(
        self,
        traffic: DaemonConnection,
        folder: Path,
        script: str,
        fields: JobOptions,
        workers: int,
    ) -> None:
        self._traffic, self._folder, self._script = traffic, folder, script
        self._fields, self._workers = fields, workers
        limit = fields.get("time_limit")
        self._turn_s = TURN_S if limit is None else min(TURN_S, limit)
        alone = fields.get("procs", 1) == 1 and not BY_FILE & fields.keys()
        self._is_warm = alone and is_supported()
        self._pool: WorkerPool | None = None
        self._lock = threading.Lock()

    def make(self, call: PooledCall) -> None:
        """Have a call made, by a worker where one can."""
        if not self._is_warm:
            self._by_file(call)
            return
        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(
                    self._folder,
                    self._worker,
                    self._by_file,
                    partial(self._traffic.stop, join=False),
                    most=self._workers,
                    turn_s=self._turn_s,
                )
        self._pool.take(call)

    def carry(
        self, body: dict[str, Any], future: JobFuture[Any], result: Callable[[EndedJob], Any]
    ) -> None:
        """Have a job submitted, and its end made the future's value."""
        call = Call(body=body, future=future, result=result)
        future.withdraw = partial(self._traffic.withdraw, call)
        self._traffic.submit(call)

    def stop(self, *, join: bool) -> None:
        """End workers and connection when everything has ended."""
        if self._pool is not None:
            self._pool.close(join=join)
        elif not join:
            self._traffic.stop(join=False)
        if join:
            self._traffic.stop(join=True)

    def _body(self, name: str, file: Path, **own: Any) -> dict[str, Any]:
        options: JobOptions = {"name": name, **self._fields, **own}  # type: ignore[typeddict-item]
        options["script"], options["stdout"] = self._script, pattern(file.with_suffix(".out"))
        return submission([name, str(file)], **options)

    def _by_file(self, call: PooledCall) -> None:
        if call.future.done():
            return
        path = call.output.with_suffix(".json")
        path.write_text(call.text, encoding="utf-8")
        result = partial(returned, path=path, output=call.output, value=call.value)
        self.carry(self._body(call.name, path), call.future, result)

    def _worker(self, name: str, record: Path, job: JobFuture[EndedJob], calls: int) -> None:
        """Submit a worker for so many calls; each has its own time limit from its begin on."""
        own: dict[str, Any] = {}
        if base_time := self._fields.get("base_time"):
            own["base_time"] = max(base_time, min(self._turn_s, base_time * calls))
        if limit := self._fields.get("time_limit"):
            own["time_limit"] = limit + self._turn_s
        self.carry(self._body(name, record, **own), job, lambda ending: ending)
