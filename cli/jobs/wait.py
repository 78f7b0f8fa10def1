"""Waiting for jobs, and the exit code that stands for how they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalloc.cli.command import FAILED, note
from coalloc.client.client import Client

if TYPE_CHECKING:
    from coalloc.wire.answers import EndedJob


def wait_and_tell(
    client: Client, job: str, timeout: float | None = None, *, quiet: bool = False
) -> int:
    """Wait for a job or an array, print how it ended, return its exit code.

    That is the highest of its jobs', 1 for one that ended badly without one. `quiet`: say nothing
    of jobs that completed.
    """
    try:
        ended = client.wait(job, timeout)
    except KeyboardInterrupt:
        note(f"no longer waiting; job {job} goes on")
        raise
    bad = [one for one in ended if one.state != "completed" or "not copied back" in one.detail]
    for one in bad if quiet else ended:
        (note if quiet else print)(describe(one))
    codes = (one.exit_code or FAILED for one in bad)
    return min(max(codes, default=0), 255)


def describe(job: EndedJob) -> str:
    """One line about a job's end."""
    line = f"job {job.id} {job.state}"
    if job.exit_code is not None:
        line += f", exit code {job.exit_code}"
    known = {"", f"exit code {job.exit_code}"}
    return line if job.detail in known else f"{line}: {job.detail}"
