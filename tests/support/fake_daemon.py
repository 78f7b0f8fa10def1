"""A daemon that says what a test wants, on real sockets: for the clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

Respond = Callable[[dict[str, Any]], list[bytes] | dict[str, Any] | None]
STOP = b"stop"
LIMIT_S = 60


class FakeDaemon:
    """A ROUTER that answers each request with what `respond` makes of it."""

    def __init__(self, root: Path) -> None:
        self.endpoint = f"ipc://{root}/coalloc.sock"
        self.publish_endpoint = f"ipc://{root}/events.sock"
        self.heard: list[dict[str, Any]] = []
        self._hearing = threading.Condition()
        self.peer = b""
        self.respond: Respond = lambda body: {"type": "done"}
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.bind(self.endpoint)
        self.control = self.context.socket(zmq.PULL)
        self.control.bind("inproc://control")
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self.router, zmq.POLLIN)
        poller.register(self.control, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self.control in ready:
                return
            peer, frame = self.router.recv_multipart()
            body = json.loads(frame)
            self.peer = peer
            with self._hearing:
                self.heard.append(body)
                self._hearing.notify_all()
            answer = self.respond(body)
            if isinstance(answer, dict):
                self.answer(body, answer)
            elif answer is not None:
                self.router.send_multipart([peer, *answer])

    def heard_all(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many requests have come: who gives up may be ahead of this thread."""
        with self._hearing:
            assert self._hearing.wait_for(lambda: len(self.heard) >= count, LIMIT_S)
        return self.heard

    def answer(self, body: dict[str, Any], answer: dict[str, Any]) -> None:
        """Answer a request; only while `respond` runs."""
        frame = json.dumps({"id": body["id"], **answer}).encode()
        self.router.send_multipart([self.peer, frame])

    def close(self) -> None:
        stop = self.context.socket(zmq.PUSH)
        stop.connect("inproc://control")
        stop.send(STOP)
        self.thread.join()
        for socket in (stop, self.control, self.router):
            socket.close(linger=0)
        self.context.term()


class Stream:
    """A store of events and an XPUB that may lose some."""

    def __init__(self, daemon: FakeDaemon, events: int) -> None:
        self.events = [self._event(number) for number in range(1, events + 1)]
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.socket.bind(daemon.publish_endpoint)
        daemon.respond = self._respond

    @staticmethod
    def _event(seq: int) -> dict[str, Any]:
        job = str(seq % 2)
        return {"seq": seq, "time": float(seq), "kind": "tick", "job": job, "fields": {}}

    def _respond(self, body: dict[str, Any]) -> dict[str, Any]:
        since, job = body["since"], body.get("job")
        found = [e for e in self.events if e["seq"] > since and (not job or e["job"] == job)]
        return {"type": "events", "events": found[: body["limit"]], "last": len(self.events)}

    def happen(self, *, lost: bool = False) -> None:
        event = self._event(len(self.events) + 1)
        self.events.append(event)
        if not lost:
            self.socket.send_multipart([b"event.tick.", json.dumps(event).encode()])

    def greet(self) -> None:
        """Wait for a subscription and answer it."""
        assert self.socket.poll(1000 * LIMIT_S)
        assert self.socket.recv() == b"\x01event."
        self.socket.send_multipart([b"event.", b'{"watch_seq": 1, "welcome": true}'])

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()
