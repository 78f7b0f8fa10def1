"""Ends all processes below this one, also those that multiply as fast as they can.

Imports the standard library only, as the runner does.

Notes
-----
A process that a SIGSTOP or a SIGKILL awaits cannot fork any more (Linux' ``copy_process`` looks for
signals). A pass stops whom it finds until it finds nobody new, and then kills: the stopped, and the
killed that nobody has reaped, still count under RLIMIT_NPROC, while others would fill the places of
the reaped at once.

Where passes do not suffice, all processes of the part's user are stopped by one call, ``kill(-1)``
of that user's, between which and a fork nothing comes. Those below this process are killed, all
others go on: they were stopped for a few hundredths of a second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable

from coalloc.adapters.runner import cgroup
from coalloc.adapters.runner.status import children, descendants, stat_of, uid_of

STOP_LOOKS = 8
"""So often a pass looks for processes to stop before it kills."""
WHOLE_USER_AFTER_S = 0.5
"""After so long all of the user's processes are stopped, seconds."""
SWEEP_S = 0.05
"""Between two passes, seconds."""
UNKILLABLE_S = 10.0
"""The part ends without what still lives after so long, seconds."""
RETRY_S = 1.0
"""Between two passes from then on, seconds."""
STOPPED = b"Tt"


class Sweep:
    """The end of what is below this process: of a user (None: its own), and in a part's cgroup."""

    def __init__(self, uid: int | None = None, group: str = "") -> None:
        self._groups: list[str] = []
        self._uids: set[int] = set()
        self._began = float("inf")
        self.widen(uid, group)

    def widen(self, uid: int | None, group: str) -> None:
        """Take the processes of another part in, too."""
        if uid is not None and uid != os.geteuid():
            self._uids.add(uid)
        self._groups.append(group)

    def step(self, spared: Collection[int] = ()) -> None:
        """Make one pass, sparing these children and all below; the killed may not be dead yet."""
        now = time.monotonic()
        self._began = min(self._began, now)
        for group in self._groups:
            cgroup.kill(group)
        found: set[int] = set()
        for _ in range(STOP_LOOKS):
            new = set(descendants(os.getpid(), spared)) - found
            if not new:
                break
            send(new, signal.SIGSTOP)
            found |= new
        # Zombies of children, too: the first thread of one may have ended, and others go on.
        send(found | set(children(os.getpid())).difference(spared), signal.SIGKILL)
        if found and now - self._began >= WHOLE_USER_AFTER_S:
            for uid in self._uids:
                _kill_among_all(uid, spared)

    def close(self) -> None:
        """Remove what is left of the parts' cgroups, in which nothing lives."""
        for group in self._groups:
            cgroup.end(group)


def send(pids: Iterable[int], signum: int) -> None:
    """Signal processes, of which some may be gone."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signum)


def hurry() -> None:
    """Go before the processes of jobs from now on, where that is permitted; so do children."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def calm_down() -> None:
    """Take back what `hurry` has got."""
    policy = os.SCHED_OTHER
    with contextlib.suppress(OSError):
        policy = os.sched_getscheduler(0)
    if policy == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def last_ones(spared: Collection[int]) -> set[int] | None:
    """The zombies that are left of children; None while any may live.

    Children are not reaped before: one that leaves a new one behind and ends stays in the list,
    and the new one comes behind it. Two lists that are the same, of zombies only, are all.
    """
    me = os.getpid()
    listed = children(me)
    if any(pid not in spared and _state(pid) != b"Z" for pid in listed):
        return None
    if descendants(me, spared) or children(me) != listed:
        return None
    return set(listed).difference(spared)


def _kill_among_all(uid: int, spared: Collection[int]) -> None:
    """Stop all processes of a user at once, kill those below this one, let the others go on."""
    before = {pid for pid in _of_user(uid) if _state(pid) in STOPPED}
    helper = os.fork()
    if helper == 0:
        try:
            os.setresuid(uid, uid, uid)
            if set(os.getresuid()) == {uid} and uid != 0:
                os.kill(-1, signal.SIGSTOP)
        finally:
            os._exit(0)
    if os.WIFSTOPPED(os.waitpid(helper, os.WUNTRACED)[1]):  # by one of that user's, just before
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
    doomed = set(descendants(os.getpid(), spared))
    send(doomed, signal.SIGKILL)
    others = {pid for pid in _of_user(uid) if _state(pid) in STOPPED}
    send(others - before - doomed, signal.SIGCONT)


def _of_user(uid: int) -> list[int]:
    """Processes of a user, as their numbers."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if uid_of(pid) == uid:
                found.append(pid)
    return found


def _state(pid: int) -> bytes:
    """The letter of a process's state; Z where it is gone."""
    return (stat_of(pid) or [b"Z"])[0]
