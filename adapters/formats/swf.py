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
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import BinaryIO

from coalloc.adapters.formats.files import opened
from coalloc.model.errors import InputError
from coalloc.model.shape import ONE_SLOT, Shape

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
    """One line of a log; None where the log does not know."""

    number: int
    """Field 1."""
    submit_s: float
    """Field 2: seconds from the start of the log; fields 3 and 4: seconds of waiting and of
    running."""
    wait_s: float | None = None
    run_s: float | None = None
    allocated: int | None = None
    """Field 5: processors used."""
    cpu_s: float | None = None
    """Fields 6 and 7: CPU seconds and KiB of memory, averages per processor."""
    used_kb: float | None = None
    requested: int | None = None
    """Field 8: processors asked for."""
    requested_s: float | None = None
    """Fields 9 and 10: run time and memory per processor asked for."""
    requested_kb: float | None = None
    status: int | None = None
    """Field 11: 0 failed, 1 completed, 2-4 partial executions, 5 cancelled."""
    user: int | None = None
    """This and the next five: fields 12-17."""
    group: int | None = None
    application: int | None = None
    queue: int | None = None
    partition: int | None = None
    preceding: int | None = None
    think_s: float | None = None
    """Field 18: seconds between the end of the preceding job and this submission."""
    extra: tuple[str, ...] = ()
    """Further columns (.xswf)."""
    line: int = 0
    """Its line in the file, from 1; and the number of its columns."""
    fields: int = FIELDS
    name: str = ""
    """This and all that follow: of a log that is no SWF. Its id there, its user and what it ran."""
    owner: str = ""
    program: str = ""
    cluster: str = ""
    partition_name: str = ""
    nodes: int | None = None
    """That it had."""
    priority: int | None = None
    shape: Shape = ONE_SLOT
    unusable: str = ""
    """Why it cannot be replayed."""


COLUMNS = tuple(column.name for column in fields(SwfJob))[:FIELDS]
WHOLE = frozenset(column.name for column in fields(SwfJob) if str(column.type).startswith("int"))
"""Columns of whole numbers."""


@dataclass(slots=True, kw_only=True)
class SwfSummary:
    """Counts of what was met while reading."""

    jobs: int = 0
    bad: int = 0
    """Lines that are no jobs."""
    bad_lines: list[tuple[int, str]] = field(default_factory=list)
    """Number and fault of the first ones."""
    short: int = 0
    """Jobs with fewer than 18 fields."""
    unsorted: int = 0
    """Jobs submitted before the one on the line above."""
    repeated: int = 0
    """Jobs whose number was seen before."""

    def count_bad(self, number: int, fault: str) -> None:
        self.bad += 1
        if len(self.bad_lines) < BAD_LINES_KEPT:
            self.bad_lines.append((number, fault))

    def describe(self) -> str:
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
    known = {
        name: int(value) if name in WHOLE and value is not None else value
        for name, value in zip(COLUMNS, values, strict=True)
    }
    extra = tuple(token.decode("utf-8", "replace") for token in tokens[FIELDS:])
    return SwfJob(**known, extra=extra, line=number, fields=len(tokens))  # type: ignore[arg-type]


def _shown(token: bytes) -> str:
    text = repr(token.decode("utf-8", "replace"))
    return text if len(text) <= 24 else text[:21] + "..."


def read_swf(path: str | Path) -> SwfLog:
    """Read a log from a file, packed or not.

    They come by rising submit time; jobs of the same second in the order of the file. `InputError`:
    it cannot be read, or is no SWF at all.
    """
    with opened(Path(path)) as stream:
        return read_lines(bounded_lines(stream), str(path))


def read_lines(lines: Iterable[bytes], where: str = "") -> SwfLog:
    """Read a log from its lines; `InputError` where none of them is a job."""
    header: dict[str, str] = {}
    summary, jobs, numbers = SwfSummary(), list[SwfJob](), set[int]()
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if line.startswith(b";"):
            _take_comment(line, header)
        elif line:
            try:
                job = read_line(line, number)
            except ValueError as error:
                summary.count_bad(number, str(error))
                if not jobs and summary.bad >= GIVE_UP_AFTER:
                    break
                continue
            summary.unsorted += bool(jobs) and job.submit_s < jobs[-1].submit_s
            summary.repeated += job.number in numbers
            summary.short += job.fields < FIELDS
            numbers.add(job.number)
            jobs.append(job)
    if not jobs and (summary.bad or not header):
        raise InputError(where, _no_swf(summary))
    summary.jobs = len(jobs)
    # Nearly sorted already, and the sort is stable.
    jobs.sort(key=lambda job: job.submit_s)
    return SwfLog(header=header, jobs=tuple(jobs), summary=summary)


def _take_comment(line: bytes, header: dict[str, str]) -> None:
    """Add a ``; Key: value`` to the header; values of a repeated key are joined by newlines."""
    key, colon, value = line.lstrip(b"; \t").decode("utf-8", "replace").partition(":")
    if colon and key and len(key) <= 40:
        text = value.strip()
        header[key] = f"{header[key]}\n{text}" if key in header else text


def _no_swf(summary: SwfSummary) -> str:
    if not summary.bad:
        return "is no SWF log: no job and no header"
    number, fault = summary.bad_lines[0]
    return f"is no SWF log: none of {summary.bad} lines is a job; line {number}: {fault}"


def bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of an overlong one only its beginning, so that memory stays bounded."""
    while line := stream.readline(LONGEST_LINE + 2):
        yield line
        while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            line = stream.readline(LONGEST_LINE + 2)
