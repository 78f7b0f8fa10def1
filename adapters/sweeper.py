"""Removes folders, whatever a job has left in them, without holding its caller up.

A part's folder holds a few files of ours, which go at once. All else was put there by processes
of the job: it is left to a child process, which runs as its owner, since root must not walk
through a tree that somebody else can change meanwhile.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import subprocess
import time
from collections import deque
from pathlib import Path

OLD = ".old-"
"""Begins the names of folders that are to be removed."""
MOST_FILES = 32
"""A folder with more of them is left to a child process."""
LIMIT_S = 60.0
"""For so long a child process removes one folder before it is the others' turn, seconds."""
TRIES = 5

_REMOVE = 'chmod -R u+rwX -- "$@"; exec rm -rf --one-file-system -- "$@"'

log = logging.getLogger(__name__)


class Sweeper:
    """Removes folders, one after the other."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Path, int]] = deque()
        self._child: subprocess.Popen[bytes] | None = None
        self._kill_at = 0.0

    def remove(self, folder: Path) -> None:
        """Take a folder away, or leave it where it was; what it holds may go later."""
        doomed = folder.with_name(f"{OLD}{secrets.token_hex(8)}")
        try:
            folder.rename(doomed)
        except FileNotFoundError:
            return
        self.take(doomed)

    def take(self, doomed: Path) -> None:
        """Remove a folder that was taken away before."""
        if not removed(doomed):
            self._waiting.append((doomed, 0))

    def step(self) -> None:
        """Go on; never waits."""
        if self._child is not None:
            if self._child.poll() is None:
                if time.monotonic() >= self._kill_at:
                    self._child.kill()
                return
            self._child = None
            doomed, tries = self._waiting.popleft()
            if not removed(doomed):
                self._put_back(doomed, tries + 1)
        if self._waiting:
            doomed, tries = self._waiting[0]
            try:
                self._child = _removing(doomed)
                self._kill_at = time.monotonic() + LIMIT_S
            except OSError:
                self._waiting.popleft()
                self._put_back(doomed, tries + 1)

    def close(self) -> None:
        """Stop; what is left is removed after the next start."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _put_back(self, doomed: Path, tries: int) -> None:
        if tries < TRIES:
            self._waiting.append((doomed, tries))
        else:
            log.warning("%s cannot be removed; tried again after the next start", doomed)


def removed(folder: Path | str, depth: int = 1) -> bool:
    """Remove a folder that holds few files; whether it is gone."""
    try:
        with os.scandir(folder) as found:
            entries = list(itertools.islice(found, MOST_FILES + 1))
        if len(entries) > MOST_FILES:
            return False
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
            elif depth and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                if not removed(entry.path, depth - 1):
                    return False
            else:
                os.rmdir(entry.path)
        os.rmdir(folder)
    except FileNotFoundError:
        return not os.path.lexists(folder)
    except OSError:
        return False
    return True


def _removing(doomed: Path) -> subprocess.Popen[bytes]:
    """Start to remove what is in a folder, as the one whose it is."""
    uid, gid, paths = _strangers(doomed) if os.geteuid() == 0 else (None, None, [])
    return subprocess.Popen(
        ["/bin/sh", "-c", _REMOVE, "sh", *(paths or [str(doomed)])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},  # its owner can read that of his own processes
        start_new_session=True,
        user=uid,
        group=gid,
        extra_groups=None if uid is None else (),
    )


def _strangers(doomed: Path) -> tuple[int | None, int | None, list[str]]:
    """One other user to whom folders in this one belong, and these."""
    owned: dict[tuple[int, int], list[str]] = {}
    with os.scandir(doomed) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) and status.st_uid != 0:
                owned.setdefault((status.st_uid, status.st_gid), []).append(entry.path)
    for (uid, gid), paths in owned.items():
        return uid, gid, paths
    return None, None, []
