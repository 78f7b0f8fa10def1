"""Job logs in the Standard Workload Format (SWF), plain or packed, and ``.xswf``.

Notes
-----
A line is a job: 18 numbers, -1 where a value is not known. Comments start with ``;`` and carry
the header as ``; Key: value``; real logs lack the header, fields at the end of a line, or the
order by submit time, so none of them is needed. ``.xswf`` has three more columns: the
processors used, the name of the queue and the resources asked for. What was repaired or left out
is counted in an `SwfSummary`, bad lines with their numbers.

References
----------
D. Feitelson, D. Tsafrir, D. Krakov, "Experience with using the Parallel Workloads Archive",
JPDC 74(10), 2014. https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from coalloc.adapters.formats.files import opened, unpacked
from coalloc.model.errors import InputError

LONGEST_LINE = 1_000_000
"""A longer line, in bytes, is bad; the rest of it is skipped."""
BAD_LINES_KEPT = 20
"""So many bad lines are described in the summary; all are counted."""
GIVE_UP_AFTER = 100
"""So many bad lines without a single job mean that the file is no SWF."""
LARGEST = 1e15
"""A larger number is taken for damage."""
FEWEST_FIELDS = 5
"""Number, submit, wait, run time, processors: what a line needs at least."""
FIELDS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfJob:
    """One line of a log; None where the log does not know.

    Attributes
    ----------
    number : int
        Field 1.
    submit_s, wait_s, run_s : float
        Fields 2-4: seconds from the start of the log, seconds of waiting and of running.
    allocated : int or None
        Field 5: processors used.
    cpu_s, used_kb : float or None
        Fields 6 and 7: CPU seconds and KiB of memory, averages per processor.
    requested : int or None
        Field 8: processors asked for.
    requested_s, requested_kb : float or None
        Fields 9 and 10: run time and memory per processor asked for.
    status : int or None
        Field 11: 0 failed, 1 completed, 2-4 partial executions, 5 cancelled.
    user, group, application, queue, partition, preceding : int or None
        Fields 12-17.
    think_s : float or None
        Field 18: seconds between the end of the preceding job and this submission.
    extra : tuple of str
        Further columns (.xswf).
    line, fields : int
        Where it stands in the file, from 1, and how many columns it has.
    """

    number: int
    submit_s: float
    wait_s: float | None = None
    run_s: float | None = None
    allocated: int | None = None
    cpu_s: float | None = None
    used_kb: float | None = None
    requested: int | None = None
    requested_s: float | None = None
    requested_kb: float | None = None
    status: int | None = None
    user: int | None = None
    group: int | None = None
    application: int | None = None
    queue: int | None = None
    partition: int | None = None
    preceding: int | None = None
    think_s: float | None = None
    extra: tuple[str, ...] = ()
    line: int = 0
    fields: int = FIELDS


@dataclass(slots=True, kw_only=True)
class SwfSummary:
    """Counts of what was met while reading.

    Attributes
    ----------
    jobs, comments, bad : int
        Lines.
    bad_lines : list of (int, str)
        Number and fault of the first bad lines.
    short : int
        Jobs with fewer than 18 fields.
    extended : int
        Jobs with more.
    unsorted : int
        Jobs submitted before the one on the line above.
    repeated : int
        Jobs whose number was seen before.
    """

    jobs: int = 0
    comments: int = 0
    bad: int = 0
    bad_lines: list[tuple[int, str]] = field(default_factory=list)
    short: int = 0
    extended: int = 0
    unsorted: int = 0
    repeated: int = 0

    def describe(self) -> str:
        """Say in one line what was read and repaired."""
        parts = [f"{self.jobs} jobs"]
        for count, what in (
            (self.bad, "bad lines skipped"),
            (self.short, "short lines"),
            (self.unsorted, "out of order"),
            (self.repeated, "repeated numbers"),
        ):
            if count:
                parts.append(f"{count} {what}")
        if self.bad_lines:
            number, fault = self.bad_lines[0]
            parts.append(f"first bad line {number}: {fault}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfLog:
    """A whole log: its header, its jobs by submit time, and what was repaired."""

    header: dict[str, str]
    jobs: tuple[SwfJob, ...]
    summary: SwfSummary


class SwfReader:
    """Iterate over the jobs of a log, in the order of the file.

    Parameters
    ----------
    lines : iterable of bytes
        Lines of the log.
    where : str
        Name of the log in errors.

    Attributes
    ----------
    header : dict of str
        ``; Key: value`` comments met so far; values of a repeated key are joined by newlines.
    summary : SwfSummary
        Counts so far.

    Raises
    ------
    InputError
        While iterating, if the lines are no SWF at all.
    """

    def __init__(self, lines: Iterable[bytes], where: str = "") -> None:
        self._lines = lines
        self._where = where
        self._numbers: set[int] = set()
        self.header: dict[str, str] = {}
        self.summary = SwfSummary()

    def __iter__(self) -> Iterator[SwfJob]:
        summary, last = self.summary, float("-inf")
        for number, raw in enumerate(self._lines, 1):
            line = raw.strip()
            if not line:
                continue
            if line.startswith(b";"):
                summary.comments += 1
                self._comment(line)
                continue
            try:
                job = read_line(line, number)
            except ValueError as error:
                self._count_bad(number, str(error))
                continue
            summary.jobs += 1
            summary.unsorted += job.submit_s < last
            summary.repeated += job.number in self._numbers
            summary.short += job.fields < FIELDS
            summary.extended += job.fields > FIELDS
            self._numbers.add(job.number)
            last = job.submit_s
            yield job
        if not summary.jobs and (summary.bad or not self.header):
            raise InputError(self._where, self._no_swf())

    def _comment(self, line: bytes) -> None:
        key, colon, value = line.lstrip(b"; \t").decode("utf-8", "replace").partition(":")
        if colon and key and len(key) <= 40:
            text = value.strip()
            self.header[key] = f"{self.header[key]}\n{text}" if key in self.header else text

    def _count_bad(self, number: int, fault: str) -> None:
        summary = self.summary
        summary.bad += 1
        if len(summary.bad_lines) < BAD_LINES_KEPT:
            summary.bad_lines.append((number, fault))
        if not summary.jobs and summary.bad >= GIVE_UP_AFTER:
            raise InputError(self._where, self._no_swf())

    def _no_swf(self) -> str:
        if not self.summary.bad:
            return "is no SWF log: no job and no header"
        number, fault = self.summary.bad_lines[0]
        return f"is no SWF log: none of {self.summary.bad} lines is a job; line {number}: {fault}"


def read_line(line: bytes, number: int = 0) -> SwfJob:
    """Read one line of a log; `ValueError` where fields are too few or no numbers."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"longer than {LONGEST_LINE} bytes")
    tokens = line.split()
    if len(tokens) < FEWEST_FIELDS:
        raise ValueError(f"has {len(tokens)} fields, not {FIELDS}")
    values: list[float | None] = []
    for token in tokens[:FIELDS]:
        try:
            value = float(token)
        except ValueError:
            raise ValueError(f"{_shown(token)} is not a number") from None
        if not -LARGEST <= value <= LARGEST:
            raise ValueError(f"{_shown(token)} is out of range")
        values.append(value if value >= 0 else None)
    if values[0] is None or values[1] is None:
        raise ValueError(f"the {'job number' if values[0] is None else 'submit time'} is not known")
    values += [None] * (FIELDS - len(values))
    extra = tuple(token.decode("utf-8", "replace") for token in tokens[FIELDS:])
    return SwfJob(
        number=int(values[0]),
        submit_s=values[1],
        wait_s=values[2],
        run_s=values[3],
        allocated=_whole(values[4]),
        cpu_s=values[5],
        used_kb=values[6],
        requested=_whole(values[7]),
        requested_s=values[8],
        requested_kb=values[9],
        status=_whole(values[10]),
        user=_whole(values[11]),
        group=_whole(values[12]),
        application=_whole(values[13]),
        queue=_whole(values[14]),
        partition=_whole(values[15]),
        preceding=_whole(values[16]),
        think_s=values[17],
        extra=extra,
        line=number,
        fields=len(tokens),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _shown(token: bytes) -> str:
    text = repr(token.decode("utf-8", "replace"))
    return text if len(text) <= 24 else text[:21] + "..."


def read_swf(path: str | Path, limit: int | None = None) -> SwfLog:
    """Read a log from a file, packed by gzip, bzip2 or xz or not.

    Parameters
    ----------
    limit : int, optional
        Stop after so many jobs of the file.

    Returns
    -------
    SwfLog
        Its jobs by rising submit time; jobs of the same second in the order of the file.

    Raises
    ------
    InputError
        If the file cannot be read or is no SWF at all.
    """
    with opened(Path(path)) as stream:
        return _log_of(stream, str(path), limit)


def read_stream(file: BinaryIO, where: str = "", limit: int | None = None) -> SwfLog:
    """Read a log from an open binary file that can seek; see `read_swf`."""
    with unpacked(file, where) as stream:
        return _log_of(stream, where, limit)


def _log_of(stream: BinaryIO, where: str, limit: int | None) -> SwfLog:
    reader = SwfReader(_bounded_lines(stream), where)
    jobs: list[SwfJob] = []
    for job in reader:
        jobs.append(job)
        if len(jobs) == limit:
            break
    # Nearly sorted already, and the sort is stable.
    jobs.sort(key=lambda job: job.submit_s)
    return SwfLog(header=reader.header, jobs=tuple(jobs), summary=reader.summary)


def _bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of an overlong one only its beginning, so that memory stays bounded."""
    while line := stream.readline(LONGEST_LINE + 2):
        yield line
        while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            line = stream.readline(LONGEST_LINE + 2)
