"""The one connection to a login node: OpenSSH's master, which others' sessions go through.

It is a process of its own and outlives whoever opened it. No client falls back to a connection of
its own: `SshMaster.way` says ``ProxyCommand=false``. What is known of the connection is in a
file beside the control socket, for all processes of the user. Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from coalloc.adapters.runner.grant import keep, kept

BACK_OFF_S = (60.0, 120.0, 300.0, 900.0)
"""Pauses after failures in turn; the last is repeated."""
OPEN_LIMIT_S, CHECK_LIMIT_S, TYPING_LIMIT_S = 30.0, 3.0, 300.0
LONGEST_PATH = 88
"""Of a control socket: of 107 bytes ssh adds 18 while it makes one."""
# With ControlPersist the master would stay in the terminal's session, and die with it.
OPTIONS = (
    *("ConnectTimeout=10", "ServerAliveInterval=15", "ServerAliveCountMax=3", "ControlPersist=no"),
    *("ClearAllForwardings=yes", "ExitOnForwardFailure=yes", "ForwardAgent=no", "ForwardX11=no"),
    *("PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no"),
)
QUIET = "BatchMode=yes", "StrictHostKeyChecking=yes"
OUTLIVES = ("/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh")
"""The terminal: also what the connection goes through, a jump host's ssh or a proxy command."""
NOT_ERRORS = ("debug", "OpenSSH", "@")
HOST_KEY = ("host key verification failed", "host identification has changed")
OPEN, CLOSED, REFUSED, CHANGED = "open", "closed", "refused", "host_key"


class SshError(Exception):
    """The login node is out of reach, or did not answer: what was asked may have been done."""


@dataclass(frozen=True)
class MasterState:
    """The state of a connection."""

    state: str = CLOSED
    """``open``, ``closed``, ``refused`` or ``host_key``: the host's key is new or has changed."""
    since: float = 0.0
    """Wall-clock seconds."""
    until: float = 0.0
    """Nothing is tried before, wall-clock seconds."""
    why: str = ""
    """In ssh's words."""
    asks: bool = False
    """It asks for more than a key: only a person opens it."""
    failures: int = 0
    host_key: str = ""
    """Kind and fingerprint of the host's key when it was last reached."""
    pid: int = 0


def stem_of(target: str, config: str = "") -> str:
    """Path that all files of a login begin with; its folder is made, for its user alone."""
    folder = os.path.expanduser("~/.ssh/coalloc")
    about = f"{os.uname().nodename}\0{os.geteuid()}\0{target}\0{config}"
    name = hashlib.blake2b(about.encode(), digest_size=6).hexdigest()
    if len(os.fsencode(f"{folder}/{name}.ctl")) > LONGEST_PATH:
        folder = f"/tmp/coalloc-{os.geteuid()}"
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    entry = os.lstat(folder)
    if entry.st_uid != os.geteuid() or entry.st_mode & 0o40077 != 0o40000:
        raise SshError(f"{folder} must be this user's own folder, with mode 0700")
    return f"{folder}/{name}"


class SshMaster:
    """The connection to `target`, as ssh takes it; `config` is ssh's file where not the usual."""

    def __init__(self, target: str, config: str = "") -> None:
        self.target, self.config = target, config
        self.stem = stem_of(target, config)
        self._control = f"{self.stem}.ctl"

    def way(self, *, own: bool) -> list[str]:
        """Words before the target, of a client over the master, or with a connection of its own."""
        options = ("ControlMaster=no", *OPTIONS) if own else ("ProxyCommand=false",)
        return [*self._ssh(), "-S", "none" if own else self._control, *_options(*options, *QUIET)]

    def check(self, limit_s: float = CHECK_LIMIT_S) -> int:
        """Pid of the master, the known one also where it is late to answer; 0: there is none."""
        words = [*self._ssh(), "-S", self._control, "-O", "check", "--", self.target]
        try:
            done = subprocess.run(words, capture_output=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return self._kept_pid()
        found = re.search(rb"pid=(\d+)", done.stderr + done.stdout)
        return int(found[1]) if found else 0

    def state(self) -> MasterState:
        """State of the connection now; nothing is sent to the login node."""
        known = self._kept()
        if known.state == OPEN and not self.check():
            return replace(known, state=CLOSED, why="the connection broke")
        return known

    def open(self, *, terminal: bool = False) -> MasterState:
        """Open the connection where it is closed, and say how it is then.

        With a `terminal` a person is there: ssh may ask, and a pause after refusals is cut short.
        Else nothing is tried before `until`, where a second factor was asked for, or where the
        host's key is not the known one.
        """
        with self._locked():
            known = self._kept()
            if pid := self.check():
                if known.state != OPEN or known.pid != pid:
                    known = replace(known, state=OPEN, since=time.time(), pid=pid, failures=0)
                    self._keep(known)
                return known
            is_shut = known.asks or known.state == CHANGED or time.time() < known.until
            if is_shut and not terminal:
                return self.state()
            found = self._try(known, *QUIET)
            if terminal and found.state != OPEN:
                is_typed = found.state == REFUSED  # else it was the host's key that was asked about
                found = self._try(known, "BatchMode=no", "StrictHostKeyChecking=ask")
                found = replace(found, asks=is_typed and (found.asks or found.state == OPEN))
            return self._keep(found)

    def close(self) -> None:
        """Close the connection, and all that goes over it."""
        self.drop()
        with self._locked():
            self._keep(MasterState(CLOSED, time.time(), why="closed by its user", asks=True))

    def drop(self) -> None:
        """End the master, also one that no longer answers."""
        if pid := self.check() or self._kept_pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._control)

    def _try(self, known: MasterState, *options: str) -> MasterState:
        """One attempt, which makes one connection."""
        self.drop()  # a dead one's socket would keep the new one from listening
        log, is_typed = f"{self.stem}.log", "BatchMode=no" in options
        words = [*self._ssh(), "-M", "-N", "-f", "-S", self._control, "-v", "-E", log]
        words += _options(*OPTIONS, *options)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log)
        words = [*(OUTLIVES if is_typed else ()), *words, "--", self.target]
        null, code, why = None if is_typed else subprocess.DEVNULL, 255, ""
        limit_s = TYPING_LIMIT_S if is_typed else OPEN_LIMIT_S
        try:
            code = subprocess.run(
                words,
                stdin=null,
                stdout=null,
                stderr=null,
                timeout=limit_s,
                start_new_session=not is_typed,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            why = "no answer in time"
        except OSError as error:
            why = f"ssh cannot be run: {error.strerror}"
        said = _read(log)
        key = re.search(r"Server host key: (\S+ \S+)", said)
        host_key = key[1] if key else known.host_key
        now, asks = time.time(), known.asks or "with partial success" in said
        if code == 0 and (pid := self.check(OPEN_LIMIT_S)):
            return MasterState(OPEN, now, host_key=host_key, pid=pid)
        own = [line.strip() for line in said.splitlines() if not line.startswith(NOT_ERRORS)]
        why = why or "; ".join(filter(None, own[-2:]))[:200] or f"ssh ended with {code}"
        if any(phrase in said.lower() for phrase in HOST_KEY):
            return MasterState(CHANGED, now, why=why, host_key=known.host_key)
        failures = known.failures + 1
        until = now + BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1]
        return MasterState(REFUSED, now, until, why, asks, failures, host_key)

    def _ssh(self) -> list[str]:
        return ["ssh", *(["-F", self.config] if self.config else [])]

    def _kept(self) -> MasterState:
        return MasterState(**kept(*os.path.split(f"{self.stem}.state")))

    def _kept_pid(self) -> int:
        """Pid of the master that was opened last; 0: it has ended."""
        pid = self._kept().pid
        return pid if self._control in _read(f"/proc/{pid}/cmdline") else 0

    def _keep(self, state: MasterState) -> MasterState:
        keep(*os.path.split(f"{self.stem}.state"), asdict(state))
        return state

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(f"{self.stem}.lock", "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _options(*options: str) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
