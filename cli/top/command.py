"""``coalloc top``: clusters and jobs on a screen that keeps itself up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from coalloc.cli.command import Command, CommandError, connect
from coalloc.cli.jobs import queue_columns as columns
from coalloc.cli.nodes import CLUSTER_HEADERS, cluster_line
from coalloc.cli.output import is_terminal, printable, show_table
from coalloc.cli.top.view import JOB_COLUMNS, Look, Source, job_lines
from coalloc.runtime import texts

LEAST_S = 0.2
NUMBERS = frozenset({"NODES", "SLOTS", "FREE", "LINK", "USED", "READ", "TIME", "PROCS"})


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i",
        "--interval",
        type=texts.number,
        default=2.0,
        metavar="SECONDS",
        help="between two looks (default 2)",
    )
    parser.add_argument("--once", action="store_true", help="print it once, and end")


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
        add=_add,
        run=_run,
    )
}
