"""Run a command for many values over the clusters, and say how each ended.

python examples/sweep.py 0.1 0.2 0.3
"""

from __future__ import annotations

import sys

from coalloc import Client


def main(values: list[str]) -> int:
    """Submit a job for each value; returns how many did not complete."""
    with Client() as client:
        jobs = {
            value: client.submit(
                ["sh", "-c", 'echo "$0: rank $COALLOC_RANK of $COALLOC_SIZE"', value],
                procs=2,
                base_time=5,
                name=f"sweep-{value}",
            ).job
            for value in values
        }
        ended = {value: client.wait(job)[0] for value, job in jobs.items()}
    for value, job in ended.items():
        print(f"{value}: job {job.id} {job.state}")
    return sum(job.state != "completed" for job in ended.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["0.1", "0.2", "0.3"]))
