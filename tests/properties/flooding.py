"""A watcher that subscribes without end, by itself: ``python -m tests.properties.flooding``.

It connects again wherever it is cut off, and says in the end how often it did.
"""

from __future__ import annotations

import random
import socket
import struct
import sys

TOPIC_BYTES = 60
PATIENCE_S = 120.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
"""Of ZMTP 3.0, https://rfc.zeromq.org/spec/23/, where a subscription is a message."""


def flood(path: str, topics: int) -> int:
    """Subscribe to so many different topics; how many connections that took."""
    connections = sent = 0
    while sent < topics:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(path)
            connections += 1
            try:
                _greet(connection)
                while sent < topics:
                    connection.sendall(_subscriptions(100))
                    sent += 100
            except OSError:
                continue  # cut off
    return connections


def _greet(connection: socket.socket) -> None:
    connection.sendall(GREETING)
    received = 0
    while received < len(GREETING):
        more = len(connection.recv(len(GREETING) - received))
        if not more:
            raise ConnectionResetError
        received += more
    connection.sendall(bytes([4, len(READY)]) + READY)


def _subscriptions(count: int) -> bytes:
    draw = random.Random(1)
    topics = (b"\1" + draw.randbytes(TOPIC_BYTES // 2).hex().encode() for _ in range(count))
    return b"".join(bytes([0, len(topic)]) + topic for topic in topics)


if __name__ == "__main__":
    print(flood(sys.argv[1], int(sys.argv[2])))
