"""The processes that plan: a template that compiled everything once, and its forks.

``python -m coalloc.daemon.solver.worker`` is started by `coalloc.daemon.solver.pool`. It imports
the policies, runs them on a tiny snapshot until all kernels are compiled, then keeps some forks
ready. A fork waits on a socket that all share; whoever takes a request from it answers that one on
the stream that came with it, and ends. So a solver never inherits anything from an earlier one, and
may be killed at any time together with what it has started: it leads a process group.

Notes
-----
Standard input is the life line: its end ends everything. Standard output tells the daemon what
happens, one JSON object a line; what policies print goes to standard error.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import resource
import runpy
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from coalloc.daemon.solver.answer import answer, failure
from coalloc.daemon.solver.frames import FAILED, frame
from coalloc.daemon.solver.warming import warm
from coalloc.policies.base import SolveFunction
from coalloc.runtime.systemd import keep_place

PR_SET_PDEATHSIG = 1
MAX_FAILED_SPARES = 5
OOM_SCORE = "500"
"""Where memory runs out, the kernel takes a solver rather than the daemon."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the template until its life line ends."""
    parser = argparse.ArgumentParser(
        prog="coalloc-solver", description="started by coallocd", allow_abbrev=False
    )
    parser.add_argument("--control", type=int, required=True, help="socket with the requests")
    parser.add_argument("--spares", type=int, default=2)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--memory-mb", type=int, default=0, help="address space; 0: unlimited")
    parser.add_argument("--policies", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A daemon that is killed takes us with it: while we compile we do not see our life line
    # end, and daemons killed one after the other would leave a crowd of compilers behind.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([0], [], [], 0)[0]:
        return 1  # it has gone already
    with suppress(OSError):
        os.nice(given.nice)
    keep_place()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write(OOM_SCORE)
    # What policies print while they are compiled must not look like our reports.
    report = os.dup(1)
    os.dup2(2, 1)
    began = time.monotonic()
    extra = runpy.run_path(given.policies)["SOLVERS"] if given.policies else {}

    def progress(done: int, steps: int) -> None:
        tell(report, event="warming", done=done, steps=steps)

    failures = [] if extra else warm(progress)
    tell(report, event="warm", seconds=round(time.monotonic() - began, 3), failures=failures)
    gc.collect()
    gc.freeze()  # what is here now is never collected, so its pages stay shared
    control = socket.socket(fileno=given.control)
    return SolverForkServer(control, report, given.spares, given.memory_mb, extra).run()


def tell(report: int, **fields: Any) -> None:
    """Report to the daemon; where nobody listens any more, nobody misses it."""
    with suppress(OSError):
        os.write(report, msgspec.json.encode(fields) + b"\n")


class SolverForkServer:
    """Keeps forks ready and cleans up after them."""

    def __init__(
        self,
        control: socket.socket,
        report: int,
        spares: int,
        memory_mb: int,
        extra: Mapping[str, SolveFunction],
    ) -> None:
        self.control, self.report = control, report
        self.wanted, self.memory_mb, self.extra = spares, memory_mb, extra
        self.spares: set[int] = set()
        self.busy: set[int] = set()
        self.failed = 0
        self.taken, self.taking = os.pipe()
        self.ended, ending = os.pipe()
        os.set_blocking(ending, False)
        signal.set_wakeup_fd(ending, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, at: None)

    def run(self) -> int:
        selector = selectors.DefaultSelector()
        for source in (0, self.taken, self.ended):
            selector.register(source, selectors.EVENT_READ)
        code = 0
        while not code:
            while len(self.spares) < self.wanted:
                self.spares.add(self._fork())
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready and not os.read(0, 4096):
                break
            if self.taken in ready:
                self._note_taken()
            if self.ended in ready:
                os.read(self.ended, 4096)
                self._reap()
            if self.failed >= MAX_FAILED_SPARES:
                tell(
                    self.report,
                    event="failed",
                    message=f"{self.failed} processes in a row died idle",
                )
                code = 1
        for pid in self.spares | self.busy:
            kill_group(pid)
        return code

    def _note_taken(self) -> None:
        for text in os.read(self.taken, 4096).split():
            pid = int(text)
            if pid in self.spares:
                self.spares.discard(pid)
                self.busy.add(pid)
            self.failed = 0

    def _reap(self) -> None:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while self.spares or self.busy:
            found = os.waitid(os.P_ALL, 0, options)
            if found is None:
                return
            # While the dead leader is not reaped, its number cannot name another group.
            kill_group(found.si_pid)
            _, status = os.waitpid(found.si_pid, 0)
            if found.si_pid in self.spares:
                self.spares.discard(found.si_pid)
                self.failed += 1
            self.busy.discard(found.si_pid)
            tell(
                self.report, event="ended", pid=found.si_pid, code=os.waitstatus_to_exitcode(status)
            )

    def _fork(self) -> int:
        template = os.getpid()
        pid = os.fork()
        if pid:
            with suppress(OSError):  # both sides do it: whoever comes first
                os.setpgid(pid, pid)
            return pid
        code = 1
        try:
            self._become_spare(template)
            code = serve(self.control, self.taking, self.extra)
        except BaseException:
            traceback.print_exc()
        finally:
            # none of the template's clean-up is ours
            os._exit(code)

    def _become_spare(self, template: int) -> None:
        with suppress(OSError):
            os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != template:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self.taken, self.ended, self.report):
            os.close(descriptor)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        gc.disable()  # It ends with its answer: half a million new objects, all in use, in a round.
        if self.memory_mb:
            size = self.memory_mb << 20
            resource.setrlimit(resource.RLIMIT_AS, (size, size))


def kill_group(pid: int) -> None:
    """Kill a process group, if it still has members."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def serve(control: socket.socket, taking: int, extra: Mapping[str, SolveFunction]) -> int:
    """Wait for one request, answer it, and return the exit code."""
    message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
    if not message or not descriptors:
        return 0  # the daemon is gone
    control.close()
    os.write(taking, b"%d\n" % os.getpid())
    os.close(taking)
    with socket.socket(fileno=descriptors[0]) as stream:
        stream.setblocking(True)
        try:
            answer(stream, extra)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return 0  # nobody waits for the answer any more
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            # one write: lines of several processes share this stream
            sys.stderr.write(traceback.format_exc())
            stream.sendall(frame(FAILED, failure(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
