"""The terminal of a client that follows a job: its output, keys, size and signals."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator

from coalloc.cli.command import note
from coalloc.client.client import Client, RefusedError
from coalloc.client.streams import StreamSession
from coalloc.wire.answers import StreamAnswer

TWICE_S = 2.0
"""A second interrupt within this time ends the job, seconds."""
KEEP_S = 10.0
"""While our own output is not read, the daemon hears of us this often, seconds."""
WAKE_S = 1.0
PIECE = 4096
"""A pipe that can be written to takes so many bytes."""
MOST_INPUT = 64 << 10
END_OF_INPUT = b"\x04"
SEEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)


class Terminal:
    """Carries a job's streams to our output, and with `is_tty` our keys to its terminal."""

    def __init__(self, client: Client, job: str, *, is_tty: bool = False, begin: int = 0) -> None:
        self._client, self._job, self._is_tty = client, job, is_tty
        self.session = StreamSession(client, job, self._write, begin=begin)
        self._signals: list[int] = []
        self._interrupted = float("-inf")
        self._is_sized = False
        self._reads = is_tty
        self._wake = -1

    def follow(self) -> StreamAnswer:
        """Follow the job to its end; the last answer."""
        poller = self.session.connection.poller
        try:
            while True:
                if self._reads and self.session.input_left < MOST_INPUT:
                    poller.register(0, select.POLLIN)
                elif self._is_tty:
                    with contextlib.suppress(KeyError):
                        poller.unregister(0)
                if (end := self.session.step(WAKE_S)) is not None:
                    return end
                self._see_signals()
                if self._reads and select.select([0], [], [], 0.0)[0]:
                    self._read_keys()
                if self._is_tty and not self._is_sized and self.session.state == "running":
                    self._is_sized = True
                    self._tell_size()
        finally:
            self.session.close()

    @contextlib.contextmanager
    def taking_signals(self) -> Iterator[None]:
        """Have signals passed on to the job, and keys as they are typed."""
        self._wake, end = os.pipe()
        for fd in (self._wake, end):
            os.set_blocking(fd, False)
        before = {
            number: signal.signal(number, lambda n, _: self._signals.append(n)) for number in SEEN
        }
        old = signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        self.session.connection.poller.register(self._wake, select.POLLIN)
        try:
            with self._raw() if self._is_tty and os.isatty(0) else contextlib.nullcontext():
                yield
        finally:
            signal.set_wakeup_fd(old)
            for number, how in before.items():
                signal.signal(number, how)
            os.close(end)
            os.close(self._wake)

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        import termios
        import tty

        before = termios.tcgetattr(0)
        tty.setraw(0)
        try:
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def _see_signals(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake, PIECE)
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGWINCH:
                self._tell_size()
            elif number == signal.SIGINT:
                self._interrupt()
            else:
                raise SignalledError(number)

    def _interrupt(self) -> None:
        """Pass an interrupt on; two in a row end the job."""
        now = time.monotonic()
        if now - self._interrupted <= TWICE_S or self.session.state != "running":
            self.cancel("interrupted")
            return
        self._interrupted = now
        note(f"interrupt passed on; once more within {TWICE_S:g} s ends job {self._job}")
        self.session.tell(signal=int(signal.SIGINT))

    def cancel(self, reason: str) -> None:
        with contextlib.suppress(RefusedError):
            self._client.cancel(self._job, reason)

    def _read_keys(self) -> None:
        data = os.read(0, PIECE)
        if not data:
            self._reads = False
        self.session.give(data or END_OF_INPUT)

    def _tell_size(self) -> None:
        with contextlib.suppress(OSError):
            columns, lines = os.get_terminal_size(1)
            if self._is_tty and min(columns, lines) > 0:
                self.session.tell(size=[lines, columns])

    def _write(self, name: str, lost: int, data: bytes) -> None:
        """Write what the job says; while nobody reads that, the daemon is told that we live."""
        if lost:
            note(f"{lost:,} bytes of its output are lost")
        fd = 1 if name[0] == "o" else 2
        left = memoryview(data)
        while left:
            fds = [self._wake] if self._wake >= 0 else []
            readable, writable, _ = select.select(fds, [fd], [], KEEP_S)
            if writable:
                left = left[os.write(fd, left[:PIECE]) :]
            elif readable:
                self._see_signals()
            else:
                self.session.tell()


class SignalledError(Exception):
    """A signal ends this client."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def told_end(terminal: Terminal, end: StreamAnswer, job: str) -> int:
    """Say what there is to say of the end, on stderr; the exit code that stands for it."""
    sys.stdout.flush()
    if end.parts and not terminal.session.reading.is_whole:
        note("the end of its output may be missing; it was not read to the end")
    if end.exit_code is not None and end.state in {"completed", "failed"}:
        if end.exit_code > 128:
            note(f"job {job} {end.state}: {end.detail}")
        return min(end.exit_code, 255)
    note(f"job {job} {end.state}" + (f": {end.detail}" if end.detail else ""))
    return min(end.exit_code or 1, 255)
