"""A worker of `coalloc.Executor`: makes one call after the other, as the client sends them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coalloc.client.futures.call_runner import outcomes
from coalloc.client.futures.calls import outcomes_text
from coalloc.wire.client import RequestConnection
from coalloc.wire.curve import CurveClient, KeyPair

KEYS = "workers.json"
"""Beside the workers' files: where the client listens, and the keys; its owner's only."""
CONNECT_S = 2.0
"""For each address of the client, seconds."""
GONE_S = 30.0
"""Without a call or the order to end, seconds: the client has gone."""


def serve(path: Path) -> int:
    """Make calls until the client ends it or has gone; `path` names the worker.

    Returns 0 at once where the client cannot be reached.
    """
    client = connected(json.loads(path.with_name(KEYS).read_text(encoding="utf-8")))
    if client is None:
        return 0
    output = os.open(path.with_suffix(".out"), os.O_APPEND | os.O_RDWR | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(output, standard)
    job = os.environ.get("COALLOC_JOB_ID", "")
    client.send({"type": "hello", "worker": path.name, "job": job})
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        told = client.next_answer(GONE_S)
        if told is not None:
            call = told.plain()
            if call["type"] == "end":
                break
            client.send({"type": "result", **made(call, path.with_suffix(".out"))})
            end = time.monotonic() + GONE_S
    return 0


def connected(keys: Mapping[str, Any]) -> RequestConnection | None:
    """A connection to the client; None: it cannot be reached from here."""
    for host in keys["hosts"]:
        address = "127.0.0.1" if host == socket.gethostname() else host
        with suppress(OSError), socket.create_connection((address, keys["port"]), CONNECT_S) as way:
            pair = KeyPair(public=keys["public"], secret=keys["secret"])
            endpoint = f"tcp://{way.getpeername()[0]}:{keys['port']}"
            security = CurveClient(pair=pair, server=keys["server"])
            return RequestConnection(endpoint, security=security, max_bytes=sys.maxsize)
    return None


def made(call: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Make a call; what a failed one printed goes from our output to a file of its own."""
    result: dict[str, Any] = {}
    failed = True
    try:
        done = list(outcomes(json.loads(call["text"])))
        failed = bool(done) and done[-1].failed
        sys.stderr.write(done[-1].trace if failed else "")
        result["outcomes"] = outcomes_text(done)
    except SystemExit as error:
        result["exit_code"] = error.code if isinstance(error.code, int) else bool(error.code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the function may have closed it
            stream.flush()
    if os.fstat(1).st_size:
        if failed:
            shutil.copyfile(output, call["output"])
        os.ftruncate(1, 0)
    return result
