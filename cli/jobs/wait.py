"""Waiting for jobs, and the exit code that stands for how they ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coalloc.cli.command import FAILED, note
from coalloc.client.client import Client

if TYPE_CHECKING:
    from coalloc.wire.answers import EndedJob


def exit_code_of(jobs: Iterable[EndedJob]) -> int:
    """The highest of the jobs' exit codes; 1 for one that ended badly without one."""
    worst = 0
    for job in jobs:
        if job.state != "completed":
            worst = max(worst, job.exit_code or FAILED)
    return min(worst, 255)


def wait_and_tell(
    client: Client, job: str, timeout: float | None = None, *, quiet: bool = False
) -> int:
    """Wait for a job or an array, print how it ended, return its exit code.

    `quiet`: say nothing of jobs that completed.
    """
    try:
        ended = client.wait(job, timeout)
    except KeyboardInterrupt:
        note(f"no longer waiting; job {job} goes on")
        raise
    for one in ended:
        if quiet and one.state == "completed":
            continue
        line = describe(one)
        if quiet:
            note(line)
        else:
            print(line)
    return exit_code_of(ended)


def describe(job: EndedJob) -> str:
    """One line about a job's end."""
    line = f"job {job.id} {job.state}"
    if job.exit_code is not None:
        line += f", exit code {job.exit_code}"
    known = {"", f"exit code {job.exit_code}"}
    return line if job.detail in known else f"{line}: {job.detail}"
