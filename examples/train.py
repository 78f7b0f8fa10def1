#!/usr/bin/env python3
"""Data-parallel training over all parts of a job, found by the variables that PyTorch reads.

::

    coalloc submit -n 4 --bandwidth 75Mbps -t 5m -- examples/train.py

coalloc gives every process MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK and
LOCAL_WORLD_SIZE: ``torch.distributed.init_process_group("gloo")`` needs no more, and no torchrun.
With torchrun, start one process for each node, and let it start the others::

    torchrun --nnodes $WORLD_SIZE --node-rank $RANK --nproc-per-node 8 \
        --master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py

Where PyTorch is not installed, the same training runs with an all-reduce of a few lines, so that
the rendezvous can be tried anywhere: a line is fitted to points of which each rank has its share,
and after each step the ranks average their gradients.
"""

import importlib.util
import json
import os
import random
import socket
import sys
import time

MEET_LIMIT_S = 60.0
SLOPE, OFFSET, POINTS, STEPS, RATE = 3.0, -1.0, 200, 300, 0.3


def main():
    """Fit; every rank ends with the same weights, and rank 0 prints them."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    has_torch = importlib.util.find_spec("torch") is not None
    group = (Torch if has_torch else Sockets)(rank, size)
    draw = random.Random(rank)
    share = [(x, SLOPE * x + OFFSET) for x in (draw.uniform(-1, 1) for _ in range(POINTS))]
    weights = [0.0, 0.0]
    for _ in range(STEPS):
        errors = [(weights[0] * x + weights[1] - y, x) for x, y in share]
        gradient = [sum(e * x for e, x in errors) / POINTS, sum(e for e, _ in errors) / POINTS]
        mean = [part / size for part in group.summed(gradient)]
        weights = [weight - RATE * part for weight, part in zip(weights, mean, strict=True)]
    group.close()
    loss = sum((weights[0] * x + weights[1] - y) ** 2 for x, y in share) / POINTS
    if rank == 0:
        print(f"{size} ranks with {type(group).__name__}: {weights[0]:.3f} x {weights[1]:+.3f}")
    return 0 if loss < 1e-3 else 1


class Torch:
    """All-reduce by torch.distributed, over env://."""

    def __init__(self, rank, size):
        import torch
        import torch.distributed

        self.torch = torch
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)

    def summed(self, values):
        """The sum over all ranks."""
        tensor = self.torch.tensor(values, dtype=self.torch.float64)
        self.torch.distributed.all_reduce(tensor)
        return tensor.tolist()

    def close(self):
        """Leave the group."""
        self.torch.distributed.destroy_process_group()


class Sockets:
    """The same by way of rank 0, which listens at MASTER_ADDR:MASTER_PORT."""

    def __init__(self, rank, size):
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.rank = rank
        if rank == 0:
            with socket.create_server(place, backlog=size) as server:
                server.settimeout(MEET_LIMIT_S)
                socks = [server.accept()[0] for _ in range(size - 1)]
        else:
            socks = [connected(place)]
        for sock in socks:
            sock.settimeout(MEET_LIMIT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = [sock.makefile("rw", encoding="ascii") for sock in socks]
        self.socks = socks

    def summed(self, values):
        """The sum over all ranks."""
        if self.rank:
            said(self.lines[0], values)
            return heard(self.lines[0])
        total = list(values)
        for other in self.lines:
            total = [a + b for a, b in zip(total, heard(other), strict=True)]
        for other in self.lines:
            said(other, total)
        return total

    def close(self):
        """Leave the others."""
        for each in (*self.lines, *self.socks):
            each.close()


def connected(place):
    """A connection to rank 0, which may not listen yet."""
    end = time.monotonic() + MEET_LIMIT_S
    while True:
        try:
            return socket.create_connection(place, 10)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def said(lines, values):
    """Send one line."""
    lines.write(json.dumps(values) + "\n")
    lines.flush()


def heard(lines):
    """Read one line."""
    line = lines.readline()
    if not line:
        raise SystemExit("train.py: another rank has gone")
    return json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
