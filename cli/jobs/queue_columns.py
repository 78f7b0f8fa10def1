"""Columns of ``coalloc queue``: their cells, the order of lines, and formats as of squeue."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError as BadText
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from coalloc.cli.output import CUT, node_set, reason
from coalloc.runtime.texts import clock, instant, length
from coalloc.wire.job_rows import QueueRow

CODES = {
    "pending": "PD",
    "held": "PD",
    "preparing": "CF",
    "starting": "CF",
    "running": "R",
    "completed": "CD",
    "failed": "F",
    "cancelled": "CA",
    "timeout": "TO",
    "lost": "NF",
}
"""squeue's codes of our states; one that is not known is shown as it is."""
WAITING = frozenset({"pending", "held"})
UNBEGUN = WAITING | {"preparing", "starting"}
ENDED = frozenset({"completed", "failed", "cancelled", "timeout", "lost"})
NAME_WIDTH = 16

Group = Sequence[QueueRow]
"""A job, or the members of an array that have not begun and differ in nothing."""


class Now(Struct, frozen=True, kw_only=True):
    """The moment that is shown."""

    time: float
    """Wall clock, seconds."""
    brief: bool = False
    """There is little room: names are cut to `NAME_WIDTH`, and instants and reasons are without
    what goes without saying."""

    def at(self, value: float | None) -> str:
        return clock(value, self.time) if self.brief and value is not None else instant(value)


class Column(Struct, frozen=True):
    """One column."""

    header: str
    letters: str
    """Of it in squeue's formats; empty: it has none there."""
    value: Callable[[Group, Now], Any]
    """Key by which lines are ordered: less comes first, and None last."""
    show: Callable[[Any], str] | None = str
    """The text of a value; None: it is an instant."""
    cell: Callable[[Group, Now], str] | None = None
    """The text, where more is shown than the value."""
    is_number: bool = False
    """Set to the right."""

    def text(self, group: Group, now: Now) -> str:
        if self.cell is not None:
            return self.cell(group, now)
        value = self.value(group, now)
        return now.at(value) if self.show is None else self.show(value)

    def key(self, group: Group, now: Now) -> tuple[bool, Any]:
        value = self.value(group, now)
        return value is None, value


def _waits(row: QueueRow) -> bool:
    """Here, or with claims that wait in a cluster's own queue."""
    return row.state in WAITING or (row.state == "preparing" and bool(row.reason))


def run_time(group: Group, now: Now) -> float:
    """Seconds a job has run, or ran."""
    row = group[0]
    if row.started is None:
        return 0.0
    return (now.time if row.ended is None else row.ended) - row.started


def time_left(group: Group, now: Now) -> float | None:
    """Seconds until its limit; None: it has none."""
    limit = group[0].time_limit
    return None if limit is None else limit - run_time(group, now)


def start_of(group: Group, now: Now) -> float | None:
    """The start, or the earliest that is expected."""
    row = group[0]
    if not _waits(row):
        return row.started
    return min((r.start_estimate for r in group if r.start_estimate is not None), default=None)


def _likely(group: Group, now: Now) -> str:
    """The interval of the member that is expected to start first."""
    starts = [r.start_estimate for r in group]
    first = start_of(group, now)
    row = group[starts.index(first) if first in starts else 0]
    if not _waits(row) or row.start_early is None or row.start_late is None:
        return "-"
    return f"{clock(row.start_early, now.time)} - {clock(row.start_late, now.time)}"


def _latest(group: Group, now: Now) -> float | None:
    """The earliest end of the members' intervals."""
    return min((r.start_late for r in group if r.start_late is not None), default=None)


def end_of(group: Group, now: Now) -> float | None:
    """The end, or the time limit's where it has not come."""
    row, start = group[0], start_of(group, now)
    if row.ended is not None or start is None or row.time_limit is None:
        return row.ended
    return start + row.time_limit


def reason_text(row: QueueRow) -> str:
    """Reason of a job's state, in brackets; empty for one that simply completed."""
    if _waits(row):
        return f"({words})" if (words := reason(row.reason, row.detail)) else ""
    words = row.detail or row.reason
    if not words.startswith(row.reason):
        words = f"{row.reason}: {row.detail}"
    if row.exit_code:
        code = f"exit code {row.exit_code}"
        words = words if code in words else f"{words}, {code}" if words else code
    return f"({words})" if words else ""


def _id(group: Group, now: Now) -> str:
    """12, or 12_[0-9,12%5] for members of an array, with its throttle."""
    from coalloc.model.formats.nodeset import fold

    if len(group) == 1:
        return group[0].id
    number = group[0].id.partition("_")[0]
    folded = fold(str(int(row.id.partition("_")[2])) for row in group).strip("[]")
    throttle = f"%{group[0].throttle}" if group[0].throttle else ""
    return f"{number}_[{folded}{throttle}]"


def _arrival(group: Group, now: Now | None = None) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", group[0].id))


def _name(group: Group, now: Now) -> str:
    name = group[0].name
    is_whole = len(name) <= NAME_WIDTH or not now.brief
    return name if is_whole else name[: NAME_WIDTH - 1] + CUT


def _code(group: Group, now: Now) -> str:
    row = group[0]
    if row.reason == "cancelling":
        return "CG"
    return "PD" if _waits(row) else CODES.get(row.state, row.state)


def _procs(group: Group, now: Now) -> str:
    row = group[0]
    if row.state in WAITING and row.max_procs is not None and row.max_procs != row.procs:
        return f"{row.procs}-{row.max_procs}"
    return str(row.procs)


def _cpus(group: Group, now: Now) -> str:
    """CPUs in all; a process is one where they are not counted."""
    each = group[0].shape.cpus_per_proc or 1
    return "-".join(str(int(procs) * each) for procs in _procs(group, now).split("-"))


def _least_cpus(group: Group, now: Now) -> int:
    return group[0].procs * (group[0].shape.cpus_per_proc or 1)


def _node_count(group: Group, now: Now) -> str:
    """Nodes, or those that a waiting job asks for."""
    row, low, high = group[0], group[0].shape.min_nodes, group[0].shape.max_nodes
    if row.nodes or not _waits(row) or (low == 1 and high is None):
        return str(len(row.nodes)) if row.nodes else "-"
    return str(low) if high in {None, low} else f"{low}-{high}"


def _least_nodes(group: Group, now: Now) -> int:
    return len(group[0].nodes) or group[0].shape.min_nodes


def _tres(group: Group, now: Now) -> str:
    """Resources of each node, as squeue has them."""
    counts = group[0].shape.per_node
    return ",".join(f"gres:{name}:{count}" for name, count in counts.items()) or "N/A"


def _limited(seconds: float | None) -> str:
    return "UNLIMITED" if seconds is None else length(seconds)


def _clusters(group: Group, now: Now) -> str:
    row = group[0]
    return f"{row.origin}:{row.foreign}" if row.origin else "+".join(row.clusters) or "-"


def _deadline(group: Group, now: Now) -> str:
    return "-" if (at := group[0].finish_by) is None else now.at(at)


def _nodes(group: Group, now: Now) -> str:
    return "" if _waits(group[0]) else node_set(group[0].nodes)


def _where(group: Group, now: Now) -> str:
    """Nodes or reason; of a workflow or a divisible job, first what has completed of all."""
    row, counts = group[0], group[0].progress
    done = "" if counts is None else f"{counts.completed}/{counts.total} {counts.unit} "
    if now.brief and row.reason == "planned" and start_of(group, now) is not None:
        return f"{done}({reason(row.reason)})"  # where it is planned to start is in no hurry
    return done + (_nodes(group, now) or reason_text(row))


COLUMNS: dict[str, Column] = {
    "jobid": Column("JOBID", "iA", _arrival, cell=_id),
    "name": Column("NAME", "j", lambda g, now: g[0].name, cell=_name),
    "user": Column("USER", "u", lambda g, now: g[0].user),
    "st": Column("ST", "t", _code),
    "state": Column("STATE", "T", lambda g, now: g[0].state.upper()),
    "time": Column("TIME", "M", run_time, length, is_number=True),
    "limit": Column("TIME_LIMIT", "l", lambda g, now: g[0].time_limit, _limited, is_number=True),
    "left": Column("TIME_LEFT", "L", time_left, _limited, is_number=True),
    "priority": Column("PRIORITY", "pQ", lambda g, now: g[0].weight, "{:g}".format, is_number=True),
    "procs": Column("PROCS", "", lambda g, now: g[0].procs, cell=_procs, is_number=True),
    "cpus": Column("CPUS", "C", _least_cpus, cell=_cpus, is_number=True),
    "min_cpus": Column("MIN_CPUS", "c", lambda g, now: str(g[0].shape.cpus_per_proc or 1)),
    "nodes": Column("NODES", "D", _least_nodes, cell=_node_count, is_number=True),
    "tres": Column("TRES_PER_NODE", "b", _tres),
    "submit": Column("SUBMIT", "V", lambda g, now: g[0].submitted, None),
    "start": Column("START", "S", start_of, None),
    "likely": Column("LIKELY (90 %)", "", _latest, cell=_likely),
    "end": Column("END", "e", end_of, None),
    "deadline": Column("DEADLINE", "", lambda g, now: g[0].finish_by, cell=_deadline),
    "clusters": Column("CLUSTERS", "P", _clusters),
    "nodelist": Column("NODELIST", "N", _nodes),
    "reason": Column(
        "REASON", "r", lambda g, now: reason_text(g[0]), lambda text: text.strip("()")
    ),
    "where": Column("NODELIST(REASON)", "R", _where),
}
BY_LETTER = {letter: name for name, column in COLUMNS.items() for letter in column.letters}
USUAL = ("jobid", "name", "user", "st", "time", "procs", "start", "clusters", "where")
LONG = (*("jobid", "name", "user", "state", "time", "limit", "left", "priority", "procs"), "where")
STARTS = ("jobid", "name", "user", "st", "start", "likely", "procs", "priority", "where")


class Field(Struct, frozen=True, kw_only=True):
    """A column in a format of squeue's kind."""

    name: str
    before: str = ""
    """Text between the field before it and this one."""
    width: int = 0
    """0: as wide as its text."""
    right: bool = False
    """Its text stands on the right."""

    def padded(self, text: str) -> str:
        if not self.width:
            return self.before + text
        cut = text[: self.width]
        return self.before + (cut.rjust(self.width) if self.right else cut.ljust(self.width))


_FIELD = re.compile(r"%(\.?)([0-9]{0,4})([A-Za-z])")


def read_format(text: str) -> tuple[str, ...] | tuple[Field, ...]:
    """A format: names (``jobid,left,where``), or squeue's letters (``%.8i %.10L %R``)."""
    if "%" not in text:
        return tuple(_named(word.strip()) for word in text.split(","))
    fields, last = [], 0
    for found in _FIELD.finditer(text):
        right, width, letter = found.groups()
        if letter not in BY_LETTER:
            raise BadText(f"{found[0]!r} is none of {' '.join('%' + known for known in BY_LETTER)}")
        before, last = text[last : found.start()], found.end()
        fields.append(
            Field(
                name=BY_LETTER[letter],
                before=before,
                width=int(width or 0),
                right=bool(right),
            )
        )
    if not fields:
        raise BadText(f"{text!r} has no field such as %i")
    return tuple(fields)


def read_order(text: str) -> tuple[tuple[str, bool], ...]:
    """Columns to order by, each with whether it falls: ``-priority,start`` or ``-p,S``."""
    out = []
    for word in text.split(","):
        name = word.strip().lstrip("+-")
        out.append((BY_LETTER.get(name) or _named(name), word.strip().startswith("-")))
    return tuple(out)


def _named(word: str) -> str:
    name = word.lower()
    if name not in COLUMNS:
        raise BadText(f"{word!r} is not one of {', '.join(COLUMNS)}")
    return name


def folded(rows: Iterable[QueueRow], *, unfold: bool = False) -> list[Group]:
    """One group a line: members of an array that have not begun and differ in nothing are one."""
    groups: dict[Any, list[QueueRow]] = {}
    for row in rows:
        number, _, index = row.id.partition("_")
        key: Any = row.id
        if index.isdecimal() and not unfold and row.state in UNBEGUN:
            key = (number, row.state, row.reason, row.name, row.user, *row.nodes.items())
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def ordered(groups: Iterable[Group], order: Sequence[tuple[str, bool]], now: Now) -> list[Group]:
    """The groups in this order; those alike in it stay as they are."""
    out = list(groups)
    for name, falls in reversed(order):
        key = COLUMNS[name].key
        out.sort(key=lambda group: key(group, now), reverse=falls)
    return out


def as_usual(groups: Iterable[Group]) -> list[Group]:
    """The groups in the usual order: what runs, what waits, what has ended; by arrival in each."""
    return sorted(groups, key=lambda g: (g[0].state in ENDED, _waits(g[0]), _arrival(g)))


def lines_of(groups: Iterable[Group], names: Sequence[str], now: Now) -> list[tuple[str, ...]]:
    """Cells of the groups."""
    columns = [COLUMNS[name] for name in names]
    return [tuple(column.text(group, now) for column in columns) for group in groups]
