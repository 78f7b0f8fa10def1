"""Calls of one process go to warm workers: jobs that make one call after the other.

A worker has one call at a time, so that what has begun is known, and no call waits behind another.
It ends when it has been idle for `IDLE_S`, or after its turn: others' jobs get its slot. Where one
cannot reach this process, calls go by files, as a job each. All that is known of calls and workers
lives in one thread, which has an event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from coalloc.client.futures.calls import CallOutcome, outcomes_in
from coalloc.client.futures.connection import DaemonConnection
from coalloc.client.futures.future import Call, JobFailedError, JobFuture
from coalloc.client.futures.results import pattern, placed, returned
from coalloc.client.futures.serving import KEYS
from coalloc.client.submission import JobOptions, submission
from coalloc.wire.answers import EndedJob
from coalloc.wire.curve import is_supported
from coalloc.wire.worker_socket import WorkerSocket

log = logging.getLogger(__name__)

IDLE_S, TURN_S = 2.0, 60.0
"""After which a worker ends, and takes no more calls, seconds."""
TICK_S, SETTLE_S = 0.5, 0.2
"""Between looks at idle workers; for what a worker has said to arrive after its end, seconds."""
FIRST = 8
"""Workers that wait in the queue at a time, unless more are serving."""
ALONE = frozenset({"speedup", "times", "work", "requeue", "retries", "stream"})
"""Options about what becomes of one job: with them each call is one."""


@dataclass(eq=False, kw_only=True)
class PooledCall:
    """A call, or a chunk of them."""

    name: str
    text: str
    calls: int
    output: Path
    value: Callable[[list[CallOutcome]], Any]
    """From their outcomes to the future's value."""
    future: JobFuture[Any] = field(default_factory=JobFuture)
    worker: PooledWorker | None = None
    """That makes it, or has been submitted for it."""
    began: float = 0.0


@dataclass(eq=False)
class PooledWorker:
    """A worker: its file, its job, and the call that it was submitted for, or makes now."""

    path: Path
    call: PooledCall | None
    job: JobFuture[EndedJob] = field(default_factory=JobFuture)
    connection: bytes = b""
    since: float = 0.0
    idle_since: float = 0.0
    is_leaving: bool = False

    def accepted(self, job: str) -> None:
        if self.call is not None and self.call.worker is self:
            self.call.future.accept(job)


class CallWorkers:
    """Has calls made by jobs with the same fields, by `most` workers at a time."""

    def __init__(
        self, traffic: DaemonConnection, folder: Path, script: str, fields: JobOptions, most: int
    ) -> None:
        self._traffic, self._folder, self._script = traffic, folder, script
        self._fields, self._most = fields, most
        limit = fields.get("time_limit")
        self._turn_s = TURN_S if limit is None else min(TURN_S, limit)
        is_warm = fields.get("procs", 1) == 1 and not ALONE & fields.keys() and is_supported()
        self._goes_by_files = not is_warm
        self._waiting: deque[PooledCall] = deque()
        self._workers: dict[str, PooledWorker] = {}
        self._serving: dict[bytes, PooledWorker] = {}
        self._idle: list[PooledWorker] = []
        self._seconds: dict[str, float] = {}
        self._numbers = 0
        self._closing = self._dealing = self._is_open = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="coalloc-workers", daemon=True)

    def make(self, call: PooledCall) -> None:
        if self._goes_by_files:
            self._by_file(call)
            return
        with self._lock:
            if not self._thread.ident:
                self._loop = asyncio.new_event_loop()
                self._thread.start()
        call.future.withdraw = partial(self._post, self._withdraw, call)
        self._post(self._add, call)

    def carry(
        self, body: dict[str, Any], future: JobFuture[Any], result: Callable[[EndedJob], Any]
    ) -> None:
        """Have a job submitted, and its end made the future's value."""
        call = Call(body=body, future=future, result=result)
        future.withdraw = partial(self._traffic.withdraw, call)
        self._traffic.submit(call)

    def stop(self, *, join: bool) -> None:
        """End workers and connection when everything has ended."""
        if self._thread.ident:
            self._post(self._close)
            if join:
                self._thread.join()
        if join or not self._thread.ident:
            self._traffic.stop(join=join)

    def _post(self, act: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # it is over, and so is every call
            self._loop.call_soon_threadsafe(act, *arguments)

    # In the thread

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self._broken(context))
        try:
            self._loop.run_until_complete(self._open())
        except Exception as error:
            self._change_to_files(f"no socket for workers: {error}")
        self._is_open = True
        self._tick()
        self._loop.run_forever()
        self._is_open = False
        self._loop.run_until_complete(self._socket.close())
        self._loop.close()
        (self._folder / KEYS).unlink(missing_ok=True)
        self._traffic.stop(join=False)

    async def _open(self) -> None:
        self._socket = WorkerSocket(self._heard)
        keys = {
            "hosts": own_hosts(),
            "port": self._socket.open(),
            "server": self._socket.pair.public,
            "public": self._socket.workers_pair.public,
            "secret": self._socket.workers_pair.secret,
        }
        path = self._folder / KEYS
        path.touch(0o600)
        path.write_text(json.dumps(keys), encoding="utf-8")

    def _broken(self, context: dict[str, Any]) -> None:
        """A defect must not leave futures that never end."""
        error = context.get("exception") or RuntimeError(context["message"])
        for call in (*self._waiting, *(worker.call for worker in self._workers.values())):
            if call is not None:
                call.future.fail(error)

    def _add(self, call: PooledCall) -> None:
        if self._goes_by_files:
            self._by_file(call)
            return
        self._waiting.append(call)
        if not self._dealing:
            self._dealing = True
            self._loop.call_soon(self._deal)

    def _deal(self) -> None:
        """Give out calls, and submit workers for the seconds of those that are left."""
        self._dealing = False
        while self._idle and self._waiting:
            self._give(self._idle.pop())
        staying = sum(not worker.is_leaving for worker in self._workers.values())
        coming = [worker for worker in self._workers.values() if not worker.connection]
        looked = islice(self._waiting, max(FIRST, len(self._serving)))
        needed = ceil(sum(min(1.0, c.calls * self._seconds.get(c.name, 1.0)) for c in looked))
        more = max(0, min(needed - len(coming), self._most - staying))
        alone = (call for call in self._waiting if call.worker is None and not call.future.done())
        for call in list(islice(alone, more)):
            self._submit(call, ceil(len(self._waiting) / (staying + more)))
        for worker in coming[needed:]:
            worker.job.cancel()

    def _submit(self, call: PooledCall, calls: int) -> None:
        """Submit a worker for so many calls; each has the whole time limit from its begin on."""
        self._numbers += 1
        worker = call.worker = PooledWorker(self._folder / f"worker-{self._numbers}", call)
        self._workers[worker.path.name] = worker
        worker.job.accepted = worker.accepted
        worker.job.add_done_callback(lambda _: self._post(self._ending, worker))
        own: dict[str, Any] = {}
        if base_time := self._fields.get("base_time"):
            own["base_time"] = max(base_time, min(self._turn_s, base_time * calls))
        if limit := self._fields.get("time_limit"):
            own["time_limit"] = limit + self._turn_s
        self.carry(self._body(call.name, worker.path, **own), worker.job, lambda ending: ending)

    def _by_file(self, call: PooledCall) -> None:
        """Make it a job of its own."""
        if not call.future.done():
            path = call.output.with_suffix(".json")
            path.write_text(call.text, encoding="utf-8")
            result = partial(returned, path=path, output=call.output, value=call.value)
            self.carry(self._body(call.name, path), call.future, result)

    def _body(self, name: str, file: Path, **own: Any) -> dict[str, Any]:
        options: JobOptions = {"name": name, **self._fields, **own}  # type: ignore[typeddict-item]
        options["script"], options["stdout"] = self._script, pattern(file.with_suffix(".out"))
        return submission([name, str(file)], **options)

    def _give(self, worker: PooledWorker) -> None:
        """Have an idle worker make the next call, if there is one."""
        worker.call, worker.idle_since = None, self._loop.time()
        if worker.is_leaving or worker.idle_since - worker.since > self._turn_s:
            self._dismiss(worker)
            return
        while self._waiting:
            call = self._waiting.popleft()
            call.future.begin()
            if not call.future.done():
                what = {"type": "call", "text": call.text, "output": str(call.output)}
                if self._socket.send(worker.connection, what):
                    worker.call, call.worker, call.began = call, worker, worker.idle_since
                    call.future.accept(worker.job.job)
                else:  # it has gone
                    worker.is_leaving = True
                    self._waiting.appendleft(call)
                return
        self._idle.append(worker)

    def _withdraw(self, call: PooledCall) -> None:
        worker = call.worker
        if worker is not None and worker.call is call:
            worker.job.end() if worker.connection else worker.job.cancel()

    def _heard(self, connection: bytes, message: dict[str, Any]) -> None:
        if message["type"] == "hello" and message["worker"] in self._workers:
            worker = self._serving[connection] = self._workers[message["worker"]]
            worker.connection, worker.job.job = connection, message["job"]
            worker.since = self._loop.time()
            self._give(worker)
            self._deal()
        elif connection in self._serving:
            worker = self._serving[connection]
            self._done(worker, message)
            self._give(worker)
        else:  # its job was taken back as it started
            self._socket.send(connection, {"type": "end"})

    def _done(self, worker: PooledWorker, message: dict[str, Any]) -> None:
        call, job = worker.call, worker.job.job
        if call is None:
            return
        seconds = (self._loop.time() - call.began) / call.calls
        before = self._seconds.get(call.name, seconds)
        self._seconds[call.name] = before + (seconds - before) / 4
        try:
            if "exit_code" in message:
                code = message["exit_code"]
                state, why = "failed" if code else "completed", "the function ended its process"
                raise JobFailedError(job, state, code, why, call.output)
            value = call.value(placed(outcomes_in(message["outcomes"]), job, call.output))
        except Exception as error:
            call.future.fail(error)
        else:
            call.future.set_result(value)

    def _tick(self) -> None:
        self._loop.call_later(TICK_S, self._tick)
        self._look()

    def _look(self) -> None:
        """End workers that are idle; take back those that are not needed."""
        now = self._loop.time()
        for worker in list(self._idle):
            if self._closing or now - worker.idle_since > IDLE_S:
                self._idle.remove(worker)
                self._dismiss(worker)
        self._waiting = deque(call for call in self._waiting if not call.future.done())
        self._deal()
        if self._is_open and self._closing and not self._workers and not self._waiting:
            self._loop.stop()

    def _dismiss(self, worker: PooledWorker) -> None:
        worker.is_leaving = True
        self._socket.send(worker.connection, {"type": "end"})

    def _ending(self, worker: PooledWorker) -> None:
        """A worker's job has ended, but perhaps not everything that it said has arrived."""
        worker.is_leaving = True
        if worker in self._idle:
            self._idle.remove(worker)
        self._loop.call_later(SETTLE_S if worker.call else 0.0, self._ended, worker)

    def _ended(self, worker: PooledWorker) -> None:
        """The call that it was making has failed."""
        del self._workers[worker.path.name]
        self._serving.pop(worker.connection, None)
        output = worker.path.with_suffix(".out")
        call, error = worker.call, _failure(worker.job, output)
        if call is not None and call.worker is worker:
            call.worker = None
            if worker.connection:
                call.future.fail(error)
        if not worker.connection and not worker.job.cancelled():
            self._never_served(worker, error)
        if output.exists() and not output.stat().st_size:
            output.unlink()
        self._look()

    def _never_served(self, worker: PooledWorker, error: Exception) -> None:
        """A worker's job was refused, failed before it served, or could not reach us."""
        if not isinstance(error, JobFailedError):
            if self._workers:
                self._most = len(self._workers)  # no more are taken
            else:
                for call in self._waiting:
                    call.future.fail(error)
        elif error.state != "completed":
            if worker.call is not None and worker.call.worker is None:
                worker.call.future.fail(error)
        elif not self._goes_by_files:
            self._change_to_files(f"job {error.job} cannot reach this process")

    def _change_to_files(self, why: str) -> None:
        log.warning("%s: calls go by files, as a job each", why)
        self._goes_by_files = True
        for call in self._waiting:
            self._by_file(call)
        self._waiting.clear()

    def _close(self) -> None:
        self._closing = True
        self._look()


def _failure(job: JobFuture[EndedJob], output: Path) -> Exception:
    try:
        end = job.result(0.0)
    except CancelledError:
        return JobFailedError(job.job, "cancelled", None, "", output)
    except Exception as error:
        return error
    detail = end.detail or ("without its result" if end.state == "completed" else "")
    return JobFailedError(end.id, end.state, end.exit_code, detail, output)


def own_hosts() -> list[str]:
    """Our name, and the address from which others are reached; nothing is sent."""
    hosts = [socket.gethostname()]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(("192.0.2.1", 9))
        hosts.append(way.getsockname()[0])
    return hosts
