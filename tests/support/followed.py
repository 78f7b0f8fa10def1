"""Commands that follow their jobs, as processes of a site's user."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.support.live_site import Running

LIMIT_S = 60.0


def argv(site: Running, command: str, *words: str) -> list[str]:
    """The words of a command."""
    return [sys.executable, "-m", "coalloc.cli.main", command, "--config", str(site.config), *words]


def started(site: Running, command: str, *words: str) -> subprocess.Popen[bytes]:
    """A command whose output and errors are pipes."""
    return subprocess.Popen(
        argv(site, command, *words),
        cwd=site.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Who runs tests in the background may have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def heard(fd: int, is_enough: Callable[[bytes], bool]) -> bytes:
    """What comes from a descriptor until that is enough."""
    said, end = b"", time.monotonic() + LIMIT_S
    while not is_enough(said):
        assert select.select([fd], [], [], max(0.0, end - time.monotonic()))[0], said
        chunk = os.read(fd, 1 << 16)
        assert chunk, said
        said += chunk
    return said


def at_a_terminal(site: Running, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command with a terminal, and our end of that."""
    master, end = os.openpty()
    process = subprocess.Popen(
        argv(site, *words),
        cwd=site.work,
        env={**os.environ, "PS1": "ready> ", "ENV": ""},
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    )
    os.close(end)
    return process, master
