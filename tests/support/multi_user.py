"""A real site in multi-user mode: keys for its executors, an operator, and as many users."""

from __future__ import annotations

import pwd
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coalloc.client import enrolment
from coalloc.runtime.key_files import KeyFile, read_key, write_key
from coalloc.wire.client import RequestConnection
from coalloc.wire.curve import CurveClient, KeyPair, new_pair
from tests.support.live_site import LIMIT_S, Running

NOBODY = 65534
ADA, BOB = pwd.getpwuid(NOBODY).pw_name, pwd.getpwuid(1).pw_name
"""Two accounts that every Linux system has."""
STRAY = 300_123
"""A uid of no account."""


def as_uid(uid: int) -> tuple[str, ...]:
    """What runs a command as another user, who may read what root's own Python is made of."""
    rights = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *rights)


class MultiUser(Running):
    """The processes of one site, which tell users apart."""

    def __init__(self, root: Path, *, access: str = "", **fields: Any) -> None:
        daemon = 'mode = "multi-user"\n' + fields.pop("daemon", "")
        super().__init__(root, daemon=daemon, start=f"\n[access]\n{access}", **fields)
        root.chmod(0o755)
        self.work.chmod(0o777)
        self.enrolment = root / "run" / "enrol.sock"
        self.publications = f"ipc://{root}/run/events.sock"
        self.executors = f"ipc://{root}/run/executors.sock"
        self.operator: CurveClient | None = None
        self.server = ""
        self.pairs: list[KeyPair] = []

    def start(self) -> None:
        """Start the daemon, enrol what it needs, start the executors."""
        try:
            self.start_daemon(wait=False)
            self.until(self.is_listening)
            self.server = self.admin("list")["server"]
            self.operator = self.key(ADA, role="operator")
            for name in self.names:
                self.executor_key(name)
                self.start_executor(name)
            self.until(self.is_complete)
        except BaseException:
            self.stop()
            raise

    def is_listening(self) -> bool:
        """The enrolment socket is there, and with it all others."""
        try:
            self.admin("list")
        except enrolment.EnrolmentError:
            return False
        return True

    def admin(self, verb: str, **fields: Any) -> Mapping[str, Any]:
        """Ask the enrolment socket as this process's user, who is the daemon's."""
        return enrolment.ask(self.enrolment, verb, **fields)

    def key(self, user: str, role: str = "submit", clusters: tuple[str, ...] = ()) -> CurveClient:
        """A new key of a user."""
        calling = self.unknown_key()
        self.admin(
            "authorize", key=calling.pair.public, user=user, role=role, clusters=list(clusters)
        )
        return calling

    def unknown_key(self) -> CurveClient:
        """A key that nobody has authorized."""
        self.pairs.append(new_pair())
        return CurveClient(pair=self.pairs[-1], server=self.server)

    def executor_key(self, cluster: str) -> None:
        """Give a cluster's executor its key."""
        path = self.root / "state" / "executors" / cluster / "key.json"
        calling = self.key(BOB, role="executor", clusters=(cluster,))
        write_key(path, KeyFile(pair=calling.pair, server=self.server))

    def executor_calling(self, cluster: str) -> CurveClient:
        """The key of a cluster's executor, as a thief would have it."""
        file = read_key(self.root / "state" / "executors" / cluster / "key.json")
        return CurveClient(pair=file.pair, server=file.server)

    @property
    def asker(self) -> RequestConnection:
        """A connection to the daemon, as an operator."""
        if self._asker is None:
            self._asker = RequestConnection(
                self.endpoint, timeout_s=LIMIT_S, security=self.operator
            )
        return self._asker

    @contextmanager
    def asking(
        self, security: CurveClient | None, timeout_s: float = LIMIT_S
    ) -> Iterator[RequestConnection]:
        """A connection with this key, or with none."""
        asker = RequestConnection(self.endpoint, timeout_s=timeout_s, security=security)
        try:
            yield asker
        finally:
            asker.close()

    def audited(self, event: str, what: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The audit's line of an event, once it is there."""
        found: list[dict[str, Any]] = []

        def holds() -> bool:
            lines = [line for line in self.lines(event) if line.get("audit")]
            found[:] = [line for line in lines if what in str(line.get("what"))]
            return bool(found)

        self.until(holds, limit_s)
        return found[-1]


class Tap:
    """An ipc end point that passes everything on to another, and keeps what the client sent."""

    def __init__(self, path: Path, target: str) -> None:
        self.endpoint = f"ipc://{path}"
        self.sent = b""
        self._target = target.removeprefix("ipc://")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(self._target)
            while True:
                ready, _, _ = select.select([client, daemon], [], [], 10.0)
                for side in ready:
                    chunk = side.recv(1 << 16)
                    if not chunk:
                        return
                    if side is client:
                        self.sent += chunk
                    (daemon if side is client else client).sendall(chunk)
                if not ready:
                    return

    def close(self) -> None:
        """Wait until the client has gone."""
        self._thread.join(20.0)
        self._listener.close()
