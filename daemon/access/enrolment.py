"""The enrolment socket: where keys are authorized and revoked, by whom the kernel says asks.

A separate AF_UNIX socket, open to everybody, whose peers SO_PEERCRED names: a frame of ZeroMQ
carries no such thing that could be relied on. One line of JSON asks, one answers. A user has his
own keys bound to his own number; root and the daemon's user decide over all keys.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from structlog.stdlib import BoundLogger

from coalloc.daemon.access.access import Access
from coalloc.daemon.access.key_table import Grant, KeyTable, KeyTableError, Role
from coalloc.runtime.config.schema import Config
from coalloc.runtime.key_files import KeyFile, fingerprint, read_key, write_key
from coalloc.wire.curve import new_pair

MAX_LINE_BYTES = 4096
PATIENCE_S = 5.0
"""For one line of a peer, seconds."""
MAX_PEERS = 64
PEERCRED = struct.Struct("3i")


class EnrolmentError(Exception):
    """What was asked is refused; the message is one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who is at the other end of the socket."""

    user: str
    uid: int
    gid: int
    is_admin: bool


def opened_access(config: Config, log: BoundLogger) -> Access:
    """The daemon's key, made at its first start, and its table of keys.

    Raises
    ------
    KeyFileError
    KeyTableError
    """
    folder = Path(config.daemon.state_dir)
    path = folder / "server-key.json"
    if not os.path.lexists(path):
        pair = new_pair()
        write_key(path, KeyFile(pair=pair, server=pair.public))
    pair = read_key(path).pair
    return Access(pair, KeyTable(folder / "keys.json"), config.access, log)


class Enrolment:
    """Serves the socket.

    Parameters
    ----------
    on_change : callable
        This key may do less than before.
    """

    def __init__(
        self,
        access: Access,
        config: Config,
        *,
        on_change: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.access, self.clock, self.on_change = access, clock, on_change
        self.clusters = {cluster.name for cluster in config.clusters}
        self._server: asyncio.Server | None = None
        self._peers = 0

    async def open(self, path: Path) -> None:
        """Listen; every user of the machine may connect."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.unlink()
        self._path = path
        self._server = await asyncio.start_unix_server(
            self._connected, str(path), limit=MAX_LINE_BYTES, backlog=MAX_PEERS
        )
        path.chmod(0o666)

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peers += 1
        try:
            if self._peers <= MAX_PEERS:
                async with asyncio.timeout(PATIENCE_S):
                    line = await reader.readline()
                    answer = self.answer(line, peer_of(writer.get_extra_info("socket")))
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass  # It said nothing in time, too much, or has gone.
        finally:
            self._peers -= 1
            writer.close()

    def answer(self, line: bytes, peer: Peer) -> Mapping[str, Any]:
        """Carry out one line of a peer."""
        verb = ""
        try:
            body = _object(line)
            verb = str(body.get("verb"))
            found = self._carry_out(verb, body, peer)
        except (EnrolmentError, KeyTableError) as error:
            self.access.audit.refused(
                "enrolment_refused",
                peer.user,
                what=str(error)[:200],
                verb=verb[:20],
                user=peer.user,
                uid=peer.uid,
            )
            return {"error": str(error)}
        return {"server": self.access.pair.public, **found}

    def _carry_out(self, verb: str, body: Mapping[str, Any], peer: Peer) -> Mapping[str, Any]:
        match verb:
            case "authorize":
                return {"key": msgspec.to_builtins(self._authorize(body, peer))}
            case "revoke":
                return {"key": msgspec.to_builtins(self._revoke(body, peer))}
            case "list":
                seen = [g for g in self.access.table if peer.is_admin or g.uid == peer.uid]
                return {"keys": msgspec.to_builtins(seen)}
        raise EnrolmentError(f"verb: {verb[:20]!r} is not authorize, revoke or list")

    def _authorize(self, body: Mapping[str, Any], peer: Peer) -> Grant:
        role = _role(body.get("role", Role.SUBMIT))
        user = body.get("user") or peer.user
        clusters = body.get("clusters") or ()
        if not isinstance(user, str) or not isinstance(clusters, list | tuple):
            raise EnrolmentError("user, clusters: are not a text and a list")
        for cluster in clusters:
            if not isinstance(cluster, str) or cluster not in self.clusters:
                raise EnrolmentError(f"clusters: there is no cluster {str(cluster)[:80]!r}")
        if not peer.is_admin and (user != peer.user or role is not Role.SUBMIT):
            raise EnrolmentError(
                f"{peer.user} may enrol keys of his own to submit with; "
                "ask root for other users and roles"
            )
        account = _account(user)
        grant = Grant(
            key=str(body.get("key")),
            user=account.pw_name,
            uid=account.pw_uid,
            gid=account.pw_gid,
            role=role,
            clusters=tuple(clusters),
            by=peer.user,
            added=self.clock(),
        )
        old = self.access.table.live(grant.key)
        keep = body.get("keep") or not peer.is_admin
        if old is not None and keep and old.uid == peer.uid == grant.uid:
            return old  # A key that is enrolled again keeps the role it was given since.
        self.access.table.authorize(grant)
        self._told("key_authorized", grant, peer)
        if old is not None:
            self.on_change(grant.key)
        return grant

    def _revoke(self, body: Mapping[str, Any], peer: Peer) -> Grant:
        table = self.access.table
        found = table.named(str(body.get("key")), None if peer.is_admin else peer.uid)
        grant = table.revoke(found.key, self.clock())
        self._told("key_revoked", grant, peer)
        self.on_change(grant.key)
        return grant

    def _told(self, event: str, grant: Grant, peer: Peer) -> None:
        self.access.audit.done(
            event,
            key=fingerprint(grant.key),
            user=grant.user,
            uid=grant.uid,
            role=str(grant.role),
            clusters=list(grant.clusters),
            by=peer.user,
            by_uid=peer.uid,
        )


def peer_of(connection: socket.socket) -> Peer:
    """Who connected, by the kernel's word."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEERCRED.size)
    _, uid, gid = PEERCRED.unpack(raw)
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"uid {uid}"
    return Peer(user=user, uid=uid, gid=gid, is_admin=uid in {0, os.geteuid()})


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise EnrolmentError(f"user: there is no account {user[:80]!r}") from None


def _role(text: object) -> Role:
    try:
        return Role(str(text))
    except ValueError:
        raise EnrolmentError(f"role: {str(text)[:20]!r} is not one of {', '.join(Role)}") from None


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise EnrolmentError("not one line with a JSON object")
    return body
