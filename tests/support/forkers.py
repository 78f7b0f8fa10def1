"""Programs that fork as fast as they can, and what ends them should all else fail."""

from __future__ import annotations

import contextlib
import fcntl
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "games"
"""An account that every Debian has, and that runs nothing."""

SOURCE = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
static int is(char *mode, const char *word) { return strcmp(mode, word) == 0; }
int main(int count, char **words) {
  char *mode = words[2];
  struct rlimit most = {atoi(words[1]), atoi(words[1])};
  if (most.rlim_cur) setrlimit(RLIMIT_NPROC, &most);
  for (int number = 1; number < 32; number++)
    if (number != SIGCHLD || !is(mode, "bomb")) signal(number, SIG_IGN);
  prctl(PR_SET_DUMPABLE, 0);
  if (is(mode, "escape")) {
    char *sleeper[] = {"sleeper", "0", "sleep", 0}, *nothing[] = {0};
    for (int left = 20; left--; )
      if (fork() == 0) {
        setsid();
        if (fork() == 0) execve("/proc/self/exe", sleeper, nothing);
        _exit(0);
      }
  }
  if (is(mode, "escape") || is(mode, "sleep")) for (;;) pause();
  if (is(mode, "comets")) {
    int left = most.rlim_cur / 3;
    while (left-- && fork()) ;
    if (left < 0) for (;;) pause();
    for (;;) { if (fork() > 0) _exit(0); setsid(); }
  }
  for (;;) {
    if (fork() == 0) { setsid(); if (fork()) _exit(0); }
    if (is(mode, "revive")) kill(-1, SIGCONT);
  }
}
"""
"""Its modes: each of its processes forks for ever in a session of its own (``bomb``), and reaps at
once whoever ends (``reap``), and lets all go on that were stopped (``revive``); or each leaves a
new one behind and ends (``comets``). Or 20 leave group, session, parent and environment, and sleep
(``escape``)."""

KILLER = """\
import os, signal, sys, time
uid = int(sys.argv[2])
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(50))
time.sleep(float(sys.argv[1]))
for _ in range(int(sys.argv[3])):
    if os.fork() == 0:
        os.setresuid(uid, uid, uid)
        try:
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.wait()
    time.sleep(0.01)
"""


def uid() -> int:
    """The number of the user whose processes fork."""
    try:
        return pwd.getpwnam(USER).pw_uid
    except KeyError:
        pytest.skip(f"there is no account {USER}")


def built(folder: Path) -> str:
    """The program, compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = folder / "forker"
    command = [compiler, "-O1", "-x", "c", "-o", str(path), "-"]
    subprocess.run(command, input=SOURCE.encode(), check=True, capture_output=True)
    path.chmod(0o755)
    return str(path)


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Kill all of that user's processes after so long, whatever else happens, and at the end.

    One at a time on this machine: a test beside it would count and kill this one's processes.
    """
    number = str(uid())
    command = [sys.executable, "-c", KILLER]
    with (Path(tempfile.gettempdir()) / "coalloc-forkers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        killer = subprocess.Popen([*command, str(seconds), number, "1000"])
        try:
            yield
            assert killer.poll() is None
        finally:
            killer.kill()
            killer.wait()
            subprocess.run([*command, "0", number, "3"], check=True)


def there() -> list[str]:
    """States of that user's processes, of those too that have ended and that nobody reaped."""
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            facts = dict(line.split(":\t", 1) for line in path.read_text().splitlines())
            if facts["Uid"].split()[0] == str(uid()):
                found.append(facts["State"])
    return [state for state in found if not state.startswith("X")]  # X: nothing but its name
