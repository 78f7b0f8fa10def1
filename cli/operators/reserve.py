"""``coalloc reserve`` and ``unreserve``: nodes kept for some users, or for nobody."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from coalloc.cli import arguments as parse
from coalloc.cli.command import DONE, Command, answer_json, connect, each, note
from coalloc.cli.output import show_table
from coalloc.model.formats.nodeset import fold
from coalloc.model.values import replace
from coalloc.option_text import add_options
from coalloc.runtime.texts import instant
from coalloc.wire.node_rows import ReservationRow

ABOUT = """\
Keep nodes for the jobs of some users, or for nobody (maintenance), for a time; without NODES, list
what is kept.

Every policy plans around it: other users' jobs that would not have ended when it begins are not
started on its nodes. What runs there already goes on. Without --duration it lasts until
'coalloc unreserve'. It keeps the nodes from jobs of ours only; local jobs are kept out by a
reservation in the cluster's own batch system. What those keep from us is listed too."""
HEADERS = ("NAME", "START", "END", "USERS", "BY", "NODELIST", "REASON")


OPTIONS = """
CLUSTER|NODES* @targets   nodes may be written as sets: alpha[1-4,7]
-N --nodes N       so many of them, the soonest free
--start TIME       now+1hour, 16:00, 2030-01-20T12:34 (default: now)
--duration TIME    90m, 2h, 1-12
-u --users NAMES   whose jobs may run there
--name NAME =      default: r1, r2, ...
--reason TEXT =    for the record
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "coalloc reserve [CLUSTER|NODES... [options]]"
    add_options(
        parser,
        OPTIONS,
        targets=parse.node_set,
        nodes=parse.count,
        start=parse.begin,
        duration=parse.seconds,
        users=parse.names,
    )


def _reserve(args: argparse.Namespace) -> int:
    with connect(args) as client:
        if not args.targets:
            answer = client.known_nodes()
            if args.json:
                answer_json(replace(answer, clusters=()))
            else:
                show_table(HEADERS, [_line(row) for row in answer.reservations])
            return DONE
        made = client.reserve(
            [name for names in args.targets for name in names],
            count=args.nodes,
            start=args.start,
            duration_s=args.duration,
            users=args.users or (),
            name=args.name,
            reason=args.reason,
        )
    if args.json:
        answer_json(made)
        return DONE
    print(f"Reserved {fold(made.nodes)} as {made.reservation}")
    if made.running:
        note(f"warning: {', '.join(made.running)} may still run there when it begins")
    return DONE


def _line(row: ReservationRow) -> tuple[str, ...]:
    return (
        row.name,
        instant(row.start),
        "-" if row.end is None else instant(row.end),
        ",".join(row.users) or "-",
        row.by,
        fold(row.nodes),
        row.reason or "-",
    )


def _unreserve(args: argparse.Namespace) -> int:
    with connect(args) as client:
        return each(dict.fromkeys(args.names), client.unreserve)


COMMANDS: Mapping[str, Command] = {
    "reserve": Command(
        doc="keep nodes for some users, or for nobody",
        about=ABOUT,
        example="coalloc reserve 'alpha[1-4]' --start 18:00 --duration 2h --reason 'new switch'\n"
        "  coalloc reserve beta -N 8 --users ada,bob --duration 1-0 --name course",
        add=_add,
        run=_reserve,
        query=True,
    ),
    "unreserve": Command(
        doc="take reservations back",
        example="coalloc unreserve r1 course",
        add=partial(add_options, text="NAME+ @names   as 'coalloc reserve' lists it"),
        run=_unreserve,
    ),
}
