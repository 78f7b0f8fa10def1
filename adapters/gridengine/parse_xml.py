"""Output of ``qstat -f -xml -F -r`` as records: pure functions from text.

Notes
-----
Recorded from Grid Engine 8.1.9. A queue instance is one host's share of a cluster queue; running
jobs stand inside the instance that they occupy, waiting ones after all instances. A host that
execd does not speak for has no resources. Times are in the zone of the asking process. Job names
hold what their users wrote: ``qstat`` escapes ``&`` and, wrongly, ``<`` (as ``%lt;``).

Imports the standard library only, as the part runner does.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

LARGEST = 256 << 20
"""Characters of an answer that are read at all."""
MOST_SLOTS = 10**9
"""Of a job that is not understood: all that there are where it runs."""
SUFFIXES = {"": 1.0, "k": 1e3, "K": 2.0**10, "m": 1e6, "M": 2.0**20, "g": 1e9, "G": 2.0**30}
SUFFIXES |= {"t": 1e12, "T": 2.0**40}
MIB = 2.0**20

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?", re.A)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([kKmMgGtT]?)", re.A)
_COUNT = re.compile(r"\d{1,9}", re.A)
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,18})?", re.A)
_SPAN = re.compile(r"(\d{1,9}):(\d{1,9}):(\d{1,9})", re.A)
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.A)


class QstatError(Exception):
    """An answer that is not what Grid Engine prints; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """A job, or some tasks of an array."""

    number: str
    """Grid Engine's."""
    tasks: str = ""
    """Of an array: ``3``, ``4-10:2``, or several with commas; else empty."""
    name: str = ""
    owner: str = ""
    state: str = ""
    """Its letters, such as ``r``, ``qw``, ``dr``, ``Eqw``."""
    slots: int = 1
    """Of each task; of a running one those in this queue instance."""
    start: float | None = None
    """Seconds since 1970."""
    submitted: float | None = None
    """Seconds since 1970."""
    time_limit: float | None = None
    """h_rt, seconds; None: none was asked for."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Resources asked for by ``-l``."""

    @property
    def id(self) -> str:
        """Its id, unlike that of every other entry."""
        return f"{self.number}.{self.tasks}" if self.tasks else self.number

    @property
    def count(self) -> int:
        """Tasks that it stands for."""
        return tasks_in(self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInstance:
    """One queue instance."""

    queue: str
    host: str
    slots: int
    """All of it."""
    used: int = 0
    """Taken by jobs."""
    reserved: int = 0
    """Kept by advance reservations."""
    available: int | None = None
    """Slots that a job could have, where limits of the host count too; None: not said."""
    state: str = ""
    """Its letters; empty: nothing is wrong."""
    cpus: int | None = None
    memory_mb: int | None = None
    load: float | None = None
    """Runnable processes on the host, mean of a minute."""
    time_limit: float | None = None
    """The queue's own h_rt, seconds; None: none."""
    arch: str = ""
    said: Mapping[str, str] = field(default_factory=dict)
    """Values of its complexes; of consumables, what is left."""
    jobs: tuple[JobEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """One answer of ``qstat``."""

    queues: tuple[QueueInstance, ...] = ()
    waiting: tuple[JobEntry, ...] = ()

    def jobs(self) -> Iterator[JobEntry]:
        """Every job; one that is in several queue instances comes once for each."""
        for queue in self.queues:
            yield from queue.jobs
        yield from self.waiting


def parse_status(text: str, odd: list[str] | None = None) -> CellStatus:
    """Read ``qstat -f -xml -F -r``, or ``qstat -xml`` without queues. Raises `QstatError`.

    `odd` is told of each queue instance that is not understood, which is left out, and of each job,
    which takes as much as it may; without it these are errors.
    """
    root = parse_xml(text)
    if root.tag != "job_info":
        raise QstatError(f"<{root.tag[:40]}> came in place of <job_info>")
    queues = [_queue(item, odd) for item in root.findall("queue_info/Queue-List")]
    # Without -f the running jobs stand where the queues do.
    rest = (*root.findall("queue_info/job_list"), *root.findall("job_info/job_list"))
    return CellStatus(
        queues=tuple(queue for queue in queues if queue is not None),
        waiting=tuple(_job(item, odd) for item in rest),
    )


def parse_xml(text: str) -> ElementTree.Element:
    """Read an answer that declares nothing: no document type, and so no entities of its own."""
    if len(text) > LARGEST:
        raise QstatError(f"an answer of {len(text)} characters is too long")
    # In XML "<!" begins a declaration, a comment or CDATA, none of which Grid Engine prints.
    if "<!" in text:
        raise QstatError("the answer holds a declaration")
    try:
        return ElementTree.fromstring(_NOT_XML.sub("\ufffd", text))
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise QstatError(f"not XML: {error}") from error


def parse_number(said: str) -> str:
    """The job's number in what ``qsub -terse`` printed. Raises `QstatError`."""
    for line in said.splitlines():
        if _COUNT.fullmatch(line.strip()):
            return line.strip()
    raise QstatError(f"no job number in {said[:80]!r}")


def parse_time(text: str) -> float | None:
    """A time of the asking process's zone, which is UTC; None: none."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31 and year >= 1970):
        return None
    return float(timegm((year, month, day, hour, minute, second)))


def parse_size_mb(text: str, unit: float = MIB) -> int | None:
    """An amount of memory, MiB, or of another unit; None: not said."""
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(float(match[1]) * SUFFIXES[match[2]] / unit)


def parse_span(text: str) -> float | None:
    """``HH:MM:SS`` or seconds, as seconds; None: without end, or not said."""
    if (match := _SPAN.fullmatch(text.strip())) is not None:
        hours, minutes, seconds = (int(number) for number in match.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds
    return _number(text)


def tasks_in(tasks: str) -> int:
    """Number of tasks in ``4-10:2,15``; a job that is no array is one."""
    count = 0
    for piece in filter(None, tasks.split(",")):
        match = _TASKS.fullmatch(piece.strip())
        if match is None:
            count += 1
            continue
        first, last, step = (int(number or 0) for number in match.groups())
        count += max(0, max(last, first) - first) // max(step, 1) + 1
    return max(count, 1)


def _queue(item: ElementTree.Element, odd: list[str] | None) -> QueueInstance | None:
    try:
        return _instance(item, odd)
    except QstatError as error:
        if odd is None:
            raise
        odd.append(f"{_text(item, 'name')[:80]} is not understood ({error}): it takes no work")
        return None


def _instance(item: ElementTree.Element, odd: list[str] | None) -> QueueInstance:
    queue, _, host = _text(item, "name").partition("@")
    if not queue or not host:
        raise QstatError(f"{_text(item, 'name')[:80]!r} is not a queue instance")
    said = {each.get("name", ""): (each.text or "").strip() for each in item.findall("resource")}
    return QueueInstance(
        queue=queue,
        host=host,
        slots=_count(item, "slots_total"),
        used=_count(item, "slots_used"),
        reserved=_count(item, "slots_resv", absent=0),
        available=_whole(said.get("slots", "")),
        state=_text(item, "state"),
        cpus=_whole(said.get("num_proc", "")),
        memory_mb=parse_size_mb(said.get("mem_total", "")),
        load=_number(said.get("load_short", "")),
        time_limit=parse_span(said.get("h_rt", "")),
        arch=said.get("arch", "") or _text(item, "arch"),
        said=said,
        jobs=tuple(_job(each, odd) for each in item.findall("job_list")),
    )


def _job(item: ElementTree.Element, odd: list[str] | None) -> JobEntry:
    number, slots, what = _text(item, "JB_job_number"), MOST_SLOTS, ""
    if not _COUNT.fullmatch(number):
        what = f"{number[:80]!r} is not a job number"
    try:
        slots = _count(item, "slots", absent=1)
    except QstatError as error:
        what = what or str(error)
    if what and odd is None:
        raise QstatError(what)
    if what and odd is not None:
        odd.append(f"job {number[:40]} is not understood ({what}): its slots count as taken")
    asked = [(each.get("name", ""), each.text or "") for each in item.findall("hard_request")]
    limits = [_number(text) for name, text in asked if name == "h_rt"]
    return JobEntry(
        number=number,
        tasks=_text(item, "tasks"),
        name=_text(item, "full_job_name") or _text(item, "JB_name"),
        owner=_text(item, "JB_owner"),
        state=_text(item, "state"),
        slots=slots,
        start=parse_time(_text(item, "JAT_start_time")),
        submitted=parse_time(_text(item, "JB_submission_time")),
        time_limit=min((limit for limit in limits if limit is not None), default=None),
        requests=dict(asked),
    )


def _text(item: ElementTree.Element, tag: str) -> str:
    return (item.findtext(tag) or "").strip()


def _count(item: ElementTree.Element, tag: str, absent: int | None = None) -> int:
    text = _text(item, tag)
    if not text and absent is not None:
        return absent
    if not _COUNT.fullmatch(text):
        raise QstatError(f"{tag}: {text[:80]!r} is not a number")
    return int(text)


def _whole(text: str) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text.strip()) else None
