"""Parsers of what Slurm's commands print: text in, records out, no I/O.

Times are printed in the zone of whoever runs the command; the reader runs every command with
``TZ=UTC``, and these parsers read them so. Whatever is malformed raises `ParseError` with its
line: an answer that was cut short must not look like an idle cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

from coalloc.adapters.slurm.parsers.records import (
    NodeRecord,
    ParseError,
    ReservationEntry,
    state_words,
)
from coalloc.model.errors import InputError
from coalloc.model.formats.nodeset import expand

NONE = frozenset(
    {"", "(null)", "N/A", "n/a", "None", "NONE", "none", "Unknown", "UNKNOWN", '"None"', "NULL"}
)
UNLIMITED = frozenset({"UNLIMITED", "INFINITE", "NOT_SET", "PARTITION_LIMIT"})
DAY_S = 86400.0
BOOT_S = 60.0
"""ResumeTimeout where nothing is said."""
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_/:*]*)=")
_NODE_KEYS = frozenset(
    {
        *("NodeName", "Arch", "CoresPerSocket", "CPUAlloc", "CPUEfctv", "CPUErr", "CPUTot"),
        *("CPULoad", "AvailableFeatures", "ActiveFeatures", "Gres", "GresUsed", "NodeAddr"),
        *("NodeHostName", "Port", "Version", "OS", "RealMemory", "AllocMem", "FreeMem"),
        *("Sockets", "Boards", "State", "ThreadsPerCore", "TmpDisk", "Weight", "Owner"),
        *("MCS_label", "Partitions", "BootTime", "SlurmdStartTime", "LastBusyTime", "CfgTRES"),
        *("AllocTRES", "CapWatts", "CurrentWatts", "ExtSensorsJoules", "CoreSpecCount"),
        *("CPUSpecList", "MemSpecLimit", "NextState", "ReservationName", "ResumeAfterTime"),
        *("Features", "Topology", "Reason", "Comment", "Extra", "InstanceId", "InstanceType"),
        *("AveWatts", "ExtSensorsWatts", "ExtSensorsTemp", "BcastAddr", "GpuSpec", "TLS"),
        "GresDrain",
    }
)
_RESERVATION_KEYS = frozenset(
    {
        *("ReservationName", "StartTime", "EndTime", "Duration", "Nodes", "NodeCnt", "CoreCnt"),
        *("Features", "PartitionName", "Flags", "TRES", "Users", "Groups", "Accounts", "QOS"),
        *("Licenses", "State", "BurstBuffer", "Watts", "MaxStartDelay", "AllowedPartitions"),
        *("Comment", "PurgeComp", "NodeName", "CoreIDs", "AllowedQOS"),
    }
)


def read_time(text: str, where: str = "") -> float | None:
    """Seconds since 1970 of ``2026-11-20T13:26:55`` in UTC; None where there is none."""
    text = text.strip()
    if text in NONE:
        return None
    try:
        if len(text) != 19 or not text.isascii() or text[10] != "T":
            raise ValueError
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise ParseError(where or text, f"{text[:40]!r} is not a time") from None


def read_duration(text: str, where: str = "") -> float | None:
    """Seconds of ``7-00:00:00``, ``1:00:00`` or ``10:00``; None where unlimited or not given."""
    text = text.strip()
    if text in NONE or text.upper() in UNLIMITED or text == "INVALID":
        return None
    found = re.fullmatch(
        r"(?:([0-9]{1,9})-)?(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,9})", text, re.A
    )
    if found is None:
        raise ParseError(where or text, f"{text[:40]!r} is not a length of time")
    days, hours, minutes, seconds = (float(piece or 0) for piece in found.groups())
    return days * DAY_S + hours * 3600.0 + minutes * 60.0 + seconds


def read_nodes(text: str, where: str = "") -> tuple[str, ...]:
    """The names of a node list such as ``a[1-4],b7``; none where it says so."""
    text = text.strip()
    if text in NONE:
        return ()
    try:
        return expand(text)
    except InputError as error:
        raise ParseError(where or text, error.what) from None


def read_integer(text: str, where: str, what: str) -> int:
    """A number such as ``1024`` or ``4K`` (squeue shortens counts), the first of ``2-4``."""
    found = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?([KMGT]?)(?:-.*)?", text.strip(), re.A)
    if found is None:
        raise ParseError(where, f"{what} {text[:40]!r} is not a number")
    scale = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}[found[3]]
    return int(float(f"{found[1]}.{found[2] or 0}") * scale) if found[2] else int(found[1]) * scale


def present(text: str) -> str:
    """The text, or nothing where it says so."""
    return "" if text.strip() in NONE else text


def parse_node_list(text: str) -> tuple[NodeRecord, ...]:
    """Nodes as ``scontrol show node`` prints them, with or without ``-o``."""
    return read_entries(text, "NodeName", _NODE_KEYS, "nodes", _node_entry, _odd_node)


def _odd_node(pairs: Mapping[str, str], odd: str) -> NodeRecord:
    partitions = read_words(pairs.get("Partitions", ""))
    return NodeRecord(name=pairs["NodeName"], partitions=partitions, reason=odd, odd=odd)


def _node_entry(pairs: Mapping[str, str], where: str) -> NodeRecord:
    if not re.fullmatch(r"[\w.-]+", pairs["NodeName"]):
        raise ParseError(where, f"{pairs['NodeName'][:40]!r} is not the name of a node")
    for key in ("State", "CPUTot"):
        if key not in pairs:
            raise ParseError(where, f"no {key}")
    total = read_integer(pairs["CPUTot"], where, "CPUTot")
    threads, cores, sockets, spared = (
        bound(pairs.get(key, "")) or 0
        for key in ("ThreadsPerCore", "CoresPerSocket", "Sockets", "CoreSpecCount")
    )
    # Where fewer CPUs are configured than there are threads, each is a core.
    each = max(1, min(threads, total // max(1, cores * sockets)))
    usable = read_integer(pairs.get("CPUEfctv", str(total - spared * each)), where, "CPUEfctv")
    taken = read_integer(pairs.get("CPUAlloc", "0"), where, "CPUAlloc")
    memory = present(pairs.get("RealMemory", ""))
    of_system = bound(pairs.get("MemSpecLimit", "")) or 0
    return NodeRecord(
        name=pairs["NodeName"],
        states=state_words(pairs["State"]),
        cpus=max(1, min(usable, total) if usable >= taken else total),
        cpus_per_core=each,
        cpus_taken=taken,
        memory_taken_mb=bound(pairs.get("AllocMem", "")) or 0,
        gres_taken=read_gres(pairs.get("GresUsed", "")),
        cpu_load=_number(pairs.get("CPULoad", "")),
        memory_mb=max(0, read_integer(memory, where, "RealMemory") - of_system) if memory else None,
        free_mb=bound(pairs.get("FreeMem", "")),
        features=read_words(pairs.get("ActiveFeatures", pairs.get("Features", ""))),
        weight=read_integer(pairs.get("Weight", "1"), where, "Weight"),
        partitions=read_words(pairs.get("Partitions", "")),
        address=present(pairs.get("NodeAddr", "")),
        reason=present(pairs.get("Reason", "")),
        gres=read_gres(pairs.get("Gres", "")),
        extra=present(pairs.get("Extra", "")),
    )


def parse_reservations(text: str) -> tuple[ReservationEntry, ...]:
    """Reservations that have nodes, as ``scontrol show reservation`` prints them."""
    keys = ("ReservationName", _RESERVATION_KEYS, "reservations")
    found = read_entries(text, *keys, _reservation, _odd_reservation)
    return tuple(entry for entry in found if entry.nodes or entry.odd)


def _reservation(pairs: Mapping[str, str], where: str) -> ReservationEntry:
    nodes = read_nodes(pairs.get("Nodes", ""), where)
    start, end = (read_time(pairs.get(key, ""), where) for key in ("StartTime", "EndTime"))
    if start is None or end is None:
        raise ParseError(where, "no StartTime or EndTime")
    if not nodes and bound(pairs.get("NodeCnt", "")):
        raise ParseError(where, "no Nodes")
    return ReservationEntry(
        name=pairs["ReservationName"],
        nodes=nodes,
        start=start,
        end=end,
        users=read_words(pairs.get("Users", "")),
        flags=read_words(pairs.get("Flags", "")),
    )


def _odd_reservation(pairs: Mapping[str, str], odd: str) -> ReservationEntry:
    try:
        nodes = read_nodes(pairs.get("Nodes", ""))
    except ParseError:
        nodes = ()
    return ReservationEntry(
        name=pairs["ReservationName"], nodes=nodes, start=0.0, end=float("inf"), odd=odd
    )


def parse_clock(text: str) -> float:
    """Time of ``scontrol show config`` by slurmctld's clock, seconds since 1970."""
    line = text.lstrip().partition("\n")[0]
    stamp = read_time(line.rpartition(" as of ")[2], line)
    if stamp is None:
        raise ParseError(line, "no time")
    return stamp


def select_words(text: str) -> frozenset[str]:
    """Words of what Slurm gives out and counts, such as CORE and MEMORY, by ``show config``."""
    said = r"^SelectTypeParameters[ \t]*=.*\bCR_((CPU|CORE|SOCKET)?_?(MEMORY)?)\b"
    found = re.search(said, text, re.M | re.I)
    return frozenset(found[1].upper().split("_")) if found else frozenset()


def gives_whole_memory(text: str) -> bool:
    """Whether Slurm gives a job that names no memory all of it, by ``scontrol show config``."""
    values = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(\S*)", text, re.M))
    given = {values.get(key, "UNLIMITED").upper() for key in ("DefMemPerNode", "DefMemPerCPU")}
    return "MEMORY" in select_words(text) and given <= {"UNLIMITED", "0"}


def keeps_places(text: str) -> bool:
    """Whether a job that is put off keeps its place, by ``scontrol show config``.

    priority/multifactor counts the age of a job anew whenever its begin is changed (seen in 22.05).
    """
    values = dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(\S*)", text, re.M))
    is_aging = values.get("PriorityWeightAge", "0") != "0"
    always = "ACCRUE_ALWAYS" in values.get("PriorityFlags", "").upper()
    return always or not (is_aging and values.get("PriorityType") == "priority/multifactor")


def parse_boot(text: str) -> float:
    """The time that a node has to boot, by ``scontrol show config``, seconds."""
    found = re.search(r"^ResumeTimeout[ \t]*=[ \t]*([0-9]{1,6})", text, re.M)
    return float(found[1]) if found else BOOT_S


def parse_fields(text: str) -> Mapping[str, str]:
    """The pairs of one job's record; of each key the first stands."""
    if not text.lstrip().startswith("JobId="):
        raise ParseError(text, "no JobId")
    return read_pairs(text, None)


def parse_jobs(text: str) -> dict[str, Mapping[str, str]]:
    """Fields of jobs, by number, of ``scontrol -o show job``."""
    return {pairs["JobId"]: pairs for pairs, _ in read_records(text, "JobId", None)}


def says_none(text: str, what: str) -> bool:
    """Test for an answer that says there are none: ``No nodes in the system``."""
    return re.fullmatch(rf"(?:\w+: )?No {what} in the system\.?", text.strip()) is not None


def read_records(
    text: str, first: str, keys: frozenset[str] | None
) -> Iterator[tuple[Mapping[str, str], str]]:
    """The records of ``scontrol show``, which each begin with the key `first`, and their text."""
    starts = [match.start() for match in re.finditer(rf"^[ \t]*{first}=", text, re.M)]
    head = text[: starts[0]] if starts else text
    if head.strip():
        raise ParseError(head.strip(), f"no {first}")
    for begin, end in pairwise([*starts, len(text)]):
        where = text[begin:end].strip()
        yield read_pairs(where, keys), where


Entry = TypeVar("Entry")


def read_entries(
    text: str,
    first: str,
    keys: frozenset[str] | None,
    what: str,
    read: Callable[[Mapping[str, str], str], Entry],
    odd: Callable[[Mapping[str, str], str], Entry],
) -> tuple[Entry, ...]:
    """The records of an answer; `odd` makes one of what `read` does not understand.

    An answer without any has to say so.
    """
    if says_none(text, what):
        return ()
    entries = []
    for pairs, where in read_records(text, first, keys):
        try:
            if not pairs[first]:
                raise ParseError(where, f"empty {first}")
            entries.append(read(pairs, where))
        except ParseError as error:
            if not text.endswith("\n") and text.endswith(where):
                raise
            entries.append(odd(pairs, error.what))
    if not entries:
        raise ParseError(text, f"no {first}")
    return tuple(entries)


def read_pairs(text: str, keys: frozenset[str] | None) -> dict[str, str]:
    """Values run up to the next key; free text stands last, so it cannot overrule a field."""
    found = [m for m in _KEY.finditer(text) if keys is None or m[1] in keys]
    pairs: dict[str, str] = {}
    for match, following in zip(found, [*found[1:], None], strict=True):
        end = len(text) if following is None else following.start()
        pairs.setdefault(match[1], text[match.end() : end].strip())
    return pairs


def read_words(text: str) -> tuple[str, ...]:
    """Words with commas or blanks between them; none where it says so."""
    text = text.strip()
    return () if text in NONE else tuple(word for word in re.split(r"[, ]+", text) if word)


def bound(text: str) -> int | None:
    """A count, or None where it is unlimited."""
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text, re.A) else None


def read_gres(text: str) -> dict[str, int]:
    """``gpu:a100:4(S:0-1),gpu:v100:2`` as counts of ``gpu``, ``gpu:a100`` and ``gpu:v100``.

    ``gres:``, ``gres/`` before them, and ``=`` before a count, are of a job that asks for them.
    """
    counts: dict[str, int] = {}
    plain = re.sub(r"\bgres[:/]|\([^)]*\)", "", text).replace("=", ":")
    for item in read_words(plain):
        *names, last = [w for w in item.split(":") if w not in {"", "no_consume"}] or [item]
        try:
            number = read_integer(last.upper(), item, "count")
        except ParseError:
            names, number = [*names, last], 1
        for depth in range(1, len(names) + 1):
            name = ":".join(names[:depth])
            counts[name] = counts.get(name, 0) + number
    return counts


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text, re.A) else None
