"""Parts in folders, one runner for each, found again after any restart.

What every launcher has in common whose parts are held by runners on the executor's machine:
the state folder, the runners' fork server, orders, news and what is left after a restart.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.fork_server import ForkServer
from coalloc.adapters.packs import Pack
from coalloc.adapters.part_folder import NEW, PartFolder, ended_report
from coalloc.adapters.runner.grant import LAYOUT, LIMIT, keep, kept
from coalloc.adapters.runner.status import decoded
from coalloc.adapters.sweeper import OLD, Sweeper
from coalloc.model.formats.nodeset import fold
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from coalloc.model.values import replace

LONGEST_NAME = 255
UNREADABLE = "unreadable"
"""Reason of a part of which nothing new can be learnt now."""
LOOK_S = 0.2
"""For so long after a look at every part, only those are looked at that runners name in their
news, seconds: with hundreds of parts, each start and end would ask for a look at all."""


def unended(left: int, job: str) -> str:
    """Say that so many processes of a job could not be ended."""
    return f"{left} process{'' if left == 1 else 'es'} of job {job} could not be ended"


class PartLauncher:
    """Launches parts through runners, as `Launcher` says; what they run on a subclass says.

    The parts are in `state_dir`, on a local disk, one for each executor. Root's is made passable
    for others, so that users reach their own scripts. Raises `AdapterError` where it cannot be
    used, or another executor uses it.
    """

    folder_type: type[PartFolder] = PartFolder
    runner: str
    """``module:class`` that carries a part, the module within this package."""
    honours: frozenset[str] = frozenset({"account"})
    """Options of jobs that are carried out here; an account may stand for nothing."""
    _next_group: str | None = None
    """Cgroup of the next part, empty: none; None: its runner is not forked ahead."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir.resolve()
        self._parts: dict[PartKey, PartFolder] = {}
        self._live: dict[PartKey, PartReport] = {}
        self._ended: dict[PartKey, PartReport] = {}
        self._packs: dict[PartKey, Pack] = {}
        """By the first member."""
        self._place: dict[PartKey, tuple[PartKey, int]] = {}
        """Of each member of a pack: the first one, and its place."""
        self._left: set[PartKey] = set()
        self._limits: dict[PartKey, Mapping[str, float]] = {}
        """Of parts whose limit was changed: as their folders have it."""
        self._unread = b""
        self._sweeper = Sweeper()
        self._looked = float("-inf")
        with contextlib.ExitStack() as stack:
            try:
                self._news_fd = self._open(stack)
            except OSError as error:
                raise AdapterError(f"{state_dir}: {error.strerror}") from error
            stack.callback(self._sweeper.close)
            self._fork_server = ForkServer(self.runner)
            stack.callback(self._fork_server.close)
            self._open_files = stack.pop_all()
        self._load()

    def claim(self, part: PartSpec) -> None:
        key = part.key
        if key in self._parts:
            return
        self._check(part)
        self._check_nodes(part)
        try:
            folder = self._create(part)
        except OSError as error:
            raise ClaimRefusedError(
                "state_unwritable", f"{self._root}: {error.strerror}"
            ) from error
        except ValueError as error:
            raise ClaimRefusedError("impossible", str(error)) from error
        try:
            self._spawn(folder)
        except OSError as error:
            self._sweeper.remove(folder.path)
            raise ClaimRefusedError("executor_failed", f"{key.folder}: {error.strerror}") from error
        except BaseException:
            self._sweeper.remove(folder.path)
            raise
        self._take(folder)

    def _take(self, folder: PartFolder) -> None:
        self._parts[folder.key] = folder
        if folder.members:
            pack = self._packs[folder.key] = Pack(folder)
            self._place |= {key: (folder.key, n) for n, key in enumerate(pack.keys)}

    def arrange(self, key: PartKey, nodes: Mapping[str, int], rendezvous: str) -> None:
        hosts = [[name, count] for name, count in nodes.items()]
        layout = {"hosts": hosts, "nodelist": fold(nodes), "rendezvous": rendezvous}
        if self._keep(key, LAYOUT, layout):
            self._order(key, "arrange")

    def hasten(self, key: PartKey) -> None:
        self._order(key, "hasten")

    def limit(self, key: PartKey, limit_s: float) -> None:
        self._limit(key, {"limit_s": limit_s})

    def _limit(self, key: PartKey, changed: Mapping[str, float]) -> None:
        """Keep a part's new limit; ``told_s``, where the daemon does not know it, is reported."""
        if not self._keep(key, LIMIT, changed):
            return
        self._limits[key] = changed
        if key in self._live:
            self._live[key] = replace(self._live[key], time_limit=changed.get("told_s"))
        self._order(key, f"limit {changed['limit_s']}")

    def _keep(self, key: PartKey, name: str, record: Mapping[str, object]) -> bool:
        """Write one of a part's files; False where the part has ended."""
        folder = self._parts.get(key)
        if folder is None or key in self._ended:
            return False
        try:
            keep(str(folder.path), name, record)
        except OSError as error:
            raise AdapterError(f"{key.folder}: {error.strerror}") from error
        return True

    @property
    def streams(self) -> tuple[Path, Callable[[PartKey], None]]:
        """The folder of the executor's socket, and what orders a part's runner to call there."""
        return self._root, lambda key: self._order(key, "stream")

    def go(self, key: PartKey, at: float = 0.0) -> None:
        self._order(self._place.get(key, (key,))[0], f"go {at}")

    def abort(self, key: PartKey, reason: str = "") -> None:
        first, place = self._place.get(key, (key, -1))
        word = "abort -" if place < 0 else f"drop {place}"
        self._order(first, f"{word} {' '.join(reason.split())}")

    def renew(self) -> None:
        failed: AdapterError | None = None
        for key in self._parts:
            live = self._live.get(key)
            if live is None or live.state is not PartState.RUNNING:
                try:
                    self._order(key, "renew")
                except AdapterError as error:  # the others' leases go on
                    failed = error
        if failed is not None:
            raise failed

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is that was not forgotten.

        With news at hand, what they do not name may be `LOOK_S` old. A part that cannot be
        looked at now is as it was, and one that never was is left out.
        """
        self._sweeper.step()
        named = self._take_news()
        now = time.monotonic()
        if not named or now - self._looked >= LOOK_S:
            self._looked = now
            named = self._watched()
        for key, folder in self._parts.items():
            if key not in self._ended and (key in named or key not in self._live):
                self._look_at(key, folder)
        for key, pack in tuple(self._packs.items()):
            whole = self._ended.get(key) or self._live.get(key)
            is_news = key in named or whole is not pack.whole
            if whole is not None and is_news and not pack.is_over:
                pack.look(whole)
            if pack.is_over and not pack.reports:
                with contextlib.suppress(AdapterError):  # tried again
                    self._remove(key)
        alone = (key for key in self._parts if key not in self._packs)
        known = (self._ended.get(key) or self._live.get(key) for key in alone)
        packed = (report for pack in self._packs.values() for report in pack.reports.values())
        return (*packed, *(report for report in known if report is not None))

    def adopt(self) -> tuple[PartReport, ...]:
        self._load()
        reports = self.poll()
        if unread := self._parts.keys() - {report.key for report in reports}:
            raise AdapterError(f"{self._root}: parts cannot be read: {sorted(unread)[:3]}")
        return reports

    def forget(self, key: PartKey) -> None:
        if key in self._place:
            first = self._place[key][0]
            if self._packs[first].forget(key):
                self._remove(first)
        else:
            self._remove(key)

    def _remove(self, key: PartKey) -> None:
        folder = self._parts.get(key)
        if folder is None:
            return
        if key not in self._ended and not folder.report().is_ended:
            return
        if left := self.left().get(key):
            raise AdapterError(f"{unended(left, key.job)}; its slots are kept")
        try:
            self._sweeper.remove(folder.path)
        except OSError as error:
            raise AdapterError(f"{folder.path}: {error.strerror}") from error
        self._left.discard(key)
        for known in (self._parts, self._ended, self._live, self._limits):
            known.pop(key, None)
        if pack := self._packs.pop(key, None):
            for each in pack.keys:
                del self._place[each]

    def left(self) -> dict[PartKey, int]:
        """Parts that have ended without processes that could not be ended, and how many live on."""
        known = [(key, self._parts.get(key)) for key in tuple(self._left)]
        return {
            key: left for key, folder in known if folder is not None and (left := folder.left())
        }

    def fileno(self) -> int:
        return self._news_fd

    def close(self) -> None:
        """End the fork server and let go of the state folder; the parts live on."""
        self._open_files.close()

    def _open(self, stack: contextlib.ExitStack) -> int:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o711)
        if os.geteuid() == 0:
            self._root.chmod(0o711)
        lock_fd = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, lock_fd)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AdapterError(f"{self._root}: another executor uses this folder") from error
        # By word: a child that has not begun its program yet has a copy of the descriptor.
        stack.callback(fcntl.flock, lock_fd, fcntl.LOCK_UN)
        os.pwrite(lock_fd, b"%-10d" % os.getpid(), 0)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._root / "news", 0o600)
        # Also open for writing: it must not be at its end whenever no runner has it open.
        news_fd = os.open(self._root / "news", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, news_fd)
        return news_fd

    def _load(self) -> None:
        for path in sorted(self._root.iterdir()):
            if path.name.startswith(OLD):
                self._sweeper.take(path)
                continue
            if path.name.startswith(NEW):
                self._sweeper.remove(path)
                continue
            folder = self.folder_type.load(path)
            if folder is not None:
                if folder.key not in self._parts:
                    self._take(folder)
                if changed := kept(str(path), LIMIT):
                    self._limits[folder.key] = changed

    def _watched(self) -> set[PartKey]:
        """Parts that may have news of which nothing is said."""
        return set(self._parts)

    def _look_at(self, key: PartKey, folder: PartFolder) -> None:
        try:
            report = folder.report()
            if told_s := self._limits.get(key, {}).get("told_s"):
                report = replace(report, time_limit=told_s)
        except Exception as error:  # whatever it is, the others are looked at nevertheless
            known = self._live.get(key)
            if known is None:
                return
            report = replace(known, reason=UNREADABLE, detail=f"{folder.path}: {error}")
        if report.is_ended:
            self._ended[key] = report
            if folder.left():
                self._left.add(key)
        elif report != self._live.get(key):
            self._live[key] = report

    def _check(self, part: PartSpec) -> None:
        """Refuse what cannot be claimed."""
        if len(part.key.folder.encode()) > LONGEST_NAME:
            raise ClaimRefusedError("impossible", "the job's id is too long")
        launch = part.launch
        if min(part.nodes.values(), default=0) < 1:
            raise ClaimRefusedError("bad_spec", "a part needs processes")
        if launch is None or not launch.argv:
            raise ClaimRefusedError("impossible", "a part needs a command")
        if part.uid is not None and part.uid < 0:
            # to the kernel -1 means "as it is", which would be root
            raise ClaimRefusedError("impossible", f"{part.uid} is no user")
        for name, option in part.batch.written():
            if name not in self.honours:
                why = f"{option} cannot be honoured there"
                raise ClaimRefusedError("not_permitted", why)
        if any("\0" in text for text in (*launch.argv, launch.cwd, launch.stdout, launch.stderr)):
            raise ClaimRefusedError("impossible", "a command or path holds a NUL character")

    def _check_nodes(self, part: PartSpec) -> None:
        """Refuse what these nodes cannot take. Raises `ClaimRefusedError` or `AdapterError`."""
        raise NotImplementedError

    def _create(self, part: PartSpec) -> PartFolder:
        """Write the folder of a new part; OSError where it cannot be."""
        raise NotImplementedError

    def _spawn(self, folder: PartFolder) -> None:
        """Hand the folder, its orders and its lock to a runner, which then alone holds them."""
        orders_fd = os.open(folder.path / "barrier", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        lock_fd = os.open(folder.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._fork_server.spawn(folder.path, orders_fd, lock_fd, self._next_group)
        finally:
            os.close(orders_fd)
            os.close(lock_fd)

    def _order(self, key: PartKey, line: str) -> None:
        folder = self._parts.get(key)
        if folder is not None and key not in self._ended:
            try:
                folder.order(line)
            except OSError as error:
                raise AdapterError(f"{key.folder}: {error.strerror}") from error

    def _take_news(self) -> set[PartKey]:
        """Empty the FIFO; returns the parts that it names.

        An end that could not be written to the disk comes in full.
        """
        try:
            while chunk := os.read(self._news_fd, 1 << 16):
                self._unread += chunk
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise AdapterError(f"{self._root}: {error.strerror}") from error
        *lines, self._unread = self._unread.split(b"\n")
        named = set()
        for line in lines:
            name, _, raw = line.partition(b" ")
            key = PartKey.of_folder(os.fsdecode(name))
            if key is not None:
                named.add(key)
            end = decoded(raw + b"\n") if raw else None
            if key in self._parts and end is not None and end.get("state") in set(PartState):
                self._ended[key] = ended_report(key, end)
        return named
