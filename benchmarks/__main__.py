"""Every measurement in turn: ``python -m benchmarks``, at full size with ``--full``.

``python -m benchmarks NAME ...`` is one of them, with arguments of its own: a module of the rooms
here, or ``lab``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MEASUREMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "round": ((), ()),
    "full_round": ((), ("--full",)),
    "commit": ((), ()),
    "simulate": ((), ()),
    "counted": ((), ()),
    "oas": (("--seconds", "2"), ("--seeds", "3")),
    "oas_exact": ((), ("--full",)),
    "bounds": (("--seconds", "3", "--seeds", "4", "--large-seeds", "1"), ("--large-seeds", "4")),
    "demt": (("--sizes", "400x200", "--seeds", "2"), ()),
    "moldable_bounds": (("--sizes", "25x200", "400x200", "--seeds", "2"), ()),
    "bicriteria": (("--seeds", "1"), ("--seeds", "10", "--sizes", "25x200", "100x200", "400x200")),
    "workflow": (("--seconds", "2", "--pf", "0.95"), ("--seeds", "3")),
    "instances": (("--only", "split-15-00"), ("--seeds", "3")),
    "mbpc": (("--cap", "20", "--seeds", "1"), ("--full",)),
    "store": (("--jobs", "20000"), ("--jobs", "100000")),
    "commands": ((), ()),
    "service": ((), ("--full",)),
    "queue_flow": ((), ("--jobs", "100", "1000", "10000", "20000")),
    "queue_flood": (("--only", "submits"), ("--seconds", "600", "--jobs", "100")),
    "peers": (("--times", "1"), ("--tasks", "10000")),
    "soak": (("--days", "3"), ("--days", "30", "--jobs", "600")),
    "workflow_tasks": (("--slots", "8"), ("--slots", "8", "--full")),
    "rolling": (("1000",), ()),
    "slurm": (("--trials", "20"), ()),
    "slurm_sites": (("--scale", "0.15"), ()),
    "slurm_stream": (
        ("--policy", "plain", "--jobs", "40"),
        ("--jobs", "1000", "--scale", "8", "--mean", "20", "--kills", "0"),
    ),
}
"""Name, its arguments, its arguments at full size."""
HERE = Path(__file__).parent
ROOMS = ("daemon", "logs", "plans", "rounds", "slurm")


def command(name: str, arguments: Sequence[str]) -> list[str]:
    """The command of a measurement; `SystemExit` where there is none of this name."""
    files = sorted(path for room in ROOMS for path in HERE.glob(f"{room}/[a-z]*.py"))
    modules = {"lab": "lab"} | {path.stem: f"{path.parent.name}.{path.stem}" for path in files}
    if name not in modules:
        raise SystemExit(f"there is no measurement {name!r}; there are {', '.join(modules)}")
    return [sys.executable, "-m", f"benchmarks.{modules[name]}", *arguments]


def main(words: Sequence[str]) -> int:
    """Run one of them, or all, one after the other; returns the number that failed."""
    if words and not words[0].startswith("-"):
        run = command(words[0], words[1:])
        os.execv(run[0], run)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="full size")
    full = parser.parse_args(words).full
    failed = 0
    for name, (quick, whole) in MEASUREMENTS.items():
        run = command(name, whole if full else quick)
        print(f"\n== {' '.join(run[1:])}", flush=True)
        failed += subprocess.run(run, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
