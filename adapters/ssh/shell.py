"""Commands on a login node, and the port there for the nodes' wrappers, over one channel.

Both ask the login's link (`ssh.link`), a process of the user's that holds the channel, and start it
where there is none. Imports the standard library only: part runners load it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coalloc.adapters.runner.grant import keep, kept
from coalloc.adapters.ssh.master import SshError, stem_of

LINK_START_S = 5.0
MARGIN_S = 20.0
"""Beyond a command's own time limit: the connection may have to be opened first, seconds."""
_BOOT = (
    "import sys; a = sys.argv; "
    "[(sys.modules.update({n: m}), setattr(m, '__path__', a[1].split(':'))) "
    "for n in ('coalloc', 'coalloc.adapters') for m in [type(sys)(n)]]; "
    "from coalloc.adapters.ssh.link import main; main(a[2])"
)


class CommandOutput(NamedTuple):
    """Output of a command, and its exit code: a signal that killed it is a negative one."""

    code: int
    out: str
    err: str


class Shell:
    """Runs commands on a login node, each in a process group that ends at its time limit."""

    def __init__(self, stem: str) -> None:
        self.stem = stem

    @classmethod
    def of(cls, target: str, config: str = "") -> Shell:
        """The shell of a login, as `SshMaster` has it."""
        stem, login = stem_of(target, config), {"target": target, "config": config}
        where = os.path.split(f"{stem}.json")
        if kept(*where) != login:
            keep(*where, login)
        return cls(stem)

    def run(self, script: str, limit_s: float) -> CommandOutput:
        """Run a script of ``sh``, which comes by standard input. Raises `SshError`."""
        return self.ask(["/bin/sh"], text=script, limit_s=limit_s)

    def ask(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        text: str = "",
        limit_s: float = 10.0,
    ) -> CommandOutput:
        """Run one command with further variables and `text` as its standard input.

        Raises `SshError` where the login node is out of reach, or the command cannot be run, or
        was ended at its time limit.
        """
        asked = {"argv": list(argv), "env": dict(env or {}), "text": text, "limit_s": limit_s}
        said = self._say({"run": asked}, limit_s + MARGIN_S)
        return CommandOutput(int(said["code"]), said["out"], said["err"])

    def about(self) -> dict[str, Any]:
        """The login node: ``user``, ``uid``, ``host``, ``addresses``, ``python``, ``trip_s``.

        Opens the connection where it may be opened. Raises `SshError`.
        """
        return self._say({"about": {}}, MARGIN_S)

    def relay(self, state_dir: str) -> tuple[str, int]:
        """Addresses there, with commas, and the port by which wrappers reach parts in this folder.

        It holds no key (`runner.talk`), and stays the same. Raises `SshError`.
        """
        said = self._say({"relay": [state_dir]}, MARGIN_S)
        return ",".join(said["addresses"]), int(said["port"])

    def end(self) -> None:
        """End the link and its channel, not the master. Nothing where there is none."""
        with contextlib.suppress(SshError, OSError):
            self._spoken({"end": {}}, 2.0)

    def _say(self, words: dict[str, Any], limit_s: float) -> dict[str, Any]:
        end = time.monotonic() + LINK_START_S
        while True:
            try:
                return self._spoken(words, limit_s)
            except (FileNotFoundError, ConnectionRefusedError) as error:
                if time.monotonic() >= end:
                    raise SshError(f"ssh: no link; see {self.stem}.link.log") from error
            except TimeoutError as error:
                raise SshError(f"ssh: no answer within {limit_s:g} s") from error
            except OSError as error:
                raise SshError(f"ssh: the link: {error.strerror}") from error
            self._start_link()

    def _spoken(self, words: dict[str, Any], limit_s: float) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(limit_s)
            sock.connect(f"{self.stem}.sock")
            sock.sendall(json.dumps(words).encode())
            sock.shutdown(socket.SHUT_WR)
            raw = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        try:
            said: dict[str, Any] = json.loads(raw)
        except ValueError:
            raise SshError("ssh: the link ended before it answered") from None
        if "error" in said:
            raise SshError(said["error"])
        return said

    def _start_link(self) -> None:
        """Start the link, which has a socket when its first process ends; or another starts it."""
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        words = [sys.executable, "-S", "-c", _BOOT, package, self.stem]
        with open(f"{self.stem}.link.log", "ab") as log:
            out = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            subprocess.run(words, **out, start_new_session=True, check=False)  # type: ignore[call-overload]
