"""The futures of `coalloc.Executor`: jobs that have not ended, and how they ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from coalloc.wire.answers import EndedJob

T = TypeVar("T")


class JobFailedError(Exception):
    """A job gave no result.

    Its `state` is ``failed``, ``cancelled``, ``timeout``, ``lost`` or ``completed`` (without its
    result), `detail` the daemon's reason; what it printed is in `output`, if that is known.
    """

    def __init__(
        self, job: str, state: str, exit_code: int | None, detail: str, output: Path | None = None
    ) -> None:
        code = f", exit code {exit_code}" if exit_code else ""
        why = f": {detail}" if detail and detail != f"exit code {exit_code}" else ""
        where = f" (its output: {output})" if output is not None else ""
        super().__init__(f"job {job} {state}{code}{why}{where}")
        self.job, self.state, self.exit_code = job, state, exit_code
        self.detail, self.output = detail, output


class Finished(Struct, frozen=True, kw_only=True):
    """A command that ran as a job, and ended by itself."""

    job: str
    exit_code: int
    """The highest of its processes'."""
    output: str
    """The file with what they printed."""
    detail: str = ""

    def text(self) -> str:
        return Path(self.output).read_text(encoding="utf-8", errors="replace")


class JobFuture(Future[T]):
    """The result of a job to come; as `concurrent.futures.Future`, and more.

    `cancel` takes a job back that has not started, as far as is known here; one that starts at the
    same instant is ended. `end` ends it wherever it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.job = ""
        """Its number; empty until the daemon has it."""
        self.withdraw: Callable[[], None] = lambda: None
        """Has the daemon end the job."""
        self.accepted: Callable[[str], None] = lambda _: None
        """Is told the number when the daemon has it."""
        self._changing = threading.RLock()
        self._known = threading.Event()
        self.add_done_callback(lambda _: self._known.set())

    def cancel(self) -> bool:
        """Take the job back if it has not started; False where it has, or has ended."""
        with self._changing:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            # Those who wait for several futures hear of it only by this.
            self.set_running_or_notify_cancel()
        self.withdraw()
        return True

    def queued(self, timeout: float | None = None) -> str:
        """Wait until the daemon has the job; returns its number, empty where it never got it.

        TimeoutError: not within `timeout` seconds.
        """
        if not self._known.wait(timeout):
            raise TimeoutError(f"not queued within {timeout:g} s")
        return self.job

    def accept(self, job: str) -> None:
        """The daemon has it, under this number."""
        self.job = job
        self._known.set()
        self.accepted(job)

    def begin(self) -> None:
        """Its processes run: from now on it cannot be cancelled."""
        with self._changing:
            if not self.running() and not self.done():
                self.set_running_or_notify_cancel()

    def fail(self, error: BaseException) -> None:
        """There is no result: it never became a job, or nothing more is known of it."""
        self.begin()
        if not self.done():
            self.set_exception(error)

    def end(self) -> None:
        """End the job even if it runs; its result is then a `JobFailedError`."""
        if not self.cancel() and not self.done():
            self.withdraw()


@dataclass(eq=False, kw_only=True)
class Call:
    """A job on its way: what is sent, and what its end is made into."""

    body: Mapping[str, Any]
    """From `coalloc.client.submission.submission`; its token makes every resend the same job."""
    future: JobFuture[Any]
    result: Callable[[EndedJob], Any]
    """From how the job ended to the future's value; raises what the future is to raise."""
    sent: bool = False
    """The daemon may know it."""
    withdrawn: bool = False
    """Nobody wants it any more."""

    def ended(self, ending: EndedJob) -> None:
        self.future.begin()
        if self.future.done():
            return
        try:
            value = self.result(ending)
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(value)
