"""Where the client finds its daemon, and whether anybody is there."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

from coalloc.daemon.wire.client import NoAnswerError

LOOK_AGAIN_S = 0.02


def configured_endpoints(config: Path | None = None) -> tuple[str, str]:
    """Where the configured daemon answers, and where it publishes.

    Raises
    ------
    ConfigError
    """
    from coalloc.daemon.config_file import find_config, load

    daemon = load(find_config(config)).daemon
    return daemon.endpoint, daemon.publish_endpoint


def await_listener(endpoint: str, patience_s: float) -> None:
    """Return when somebody listens on an ipc end point; others are taken to.

    ZeroMQ itself would wait for ever: it cannot tell a daemon that is late from one that is not
    there.

    Raises
    ------
    NoAnswerError
        Nobody does, or we may not connect.
    """
    if not endpoint.startswith("ipc://"):
        return
    path = endpoint.removeprefix("ipc://")
    end = time.monotonic() + patience_s
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            code = probe.connect_ex(path)
        if code in {0, errno.EAGAIN, errno.EINPROGRESS}:
            return
        if code not in {errno.ENOENT, errno.ECONNREFUSED}:
            raise NoAnswerError(f"cannot connect to {endpoint}: {os.strerror(code)}")
        if time.monotonic() >= end:
            raise NoAnswerError(f"no daemon listens at {endpoint}; is coallocd running?")
        time.sleep(LOOK_AGAIN_S)
