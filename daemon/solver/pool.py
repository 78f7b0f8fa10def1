"""Solving outside the daemon: requests to warm, killable processes, and their answers.

`coalloc.daemon.solver.worker` is the other side. Nothing here imports numba, and whatever a
solver does, a call ends within its deadline and `GRACE_S`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from coalloc.daemon.solver.frames import (
    PLAN,
    SNAPSHOT,
    FrameError,
    Request,
    SolverRequest,
    cut_short,
    frame,
    lines,
)
from coalloc.model.values import replace
from coalloc.runtime.logs import get_logger

GRACE_S = 0.2
"""Between the end of the time limit, when a policy should stop, and the kill, seconds."""
STOP_S = 2.0
RESTART_FIRST_S = 0.5
RESTART_MAX_S = 60.0
STEADY_S = 60.0
"""A template that lived this long starts again without a growing delay, seconds."""
KEPT_CODES = 200
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PRIVATE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")

log = get_logger()


class SolveOutcome(Struct, frozen=True, kw_only=True):
    """The end of a solve."""

    status: Literal["done", "killed", "crashed", "error"]
    """``done``: the policy returned. ``killed``: it did not return in time. ``crashed``: its
    process died or sent garbage, or there is none. ``error``: the policy raised."""
    plan: bytes | None
    """The policy's plan, or the last incumbent, which then has the status ``time_limit``. Of an
    ``error`` there is none. Unless asked for, it is not checked."""
    message: str
    """One line; empty when done."""
    elapsed_s: float
    parts: tuple[bytes, ...] = ()
    """Of a long plan, what ``plan`` does not have, see `coalloc.daemon.solver.sent.parted`."""
    jobs: tuple[str, ...] = ()
    """Those that the plan is wrong about; empty where it is not that."""


class SolverDownError(Exception):
    """No solver process can take a request now."""


class _News(msgspec.Struct, frozen=True):
    """A line of the template."""

    event: str
    seconds: float = 0.0
    done: int = 0
    steps: int = 0
    failures: list[str] = []
    pid: int = 0
    code: int = 0
    message: str = ""


class SolverPool:
    """Solver processes; `spares` are ready: one to solve and one to check an incumbent.

    `cache_dir` is made where it does not exist, `nice` is added to our niceness, `memory_mb` of
    address space (MiB) is for each, 0 unlimited; `arguments` are further ones of the worker module.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        cache_dir: Path | None = None,
        nice: int = 0,
        memory_mb: int = 0,
        spares: int = 2,
        arguments: Sequence[str] = (),
    ) -> None:
        self._command = [python, "-m", "coalloc.daemon.solver.worker"]
        self._command += [f"--spares={spares}", f"--nice={nice}", f"--memory-mb={memory_mb}"]
        self._command += arguments
        self._cache_dir = cache_dir
        self._control: socket.socket | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._warm = asyncio.Event()
        self._progress = {"done": 0, "steps": 0}
        self._codes: dict[int, int] = {}
        self._news = asyncio.Condition()
        self.outcomes: Counter[str] = Counter()
        """Requests by how they ended."""

    @property
    def is_warm(self) -> bool:
        """A solve would begin at once."""
        return self._warm.is_set()

    def progress(self) -> dict[str, int]:
        """Return how many steps of warming up are done, and how many there are."""
        return dict(self._progress)

    async def wait_warm(self, timeout_s: float) -> bool:
        """Wait until it is warm; False if that took too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._warm.wait()
        return self.is_warm

    async def start(self) -> None:
        """Begin to warm up; returns at once."""
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        if self._supervisor is not None:
            supervisor, self._supervisor = self._supervisor, None
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)

    async def solve(
        self,
        snapshot: bytes,
        request: Request,
        *,
        deadline_s: float,
        on_incumbent: Callable[[bytes], None] | None = None,
    ) -> SolveOutcome:
        """Plan a ``coalloc-snapshot/1``; never raises, and ends within `deadline_s` and a little.

        After so many seconds the policy is told to stop, and killed 0.2 s later; the request's
        times are set here. `on_incumbent` receives better plans, ``coalloc-plan/1``, as they are
        found: the first at once, later ones so that sending them takes little of the search's time;
        of long ones what starts first.
        """
        talk = SolverRequest(on_incumbent)
        parts = (frame(SNAPSHOT, snapshot),)
        outcome = await self._ask(talk, request, parts, deadline_s=deadline_s, grace_s=GRACE_S)
        if outcome.status in ("killed", "crashed") and talk.incumbent is not None:
            return replace(outcome, plan=cut_short(talk.incumbent))
        return outcome

    async def explain(
        self, snapshot: bytes, rule: bytes, job: str, *, deadline_s: float, grace_s: float
    ) -> SolveOutcome:
        """Explain a waiting job, see `coalloc.daemon.solver.answer`; its ``plan`` is the answer.

        No further change is tried after `deadline_s`, and it is killed `grace_s` later.
        """
        parts = (frame(SNAPSHOT, snapshot), frame(PLAN, rule))
        request = Request(explain=job)
        return await self._ask(
            SolverRequest(), request, parts, deadline_s=deadline_s, grace_s=grace_s
        )

    async def _ask(
        self,
        talk: SolverRequest,
        request: Request,
        parts: Sequence[bytes],
        *,
        deadline_s: float,
        grace_s: float,
    ) -> SolveOutcome:
        """Put a request to a process in time, and count how it ended."""
        began = time.monotonic()
        soft = began + deadline_s
        timed = msgspec.structs.replace(request, soft_at=soft, hard_at=soft + grace_s)
        status, message, body = await self._answer(talk, timed, parts)
        self.outcomes[status] += 1
        return SolveOutcome(
            status=status,
            plan=body,
            message=message,
            elapsed_s=time.monotonic() - began,
            parts=talk.parts,
            jobs=talk.jobs,
        )

    async def _answer(
        self, talk: SolverRequest, request: Request, parts: Sequence[bytes]
    ) -> tuple[Literal["done", "killed", "crashed", "error"], str, bytes | None]:
        """The answer of a process, or how it failed to give one: status, message, body."""
        try:
            async with asyncio.timeout_at(request.hard_at):
                stream = self._hand_over()
                try:
                    await talk.open(stream)
                    return await talk.run(request, parts)
                finally:
                    talk.close()
        except TimeoutError:
            why = "was killed at its time limit" if talk.pid else "did not begin in time"
            return "killed", f"the solver process {why}", None
        except FrameError as error:
            return "crashed", f"the solver process sent garbage: {error}", None
        except SolverDownError as error:
            return "crashed", str(error), None
        except (OSError, EOFError):
            how = await self._exit_text(talk.pid)
            return "crashed", f"the solver process died{how}", None

    def _hand_over(self) -> socket.socket:
        """Give one end of a new stream to whichever process waits; returns the other."""
        if self._control is None:
            raise SolverDownError("there is no solver process; it is being started again")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"r"], [theirs.fileno()])
        except BlockingIOError:
            ours.close()
            raise SolverDownError("too many requests wait for a solver process") from None
        except OSError as error:
            ours.close()
            raise SolverDownError(f"the solver process is gone: {error}") from error
        ours.setblocking(False)
        return ours

    async def _exit_text(self, pid: int) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0), self._news:
                await self._news.wait_for(lambda: pid in self._codes)
        code = self._codes.get(pid)
        if code is None:
            return ""
        return f" of signal {-code}" if code < 0 else f" with exit code {code}"

    async def _supervise(self) -> None:
        delay = RESTART_FIRST_S
        while True:
            began = time.monotonic()
            try:
                code = await self._run_template()
                why = f"ended with code {code}"
            except OSError as error:
                why = f"cannot be started: {error}"
            except Exception as error:
                log.exception("solver_failed")
                why = f"{type(error).__name__}: {error}"
            if time.monotonic() - began > STEADY_S:
                delay = RESTART_FIRST_S
            log.error("solver_ended", why=why, restart_in_s=delay)
            await asyncio.sleep(delay)
            delay = min(2.0 * delay, RESTART_MAX_S)

    async def _run_template(self) -> int:
        """Start a template and listen to it until it ends; returns its exit code."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    f"--control={theirs.fileno()}",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=self._environ(),
                )
            assert process.stdout is not None
            assert process.stderr is not None
            self._control = ours
            said = asyncio.create_task(self._log(process.stderr))
            try:
                async for line in lines(process.stdout):
                    await self._told(line)
                return await process.wait()
            finally:
                patience = STOP_S if self.is_warm else 0.0  # It hears nothing while it compiles.
                self._control = None
                self._warm.clear()
                await _end(process, patience)
                said.cancel()

    async def _told(self, line: str) -> None:
        try:
            news = msgspec.json.decode(line, type=_News)
        except msgspec.DecodeError:
            log.warning("solver_line_ignored", line=line)
            return
        match news.event:
            case "warming":
                self._progress = {"done": news.done, "steps": news.steps}
            case "warm":
                log.info("solver_warmed", seconds=news.seconds)
                for failure in news.failures:
                    log.error("solver_policy_failed", failure=failure)
                self._warm.set()
            case "ended":
                async with self._news:
                    self._codes.pop(news.pid, None)
                    self._codes[news.pid] = news.code
                    while len(self._codes) > KEPT_CODES:
                        del self._codes[next(iter(self._codes))]
                    self._news.notify_all()
            case _:
                log.warning("solver_told", message=news.message)

    async def _log(self, stream: asyncio.StreamReader) -> None:
        async for line in lines(stream):
            log.debug("solver_printed", line=line)

    def _environ(self) -> dict[str, str]:
        environ = {key: value for key, value in os.environ.items() if key not in PRIVATE}
        environ |= dict.fromkeys(ONE_THREAD, "1")
        if self._cache_dir is not None:
            with suppress(OSError):  # without a cache it compiles at each start
                self._cache_dir.mkdir(parents=True, exist_ok=True)
            if not os.access(self._cache_dir, os.W_OK):
                log.warning("cache_unwritable", folder=str(self._cache_dir))
            environ["NUMBA_CACHE_DIR"] = str(self._cache_dir)
        return environ


async def _end(process: asyncio.subprocess.Process, patience: float) -> None:
    """End a template: by its life line, and if that does not help in time, by force."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        # Not `wait_for`: in Python 3.11 it swallows a cancellation that meets the end.
        async with asyncio.timeout(patience):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
