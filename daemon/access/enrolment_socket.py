"""The enrolment socket: AF_UNIX, open to every account, whose peers SO_PEERCRED names.

A frame of ZeroMQ carries no such thing that could be relied on. Peers are accepted by hand: a user
who has taken his places, or asks too often, is turned away before anything is read of him.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coalloc.core.base.requests import RequestError
from coalloc.daemon.access.enrolment import Conversation, Enrolment, Peer
from coalloc.wire.sockets import FileId, file_id, make_folder

MAX_LINE_BYTES = 4096
PATIENCE_S = 5.0
"""For one line of a peer, seconds."""
MAX_PEERS, MAX_PEERS_OF_USER = 64, 8
"""Connections at the same time; those of root and of the daemon's user do not count."""
BACKLOG = 1024
ACCEPTED_AT_ONCE = 16
"""Before the daemon's other work gets its turn."""
PEERCRED = struct.Struct("3i")


class EnrolmentSocket:
    """Listens for `Enrolment`."""

    def __init__(self, path: Path, enrolment: Enrolment) -> None:
        self.name, self.path, self.enrolment = "enrolment", path, enrolment
        self._listener: socket.socket | None = None
        self._file: FileId | None = None
        self._places: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen, in the loop that runs; every user of the machine may connect."""
        make_folder(self.path, is_shared=True)
        with suppress(FileNotFoundError):
            self.path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(self.path))
            self.path.chmod(0o666)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener, self._file = listener, file_id(self.path)
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)

    async def close(self) -> None:
        if self.is_there():
            self.path.unlink(missing_ok=True)
        self._stop_listening()
        # A task that is cancelled before its first step would leave its connection open.
        await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def is_there(self) -> bool:
        return self._file is not None and file_id(self.path) == self._file

    def restore(self) -> None:
        """Listen again where the file is gone; conversations go on. Raises `OSError`."""
        self._stop_listening()
        self.open()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = self._file = None

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._listener is None:
                return
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # None waits any more, or no descriptor is left.
            connection.setblocking(False)
            peer = peer_of(connection)
            try:
                self._check_place(peer)
                self.enrolment.check_line(peer)
            except RequestError as error:
                answer = self.enrolment.refused(error, peer)
                with connection, suppress(OSError):
                    connection.send(_encoded(answer))
                continue
            self._places[peer.uid] += 1
            task = asyncio.get_running_loop().create_task(self._talk(connection, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _check_place(self, peer: Peer) -> None:
        if peer.is_admin:
            return
        if not peer.has_account:
            raise RequestError("unknown_user", f"{peer.user} has no account here")
        if self._places[peer.uid] >= MAX_PEERS_OF_USER:
            raise RequestError(
                "no_place",
                f"{peer.user} has {MAX_PEERS_OF_USER} connections here; "
                f"try again in {PATIENCE_S:g} s",
            )
        if self._places.total() >= MAX_PEERS:
            raise RequestError("no_place", f"too many connections; try again in {PATIENCE_S:g} s")

    async def _talk(self, connection: socket.socket, peer: Peer) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_unix_connection(
                sock=connection, limit=MAX_LINE_BYTES
            )
            conversation = Conversation(self.enrolment, peer)
            while True:
                async with asyncio.timeout(PATIENCE_S):
                    line = await reader.readline()
                    writer.write(_encoded(conversation.answer(line)))
                    await writer.drain()
                if not conversation.is_open:
                    return
        except (TimeoutError, ValueError, OSError):
            pass  # It said nothing in time, too much, or has gone.
        finally:
            (connection if writer is None else writer).close()
            self._places[peer.uid] -= 1
            self._places += Counter()  # forgets those that have none


def _encoded(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def peer_of(connection: socket.socket) -> Peer:
    """The process that connected, as the kernel names it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEERCRED.size)
    _, uid, _ = PEERCRED.unpack(raw)
    try:
        user, has_account = pwd.getpwuid(uid).pw_name, True
    except KeyError:
        user, has_account = f"uid {uid}", False
    is_admin = uid in {0, os.geteuid()}
    return Peer(user=user, uid=uid, is_admin=is_admin, has_account=has_account)
