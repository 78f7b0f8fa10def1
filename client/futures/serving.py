"""A worker of `coalloc.Executor`: makes calls, one after the other, as the client sends them.

One thread calls, another talks, so that what has not begun can be taken back meanwhile. Before a
call begins, its number goes into the worker's record, a file that tells the client what had begun
if the worker dies.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from coalloc.client.futures.call_runner import outcomes
from coalloc.client.futures.calls import outcomes_text
from coalloc.wire.client import RequestConnection
from coalloc.wire.curve import CurveClient, KeyPair

KEYS = "workers.json"
"""Beside the records: where the client listens, and the keys; its owner's only."""
CONNECT_S = 2.0
"""For each address of the client, seconds."""
GATHER_S, LOOK_S = 0.005, 0.05
"""Between looks at what is to be told, seconds: while there is some, and else."""
GONE_S = 30.0
"""Silence after which the client has gone, seconds; it says something every few."""


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


class Worker:
    """Serves until it is told to end, or the client has gone; `record` names it."""

    def __init__(self, client: RequestConnection, record: Path) -> None:
        self._client, self._path = client, record
        self._record = os.open(record, os.O_WRONLY)
        self.output = os.open(record.with_suffix(".out"), os.O_APPEND | os.O_RDWR | os.O_CREAT)
        self._changed = threading.Condition()
        self._calls: deque[dict[str, Any]] = deque()
        self._results: list[dict[str, Any]] = []
        self._running = self._told = 0
        self._over = self._woken = False
        self._wake_read, self._wake = os.pipe()

    def serve(self) -> None:
        """Make calls."""
        threading.Thread(target=self._talk_to_end, daemon=True).start()
        while (call := self._next()) is not None:
            began = time.monotonic()
            result = {"type": "result", "call": call["call"], **self._made(call)}
            result["seconds"] = time.monotonic() - began
            with self._changed:
                self._results.append(result)
                self._running = 0

    def _next(self) -> dict[str, Any] | None:
        """Wait for a call, and have it recorded that it begins; None at the end."""
        with self._changed:
            if not self._calls:
                self._woken = True
                os.write(self._wake, b".")
            self._changed.wait_for(lambda: self._calls or self._over)
            if self._over:
                return None
            call = self._calls.popleft()
            os.pwrite(self._record, b"%020d" % call["call"], 0)
            self._running = call["call"]
            return call

    def _made(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """How a call ended; what a failed one printed is kept."""
        result: dict[str, Any] = {}
        failed = True
        try:
            done = list(outcomes(json.loads(call["text"])))
            failed = bool(done) and done[-1].failed
            if failed:
                sys.stderr.write(done[-1].trace)
            result["outcomes"] = outcomes_text(done)
        except SystemExit as error:
            result["exit_code"] = error.code if isinstance(error.code, int) else bool(error.code)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the function may have closed it
                stream.flush()
        if os.fstat(self.output).st_size:
            if failed:
                shutil.copyfile(self._path.with_suffix(".out"), call["output"])
            os.ftruncate(self.output, 0)
        return result

    # Talking

    def _talk_to_end(self) -> None:
        try:
            self._talk()
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _talk(self) -> None:
        self._client.poller.register(self._wake_read, select.POLLIN)
        job = os.environ.get("COALLOC_JOB_ID", "")
        self._client.send({"type": "hello", "worker": self._path.name, "job": job})
        heard = told = time.monotonic()
        while not self._over:
            frame = self._client.next_answer(GATHER_S if self._results else LOOK_S)
            now = time.monotonic()
            if frame is not None:
                heard = now
                self._hear(frame.plain())
            with self._changed:
                idle, self._woken = self._woken, False
                self._over |= now - heard > GONE_S
                self._changed.notify_all()
            if idle:
                os.read(self._wake_read, 1)
            if idle or now - told > GATHER_S:
                told = now
                self._tell()

    def _hear(self, message: Mapping[str, Any]) -> None:
        with self._changed:
            match message["type"]:
                case "call":
                    self._calls.append(dict(message))
                case "take_back":
                    unwanted = set(message["calls"])
                    left = [call for call in self._calls if call["call"] not in unwanted]
                    back = unwanted & {call["call"] for call in self._calls}
                    self._calls = deque(left)
                    answer = {"calls": sorted(back), "running": self._running}
                    self._client.send({"type": "returned", **answer})
                case "end":
                    self._over = True

    def _tell(self) -> None:
        with self._changed:
            results, self._results = self._results, []
            begun = self._running if self._running != self._told else 0
            self._told = self._running
        for result in results:
            self._client.send(result)
        if begun:
            self._client.send({"type": "begun", "call": begun})


def serve(record: Path) -> int:
    """Serve, or leave at once where the client cannot be reached."""
    client = connected(json.loads(record.with_name(KEYS).read_text(encoding="utf-8")))
    if client is not None:
        worker = Worker(client, record)
        for standard in (1, 2):
            os.dup2(worker.output, standard)
        worker.serve()
    return 0
