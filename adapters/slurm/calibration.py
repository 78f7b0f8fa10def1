"""Relative speeds of nodes, measured by a small program that runs as a Slurm job on each.

The program needs nothing but a ``python3`` on the node. It reports how much it did per second
on one CPU; a node's relative speed is that rate over the rate of the fastest node, of all the
clusters that were calibrated together. Results are kept as a file beside the executor's state,
and read again with every reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from coalloc.adapters.runner import durable
from coalloc.adapters.slurm.commands import Slurm

FORMAT = "coalloc-calibration/1"
LEAST_POWER = 0.01
PROGRAM = """
import time
def turn():
    state, total = 1, 0.0
    for _ in range(200000):
        state = (1103515245 * state + 12345) % 2147483648
        total += state / 2147483648.0
    return total
best = 0.0
end = time.perf_counter() + SECONDS
while time.perf_counter() < end:
    begun = time.process_time()
    turn()
    best = max(best, 200000.0 / max(time.process_time() - begun, 1e-9))
print("coalloc-rate %.1f" % best)
"""
"""Integer and floating-point work, in CPU time: the best of many short turns, so that what else
runs on the node does not slow the result."""


def measure(slurm: Slurm, node: str, *, seconds: float = 2.0, options: Iterable[str] = ()) -> float:
    """Turns of the program's loop per second of CPU time on a node, as a job of so many `seconds`.

    Blocks until it has ended; `options` are srun's. Raises `BatchError`, or `ValueError` where the
    program printed something else.
    """
    minutes = max(1, round(seconds / 60.0 + 0.5))
    answer = slurm.run(
        "srun",
        *("-w", node, "-N", "1", "-n", "1", "-t", str(minutes), "-J", "coalloc-calibration"),
        *("-D", "/"),
        *options,
        "python3",
        "-c",
        PROGRAM.replace("SECONDS", f"{seconds:g}"),
    )
    words = answer.split()
    if len(words) != 2 or words[0] != "coalloc-rate":
        raise ValueError(f"{node} printed {answer[:80]!r}")
    return float(words[1])


def relative(rates: Mapping[str, float], fastest: float) -> dict[str, float]:
    """Relative speeds in (0, 1]."""
    return {name: min(1.0, max(LEAST_POWER, rate / fastest)) for name, rate in rates.items()}


def write_calibration(path: Path, powers: Mapping[str, float], at: float) -> None:
    """Keep relative speeds; what was measured of other nodes before stays."""
    kept = read_calibration(path) | dict(powers)
    body = {"format": FORMAT, "time": at, "power": dict(sorted(kept.items()))}
    durable.make_folder(path.parent)
    durable.write(path, f"{json.dumps(body, indent=1)}\n".encode())


def read_calibration(path: Path) -> dict[str, float]:
    """Relative speeds by Slurm's names of the nodes; none where nothing sound is kept."""
    try:
        body = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    power = body.get("power") if isinstance(body, dict) and body.get("format") == FORMAT else None
    if not isinstance(power, dict):
        return {}
    return {
        str(name): float(value)
        for name, value in power.items()
        if isinstance(value, int | float) and 0.0 < value <= 1.0
    }
