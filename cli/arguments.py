"""Pure readers of what is typed: times, bandwidths, arrays, dependencies.

Each takes a text and returns a value, or raises `argparse.ArgumentTypeError` with one sentence.
"""

from __future__ import annotations

import math
import re
import time
from argparse import ArgumentParser, Namespace
from argparse import ArgumentTypeError as BadText
from collections.abc import Mapping, Sequence

from coalloc.model.errors import InputError
from coalloc.model.formats.gres import read_gres
from coalloc.model.formats.indices import Indices
from coalloc.model.formats.nodeset import expand
from coalloc.model.jobs import DEPENDENCY_KINDS
from coalloc.model.mail import ALL, IDLE, TYPES
from coalloc.option_text import add_options
from coalloc.runtime.texts import number

MOST_INDICES = 1_000_000
MOST_NAMED = 20_000
BASE_VARIABLES = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")
"""What a job gets of the environment where it asks for none of it."""

_SUFFIXES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SUFFIXED = re.compile(r"([0-9]{1,99}\.?[0-9]{0,99}|\.[0-9]{1,99})([smhd])", re.ASCII)
_WHOLE = r"([0-9]{1,300})"
_CLOCK = re.compile(rf"(?:{_WHOLE}-)?{_WHOLE}(?::{_WHOLE})?(?::{_WHOLE})?", re.ASCII)
_NUMBER = r"([0-9]{1,99}\.?[0-9]{0,99}(?:[eE][-+]?[0-9]{1,9})?|\.[0-9]{1,99})"
_BANDWIDTH = re.compile(_NUMBER + r" *([kKMGT]?)(bps|bit/s|b/s|Bps|B/s)", re.ASCII)
_MEMORY = re.compile(_NUMBER + r"([kKmMgGtT]?)[bB]?", re.ASCII)
_JOB = re.compile(r"[0-9]+(?:_[0-9]+|\..+)?", re.ASCII)
_BEGIN_NOW = re.compile(r"now(?: *([+-]) *([0-9]{1,9}) *([a-z]*))?", re.ASCII)
_BEGIN_UNITS = {
    **dict.fromkeys(("", "second", "seconds"), 1),
    **dict.fromkeys(("minute", "minutes"), 60),
    **dict.fromkeys(("hour", "hours"), 3600),
    **dict.fromkeys(("day", "days"), 86400),
    **dict.fromkeys(("week", "weeks"), 7 * 86400),
}
_BEGIN_PIECES = re.compile(
    r"(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?) *(?P<half>[ap]m)?"
    r"|(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"|(?P<month>[0-9]{2})(?P<mark>[/.]?)(?P<day>[0-9]{2})(?:(?P=mark)(?P<year>[0-9]{2}))?(?![0-9])"
    r"|(?P<word>midnight|noon|elevenses|fika|teatime|today|tomorrow)|[ ,t-]",
    re.ASCII,
)
_BEGIN_HOURS = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}


def seconds(text: str) -> float:
    """A length of time as in sbatch: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; or 90s, 5m, 1.5h, 2d."""
    found = _SUFFIXED.fullmatch(text)
    if found:
        value = float(found[1]) * _SUFFIXES[found[2]]
    else:
        clock = _CLOCK.fullmatch(text)
        if clock is None:
            raise BadText(
                f"{text!r} is not a time: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S or 90s, 5m, 2h, 1d"
            )
        days, a, b, c = (None if part is None else int(part) for part in clock.groups())
        if days is not None:
            value = days * 86400.0 + (a or 0) * 3600.0 + (b or 0) * 60.0 + (c or 0)
        elif c is not None:
            value = (a or 0) * 3600.0 + (b or 0) * 60.0 + c
        else:
            value = (a or 0) * 60.0 + (b or 0)
    if not 0.0 < value < 1e12:
        raise BadText(f"{text!r} is not a time above 0")
    return value


def time_limit(text: str) -> float | None:
    """A length of time; 0, INFINITE and UNLIMITED are none."""
    if text.upper() in {"0", "INFINITE", "UNLIMITED"}:
        return None
    return seconds(text)


def gbps(text: str) -> float:
    """A bandwidth with its unit in Gbit/s: 75Mbps, 1.5Gbps, 10MB/s (bytes)."""
    found = _BANDWIDTH.fullmatch(text)
    if found is None:
        if text == "0":
            return 0.0
        raise BadText(f"{text!r} is not a bandwidth with its unit, such as 75Mbps or 1.5Gbps")
    scale = {"": 1e-9, "k": 1e-6, "K": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}[found[2]]
    value = float(found[1]) * scale * (8.0 if found[3].startswith("B") else 1.0)
    if not value < 1e9:
        raise BadText(f"{text!r} is too large")
    return value


def mebibytes(text: str) -> int:
    """Memory in MiB, rounded up; units K, M (the default), G, T of 1024."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise BadText(f"{text!r} is not an amount of memory, such as 500M or 4G")
    scale = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}[found[2].lower()]
    value = float(found[1]) * scale
    if not value < 1e15:
        raise BadText(f"{text!r} is too large")
    return math.ceil(value)


def procs(text: str) -> int | tuple[int, int]:
    """A number of processes, or the range of a moldable job: 8, 1-64."""
    low, dash, high = text.partition("-")
    if not (_is_count(low) and (not dash or _is_count(high))):
        raise BadText(f"{text!r} is not a number of processes, such as 8, or a range, such as 1-64")
    if not dash:
        return int(low)
    if int(low) > int(high):
        raise BadText(f"{text!r}: {low} is above {high}")
    return int(low), int(high)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= 1


def at_least_one(text: str) -> int:
    """A whole number above 0."""
    if not _is_count(text):
        raise BadText(f"{text!r} is not a whole number of at least 1")
    return int(text)


def count(text: str) -> int:
    """A whole number that is not negative."""
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise BadText(f"{text!r} is not a whole number of at least 0")
    return int(text)


def times(text: str) -> dict[int, float]:
    """Run times by process count, seconds: 1:100,2:55,8:20."""
    out: dict[int, float] = {}
    for pair in text.split(","):
        low, colon, value = pair.partition(":")
        if not colon or not _is_count(low):
            raise BadText(f"{pair!r} is not PROCESSES:SECONDS, as in 1:100,2:55,8:20")
        if int(low) in out:
            raise BadText(f"{low} processes are named twice")
        out[int(low)] = number(value)
        if out[int(low)] == 0.0:
            raise BadText(f"{pair!r}: the time must be above 0")
    return out


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    out = tuple(name.strip() for name in text.split(",") if name.strip())
    if not out:
        raise BadText("no name is given")
    return out


def node_set(text: str) -> tuple[str, ...]:
    """The names that a node set stands for: alpha[1-4], or a single name."""
    try:
        return expand(text)
    except InputError as error:
        raise BadText(str(error)) from None


def gres(text: str) -> dict[str, int]:
    """Counts of generic resources by name: gpu:a100:2,fast."""
    try:
        return read_gres(text)
    except InputError as error:
        raise BadText(error.what) from None


def gpus(text: str) -> dict[str, int]:
    """Counts of GPUs: 2, or a100:2,v100:1."""
    return gres(",".join(f"gpu:{each}" for each in text.split(",")))


def mail_types(text: str) -> tuple[str, ...]:
    """Types of mail: END,FAIL; as to sbatch, an unknown one counts only where there is no other."""
    words = text.upper().split(",")
    types = [each for word in words for each in (ALL if word == "ALL" else (word,))]
    known = tuple(dict.fromkeys(word for word in types if word in TYPES))
    if not known and IDLE.isdisjoint(words):
        raise BadText(f"{text!r}: there are {', '.join(sorted(TYPES))}, ALL and NONE")
    return () if "NONE" in words else known


def constraint(text: str) -> tuple[str, ...] | str:
    """Features that every node must have, of fast&ib or fast,ib; the text where it says more."""
    if re.search(r"[|*\[\]()!]", text):
        return text
    return names(text.replace("&", ","))


def indices(text: str, most: int = MOST_INDICES) -> Indices:
    """Indices of a job array: 0-9,12,20-30:2."""
    try:
        return Indices.read(text, most)
    except ValueError as error:
        raise BadText(str(error)) from error


def array(text: str, most: int = MOST_INDICES) -> tuple[Indices, int]:
    """Indices of a job array and its throttle, 0 where there is none: 0-9,12,20-30:2%5.

    As in sbatch, brackets may stand around them, and more indices behind the throttle.
    """
    inside = re.fullmatch(r"\[([^][]*)\](%.*)?", text)
    plain = text if inside is None else inside[1] + (inside[2] or "")
    found = re.fullmatch(r"([^%]*)(?:%([0-9]{0,9})(,[^%]*)?)?", plain, re.ASCII)
    if found is None:
        at_once = text.partition("%")[2]
        raise BadText(f"{text!r}: {at_once!r} is not how many run at once, as in 0-9%5")
    return indices(found[1] + (found[3] or ""), most), int(found[2] or 0)


def copy(text: str) -> tuple[str, str]:
    """A path to be copied, and where to."""
    source, _, target = text.rpartition(":")
    if not source:
        raise BadText(f"{text!r} is not FROM:TO")
    return source, target


def throttle(text: str) -> int:
    """A throttle, 0 where it is none."""
    if text not in {"", "none"} and not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadText(f"{text!r} is not how many members run at once, such as 5, or none")
    return int(text) if text.isdigit() else 0


def needs(text: str) -> tuple[tuple[str, str], ...]:
    """Dependencies: afterok:1:2,afterany:3,singleton; with ? between them, any one is enough.

    The minutes of after:1+5 stand behind its kind, as after+5, as does the ? of afterok?.
    """
    out = []
    if "?" in text and "," in text:
        raise BadText(f"{text!r}: commas (all of them) or question marks (any), not both")
    for part in re.split("[,?]", text):
        kind, *jobs = part.split(":") if not part.isdigit() else ("afterany", part)
        kind = kind.lower()
        if kind not in DEPENDENCY_KINDS:
            raise BadText(f"{kind!r} is not one of {', '.join(DEPENDENCY_KINDS)}")
        kind += "?" * ("?" in text)
        if kind.startswith("singleton") and not jobs:
            out.append((kind, ""))
            continue
        for job in jobs or [""]:
            number, plus, minutes = job.partition("+")
            late = plus and kind.rstrip("?") == "after"
            if not _JOB.fullmatch(number) or (plus and not (late and _is_count(minutes))):
                raise BadText(f"{part!r}: {job!r} is not the number of a job")
            out.append((kind.replace("after", f"after+{minutes}") if late else kind, number))
    return tuple(out)


def job(text: str) -> str:
    """The number of a job, 12, of a member of an array, 12_3, or a workflow's task, 12.align."""
    if not _JOB.fullmatch(text):
        raise BadText(f"{text!r} is not the number of a job, such as 12 or 12_3")
    return text


def jobs(text: str) -> tuple[str, ...]:
    """Jobs as the queue prints them: 12, 12_3, 12_[0-9,12%5], or several with commas between."""
    out: list[str] = []
    for word in re.split(r",(?![^\[]*\])", text):
        number, bracket, rest = word.partition("_[")
        if bracket and rest.endswith("]"):
            out += (f"{number}_{index}" for index in array(rest[:-1], MOST_NAMED)[0])
        else:
            out.append(word)
    return tuple(job(one) for one in out)


JOBS = "JOB{} @jobs   as the queue prints them: 12, 12_3, 12_[0-9]\n"


def add_jobs(parser: ArgumentParser, count: str = "+") -> None:
    """Declare the argument JOB ...: as the queue prints them."""
    add_options(parser, JOBS.format(count), jobs=jobs)


FEW = 4
"""So many members of an array are told one by one."""


def grouped(jobs: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Jobs by what is told as one: the array, where more than a few of its members are named."""
    out: dict[str, list[str]] = {}
    for job in jobs:
        number, _, index = job.partition("_")
        out.setdefault(number if index else job, []).append(job)
    groups = list[tuple[str, list[str]]]()
    for name, alike in out.items():
        groups += [(name, alike)] if len(alike) > FEW else [(job, [job]) for job in alike]
    return groups


def named_jobs(args: Namespace) -> list[str]:
    """Every job that is named, once."""
    return list(dict.fromkeys(job for jobs in args.jobs for job in jobs))


def begin(text: str, now: float | None = None) -> float:
    """Earliest start, as in sbatch: now+1hour, 16:00, 3:30PM, noon, 2030-01-20T12:34, 01/20/30."""
    now = time.time() if now is None else now
    wrong = BadText(f"{text!r} is not a time, such as now+1hour, 16:00 or 2030-01-20T12:34")
    found = _BEGIN_NOW.fullmatch(text.lower())
    if found:
        if (found[3] or "") not in _BEGIN_UNITS:
            raise BadText(f"{text!r}: {found[3]!r} is not seconds, minutes, hours, days or weeks")
        return now + int(f"{found[1] or ''}{found[2] or 0}") * _BEGIN_UNITS[found[3] or ""]
    today = time.localtime(now)[:3]
    day, clock, at = None, None, 0
    while at < len(text):
        piece = _BEGIN_PIECES.match(text.lower(), at)
        if piece is None:
            raise wrong
        at = piece.end()
        day = _day(piece, today) or day
        clock = _clock(piece) or clock
    if day is None and clock is None:
        raise wrong
    try:
        # a time that is over is tomorrow's; the calendar knows how long a day is
        for later in (0, 1) if day is None else (0,):
            year, month, number = day or today
            time.strptime(f"{year}-{month}-{number}", "%Y-%m-%d")
            start = time.mktime((year, month, number + later, *(clock or (0, 0, 0)), 0, 0, -1))
            if start >= now:
                break
    except (ValueError, OverflowError):
        raise wrong from None
    return start


def _day(piece: re.Match[str], today: tuple[int, ...]) -> tuple[int, int, int] | None:
    year, month, number = today
    if piece["word"] in {"today", "tomorrow"}:
        ahead = time.localtime(
            time.mktime((year, month, number + (piece["word"] == "tomorrow"), 12, 0, 0, 0, 0, -1))
        )
        return ahead[:3]
    if piece["date"]:
        year, month, number = map(int, piece["date"].split("-"))
        return year, month, number
    if not piece["month"]:
        return None
    named = int(piece["month"]), int(piece["day"])
    # without a year it is the next such day
    return (2000 + int(piece["year"]) if piece["year"] else year + (named < today[1:])), *named


def _clock(piece: re.Match[str]) -> tuple[int, int, int] | None:
    if piece["word"] in _BEGIN_HOURS:
        return _BEGIN_HOURS[piece["word"]], 0, 0
    if not piece["clock"]:
        return None
    hour, minute, second = (int(part) for part in f"{piece['clock']}:0".split(":")[:3])
    if piece["half"] and not 1 <= hour <= 12:
        raise BadText(f"{piece[0]!r} is not a time of day")
    hour = hour if not piece["half"] else hour % 12 + 12 * (piece["half"] == "pm")
    if not (hour < 24 and minute < 60 and second < 60):
        raise BadText(f"{piece[0]!r} is not a time of day")
    return hour, minute, second


_ASSIGNMENT = re.compile(r"""((?:[^,='"]|'[^']*'|"[^"]*")*)(=(?:[^,'"]|'[^']*'|"[^"]*")*)?""")


def exported(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job: ALL, NONE or NIL, or VAR,VAR=value, also beside ALL.

    A comma in quotes is the value's, as are the quotes.
    """
    items, at = list[tuple[str, str | None]](), 0
    while at < len(text):
        found = _ASSIGNMENT.match(text, at)
        assert found is not None
        at = found.end() + 1
        if found.end() < len(text) and text[found.end()] != ",":
            raise BadText(f"{text[found.start() :]!r}: no closing quotation")
        if found[0]:
            items.append((found[1], found[2]))
    words = {name.upper() for name, value in items if value is None}
    out = {name: environ[name] for name in BASE_VARIABLES if name in environ}
    if "ALL" in words:
        out.update(environ)
    if not words.isdisjoint({"NONE", "NIL"}) and len(items) > 1:
        raise BadText(f"{text!r}: {items[0][0]} stands alone")
    for name, value in items:
        if not name or name != name.strip():
            raise BadText(f"{text!r} is not ALL, NONE, or a list of VAR and VAR=value")
        if value is not None:
            out[name] = value[1:]
        elif name in environ:
            out[name] = environ[name]
    return out
