"""Endpoint of the client's daemon, and whether anybody is there."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from coalloc.runtime.user import user_name
from coalloc.wire.client import NoAnswerError
from coalloc.wire.curve import CurveClient
from coalloc.wire.frames import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from coalloc.model.settings import Config

PATIENCE_S = 1.0
"""How long a daemon that is being restarted may take to listen again, seconds."""
LOOK_AGAIN_S = 0.02


class DaemonEndpoint(Struct, frozen=True, kw_only=True):
    """Addresses of a daemon, and the keys it has to be shown."""

    endpoint: str
    publish_endpoint: str | None = None
    security: CurveClient | None = None
    """None: it tells no users apart."""
    max_request_bytes: int = MAX_REQUEST_BYTES


def configured_endpoints(config: Path | None = None) -> tuple[str, str]:
    """Addresses at which the configured daemon answers and publishes."""
    daemon = _configured(config).daemon
    return daemon.endpoint, daemon.publish_endpoint


def daemon_endpoint(endpoint: str | None, config: Path | None, key: Path | None) -> DaemonEndpoint:
    """Address and key to use.

    Without an end point, the configuration says, and also whether a key is needed; without a key,
    it is the user's. With an end point that was named, a key is used if it is named too, here or by
    ``$COALLOC_KEY``. `NoAnswerError`: a key is needed, and there is none that can be used.
    """
    if endpoint is not None:
        if key is None and not os.environ.get("COALLOC_KEY"):
            return DaemonEndpoint(endpoint=endpoint)
        return DaemonEndpoint(endpoint=endpoint, security=_security(key, ""))
    found = _configured(config)
    shared = found.daemon.mode == "multi-user"
    return DaemonEndpoint(
        endpoint=found.daemon.endpoint,
        publish_endpoint=found.daemon.publish_endpoint,
        security=_security(key, found.access.server_key) if shared else None,
        max_request_bytes=found.daemon.max_message_bytes,
    )


def _configured(config: Path | None) -> Config:
    from coalloc.runtime.config.file import find_config, load

    return load(find_config(config))


def _security(key: Path | None, server: str) -> CurveClient:
    from coalloc.runtime.key_files import KeyFileError, calling, read_key, user_key_path

    path = key
    try:
        path = key or user_key_path()
        return calling(read_key(path), server, path)
    except KeyFileError as error:
        hint = "" if path is None or path.exists() else "; 'coalloc keys new' makes one"
        raise NoAnswerError(f"{error}{hint}") from error


def await_listener(endpoint: str, patience_s: float) -> None:
    """Return when somebody listens on an ipc end point; others are taken to.

    ZeroMQ itself would wait for ever: it cannot tell a daemon that is late from one that is not
    there. `NoAnswerError`: nobody listens, or we may not connect.
    """
    end = time.monotonic() + patience_s
    while not is_listening(endpoint):
        if time.monotonic() >= end:
            raise NoAnswerError(f"no daemon listens at {endpoint}; is coallocd running?")
        time.sleep(LOOK_AGAIN_S)


def is_listening(endpoint: str) -> bool:
    """Whether somebody listens on an ipc end point; others are taken to.

    `NoAnswerError`: we may not connect.
    """
    if not endpoint.startswith("ipc://"):
        return True
    # A socket of another kind: the kernel says whether one is there, and the daemon, for which a
    # connection that shows no key is an attack, sees none.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        code = probe.connect_ex(endpoint.removeprefix("ipc://"))
    if code not in {errno.EPROTOTYPE, errno.ENOENT, errno.ECONNREFUSED}:
        why = _kept_out(Path(endpoint.removeprefix("ipc://"))) if code == errno.EACCES else ""
        raise NoAnswerError(f"cannot connect to {endpoint}: {os.strerror(code)}{why}")
    return code == errno.EPROTOTYPE


def _kept_out(path: Path) -> str:
    """Owner of a daemon whose socket, or a folder above it, is closed to others."""
    for place in (path, *path.parents):
        with suppress(OSError):
            found = place.stat()
            owner = user_name(found.st_uid)
            what = f'; this daemon serves one user ({owner}): mode = "multi-user" is for several'
            return "" if found.st_mode & 0o007 else what
    return ""
