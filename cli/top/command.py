"""``coalloc top``: clusters and jobs on a screen that keeps itself up to date, and its texts."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from coalloc.cli.command import Command, CommandError, connect
from coalloc.cli.jobs import queue_columns as columns
from coalloc.cli.nodes import CLUSTER_HEADERS, cluster_line
from coalloc.cli.output import is_terminal, show_table
from coalloc.model.output_names import BATCH_MARKS, DEFAULT_OUTPUT, filled, marks_of, rank_marks
from coalloc.option_text import add_options
from coalloc.runtime import texts
from coalloc.runtime.texts import clock, length, printable
from coalloc.wire.answers import ServiceStatus
from coalloc.wire.job_rows import JobDetails, QueueRow
from coalloc.wire.node_rows import ClusterRow

if TYPE_CHECKING:
    from coalloc.client.client import Client

JOB_COLUMNS = ("jobid", "name", "user", "st", "time", "procs", "start", "where")
ORDERS = ("", "-time", "-procs", "-priority", "user", "start")
"""In turn by the key ``s``; empty: what runs first, then by arrival."""
MOST_LINES = 500
"""Of jobs; a filter finds the others."""
TAIL_BYTES = 64 << 10


class Look(Struct, frozen=True, kw_only=True):
    """The daemon at one moment."""

    status: ServiceStatus
    clusters: tuple[ClusterRow, ...]
    jobs: tuple[QueueRow, ...]

    @property
    def headline(self) -> str:
        status = self.status
        solver = "" if status.solver.is_warm else ", solver compiles"
        paused = ", ROUNDS PAUSED" if status.paused else ""
        disk = "" if status.writable else ", STORE CANNOT WRITE"
        up = "" if status.began is None else f" up {length(status.time - status.began)},"
        return (
            f"coallocd {status.version}{up} {status.waiting} waiting, {status.placed} placed, "
            f"by {status.policy}{solver}{paused}{disk}, {clock(status.time, status.time)}"
        )


def job_lines(
    look: Look, order: str = "", words: str = ""
) -> tuple[list[tuple[str, tuple[str, ...]]], int]:
    """The jobs in an order, those with all words of a filter in any cell.

    The first `MOST_LINES`, each with its id, and the count of all that the filter finds.
    """
    now = columns.Now(time=look.status.time, brief=True)
    groups = columns.as_usual(columns.folded(look.jobs))
    if order:
        groups = columns.ordered(groups, columns.read_order(order), now)
    wanted = words.casefold().split()
    if wanted:
        groups = [group for group in groups if _has(group[0], wanted)]
    shown = groups[:MOST_LINES]
    cells = columns.lines_of(shown, JOB_COLUMNS, now)
    return [
        (group[0].id, tuple(map(printable, line))) for group, line in zip(shown, cells, strict=True)
    ], len(groups)


def _has(row: QueueRow, words: Sequence[str]) -> bool:
    text = " ".join(
        (row.id, row.name, row.user, row.state, row.reason, row.detail, *row.clusters, *row.nodes)
    ).casefold()
    return all(word in text for word in words)


def output_path(job: JobDetails) -> Path | None:
    """The file that a job's first process writes to; None: it is not known."""
    if not job.launch.argv:
        return None
    pattern = job.launch.stdout or DEFAULT_OUTPUT
    return Path(job.launch.cwd) / filled(
        pattern,
        marks_of(job.id, job.name, job.user)
        | rank_marks(0, next(iter(job.nodes), ""))
        | (BATCH_MARKS if job.record.once else {}),
    )


def tail(path: Path) -> str:
    """The end of a regular file, without what a terminal would act on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file")
        file.seek(max(0, found.st_size - TAIL_BYTES))
        text = file.read(TAIL_BYTES).decode(errors="replace")
    lines = text.splitlines()
    if found.st_size > TAIL_BYTES:
        lines = lines[1:]
    return "\n".join(printable(line.replace("\t", "    ")) for line in lines)


class Source:
    """The daemon, for one question at a time, from whichever thread."""

    def __init__(self, client: Client) -> None:
        self._client, self._lock = client, Lock()

    def look(self, *, everything: bool = False) -> Look:
        with self._lock:
            return Look(
                status=self._client.status(),
                clusters=self._client.nodes(),
                jobs=self._client.queue(everything=everything),
            )

    def job(self, job: str) -> tuple[JobDetails, float]:
        with self._lock:
            answer = self._client.shown(job)
        return answer.job, answer.time

    def cancel(self, job: str) -> tuple[str, ...]:
        with self._lock:
            return self._client.cancel(job)


LEAST_S = 0.2
NUMBERS = frozenset({"NODES", "SLOTS", "FREE", "LINK", "USED", "READ", "TIME", "PROCS"})


OPTIONS = """
-i --interval SECONDS =2   between two looks (default 2)
--once                     print it once, and end
"""


def _run(args: argparse.Namespace) -> int:
    if args.once or not is_terminal() or not sys.stdin.isatty():
        with connect(args) as client:
            show(Source(client).look())
        return 0
    if find_spec("textual") is None:
        raise CommandError(f"a screen needs textual (or top --once): {texts.to_install('top')}")
    from coalloc.cli.top.app import Top

    with connect(args) as client:
        client.status()  # A daemon that is not there is one line, before there is a screen.
        app = Top(Source(client), max(LEAST_S, args.interval))
        app.run()
    return app.return_code or 0


def show(look: Look) -> None:
    """Print what was seen."""
    print(printable(look.headline))
    print()
    show_table(CLUSTER_HEADERS, [cluster_line(row) for row in look.clusters], right=NUMBERS)
    print()
    lines, count = job_lines(look)
    headers = [columns.COLUMNS[name].header for name in JOB_COLUMNS]
    show_table(headers, [cells for _, cells in lines], right=NUMBERS)
    if count > len(lines):
        print(f"and {count - len(lines)} more: coalloc queue lists all")


COMMANDS: Mapping[str, Command] = {
    "top": Command(
        doc="watch clusters and jobs",
        about=(
            "Clusters and jobs, kept up to date. Keys: enter opens a job, o follows its output,\n"
            "c cancels it after a question, / filters, s sorts, a shows ended jobs too, q quits.\n"
            "Where there is no terminal, or TERM is dumb, it is printed once."
        ),
        example="coalloc top\n  coalloc top --once",
        add=partial(add_options, text=OPTIONS, interval=texts.number),
        run=_run,
    )
}
