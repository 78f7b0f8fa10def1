#!/usr/bin/env python3
"""A bulk-synchronous program over all parts of a job: supersteps of an all-to-all and a barrier.

::

    coalloc submit -n 6 --bandwidth 75Mbps -t 1m -- examples/bsp.py 10

Every process sorts numbers of its own, and in each superstep sends to every other process the range
that is that one's (a sample sort), so that in the end rank 0 has the least and the last rank the
greatest. The ranks meet at MASTER_ADDR:MASTER_PORT, tell each other where they listen, and connect
each to each: over the link between the clusters where they lie on several. This is what
``--bandwidth`` is for: what one process may need of its cluster's link.
"""

import itertools
import json
import os
import random
import socket
import struct
import sys
import time

MEET_LIMIT_S = 60.0
KEYS = 2000
"""Numbers of each process in a superstep."""


def main(supersteps):
    """Sort as many times as asked for; rank 0 says that each superstep was right."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    peers = Peers(rank, size)
    draw = random.Random(rank)
    for step in range(supersteps):
        own = [draw.random() for _ in range(KEYS)]
        ranges = [[] for _ in range(size)]
        for key in own:
            ranges[int(key * size)].append(key)
        begun = time.monotonic()
        mine = sorted(key for part in peers.all_to_all(ranges) for key in part)
        took = time.monotonic() - begun
        bounds = (len(mine), mine[0], mine[-1], sum(own), sum(mine))
        # everybody's bounds at rank 0: the barrier that ends the superstep
        all_bounds = peers.all_to_all([bounds] * size)
        if rank == 0:
            check(all_bounds)
            print(f"superstep {step + 1}: {size * KEYS} keys sorted by {size} ranks, {took:.3f} s")
    peers.close()
    return 0


def check(bounds):
    """Every key is there once, and the ranks' ranges follow each other."""
    if sum(count for count, *_ in bounds) != KEYS * len(bounds):
        raise SystemExit("bsp.py: keys were lost")
    if any(left[2] > right[1] for left, right in itertools.pairwise(bounds)):
        raise SystemExit("bsp.py: the ranges overlap")
    if abs(sum(b[3] for b in bounds) - sum(b[4] for b in bounds)) > 1e-6:
        raise SystemExit("bsp.py: keys were changed")


class Peers:
    """A connection to every other rank."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        self.to = {}
        with socket.create_server(("", 0), backlog=size) as listener:
            places = self.meet(listener.getsockname()[1])
            # the higher rank calls the lower one, so that each pair has one connection
            for lower in range(rank):
                self.to[lower] = connected(tuple(places[lower]))
                send(self.to[lower], rank)
            for _ in range(rank + 1, size):
                other, _ = listener.accept()
                self.to[receive(other)] = other
        for sock in self.to.values():
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def meet(self, port):
        """Addresses of all ranks, by way of rank 0."""
        master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank:
            with connected(master) as leader:
                send(leader, [self.rank, leader.getsockname()[0], port])
                return receive(leader)
        places, others = {0: [master[0], port]}, []
        with socket.create_server(master, backlog=self.size) as server:
            server.settimeout(MEET_LIMIT_S)
            while len(places) < self.size:
                other, _ = server.accept()
                rank, address, there = receive(other)
                places[rank] = [address, there]
                others.append(other)
        told = [places[rank] for rank in range(self.size)]
        for other in others:
            with other:
                send(other, told)
        return told

    def all_to_all(self, parts):
        """Give every rank its part, and get one of each, in the order of the ranks."""
        got = {self.rank: parts[self.rank]}
        # In turn with every other rank; of two that meet, the lower one sends first.
        for distance in range(1, self.size):
            others = {(self.rank + distance) % self.size, (self.rank - distance) % self.size}
            for other in sorted(others - got.keys()):
                if other > self.rank:
                    send(self.to[other], parts[other])
                    got[other] = receive(self.to[other])
                else:
                    got[other] = receive(self.to[other])
                    send(self.to[other], parts[other])
        return [got[rank] for rank in range(self.size)]

    def close(self):
        """End all connections."""
        for sock in self.to.values():
            sock.close()


def connected(place):
    """A connection to a rank that may not listen yet."""
    end = time.monotonic() + MEET_LIMIT_S
    while True:
        try:
            return socket.create_connection(place, 10)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def send(sock, value):
    """One message: its length, then JSON."""
    text = json.dumps(value).encode()
    sock.sendall(struct.pack("!I", len(text)) + text)


def receive(sock):
    """The next message."""
    (length,) = struct.unpack("!I", exactly(sock, 4))
    return json.loads(exactly(sock, length))


def exactly(sock, count):
    """So many bytes."""
    sock.settimeout(MEET_LIMIT_S)
    chunks = []
    while count:
        chunk = sock.recv(min(count, 1 << 16))
        if not chunk:
            raise SystemExit("bsp.py: another rank has gone")
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
