"""Calls of one process go to warm workers: jobs that make one call after the other.

All that is known of calls and workers lives in one thread, which has an event loop. A worker gets
calls ahead for `AHEAD_S` of expected work at most, and no more than its share of those that wait;
what waits behind a call that takes longer is taken back. A worker ends when it has been idle for
`IDLE_S`, or after its turn, so that others' jobs get its slot. Where one cannot reach this process,
calls go by files, as a job each.
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
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from coalloc.client.futures.calls import CallOutcome, outcomes_in
from coalloc.client.futures.future import JobFailedError, JobFuture
from coalloc.client.futures.results import placed
from coalloc.client.futures.serving import KEYS
from coalloc.wire.answers import EndedJob
from coalloc.wire.worker_socket import WorkerSocket

log = logging.getLogger(__name__)

AHEAD_S = 0.25
LEAST_S = 0.0005
"""What a call counts at least, seconds; the most that a worker has follows from it."""
IDLE_S = 2.0
TURN_S = 60.0
"""After which a worker takes no more calls, seconds."""
TICK_S = 1.0
SETTLE_S = 0.2
"""What a worker said arrives before its end is looked at."""
FIRST = 8
"""Workers that wait in the queue at a time, unless more are serving."""
TRIES = 3
"""Workers that may die with a call that has not begun."""


class PooledCall:
    """A call, or a chunk of them; `value` makes the future's value of their outcomes."""

    def __init__(
        self,
        number: int,
        name: str,
        text: str,
        output: Path,
        calls: int,
        value: Callable[[list[CallOutcome]], Any],
    ) -> None:
        self.number, self.name, self.text, self.output = number, name, text, output
        self.calls, self.value = calls, value
        self.future: JobFuture[Any] = JobFuture()
        self.worker: PooledWorker | None = None
        self.cost_s = 0.0
        self.tries = 0

    def accept(self, worker: PooledWorker, job: str) -> None:
        """The daemon has the worker's job."""
        if self.worker is worker:
            self.future.accept(job)

    def failed(self, error: BaseException) -> None:
        """There is no result."""
        self.future.begin()
        if not self.future.done():
            self.future.set_exception(error)


class PooledWorker:
    """A worker's job, the call for which it was submitted, and the calls that it has in order."""

    def __init__(self, record: Path, call: PooledCall) -> None:
        self.record, self.call = record, call
        self.job: JobFuture[EndedJob] = JobFuture()
        self.connection = b""
        self.is_leaving = False
        self.since = self.changed = 0.0
        self.taken: dict[int, PooledCall] = {}
        self.expected_s = 0.0

    def begun(self) -> int:
        """Number of the last call that it has begun."""
        return int(self.record.read_bytes() or b"0")


class WorkerPool:
    """Gives calls to workers, of which there are `most` at a time.

    `submit` submits a worker's job for so many calls of a name, `by_file` a call as a job of its
    own; `over` is called at the end.
    """

    def __init__(
        self,
        folder: Path,
        submit: Callable[[str, Path, JobFuture[EndedJob], int], None],
        by_file: Callable[[PooledCall], None],
        over: Callable[[], None],
        *,
        most: int,
        turn_s: float,
    ) -> None:
        self._folder, self._most, self._turn_s = folder, most, turn_s
        self._submit, self._by_file, self._over = submit, by_file, over
        self._waiting: deque[PooledCall] = deque()
        self._workers: dict[str, PooledWorker] = {}
        self._seconds: dict[str, float] = {}
        self._connected: dict[bytes, PooledWorker] = {}
        self._numbers = 0
        self._goes_by_files = self._closing = self._dealing = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self._broken(context))
        self._thread = threading.Thread(target=self._run, name="coalloc-workers", daemon=True)
        self._thread.start()

    def take(self, call: PooledCall) -> None:
        """Have a call made."""
        call.future.withdraw = partial(self._post, self._withdraw, call)
        self._post(self._add, call)

    def close(self, *, join: bool) -> None:
        """End the workers when they have nothing more to do."""
        self._post(self._close)
        if join:
            self._thread.join()

    def _post(self, act: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is over, and so is every call
            self._loop.call_soon_threadsafe(act, *arguments)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        self._tick()
        self._loop.run_forever()
        self._loop.run_until_complete(self._shut())
        self._loop.close()
        self._over()

    async def _open(self) -> None:
        self._socket = WorkerSocket(self._heard)
        keys = {
            "hosts": _own_hosts(),
            "port": self._socket.open(),
            "server": self._socket.pair.public,
            "public": self._socket.workers_pair.public,
            "secret": self._socket.workers_pair.secret,
        }
        path = self._folder / KEYS
        path.touch(0o600)
        path.write_text(json.dumps(keys), encoding="utf-8")

    async def _shut(self) -> None:
        self._socket.close()
        await asyncio.sleep(0.0)

    def _broken(self, context: dict[str, Any]) -> None:
        """A defect must not leave futures that never end."""
        error = context.get("exception") or RuntimeError(context["message"])
        for calls in (self._waiting, *(w.taken.values() for w in self._workers.values())):
            for call in calls:
                call.failed(error)

    # Calls

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
        for worker in self._connected.values():
            self._fill(worker)
        staying = [worker for worker in self._workers.values() if not worker.is_leaving]
        coming = [worker for worker in staying if not worker.connection]
        most = max(FIRST, len(staying) - len(coming))
        needed = ceil(
            sum(
                min(1.0, call.calls * self._seconds.get(call.name, 1.0))
                for call in islice(self._waiting, most)
            )
        )
        more = max(0, min(needed - len(coming), self._most - len(staying)))
        alone = (call for call in self._waiting if call.worker is None and not call.future.done())
        for call in list(islice(alone, more)):
            self._submit_worker(call, ceil(len(self._waiting) / (len(staying) + more)))
        for worker in coming[needed:]:
            worker.job.cancel()

    def _submit_worker(self, call: PooledCall, calls: int) -> None:
        self._numbers += 1
        record = self._folder / f"worker-{self._numbers}.record"
        record.touch()
        worker = call.worker = self._workers[record.name] = PooledWorker(record, call)
        worker.job.accepted = partial(call.accept, worker)
        worker.job.add_done_callback(lambda _: self._post(self._ending, worker))
        self._submit(call.name, record, worker.job, calls)

    def _fill(self, worker: PooledWorker) -> None:
        """Give a worker what it may have ahead."""
        if worker.is_leaving:
            return
        share = ceil((len(self._waiting) + len(worker.taken)) / len(self._connected))
        while self._waiting and len(worker.taken) < share:
            call = self._waiting[0]
            call.cost_s = call.calls * max(LEAST_S, self._seconds.get(call.name, AHEAD_S))
            is_late = self._loop.time() - worker.changed > AHEAD_S
            if worker.taken and (is_late or worker.expected_s + call.cost_s > AHEAD_S):
                break
            self._waiting.popleft()
            if call.future.done():
                continue
            if not worker.taken:
                worker.changed = self._loop.time()
            worker.taken[call.number] = call
            worker.expected_s += call.cost_s
            call.worker = worker
            call.future.accept(worker.job.job)
            what = {"call": call.number, "text": call.text, "output": str(call.output)}
            self._tell(worker, "call", **what)

    def _withdraw(self, call: PooledCall) -> None:
        worker = call.worker
        if worker is None:
            return
        if call.number not in worker.taken:
            if worker.call is call and not worker.connection:
                worker.job.cancel()
        elif call.future.cancelled():
            self._tell(worker, "take_back", calls=[call.number])
        else:
            worker.job.end()

    # Workers

    def _tell(self, worker: PooledWorker, kind: str, **fields: Any) -> None:
        self._socket.send(worker.connection, {"type": kind, **fields})

    def _heard(self, connection: bytes, message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            self._welcome(connection, message)
        worker = self._connected.get(connection)
        if worker is None:  # its job was taken back as it started
            self._socket.send(connection, {"type": "end"})
            return
        match message["type"]:
            case "begun":
                if message["call"] in worker.taken:
                    worker.taken[message["call"]].future.begin()
            case "result":
                self._done(worker, message)
            case "returned":
                self._returned(worker, message)
        self._fill(worker)

    def _welcome(self, connection: bytes, message: dict[str, Any]) -> None:
        worker = self._workers.get(message["worker"])
        if worker is not None:
            worker.connection, worker.job.job = connection, message["job"]
            worker.since = worker.changed = self._loop.time()
            self._connected[connection] = worker
            self._tell(worker, "alive")
            self._deal()

    def _done(self, worker: PooledWorker, message: dict[str, Any]) -> None:
        call = self._given_back(worker, message["call"])
        if call is None:
            return
        seconds = message["seconds"] / call.calls
        before = self._seconds.get(call.name, seconds)
        self._seconds[call.name] = before + (seconds - before) / 4
        call.future.begin()
        if call.future.done():
            return
        job = worker.job.job
        try:
            if "exit_code" in message:
                code = message["exit_code"]
                state, why = "failed" if code else "completed", "the function ended its process"
                raise JobFailedError(job, state, code, why, call.output)
            outcomes = outcomes_in(message["outcomes"])
            call.future.set_result(call.value(placed(outcomes, job, call.output)))
        except Exception as error:
            call.failed(error)

    def _returned(self, worker: PooledWorker, message: dict[str, Any]) -> None:
        for number in reversed(message["calls"]):
            call = self._given_back(worker, number)
            if call is not None and not call.future.done():
                self._waiting.appendleft(call)
        running = worker.taken.get(message["running"])
        if running is not None and running.future.cancelled():
            worker.job.end()  # it began in the instant in which it was taken back
        self._deal()

    def _given_back(self, worker: PooledWorker, number: int) -> PooledCall | None:
        call = worker.taken.pop(number, None)
        worker.changed = self._loop.time()
        worker.expected_s = worker.expected_s - call.cost_s if call and worker.taken else 0.0
        return call

    def _tick(self) -> None:
        self._loop.call_later(TICK_S, self._tick)
        self._look()

    def _look(self) -> None:
        """End workers that are idle or had their turn; take back what a long call keeps waiting."""
        now = self._loop.time()
        for worker in self._connected.values():
            self._tell(worker, "alive")
            still = now - worker.changed
            worker.is_leaving |= now - worker.since > self._turn_s
            if not worker.taken and (worker.is_leaving or still > IDLE_S or self._closing):
                worker.is_leaving = True
                self._tell(worker, "end")
            elif len(worker.taken) > 1 and still > 2 * AHEAD_S:
                self._tell(worker, "take_back", calls=list(worker.taken)[1:])
        self._waiting = deque(call for call in self._waiting if not call.future.done())
        self._deal()
        if self._closing and not self._workers and not self._waiting:
            self._loop.stop()

    def _ending(self, worker: PooledWorker) -> None:
        """A worker's job has ended, but perhaps not everything that it said has arrived."""
        self._loop.call_later(SETTLE_S if worker.taken else 0.0, self._ended, worker)

    def _ended(self, worker: PooledWorker) -> None:
        """Its calls that had begun have failed; others wait again."""
        del self._workers[worker.record.name]
        self._connected.pop(worker.connection, None)
        if worker.call.worker is worker:
            worker.call.worker = None
        output = worker.record.with_suffix(".out")
        error, is_sure = _failure(worker.job, output)
        taken = list(worker.taken)
        begun = worker.begun()
        first = taken.index(begun) + 1 if begun in worker.taken else 0
        for place, call in reversed(list(enumerate(worker.taken.values()))):
            call.worker, call.tries = None, call.tries + 1
            if place < first or not is_sure or call.tries > TRIES:
                call.failed(error)
            else:
                self._waiting.appendleft(call)
        if not worker.connection and not worker.job.cancelled():
            self._never_served(worker, error)
        worker.record.unlink()
        if output.exists() and not output.stat().st_size:
            output.unlink()
        self._look()

    def _never_served(self, worker: PooledWorker, error: Exception) -> None:
        """A worker's job was refused, failed before it served, or could not reach us."""
        if isinstance(error, JobFailedError) and error.state == "completed":
            if not self._goes_by_files:
                log.warning("job %s cannot reach this process: calls go by files", error.job)
            self._goes_by_files = True
            left, self._waiting = self._waiting, deque()
            for call in left:
                self._by_file(call)
            return
        if not isinstance(error, JobFailedError) and self._workers:
            self._most = len(self._workers)  # no more are taken
            return
        calls = [worker.call] if isinstance(error, JobFailedError) else list(self._waiting)
        for call in calls:
            if call.worker is None and call in self._waiting:
                call.failed(error)

    def _close(self) -> None:
        self._closing = True
        self._look()


def _failure(job: JobFuture[EndedJob], output: Path) -> tuple[Exception, bool]:
    """What a worker's calls have failed by, and whether its record tells which had begun."""
    try:
        end = job.result(0.0)
    except CancelledError:
        return JobFailedError(job.job, "cancelled", None, "", output), True
    except Exception as error:
        return error, False
    detail = end.detail or ("without its result" if end.state == "completed" else "")
    return JobFailedError(end.id, end.state, end.exit_code, detail, output), end.state != "lost"


def _own_hosts() -> list[str]:
    """Our name, and the address from which others are reached; nothing is sent."""
    hosts = [socket.gethostname()]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(("192.0.2.1", 9))
        hosts.append(way.getsockname()[0])
    return hosts
