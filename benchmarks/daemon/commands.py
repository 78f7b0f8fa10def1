"""Start times of commands: against a bare interpreter, in turns, best of ten.

python -m benchmarks commands
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.live_site import Running

TURNS = 10
JOBS = 1000


def took(command: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    """Wall and processor time of a command, milliseconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=dict(env), stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * wall, 1e3 * cpu


def best(commands: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> dict[str, list[float]]:
    """The least of each time; the commands take turns, so that all see the same machine."""
    least = {name: [float("inf")] * 2 for name in commands}
    for _ in range(TURNS):
        for name, command in commands.items():
            least[name] = list(map(min, least[name], took(command, env)))
    return least


def main() -> int:
    """Print the figures and their ratios."""
    root = Path(tempfile.mkdtemp(prefix="co-"))
    site = Running(root)
    coalloc = str(Path(sys.executable).with_name("coalloc"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "coalloc --version": [coalloc, "--version"],
        f"coalloc queue ({JOBS} jobs)": [coalloc, "queue"],
    }
    site.start_daemon()
    try:
        for number in range(JOBS):
            site.submit(["true"], 1 + number % 7, hold=True, name=f"job{number}")
        least = best(commands, {**os.environ, "COALLOC_CONFIG": str(site.config)})
    finally:
        site.stop()
        shutil.rmtree(root, ignore_errors=True)
    for name, (wall, cpu) in least.items():
        print(f"{name:<28} {wall:7.1f} ms  {cpu:7.1f} CPU-ms")
    bare, version, queue = least.values()
    print(
        f"--version: {version[0] / bare[0]:.2f} x python -c pass ({version[1] / bare[1]:.2f} x CPU)"
    )
    print(
        f"queue: {queue[0] - version[0]:.0f} ms over --version ({queue[1] - version[1]:.0f} CPU-ms)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
