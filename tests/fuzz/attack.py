"""The attacker: one process that sends changed messages to every socket of a daemon.

Its keys are good ones: a user's, an operator's, and a stolen one of an executor. It waits for the
daemon now and then, so that what it sends is read and not only piled up.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from coalloc.wire.client import NoAnswerError, RequestConnection
from coalloc.wire.curve import CurveClient, KeyPair
from coalloc.wire.frames import WireError, decode_any, encode
from tests.fuzz.mutation import Mutator
from tests.fuzz.wire_targets import (
    WORDS,
    commands,
    enrolments,
    examples,
    questions,
    statements,
)

AT_ONCE = 50
"""Inputs between two looks at whether the daemon keeps up."""
PER_CONNECTION = 2000
HEAVY = 0.0005
"""Of the frames, those as large and as wide as may be."""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
HELLO = b"\x04\xc8\x05HELLO\x01\x00" + bytes(192)


class Attack:
    """Sends to one site.

    Parameters
    ----------
    site : mapping
        ``clients``, ``executors``, ``watchers`` and ``enrolment``, addresses; ``server``, the
        daemon's public key; ``user``, ``operator`` and ``executor``, pairs of keys.
    """

    def __init__(self, site: Mapping[str, Any], seed: int) -> None:
        self.site = site
        self.random = random.Random(seed)
        self.sent: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._asker = RequestConnection(
            site["clients"], timeout_s=60.0, security=self._calling("user")
        )
        wire = [*commands(), *questions(), *statements(), *examples()]
        self._wire = Mutator(wire, WORDS, seed=seed, longest=1 << 14, structured=0.9)
        self._lines = Mutator(enrolments(), (b'"alpha"',), seed=seed, longest=5000)
        raw = [GREETING, GREETING + HELLO, HELLO, b"\x01\x00", GREETING + encode({"type": "ping"})]
        self._raw = Mutator(raw, (GREETING, HELLO, b"\x04\x05READY"), seed=seed, longest=1 << 13)
        topics = [b"\x01event.", b"\x00event.", b"\x01", b"\x01decision.alpha.7", b"\x02\x01"]
        self._topics = Mutator(topics, (b"event.", b"\x01"), seed=seed, longest=1000)

    def run(self, shares: Mapping[str, float], inputs: int) -> None:
        """Send so many inputs, in bouts at one socket each."""
        bouts: dict[str, Callable[[int], None]] = {
            "clients": self._at_clients,
            "executors": self._at_executors,
            "watchers": self._at_watchers,
            "enrolment": self._at_enrolment,
            "raw": self._at_strangers,
        }
        while (left := inputs - self.sent.total()) > 0:
            kind = self.random.choices(list(shares), list(shares.values()))[0]
            bouts[kind](min(left, PER_CONNECTION, inputs // 20 + 1))
            print(json.dumps({"sent": self.sent, "answers": self.answers}), flush=True)

    def close(self) -> None:
        """Let go of everything."""
        self._asker.close()
        self._context.destroy(linger=0)

    def _calling(self, who: str) -> CurveClient:
        public, secret = self.site[who]
        return CurveClient(pair=KeyPair(public=public, secret=secret), server=self.site["server"])

    def _connected(self, kind: int, where: str, who: str) -> zmq.Socket[bytes]:
        dealer = self._context.socket(kind)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.SNDHWM, 2 * AT_ONCE)
        dealer.setsockopt(zmq.SNDTIMEO, 60_000)
        self._calling(who).apply(dealer)
        dealer.connect(self.site[where])
        return dealer

    def _frame(self) -> bytes:
        if self.random.random() < HEAVY:
            return self._heavy()
        return self._wire.fresh()

    def _heavy(self) -> bytes:
        piece = self.random.choice(
            (b"[],", b"{},", b"1,", b'"a",', b"[", b'{"a":', b" ", b"\\u0041")
        )
        body = piece * (self.random.choice((1 << 18, 1 << 20, 12 << 20)) // len(piece))
        return b'{"type":"submit","token":"h","job":[' + body + b'1],"id":"1"}'

    def _at_clients(self, inputs: int) -> None:
        who = self.random.choice(("user", "user", "user", "operator"))
        dealer = self._connected(zmq.DEALER, "clients", who)
        for number in range(inputs):
            frames = [self._frame()]
            if self.random.random() < 0.02:
                frames = [b"", *frames] if self.random.random() < 0.5 else frames * 3
            if b"backup" in frames[-1]:
                continue  # an operator's, and it would write where the input says
            dealer.send_multipart(frames)
            self.sent["clients"] += 1
            if number % AT_ONCE == AT_ONCE - 1:
                self._take_answers(dealer)
                self._keep_up()
        self._take_answers(dealer)
        dealer.close()

    def _take_answers(self, dealer: zmq.Socket[bytes]) -> None:
        """Count them; a job that was queued is cancelled, so that the queue stays short."""
        while dealer.poll(0):
            try:
                answer = decode_any(dealer.recv_multipart()[-1])
            except WireError:
                self.answers["unreadable"] += 1
                continue
            self.answers[str(answer.get("code") or answer.get("type"))] += 1
            if answer.get("type") == "done" and isinstance(answer.get("job"), str):
                dealer.send(encode({"type": "cancel", "id": "c", "job": answer["job"]}))

    def _keep_up(self) -> None:
        with suppress(NoAnswerError):
            self._asker.ask({"type": "status"})

    def _at_executors(self, inputs: int) -> None:
        dealer = self._connected(zmq.DEALER, "executors", "executor")
        for number in range(inputs):
            frame = self._frame().replace(b'"beta"', b'"alpha"')
            dealer.send_multipart([frame] if self.random.random() < 0.98 else [frame, b""])
            self.sent["executors"] += 1
            if number % AT_ONCE == AT_ONCE - 1:
                while dealer.poll(0):
                    dealer.recv_multipart()
                    self.answers["orders"] += 1
                self._keep_up()
        dealer.close()

    def _at_watchers(self, inputs: int) -> None:
        watcher = self._connected(zmq.XSUB, "watchers", "operator")
        for number in range(min(inputs, PER_CONNECTION // 4)):
            watcher.send(self._topics.fresh())
            self.sent["watchers"] += 1
            if number % AT_ONCE == AT_ONCE - 1:
                while watcher.poll(0):
                    watcher.recv_multipart()
                    self.answers["publications"] += 1
                self._keep_up()
        watcher.close()

    def _at_enrolment(self, inputs: int) -> None:
        for _ in range(min(inputs, PER_CONNECTION // 4)):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(10.0)
                with suppress(OSError):
                    stranger.connect(self.site["enrolment"])
                    stranger.sendall(self._lines.fresh())
                    stranger.shutdown(socket.SHUT_WR)
                    answer = stranger.recv(1 << 16)
                    self.answers["enrolled" if b'"key"' in answer else "not enrolled"] += 1
            self.sent["enrolment"] += 1

    def _at_strangers(self, inputs: int) -> None:
        """Bytes without a handshake, or with half of one."""
        for number in range(min(inputs, PER_CONNECTION // 4)):
            where = self.random.choice(("clients", "executors", "watchers"))
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(5.0)
                with suppress(OSError):
                    stranger.connect(self.site[where].removeprefix("ipc://"))
                    stranger.sendall(self._raw.fresh())
            self.sent["raw"] += 1
            if number % AT_ONCE == AT_ONCE - 1:
                self._keep_up()


def main() -> None:
    """``python -m tests.fuzz.attack FILE``: the site, shares, inputs and seed are in the file."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    attack = Attack(spec["site"], spec["seed"])
    began = time.monotonic()
    try:
        attack.run(spec["shares"], spec["inputs"])
    finally:
        attack.close()
    print(json.dumps({"sent": attack.sent, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
