"""The queue as ``squeue`` prints it: text in, records out, no I/O.

Notes
-----
``squeue`` prints names and comments that users chose, with any character in them. Fields are
therefore parted by a mark that is drawn for each call (`queue_format`), which nobody can have
written into a name beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from coalloc.adapters.slurm.parsers.records import ParseError, QueueEntry, job_state
from coalloc.adapters.slurm.parsers.text import (
    present,
    read_duration,
    read_gres,
    read_integer,
    read_nodes,
    read_time,
    says_none,
)
from coalloc.model.values import replace

RECORD = "\x1e"

QUEUE_FIELDS = (
    ("id", "%i"),
    ("number", "%A"),
    ("state", "%T"),
    ("reason", "%r"),
    ("partition", "%P"),
    ("user", "%u"),
    ("uid", "%U"),
    ("gid", "%G"),
    ("cpus", "%C"),
    ("node_count", "%D"),
    ("nodes", "%N"),
    ("expected_nodes", "%Y"),
    ("start", "%S"),
    ("end", "%e"),
    ("submitted", "%V"),
    ("time_limit", "%l"),
    ("exclusive", "%h"),
    ("gres", "%b"),
    ("features", "%f"),
    ("reservation", "%v"),
    ("required_nodes", "%n"),
    ("dependency", "%E"),
    ("name", "%j"),
    ("comment", "%k"),
)
"""Fields asked of ``squeue``, by their names there (the same from 16.05 to 25.05)."""


def queue_format(mark: str) -> str:
    """The ``-o`` of squeue; `mark` is drawn for each call, and stands between its fields."""
    return f"{RECORD}{mark}" + mark.join(code for _, code in QUEUE_FIELDS)


def parse_queue(text: str, mark: str) -> tuple[QueueEntry, ...]:
    """Jobs as ``squeue -h -r -o`` prints them, with `queue_format` of this mark; some are `odd`."""
    head, *records = text.split(f"{RECORD}{mark}")
    if head and (records or not says_none(head, "jobs")):
        raise ParseError(head, "unexpected words before the first job")
    if records and not records[-1].endswith("\n"):
        raise ParseError(records[-1].replace(mark, "|"), "cut short")
    return tuple(_queue_entry(record, mark) for record in records)


def _queue_entry(record: str, mark: str) -> QueueEntry:
    values = record.removesuffix("\n").split(mark)
    line = record.replace(mark, "|")
    if len(values) != len(QUEUE_FIELDS):
        what = f"{len(values)} fields where {len(QUEUE_FIELDS)} were asked for"
        return QueueEntry(id=values[0].strip()[:40] or "?", odd=what, is_lost=True)
    found = {name: value for (name, _), value in zip(QUEUE_FIELDS, values, strict=True)}
    try:
        if not re.fullmatch(r"[0-9]+(?:[_+][0-9\[\],%:.+-]+)?", found["id"].strip(), re.A):
            raise ParseError(line, f"{found['id'].strip()[:40]!r} is not a job")
        return _entry_of(found, line)
    except ParseError as error:
        odd = error.what
    # Each field that cannot be read is taken for the most that it could say.
    is_lost = False
    for name, (read, most) in MOST.items():
        try:
            read(found[name], line)
        except ParseError:
            found[name] = most
            is_lost |= name == "nodes"
    return replace(_entry_of(found, line), odd=odd, is_lost=is_lost)


def _count(text: str, where: str) -> int:
    return read_integer(text, where, "")


MOST: Mapping[str, tuple[Callable[[str, str], object], str]] = {
    "cpus": (_count, "1G"),
    "node_count": (_count, "1"),
    "nodes": (read_nodes, ""),
    "expected_nodes": (read_nodes, ""),
    "start": (read_time, ""),
    "end": (read_time, ""),
    "submitted": (read_time, ""),
    "time_limit": (read_duration, ""),
}
"""Fields that may not be understood: their readers, and what stands for them then."""


def _entry_of(found: Mapping[str, str], line: str) -> QueueEntry:
    return QueueEntry(
        id=found["id"].strip()[:40] or "?",
        number=found["number"].strip(),
        state=job_state(found["state"]),
        said=found["reason"].strip(),
        reason=found["reason"].strip().partition(",")[0].replace("_", ""),
        partition=found["partition"],
        user=found["user"],
        uid=_identity(found["uid"]),
        gid=_identity(found["gid"]),
        name=found["name"],
        comment=present(found["comment"]),
        cpus=read_integer(found["cpus"], line, "CPUs"),
        node_count=read_integer(found["node_count"], line, "nodes"),
        nodes=read_nodes(found["nodes"], line),
        expected_nodes=read_nodes(found["expected_nodes"], line),
        start=read_time(found["start"], line),
        end=read_time(found["end"], line),
        submitted=read_time(found["submitted"], line),
        time_limit=read_duration(found["time_limit"], line),
        features=present(found["features"]),
        exclusive=found["exclusive"].strip() == "NO",
        gres=read_gres(found["gres"]),
        reservation=present(found["reservation"]),
        required_nodes=present(found["required_nodes"]),
        dependency=present(found["dependency"]),
    )


def _identity(text: str) -> int:
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,10}", text, re.A) else -1
