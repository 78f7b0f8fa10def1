"""``coalloc queue`` and ``wait``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, CommandError, Parser, answer_json, connect
from coalloc.cli.jobs import queue_columns as columns
from coalloc.cli.jobs.queue_columns import CODES, WAITING
from coalloc.cli.jobs.wait import wait_and_tell
from coalloc.cli.output import is_terminal, show_table
from coalloc.model.values import replace
from coalloc.option_text import add_options
from coalloc.runtime import texts
from coalloc.runtime.texts import printable
from coalloc.runtime.user import user_name
from coalloc.wire.job_rows import QueueRow

OPTIONS = f"""
-a --all               those that have ended, too
-u --user NAMES        of these users
--me                   of mine
-j --jobs JOBS         only these
-n --name NAMES        of these names
-t --states STATES     in these states: {", ".join(CODES)}, or squeue's codes
-M --clusters NAMES    placed on one of these
-w --nodelist NODES    that have any of these nodes, such as alpha[1-4]
-r --array             a line for every member of an array
-l --long              with state in full, limit, time left, priority
--start                only jobs that wait, by their expected start
-o --format FORMAT     columns: names ({", ".join(columns.COLUMNS)}), or squeue's letters: '%.8i
                       %.10L %R'
-S --sort COLUMNS      order by these, - for falling: -S -priority,name (default: by arrival)
--noheader             no headings
-i --iterate SECONDS   again and again
"""


def _add_queue(parser: argparse.ArgumentParser) -> None:
    if isinstance(parser, Parser):
        parser.signed = ("-S", "--sort")
    add_options(
        parser,
        OPTIONS,
        **dict.fromkeys(("user", "name", "clusters"), parse.names),
        jobs=parse.jobs,
        states=_states,
        nodelist=parse.node_set,
        format=columns.read_format,
        sort=columns.read_order,
        iterate=texts.number,
    )


def _states(text: str) -> tuple[str, ...]:
    out: list[str] = []
    for name in parse.names(text):
        found = [s for s, code in CODES.items() if name.lower() == s or name.upper() == code]
        if not found:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(CODES)}")
        out += found
    return tuple(out)


def _queue(args: argparse.Namespace) -> int:
    everything = args.all or bool(args.jobs) or bool(args.states)
    with connect(args) as client:
        while True:
            answer = client.whole_queue(everything=everything)
            kept = tuple(row for row in answer.jobs if _is_wanted(row, args))
            if args.json:
                answer_json(replace(answer, jobs=kept))
            else:
                show_queue(kept, answer.time, args)
            if args.iterate is None:
                return 0
            sys.stdout.flush()
            time.sleep(max(args.iterate, 0.1))
            print("\x1b[2J\x1b[H" if is_terminal() else "")


def show_queue(rows: Sequence[QueueRow], time: float, args: argparse.Namespace) -> None:
    """Print the rows in the columns and the order that were asked for."""
    now = columns.Now(time=time, brief=is_terminal() and not args.format)
    order = args.sort or ((("start", False),) if args.start else ())
    groups = columns.as_usual(columns.folded(rows, unfold=args.array))
    groups = columns.ordered(groups, order, now)
    chosen = args.format or (
        columns.STARTS if args.start else columns.LONG if args.long else columns.USUAL
    )
    fields = [one for one in chosen if isinstance(one, columns.Field)]
    names = [one.name if isinstance(one, columns.Field) else one for one in chosen]
    lines = columns.lines_of(groups, names, now)
    shown = [columns.COLUMNS[name] for name in names]
    headers = [column.header for column in shown]
    if fields:
        for line in lines if args.noheader else [tuple(headers), *lines]:
            cells = (f.padded(printable(cell)) for f, cell in zip(fields, line, strict=True))
            print("".join(cells).rstrip())
        return
    numbers = frozenset(column.header for column in shown if column.is_number)
    show_table(headers, lines, right=numbers, header=not args.noheader)


def _is_wanted(row: QueueRow, args: argparse.Namespace) -> bool:
    users = (*(args.user or ()), *((user_name(),) if args.me else ()))
    placed_on = row.nodes if row.state not in WAITING else {}
    return (
        (not users or row.user in users)
        and (not args.jobs or row.id in args.jobs or row.id.partition("_")[0] in args.jobs)
        and (not args.name or row.name in args.name)
        and (not args.states or row.state in args.states)
        and (not args.start or row.state in WAITING)
        and (not args.clusters or bool(set(args.clusters).intersection(row.clusters)))
        and (not args.nodelist or not placed_on.keys().isdisjoint(args.nodelist))
    )


WAIT_OPTIONS = f"""
{parse.JOBS.format("+")}--for TIME @limit   give up after this time (as for submit -t); exit code 1
-q --quiet          print only what went wrong
"""


def _wait(args: argparse.Namespace) -> int:
    worst = 0
    end = None if args.limit is None else time.monotonic() + args.limit
    with connect(args) as client:
        for job in parse.named_jobs(args):
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                worst = max(worst, wait_and_tell(client, job, left, quiet=args.quiet))
            except TimeoutError as error:
                raise CommandError(str(error)) from error
    return worst


COMMANDS: Mapping[str, Command] = {
    "queue": Command(
        doc="list jobs",
        about="List the jobs that have not ended, each waiting one with the reason, in squeue's "
        "words and\nin a sentence, and the expected start. A terminal's line is cut, not wrapped; "
        "a pipe gets all.\nNames of columns, or squeue's letters, choose what is shown.",
        example="coalloc queue --me --states=PD\n  coalloc queue --start\n"
        "  coalloc queue -w 'alpha[1-4]'\n"
        "  coalloc queue -o jobid,left,priority,where -S -priority\n"
        "  coalloc queue --noheader -o '%i %T'",
        add=_add_queue,
        run=_queue,
        query=True,
    ),
    "wait": Command(
        doc="wait until jobs have ended",
        about="Wait until jobs, or all members of arrays, have ended. The exit code is the highest "
        "of theirs;\n1 stands for a job that was cancelled, timed out or lost.",
        example="coalloc wait 12 13 --for 2h",
        add=partial(add_options, text=WAIT_OPTIONS, jobs=parse.jobs, limit=parse.seconds),
        run=_wait,
    ),
}
