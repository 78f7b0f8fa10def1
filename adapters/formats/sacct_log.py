"""A site's own accounts as a log of jobs: the text of ``sacct -P`` with its line of names.

Columns are known by their names, in any order; others are passed over.

Notes
-----
- Steps are passed over; members of an array, and parts of a heterogeneous job, are jobs.
- A process is a CPU of those that were allocated, else asked for. A job keeps to as many nodes as
  it asked for where these are several; one that holds GPUs, or other generic resources, to those
  that it had, an equal share on each. Licences are the job's as a whole.
- Memory is of each node or CPU where ``ReqMem`` says so (``4Gn``, ``2Gc``: Slurm before 21.08),
  else the sum of the job, of which each CPU has its share. Where ``AllocTRES`` has none, Slurm
  does not count it.
- A job counts as submitted when it became eligible: what it waited for until then is not told.
- Times without a zone are taken for UTC: only their differences count.

References
----------
sacct(1). ``sacct -aP -S DATE --format=ALL`` prints all that is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from coalloc.adapters.formats.files import opened
from coalloc.adapters.formats.swf import (
    LONGEST_LINE,
    SwfJob,
    SwfLog,
    SwfSummary,
    bounded_lines,
    read_swf,
)
from coalloc.adapters.slurm.parsers.records import ParseError
from coalloc.adapters.slurm.parsers.text import NONE, read_duration
from coalloc.model.errors import InputError
from coalloc.model.shape import ONE_SLOT, Shape

NEEDED = (
    ("JobID", "JobIDRaw"),
    ("Submit",),
    ("Start",),
    ("Elapsed", "ElapsedRaw", "End"),
    ("AllocTRES", "NCPUS", "AllocCPUS", "ReqTRES", "ReqCPUS"),
)
"""Columns without which there is no job; of each line one."""
TOLD = frozenset(name for names in NEEDED for name in names) | {"User", "State", "End", "Account"}
_HEAD = re.compile(rb"\s*[A-Za-z]+([|,;\t\x1f])")
_UNITS = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_GONE = frozenset({"CANCELLED", "REVOKED"})
"""States of jobs that may never have run; and of some that do."""
_ON = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})


def read_log(path: str | Path) -> SwfLog:
    """Read a job log, of ``sacct -P`` or SWF, packed or not.

    Raises `InputError` where it cannot be read, or is neither.
    """
    with opened(Path(path)) as stream:
        head = stream.readline(LONGEST_LINE)
        found = _HEAD.match(head)
        mark = found[1].decode() if found else "|"
        names = head.decode("utf-8", "replace").strip().split(mark)
        if found is None or len(TOLD.intersection(names)) < 2:
            return read_swf(path)
        lines = (line.decode("utf-8", "replace") for line in bounded_lines(stream))
        return _log_of(lines, names, mark, str(path))


def _log_of(lines: Iterable[str], names: Sequence[str], mark: str, where: str) -> SwfLog:
    missing = [" or ".join(some) for some in NEEDED if not set(some).intersection(names)]
    if missing:
        raise InputError(where, f"has no column {', no '.join(missing)} of sacct")
    summary, jobs = SwfSummary(), list[SwfJob]()
    for number, line in enumerate(lines, 2):
        values = line.rstrip("\r\n").split(mark)
        if values in ([""], list(names)):
            continue
        try:
            if len(values) != len(names):
                raise ValueError(f"has {len(values)} fields, not {len(names)}")
            job = _job_of(dict(zip(names, values, strict=True)), number)
        except (ValueError, OverflowError) as error:
            summary.count_bad(number, error.what if isinstance(error, ParseError) else str(error))
            continue
        if job is not None:
            jobs.append(job)
    summary.jobs = len(jobs)
    if summary.bad and not jobs:
        what = "has no row of sacct that can be read; line {}: {}"
        raise InputError(where, what.format(*summary.bad_lines[0]))
    jobs.sort(key=lambda job: job.submit_s)
    return SwfLog(header={}, jobs=tuple(jobs), summary=summary)


def _job_of(row: Mapping[str, str], line: int) -> SwfJob | None:
    """The job of a row; None: it is a step."""
    name = row.get("JobID") or row["JobIDRaw"]
    found = re.match(r"[0-9]+", name)
    if found is None:
        raise ValueError(f"{name[:40]!r} is not the number of a job")
    if "." in name:
        return None
    submit, start = _time(row["Submit"]), _time(row["Start"])
    if submit is None:
        raise ValueError("the submit time is not known")
    submit = max(submit, _time(row.get("Eligible", "")) or 0.0)
    state, run = row.get("State", "").partition(" ")[0], _run_time(row, start)
    unusable = ""
    if state in _GONE and not run:
        unusable = "cancelled before it ran"
    elif start is None or state == "PENDING":
        unusable = "had not started"
    elif run is None or state in _ON:
        unusable = "still ran"
    asked, held = (_tres(row.get(key, "")) for key in ("ReqTRES", "AllocTRES"))
    counts = (held.get("cpu"), *map(row.get, ("AllocCPUS", "NCPUS")), asked.get("cpu"))
    cpus = next((n for n in map(_count, (*counts, row.get("ReqCPUS"))) if n), None)
    shape, memory = (ONE_SLOT, 0) if cpus is None else _shape(row, asked, held, cpus)
    minutes = _count(row.get("TimelimitRaw"))
    limit = minutes * 60.0 if minutes else read_duration(row.get("Timelimit", ""))
    return SwfJob(
        number=int(found[0]),
        submit_s=submit,
        wait_s=None if start is None else max(start - submit, 0.0),
        run_s=None if unusable else run,
        requested=cpus,
        requested_s=limit,
        requested_kb=memory * 1024.0 or None,
        line=line,
        name=name,
        owner=row.get("User", ""),
        program=row.get("JobName", ""),
        cluster=row.get("Cluster", ""),
        partition_name=row.get("Partition", ""),
        nodes=_count(held.get("node")) or _count(row.get("NNodes")),
        priority=_count(row.get("Priority")),
        shape=shape,
        unusable=unusable,
    )


def _time(text: str) -> float | None:
    """Seconds since 1970 of ``2026-11-20T13:26:55``, with a zone or without, or of such seconds."""
    if text in NONE:
        return None
    if text.isdecimal():
        return float(text)
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _run_time(row: Mapping[str, str], start: float | None) -> float | None:
    """Seconds; clocks that are set do not change those that Slurm counted."""
    end = _time(row["End"]) if "End" in row else start
    if start is None or end is None:
        return None
    raw = _count(row.get("ElapsedRaw"))
    counted = read_duration(row.get("Elapsed", "")) if raw is None else float(raw)
    return max(end - start, 0.0) if counted is None else counted


def _count(text: object) -> int | None:
    return int(str(text)) if re.fullmatch(r"[0-9]{1,15}", str(text)) else None


def _tres(text: str) -> dict[str, str]:
    return {key: value for key, mark, value in (w.partition("=") for w in text.split(",")) if mark}


def _shape(
    row: Mapping[str, str], asked: Mapping[str, str], held: Mapping[str, str], cpus: int
) -> tuple[Shape, int]:
    """The shape, and MiB of memory of each CPU."""
    told = held or asked
    wanted = _count(asked.get("node")) or _count(row.get("ReqNodes"))
    had = _count(held.get("node")) or _count(row.get("NNodes")) or wanted or 1
    gres, licences = (
        {key.removeprefix(kind): _count(n) or 0 for key, n in told.items() if key.startswith(kind)}
        for kind in ("gres/", "license/")
    )
    for name in [name for name in gres if ":" not in name]:  # of a family what has no type
        gres[name] -= sum(count for key, count in gres.items() if key.startswith(f"{name}:"))
    gres = {name: count for name, count in gres.items() if count > 0}
    nodes = min(had if gres or wanted is None else wanted, cpus)
    counts = not held or "mem" in held
    total = asked.get("mem") or held.get("mem", "")
    of_node, of_cpu = _memory(row.get("ReqMem", ""), total, cpus) if counts else (0, 0)
    return Shape(
        min_nodes=nodes,
        max_nodes=nodes if nodes > 1 or gres else None,
        memory_mb_per_node=of_node,
        per_node={name: -(-count // nodes) for name, count in gres.items()},
        per_job={name: count for name, count in licences.items() if count},
    ), of_cpu


def _memory(asked: str, total: str, cpus: int) -> tuple[int, int]:
    """MiB of each node and of each CPU, of ``ReqMem`` and of the sum that TRES tell."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)([nc]?)", asked)
    if found is None or not found[3]:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)()", total) or found
    if found is None:
        return 0, 0
    amount = float(found[1]) * _UNITS[found[2]]
    if found[3]:
        return (ceil(amount), 0) if found[3] == "n" else (0, ceil(amount))
    return 0, int(amount / cpus)  # not rounded up: what fills a node would not fit it
