"""Accounts of ended jobs as a log in the Standard Workload Format, which `simulate` can replay.

Users, projects and programs become numbers in the order of their first job; comments at the head
say which. What SWF has no field for is left out; see `adapters.formats.swf` for the fields.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count

from msgspec import Struct

STATUS = {"completed": 1, "cancelled": 5}
"""Field 11; any other end is 0, failed."""
UNKNOWN = -1


class ExportedJob(Struct, frozen=True, kw_only=True):
    """A job that has ended; times in seconds since 1970."""

    user: str
    project: str
    command: str
    """The program."""
    state: str
    eligible: float
    """When it could have started first, which SWF takes for its submission."""
    started: float | None
    ended: float
    procs: int
    requested_s: float | None
    """Run time asked for, or planned, seconds."""
    cpu_s: float | None = None
    """CPU time of all processes, and memory of the largest, MiB."""
    max_rss_mb: float | None = None


def swf_lines(jobs: Iterable[ExportedJob], source: str) -> Iterator[str]:
    """The lines of a log, in the order of submission; its header says what made it."""
    rows = sorted(jobs, key=lambda job: job.eligible)
    users, projects, programs = (defaultdict[str, int](count(1).__next__) for _ in range(3))
    first = int(rows[0].eligible) if rows else 0
    names = [(users[job.user], projects[job.project], programs[job.command]) for job in rows]
    yield "; Version: 2.2"
    yield f"; Computer: {source}"
    yield f"; UnixStartTime: {first}"
    yield "; TimeZoneString: UTC"
    yield f"; StartTime: {datetime.fromtimestamp(first, UTC):%a %b %d %H:%M:%S UTC %Y}"
    yield f"; MaxJobs: {len(rows)}"
    yield f"; MaxRecords: {len(rows)}"
    for kind, numbers in (("User", users), ("Group", projects), ("Executable", programs)):
        for name, number in numbers.items():
            yield f"; {kind} {number}: {''.join(c if c.isprintable() else '?' for c in name)}"
    for number, (job, numbered) in enumerate(zip(rows, names, strict=True), 1):
        yield _line(number, job, first, numbered)


def _line(number: int, job: ExportedJob, first: int, names: tuple[int, int, int]) -> str:
    wait, run = 0.0, 0.0
    if job.started is not None:
        wait, run = max(job.started - job.eligible, 0.0), max(job.ended - job.started, 0.0)
    else:
        wait = max(job.ended - job.eligible, 0.0)
    requested = UNKNOWN if job.requested_s is None else _seconds(job.requested_s)
    ran = job.started is not None
    cpu = UNKNOWN if job.cpu_s is None else _seconds(job.cpu_s / job.procs)
    memory = UNKNOWN if job.max_rss_mb is None else round(job.max_rss_mb * 1024)
    fields = (
        *(number, _seconds(job.eligible - first), _seconds(wait), _seconds(run)),
        *((job.procs, cpu, memory) if ran else (UNKNOWN, UNKNOWN, UNKNOWN)),
        *(job.procs, requested, UNKNOWN, STATUS.get(job.state, 0)),
        *(names[0], names[1], names[2]),
        *(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    )
    return " ".join(map(str, fields))


def _seconds(value: float) -> str:
    """To the millisecond, without needless digits."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
