"""How things are shown: lengths of time, instants, node sets, tables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coalloc.runtime.texts import instant

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
    "held": "JobHeldUser",
    "infeasible": "BadConstraints",
    "unreachable": "ReqNodeNotAvail",
    "next_round": "None",
}
"""squeue's words for the reasons of waiting jobs; others are shown as they are."""


def reason(word: str, detail: str = "") -> str:
    """Why a job waits, in squeue's word where there is one, and in a sentence."""
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
    from coalloc.model.nodeset import fold

    groups: dict[int, list[str]] = {}
    for name, count in nodes.items():
        groups.setdefault(count, []).append(name)
    return ",".join(
        fold(names) + (f"x{count}" if count > 1 else "") for count, names in groups.items()
    )


def printable(text: str) -> str:
    """The text without anything a terminal would act on."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


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
    """Print a table: with colours on a terminal, else plain aligned text.

    Parameters
    ----------
    right : frozenset of str
        Headers of the columns that hold numbers.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if is_terminal():
        _show_rich(headers, cells, right, header)
    else:
        lines = [list(headers), *cells] if header else cells
        sys.stdout.writelines(f"{line}\n" for line in aligned(lines, headers, right))


def aligned(
    lines: Sequence[Sequence[str]], headers: Sequence[str], right: frozenset[str] = frozenset()
) -> list[str]:
    """Columns padded to their widest cell; the last one is left as it is."""
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(headers))]
    out = []
    for line in lines:
        cells = [
            cell.rjust(size) if name in right else cell.ljust(size)
            for cell, size, name in zip(line, widths, headers, strict=True)
        ]
        out.append(" ".join(cells).rstrip())
    return out


def _show_rich(
    headers: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[str], header: bool
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=header, header_style="bold")
    for index, name in enumerate(headers):
        is_last = index == len(headers) - 1
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=not is_last,
            overflow="fold" if is_last else "ellipsis",
        )
    for row in cells:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)


STYLES = {"R": "green", "CG": "green", "CD": "dim", "F": "red", "TO": "red", "NF": "red"}


def block(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    """Lines of ``name  value``, the values aligned; what is None or empty is left out."""
    kept = [(name, printable(str(value))) for name, value in pairs if value not in (None, "")]
    size = max((len(name) for name, _ in kept), default=0)
    return [f"  {name:<{size}}  {value}" for name, value in kept]
