"""What the tests of launched parts share: a launcher in a folder of its own, and waiting."""

from __future__ import annotations

import os
import pwd
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from coalloc.adapters.launcher import PartLauncher
from coalloc.adapters.local.launcher import LocalLauncher
from coalloc.adapters.local.settings import read_settings
from coalloc.adapters.runner.status import PAGE, READY, decoded
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from tests.support.part_specs import part_spec

LIMIT_S = 60.0
NODES = {"nodes": ["n[1-4]"], "slots": 4}


class LaunchTestbed:
    """A launcher, its state folder, and the folder its jobs run in."""

    short_lease_s = 5.0
    """In which a part is surely ready."""

    def __init__(self, root: Path, settings: object = None) -> None:
        self.state, self.cwd = root / "state", root / "work"
        self.cwd.mkdir(exist_ok=True)
        self.settings = read_settings(settings or NODES, "c")
        self.launcher: PartLauncher = LocalLauncher(self.settings, self.state)

    def close(self) -> None:
        for report in self.launcher.poll():
            self.launcher.abort(report.key)
        if reports := self.launcher.poll():
            self.wait([report.key for report in reports], lambda report: report.is_ended)
        self.launcher.close()

    @property
    def another_user(self) -> pwd.struct_passwd:
        """A user who is not this process's, and whose jobs run here."""
        return pwd.getpwnam("nobody")

    def spec(self, *argv: str, job: str = "1", **fields: Any) -> PartSpec:
        values: dict[str, Any] = {"cwd": str(self.cwd), "grace_s": 5.0}
        return part_spec(*argv, job=job, **(values | fields))

    def shell(self, text: str, **fields: Any) -> PartSpec:
        return self.spec("sh", "-c", text, **fields)

    def claim(self, spec: PartSpec) -> PartReport:
        """Claim, and wait for the barrier or the refusal."""
        self.launcher.claim(spec)
        return self.wait_one(
            spec.key, lambda report: report.state is PartState.READY or report.is_ended
        )

    def start(self, spec: PartSpec) -> PartReport:
        """Claim, start, and wait until it runs or has ended."""
        assert self.claim(spec).state is PartState.READY, self.report(spec.key)
        self.launcher.go(spec.key)
        return self.wait_one(
            spec.key, lambda report: report.state is PartState.RUNNING or report.is_ended
        )

    def run(self, spec: PartSpec) -> PartReport:
        """Claim, start, and wait for the end."""
        self.start(spec)
        return self.ended(spec.key)

    def ended(self, key: PartKey) -> PartReport:
        return self.wait_one(key, lambda report: report.is_ended)

    def report(self, key: PartKey) -> PartReport:
        return next(report for report in self.launcher.poll() if report.key == key)

    def wait_one(self, key: PartKey, is_done: Callable[[PartReport], bool]) -> PartReport:
        return self.wait([key], is_done)[0]

    def wait(
        self, keys: Iterable[PartKey], is_done: Callable[[PartReport], bool]
    ) -> list[PartReport]:
        wanted = list(keys)
        end = time.monotonic() + LIMIT_S
        while True:
            known = {report.key: report for report in self.launcher.poll()}
            if all(is_done(known[key]) for key in wanted):
                return [known[key] for key in wanted]
            left = end - time.monotonic()
            assert left > 0, f"not so after {LIMIT_S:g} s: {known}"
            select.select([self.launcher.fileno()], [], [], min(left, 0.2))

    def wait_idle(self) -> None:
        """Wait until the batch system has nothing of ours."""
        self.wait_until(self.is_idle)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that nobody tells."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, "it does not come to be so"
            time.sleep(0.05)

    def is_idle(self) -> bool:
        """Whether every part has ended."""
        return all(report.is_ended for report in self.launcher.poll())

    def output(self, name: str = "coalloc-1.out") -> str:
        return (self.cwd / name).read_text()

    def runner_pid(self, key: PartKey) -> int:
        raw = (self.state / key.folder / "status").read_bytes()
        record = decoded(raw[READY * PAGE : (READY + 1) * PAGE])
        assert record is not None
        return int(record["pid"])


class Signpost:
    """A FIFO to which a job writes lines, for the test to wait for."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o666)
        path.chmod(0o666)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._unread = b""

    def line(self) -> str:
        end = time.monotonic() + LIMIT_S
        while b"\n" not in self._unread:
            left = end - time.monotonic()
            assert left > 0, "the job wrote no line"
            if select.select([self._fd], [], [], left)[0]:
                self._unread += os.read(self._fd, 4096)
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        os.close(self._fd)


def is_alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_dead(pid: int) -> None:
    end = time.monotonic() + LIMIT_S
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} still lives"
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            select.select([fd], [], [], 1.0)
        finally:
            os.close(fd)
