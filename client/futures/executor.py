"""`coalloc.Executor`: functions and commands as jobs, with futures.

>>> from coalloc import Executor
>>> with Executor(base_time=60.0) as executor:  # doctest: +SKIP
...     sizes = list(executor.map(measure, paths, chunksize=10))

What travels is described in `coalloc.client.futures.calls`, who carries calls in
`coalloc.client.futures.workers`, and jobs in `coalloc.client.futures.connection`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack

from coalloc.client.client import Client
from coalloc.client.futures.calls import CallError, CallOutcome, NotCallableThereError, calls_text
from coalloc.client.futures.connection import DaemonConnection
from coalloc.client.futures.future import Finished, JobFailedError, JobFuture
from coalloc.client.futures.results import finished, in_order, only, pattern
from coalloc.client.futures.workers import CallWorkers, PooledCall
from coalloc.client.main_guard import refuse_while_importing
from coalloc.client.submission import JobOptions, submission

P = ParamSpec("P")
T = TypeVar("T")

SCRIPT = """#!/bin/sh
exec {python} -m coalloc.client.futures.call_runner "$@"
"""
OWN = frozenset({"array", "script", "hold", "hold_infeasible", "token", "stdout", "stderr"})
"""Options of jobs that the executor sets, or that have no meaning here."""


class Executor(futures.Executor):
    """Runs functions and commands as jobs of the clusters; a `concurrent.futures.Executor`.

    A function is named, not sent: the jobs import its module, or read the script that is run, with
    the same Python and modules, and arguments and results are JSON. It has to stand at the top of a
    module, and both have to be there on every node. Calls of one process share workers. Where a job
    has several processes, each calls the function, and the result is that of rank 0.

    Leaving the ``with`` block waits for all jobs; leaving it by an exception ends them.

    Parameters
    ----------
    client : callable
        Makes a client; default `coalloc.Client`. Called once for each of two threads.
    folder : path
        Where calls, results and output are kept; default ``.coalloc`` here. What jobs that
        failed have printed stays there, the rest is removed.
    python : str
        The nodes' Python; default: this one's path.
    patience_s : float
        How long the daemon may be away before the futures give up, seconds.
    workers : int
        The most workers at a time.
    **fields
        Of every job: see `coalloc.client.submission.JobOptions`, such as ``procs``,
        ``base_time`` and ``time_limit`` (seconds), ``clusters``, ``memory_mb_per_proc``.

    Raises
    ------
    NoAnswerError
        There is no daemon.
    TypeError
        For a field that no job has, or that is not to be set here.
    RuntimeError
        It is made while a job imports the script: its place is under
        ``if __name__ == "__main__":``.
    """

    Failed = JobFailedError
    CallFailed = CallError
    NotCallable = NotCallableThereError

    def __init__(
        self,
        *,
        client: Callable[[], Client] = Client,
        folder: str | os.PathLike[str] = ".coalloc",
        python: str = sys.executable,
        patience_s: float = 300.0,
        workers: int = sys.maxsize,
        **fields: Unpack[JobOptions],
    ) -> None:
        refuse_while_importing("Executor")
        self._fields: JobOptions = fields
        _checked_fields(fields)
        self._traffic = DaemonConnection(client, patience_s)
        self._living: dict[futures.Future[Any], JobFuture[Any]] = {}
        self._lock = threading.Lock()
        self._closed = False
        base = Path(folder).absolute()
        base.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="executor-", dir=base))
        self._last = 0
        script = SCRIPT.format(python=shlex.quote(python))
        self._workers = CallWorkers(self._traffic, self.folder, script, fields, workers)
        weakref.finalize(self, self._workers.stop, join=False).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Call a function in a job.

        The future raises what the function raised, where it is a built-in exception, or a
        `CallError` that names it; or a `JobFailedError` that says what became of the job.
        `NotCallableThereError`: a job would not find the function, or an argument is not JSON.
        """
        return self._call(fn, [(args, kwargs)], only)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Call a function for each item, `chunksize` of them in a job; the results come in order.

        What a call raised is raised at that call's place, and TimeoutError where results are not
        there `timeout` seconds from now.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1")
        end = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables, strict=False)
        chunks = [
            self._call(fn, [(item, {}) for item in chunk], list)
            for chunk in iter(lambda: list(islice(items, chunksize)), [])
        ]
        return in_order(chunks, end)

    def run(self, argv: Sequence[str], **fields: Unpack[JobOptions]) -> JobFuture[Finished]:
        """Run a command in a job; what it returns when it ends by itself is a `Finished`.

        The fields of this job stand over those of the executor; also ``stdout``, ``stderr`` and
        ``script``.
        """
        _checked_fields(fields, allowed=frozenset({"stdout", "stderr", "script"}))
        output = self.folder / f"run-{self._number()}.out"
        options: JobOptions = {**self._fields, **fields}
        options.setdefault("stdout", pattern(output))
        where = Path(options.get("cwd") or "", options["stdout"]).absolute()
        body = submission(argv, **options)
        future: JobFuture[Finished] = JobFuture()
        self._remember(future)
        self._workers.carry(body, future, partial(finished, output=str(where)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more; with `wait`, until all jobs have ended.

        With `cancel_futures` the jobs that have not started are taken back.
        """
        if not self._traffic.is_ours:
            return
        with self._lock:
            self._closed = True
            living = list(self._living.values())
        for future in living if cancel_futures else ():
            future.cancel()
        self._workers.stop(join=wait)
        with self._lock:
            idle = not self._living
        # Files that somebody may want to read stay.
        if idle and not any(path.stat().st_size for path in self.folder.glob("*.out")):
            shutil.rmtree(self.folder, ignore_errors=True)

    def end_all(self) -> None:
        """End every job, running or not."""
        with self._lock:
            living = list(self._living.values())
        for future in living:
            future.end()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end_all()
        self.shutdown(wait=True)

    def _call(
        self,
        function: Callable[..., Any],
        calls: Sequence[tuple[Sequence[Any], Any]],
        value: Callable[[list[CallOutcome]], Any],
    ) -> JobFuture[Any]:
        name, text = calls_text(function, calls)
        number = self._number()
        output = self.folder / f"call-{number}.out"
        call = PooledCall(name=name, text=text, calls=len(calls), output=output, value=value)
        self._remember(call.future)
        self._workers.make(call)
        return call.future

    def _remember(self, future: JobFuture[Any]) -> None:
        with self._lock:
            self._living[future] = future
        future.add_done_callback(self._forget)

    def _forget(self, future: futures.Future[Any]) -> None:
        with self._lock:
            self._living.pop(future, None)

    def _number(self) -> int:
        """A number for the next job's files; none after `shutdown`, nor in the child of a fork."""
        if not self._traffic.is_ours:
            raise RuntimeError("this executor was made in another process; make one in this one")
        with self._lock:
            if self._closed:
                raise RuntimeError("this executor takes no more jobs: it was shut down")
            self._last += 1
            return self._last


def _checked_fields(fields: JobOptions, allowed: frozenset[str] = frozenset()) -> None:
    """Refuse what is not a job's, at once."""
    for key in fields:
        if key in OWN - allowed:
            raise TypeError(f"{key}: is not to be set for jobs of an executor")
    submission(["true"], **fields)
