"""A cgroup for each part, version 2, where one may be made: what is in it ends by one write.

Imports the standard library only, as the runner does.
"""

from __future__ import annotations

import contextlib
import os
import signal

MARKS = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd says that a group is left to its processes."""


def own() -> str:
    """Folder of this process's cgroup, where groups may be made in it; empty: nowhere."""
    with contextlib.suppress(OSError):
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), None)
        with open("/proc/self/mounts", encoding="utf-8") as file:
            mounts = [line.split() for line in file]
        roots = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
        if path is not None and roots:
            folder = roots[0] + path.rstrip("/")
            is_ours = not os.path.isdir("/run/systemd/system") or _is_delegated(folder)
            if os.access(folder, os.W_OK) and is_ours:
                return folder
    return ""


def make(folder: str) -> str:
    """Make a group that may be there; its folder, or empty where it cannot be made."""
    if folder:
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755)
            return folder
    return ""


def enter(folder: str, pid: int = 0) -> None:
    """Have a process, 0: this one, and all that it starts be in a group; that may take 10 ms."""
    if folder:
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.procs", str(pid))


def kill(folder: str) -> None:
    """Kill all that is in a group, and what it forks meanwhile."""
    if not folder:
        return
    with contextlib.suppress(OSError):
        try:
            _write(f"{folder}/cgroup.kill", "1")
        except FileNotFoundError:  # before Linux 5.14
            _write(f"{folder}/cgroup.freeze", "1")
            with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                for line in file:
                    with contextlib.suppress(OSError):
                        os.kill(int(line), signal.SIGKILL)


def end(folder: str) -> bool:
    """Kill all that is in a group, and remove it; whether it is gone."""
    if not folder:
        return True
    kill(folder)
    for place, _, _ in os.walk(folder, topdown=False):  # a job of root's may have made some below
        with contextlib.suppress(OSError):
            os.rmdir(place)
    return not os.path.isdir(folder)


def _is_delegated(folder: str) -> bool:
    for mark in MARKS:
        with contextlib.suppress(OSError):
            return os.getxattr(folder, mark) == b"1"
    return False


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
