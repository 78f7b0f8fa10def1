"""Texts for people: lengths of time, instants, node sets, tables."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from coalloc.runtime.texts import instant, printable

WALL_CLOCK_S = 1e8
"""A time of a snapshot or a plan beyond this is wall-clock time; below, some log's own, seconds."""


SLURM_REASONS: Mapping[str, str] = {
    "planned": "Resources",
    "insufficient": "Resources",
    "superseded": "Resources",
    "not_selected": "Priority",
    "out_of_time": "Priority",
    "dependency": "Dependency",
    "parents": "Dependency",
    "begin_time": "BeginTime",
    "backing_off": "BeginTime",
    "others_first": "Priority",
    "over_limit": "AssocLimit",
    "held": "JobHeldUser",
    "held_by_owner": "JobHeldUser",
    "held_by_admin": "JobHeldAdmin",
    "infeasible": "BadConstraints",
    "unreachable": "ReqNodeNotAvail",
    "next_round": "None",
    "limit": "AssocLimit",
    "array_limit": "JobArrayTaskLimit",
    "array_order": "Priority",
    "deadline": "DeadLine",
}
"""squeue's words for the reasons of waiting jobs; others are shown as they are."""


def reason(word: str, detail: str = "") -> str:
    """Reason for which a job waits, in squeue's word where there is one, and in a sentence."""
    shown = SLURM_REASONS.get(word, word)
    return ": ".join(dict.fromkeys(text for text in (shown, detail) if text))


def precise(value: float) -> str:
    """Wall-clock seconds with milliseconds."""
    return f"{instant(value)}.{int(value % 1.0 * 1000):03}"


def figure(value: float | None, none: str = "-") -> str:
    """A number without needless digits."""
    return none if value is None else f"{value:.6g}"


def node_set(nodes: Mapping[str, int]) -> str:
    """Nodes with their processes: a[1-3]x2,b1; equal counts are folded together."""
    from coalloc.model.formats.nodeset import fold

    groups: dict[int, list[str]] = {}
    for name, count in nodes.items():
        groups.setdefault(count, []).append(name)
    return ",".join(
        fold(names) + (f"x{count}" if count > 1 else "") for count, names in groups.items()
    )


def is_terminal() -> bool:
    """Whether people are looking."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


def show_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: frozenset[str] = frozenset(),
    header: bool = True,
) -> None:
    """Print a table: on a terminal with colours and cut to its width, else plain and whole.

    A long one is printed in sheets, whose columns become wider where they must, so that it is never
    in memory as a whole. `right` are the headers of the columns that hold numbers.
    """
    least: Sequence[int] = [0] * len(headers)
    given, columns = iter(rows), width() if is_terminal() else None
    sheet: list[Sequence[str]] = [headers] if header else []
    is_header = header
    while sheet := [*sheet, *islice(given, SHEET)]:
        lines = [[printable(cell) for cell in row] for row in sheet]
        least = _widest(lines, least)
        for line, cells in zip(aligned(lines, headers, right, columns, least), lines, strict=True):
            print(line if columns is None else _coloured(line, cells, is_header=is_header))
            is_header = False
        sheet = []


def aligned(
    lines: Sequence[Sequence[str]],
    headers: Sequence[str],
    right: frozenset[str] = frozenset(),
    columns: int | None = None,
    least: Sequence[int] | None = None,
) -> list[str]:
    """Columns padded to their widest cell, `least` at the least; the last one is left as it is.

    Cells are cut until all lines fit into so many `columns`, first those of the last column.
    """
    widths: Sequence[int] = _widest(lines, least or [0] * len(headers))
    if columns is not None:
        widths = _fitted(widths, headers, right, columns)
    out = []
    for line in lines:
        cells = []
        for cell, size, name in zip(line, widths, headers, strict=True):
            shown = _cut(cell, size) if columns is not None else cell
            space = " " * (size - _size(shown))
            cells.append(space + shown if name in right else shown + space)
        text = " ".join(cells).rstrip()
        out.append(text if columns is None else _cut(text, columns))
    return out


def _widest(lines: Iterable[Sequence[str]], least: Sequence[int]) -> list[int]:
    """Width of each column, given that it has at least so much."""
    widths = list(least)
    for line in lines:
        for i, cell in enumerate(line[: len(widths)]):
            widths[i] = max(widths[i], _size(cell))
    return widths


def _fitted(
    widths: Sequence[int], headers: Sequence[str], right: frozenset[str], columns: int
) -> list[int]:
    """Widths that fit into a line: names give way, then the last column, then the widest texts."""
    out = list(widths)
    excess = sum(out) + len(out) - 1 - columns
    for i, name in enumerate(headers):
        if name in YIELDING and excess > 0:
            given = min(excess, max(0, out[i] - LEAST_NAME))
            out[i] -= given
            excess -= given
    if excess > 0:
        given = min(excess, max(0, out[-1] - LEAST_LAST))
        out[-1] -= given
        excess -= given
    texts = [i for i, name in enumerate(headers) if name not in right]
    while excess > 0:
        widest = max(texts, key=lambda i: out[i], default=None)
        if widest is None or out[widest] <= LEAST:
            break
        out[widest] -= 1
        excess -= 1
    return out


def _size(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _cut(text: str, size: int) -> str:
    if _size(text) <= size:
        return text
    while text and _size(text) > size - 1:
        text = text[:-1]
    return text + CUT


def _coloured(line: str, cells: Sequence[str], *, is_header: bool) -> str:
    """The line as a terminal shows it: bold headings, and states in their colours."""
    if "NO_COLOR" in os.environ:
        return line
    if is_header:
        return f"\x1b[1m{line}\x1b[0m"
    for cell in cells:
        if cell in STYLES:
            return line.replace(f" {cell} ", f" \x1b[{STYLES[cell]}m{cell}\x1b[0m ", 1)
    return line


STYLES = {
    **dict.fromkeys(("R", "CG", "RUNNING"), "32"),
    **dict.fromkeys(("CD", "COMPLETED"), "2"),
    **dict.fromkeys(("F", "TO", "NF", "FAILED", "TIMEOUT", "LOST"), "31"),
}
"""Colours of states: green, dim, red."""
LEAST, LEAST_NAME, LEAST_LAST = 6, 8, 20
"""Columns that are left of a text that is cut, and of names and of the last column before others
are cut."""
YIELDING = ("NAME", "USER")
"""Headers of the columns that are cut first: a reason says more than the end of a name."""
SHEET = 5_000
"""Rows whose columns are aligned at once."""
CUT = "~"
"""Stands for what was cut off."""


def block(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    """Lines of ``name  value``, the values aligned; what is None or empty is left out."""
    kept = [(name, printable(str(value))) for name, value in pairs if value not in (None, "")]
    size = max((len(name) for name, _ in kept), default=0)
    return [f"  {name:<{size}}  {value}" for name, value in kept]
