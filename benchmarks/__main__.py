"""Every measurement in turn: ``python -m benchmarks``, at full size with ``--full``."""

from __future__ import annotations

import argparse
import subprocess
import sys

MEASUREMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "round": ((), ()),
    "full_round": ((), ()),
    "simulate": ((), ()),
    "counted": ((), ()),
    "oas": (("--seconds", "2"), ("--seeds", "3")),
    "oas_exact": ((), ("--full",)),
    "bounds": (("--seconds", "3", "--seeds", "4", "--large-seeds", "1"), ("--large-seeds", "4")),
    "demt": (("--sizes", "400x200", "--seeds", "2"), ()),
    "moldable_bounds": (("--sizes", "25x200", "400x200", "--seeds", "2"), ()),
    "bicriteria": (("--seeds", "1"), ("--seeds", "10", "--sizes", "25x200", "100x200", "400x200")),
    "workflow": (("--seconds", "2", "--pf", "0.95"), ("--seeds", "3")),
    "mbpc": (("--cap", "20", "--seeds", "1"), ("--full",)),
    "store": (("--jobs", "20000"), ("--jobs", "100000")),
    "commands": ((), ()),
    "service": ((), ("--full",)),
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
"""Module, its arguments, its arguments at full size."""


def main() -> int:
    """Run them one after the other; returns the number that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="full size")
    full = parser.parse_args().full
    failed = 0
    for name, (quick, whole) in MEASUREMENTS.items():
        command = [sys.executable, "-m", f"benchmarks.{name}", *(whole if full else quick)]
        print(f"\n== {' '.join(command[1:])}", flush=True)
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
