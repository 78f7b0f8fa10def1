"""Holds one part of a job at its barrier, starts its processes, and sees them end.

Runs as a process of its own, which outlives the executor, with the standard library only and
under ``-I -S``, forked for each claim by a fork server (`runner.fork_server`).
The runner forks its ranks at once, and they wait on a pipe: between the order to go and the exec
lie one small write to disk and one to the pipe.

`adapters.part_folder` says what the part's folder holds, and `runner.orders` what is ordered.

Every descendant is this process's to reap (PR_SET_CHILD_SUBREAPER), also one that changed its
session or whose parent is gone, so the end of a part is the end of all its processes. Where one can
be made, they are in a cgroup of their own besides. The runner itself stays outside.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import pwd
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.once import HOLDS, started_once
from coalloc.adapters.runner.orders import OrderLoop, wake_on_signals
from coalloc.adapters.runner.rank import (
    DEFAULT_OUTPUT,
    Rank,
    account_for,
    be_subreaper,
    fault_of,
    faults_of_files,
    let_go,
    opened_as,
    output_path,
)
from coalloc.adapters.runner.status import (
    END,
    READY,
    RUN,
    START,
    StatusFile,
    boot_id,
    children,
    descendants,
    verdict,
)
from coalloc.adapters.runner.streams import Streams, Tail
from coalloc.adapters.runner.sweep import (
    RETRY_S,
    SWEEP_S,
    UNKILLABLE_S,
    Sweep,
    calm_down,
    hurry,
    send,
)

if TYPE_CHECKING:
    from coalloc.adapters.runner.spec import RunnerSpec
    from coalloc.adapters.runner.stream_link import StreamLink

LEFTOVER_GRACE_S = 1.0


def read_spec(folder: str) -> RunnerSpec:
    """Read the specification of a part, by its folder. Raises `OSError` or `ValueError`."""
    with open(f"{folder}/spec.json", encoding="utf-8") as file:
        spec: RunnerSpec = json.load(file)
    return spec


class Runner(OrderLoop):
    """One part, from its claim to its end."""

    is_kept = True

    def __init__(self, folder: str, orders_fd: int, lock_fd: int) -> None:
        super().__init__(orders_fd)
        self.folder, self.lock_fd = folder, lock_fd
        self.said = b""
        self.status = StatusFile(folder)
        self.spec: RunnerSpec
        self.pids: dict[int, int] = {}  # living ranks: pid -> index
        self.codes: list[int | None] = []
        self.ready = self.execs = 0
        self.first_ns: int | None = None
        self.is_over = self.are_leftovers_told = False
        self.left = 0  # processes that could not be ended
        self.reason = self.detail = ""
        self.group, self.cgroup = 0, ""
        self.entering = _thread.allocate_lock()  # held while the ranks enter the cgroup
        self.cpu_s = self.max_rss_mb = 0.0
        self.link: StreamLink | None = None
        self.limit_end = self.kill_at = self.look_at = self.tell_at = float("inf")
        self.go_at = 0.0

    def run(self) -> None:
        try:
            self._open()
            self._fork_ranks()
            self._preallocate()  # while the ranks prepare
            while not self.is_over:
                self._step()
        except BaseException as error:
            self.stop(*fault_of(error, self.folder))
        if not self.left:
            self._end_all()
        self._let_read()
        record = self._run_behind()
        # The launcher hears of an end that cannot be written, and may forget the part.
        while not self._record(END, record, durable=True) and os.path.isdir(self.folder):
            time.sleep(RETRY_S)
        self._stay()

    # -- up to the barrier

    def _open(self) -> None:
        self._settle()
        self._load()
        self.spec["cgroup"] = self.cgroup = cgroup.make(self.spec.get("cgroup", ""))
        self.spec = started_once(self.spec)
        self.codes = [None] * len(self.spec["ranks"])
        is_held = HOLDS in self.spec["ranks"][0]
        kind = "" if is_held else self.spec.get("stream", "")
        self.streams = Streams(self._say_stream, self._signal_all, kind)
        self._renew()

    def _settle(self) -> None:
        """Be what does not depend on the part."""
        self.wake_fd = wake_on_signals(self.orders_fd, self._told_to_end)
        be_subreaper()

    def _told_to_end(self) -> None:
        self.stop("cancelled", "its runner was told to")

    def _load(self) -> None:
        with faults_of_files(self.folder):
            self.spec = read_spec(self.folder)
            self.status.open()

    def _preallocate(self) -> None:
        with faults_of_files(self.folder):
            self.status.preallocate(len(self.spec["ranks"]), len(self.spec.get("members", ())))

    def _synchronise(self) -> None:
        with faults_of_files(self.folder):
            self.status.synchronise()

    def _fork_ranks(self) -> None:
        account = account_for(self.spec["uid"])
        self._open_streams(account)
        go_read, say_write = self._open_pipes()
        os.set_blocking(self.say_fd, False)
        outside = []
        for index in range(len(self.pids), len(self.codes)):
            rank = Rank(self.spec, index, account, self.streams.ends)
            pid = os.fork()
            if pid == 0:
                # What only the runner may hold: its lock is its life, its end of the pipe the go.
                for fd in (self.lock_fd, self.go_fd, self.say_fd, self.orders_fd, self.status.fd):
                    os.close(fd)
                rank.become(self.group, go_read, say_write)
            self.group = self.group or pid
            if self.spec.get("stream") != "pty":  # else it leads a session
                with contextlib.suppress(OSError):  # the child has done it itself
                    os.setpgid(pid, self.group)
            self.pids[pid] = index
            outside.append(pid)
        if self.cgroup and outside:
            self.entering.acquire()
            try:
                _thread.start_new_thread(self._enter, (outside,))
            except RuntimeError:  # no more threads
                self._enter(outside)
        os.close(go_read)
        os.close(say_write)
        self._poll(self.say_fd)
        self.streams.watch(self.poller)

    def _open_pipes(self) -> tuple[int, int]:
        """Open what says go to the ranks, and what hears of them; returns their ends of both."""
        go_read, self.go_fd = os.pipe()
        self.say_fd, say_write = os.pipe()
        return go_read, say_write

    def _enter(self, pids: list[int]) -> None:
        """Have the ranks enter the cgroup, which the kernel takes its time for: beside all else."""
        for pid in pids:
            cgroup.enter(self.cgroup, pid)
        self.entering.release()
        os.kill(os.getpid(), signal.SIGCHLD)  # of who ended meanwhile

    def _open_streams(self, account: pwd.struct_passwd | None) -> None:
        spec = self.spec
        if spec.get("stream"):
            self.streams.open(spec["uid"])
            return
        place = spec["ranks"][0]
        for name, pattern in (("o", spec["stdout"] or DEFAULT_OUTPUT), ("e", spec["stderr"])):
            file = output_path(pattern, spec["job"], place["rank"], place["node"])
            path = os.path.join(spec["cwd"], file)
            if pattern and HOLDS not in place:
                self.streams.sources[name] = Tail(partial(opened_as, spec["uid"], account, path))

    # -- the loop

    def _step(self) -> None:
        look_at = self.streams.look_at
        self._wait(self.limit_end, self.kill_at, self.look_at, self.tell_at, look_at)
        self.streams.answer()
        self._reap()
        self._look_at_clock()
        if self.say_fd < 0 and not self.pids and not self._has_leftovers():
            self.is_over = True

    def _obey_one(self, words: list[str]) -> None:
        if words[0] == "cancel":
            grace_s = self.spec["grace_s"] if words[2] == "-" else float(words[2])
            self.stop("cancelled", "", signum=int(words[1]), grace_s=grace_s)
        elif words[0] == "finish":  # what waits here for the end of a command started elsewhere
            if self.is_started and self.go_fd >= 0:
                os.close(self.go_fd)
                self.go_fd = -1
        elif words[0] == "stream":
            self._stream(words[1:])
        else:
            super()._obey_one(words)

    def _stream(self, words: list[str]) -> None:
        """Have the streams read, by who calls for that."""
        from coalloc.adapters.runner.stream_link import StreamLink  # which nodes do not have

        self.link = self.link or StreamLink(self.folder, self.streams.wish)
        self.link.dial(self.poller)

    def _say_stream(self, said: dict[str, Any]) -> None:
        if self.link is not None:
            self.link.say(said)

    def _let_read(self) -> None:
        """Let the reader have what is left of the streams, if there is one."""
        while self.first_ns is not None and not self.streams.end(is_cut=bool(self.reason)):
            self._wait(self.look_at, self.streams.look_at)
            self._look_at_clock()

    def _take(self, fd: int) -> None:
        """Hear what the ranks say, and those who read their streams."""
        if self.streams.take(fd) or (self.link is not None and self.link.take(fd)):
            return
        chunk = os.read(self.say_fd, 1 << 16)
        if not chunk:
            self.poller.unregister(self.say_fd)
            os.close(self.say_fd)
            self.say_fd = -1
            return
        *lines, self.said = (self.said + chunk).split(b"\n")
        for line in lines:
            kind, _, rest = line.decode(errors="replace").partition(" ")
            if kind == "R":
                self.ready += 1
                if self.ready == len(self.codes):
                    self._record(READY, {"pid": os.getpid()})
                    self._synchronise()  # while others hear of it
                    self._start_if_ready()
            elif kind == "S":
                at = int(rest.split()[1])
                self.execs += 1
                self.first_ns = at if self.first_ns is None else min(at, self.first_ns)
                if self.execs == len(self.codes):
                    self._record(RUN, self._start_times())
                    calm_down()  # whom it reaps from now on is for its jobs to say
            else:
                index, reason, detail = rest.split(" ", 2)
                place = self.spec["ranks"][int(index)]
                where = f" (rank {place['rank']})" if self.is_started else ""
                self.stop(reason, detail + where, signum=signal.SIGKILL)

    def _start_if_ready(self) -> None:
        """Pass the point of no return: first on disk, then to the ranks."""
        if self.is_started or self.reason or not self.go_asked or self.ready < len(self.codes):
            return
        try:
            self._mark_started()
            with self.entering:
                pass  # nothing runs outside
        except OSError as error:
            self.stop("state_unwritable", f"{self.folder}: {error.strerror}")
            return
        let_go(self.go_fd, len(self.codes))
        self.is_started = True
        self.lease_end = float("inf")
        self.go_at = time.monotonic()
        if self.spec["time_limit_s"] is not None:
            self._limit(self.spec["time_limit_s"])

    def _limit(self, limit_s: float) -> None:
        super()._limit(limit_s)
        if self.is_started and not self.reason:
            self.limit_end = self.go_at + limit_s

    def _reap(self) -> bool:
        """Collect who has ended; whether nobody is left.

        Who loses its parent becomes our child, so nobody is left below us if we have no child.
        Looking through /proc would overlook one that forks and leaves as fast as it can.
        """
        while not self.entering.locked():  # a number that is given anew is no rank's
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.max_rss_mb = max(self.max_rss_mb, usage.ru_maxrss / 1024)
            index = self.pids.pop(pid, None)
            if index is not None:
                self.codes[index] = (
                    os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                )
                if not self.is_started and not self.reason:
                    self.stop("rank_died", "a process died at the barrier")
        return False

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        self._look_at_lease(now)
        if now >= self.limit_end:
            limit = self.spec["time_limit_s"]
            self.stop("time_limit", f"ran longer than its limit of {limit:g} s")
        if now >= self.kill_at:
            self.kill_at = float("inf")
            self.is_over = not self._end_all()

    # -- the end

    def stop(
        self,
        reason: str,
        detail: str,
        *,
        signum: int = signal.SIGTERM,
        grace_s: float | None = None,
    ) -> None:
        """End what runs; the first reason stays."""
        now = time.monotonic()
        self.reason, self.detail = self.reason or reason, self.detail or detail
        self.lease_end = self.limit_end = float("inf")
        if not self.is_started:
            signum = signal.SIGKILL
        if signum == signal.SIGKILL:
            grace_s = 0.0
        elif grace_s is None:
            grace_s = self.spec["grace_s"]
        self.kill_at = min(self.kill_at, now + (grace_s or 0.0))
        if self.group and self.pids:
            self._signal_all(signum)

    def _signal_all(self, signum: int) -> None:
        """Signal the group at once, then who has left it, each process once."""
        for each in (signum, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.killpg(self.group, each)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.group:
                    os.kill(pid, signum)
                    os.kill(pid, signal.SIGCONT)

    def _has_leftovers(self) -> bool:
        """Whether children that forked away are left, which are then ended too."""
        if self._reap():
            return False
        if not self.are_leftovers_told:
            self.are_leftovers_told = True
            send(descendants(os.getpid()), signal.SIGTERM)
            self.kill_at = min(self.kill_at, time.monotonic() + LEFTOVER_GRACE_S)
        return True

    def _end_all(self, limit_s: float = UNKILLABLE_S) -> bool:
        """Kill every descendant, also those that multiply; whether nobody is left."""
        end, sweep = time.monotonic() + limit_s, None
        while not self._reap():
            hurry()
            sweep = sweep or Sweep(self.spec["uid"], self.cgroup)
            sweep.step()
            until, killed = time.monotonic() + SWEEP_S, set[int]()
            # Only children, and at once: whose parent is killed is a child in the next turn, and
            # of one that multiplies a list of all descendants is out of date when it is made.
            while not self._reap() and time.monotonic() < until:
                new = set(children(os.getpid())) - killed
                send(new, signal.SIGKILL)
                killed |= new
                if not new:
                    time.sleep(SWEEP_S / 50)
            if time.monotonic() >= end:
                break
        self.left = 0 if self._reap() else max(1, len(descendants(os.getpid())))
        if self.left:
            return False
        cgroup.end(self.cgroup)
        return True

    def _stay(self) -> None:
        """Hold the part's slots, by its lock, until nothing of it lives."""
        while self.left:
            time.sleep(RETRY_S)
            self._end_all(0.0)

    def _start_times(self) -> dict[str, Any]:
        if self.first_ns is None:
            return {"started": None, "started_mono": None}
        started = self.first_ns / 1e9
        return {"started": time.time() - time.monotonic() + started, "started_mono": started}

    def _run_behind(self) -> dict[str, Any]:
        """Run what else this part has; returns its end."""
        return self._end_record()

    def _end_record(self) -> dict[str, Any]:
        """The end of what has run last, or never ran."""
        self._reap()
        ran = self.is_started and self.first_ns is not None
        if not self.reason:
            self.reason, self.detail = verdict(self.spec, self.codes)
        if self.left:
            self.detail = f"{self.detail} ({self.left} processes could not be ended)".strip()
        return {
            "state": "finished" if ran else "refused",
            "reason": self.reason,
            "detail": self.detail,
            "codes": self.codes if ran and HOLDS not in self.spec["ranks"][0] else [],
            "ended": time.time(),
            "cpu_s": round(self.cpu_s, 6),
            "max_rss_mb": round(self.max_rss_mb, 3),
            **({"left": self.left} if self.left else {}),
            **self._start_times(),
        }

    def _record(self, slot: int, record: dict[str, Any], durable: bool = False) -> bool:
        return self.status.record(slot, record, durable)

    def _mark_started(self) -> None:
        """Put on disk that the point of no return is passed."""
        self.status.write(START, {"boot": boot_id()}, durable=True)
