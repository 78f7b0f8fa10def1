"""``coalloc cancel``, ``hold``, ``release``, ``drain``, ``resume``, ``pause`` and ``round``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import BAD_USAGE, DONE, Command, CommandError, connect, each, note
from coalloc.client.client import Client, RefusedError
from coalloc.model.formats.nodeset import fold
from coalloc.option_text import add_options

COUNT = re.compile(r"x[0-9]+$")
COUNTED_SET = re.compile(r"\]x[0-9]+(?=,|$)")
"""Processes on each node, as ``queue`` prints them behind its names."""


STATES = ("pending", "held", "running")
SET_PRIORITY = parse.JOBS.format("") + "N @priority   doublings of its weight, -30..30; 0 is usual"
CANCEL_OPTIONS = f"""
{parse.JOBS.format("*")}-u --user NAME    all jobs of this user
-n --name NAME    all jobs of this name
-t --state        only those in this state
--reason TEXT =   kept, and shown to those who ask about the job
"""


def _cancel(args: argparse.Namespace) -> int:
    filtered = args.user or args.name or args.state
    if not args.jobs and not filtered:
        raise CommandError("cancel: no job is named (see coalloc cancel --help)", BAD_USAGE)
    given = {"reason": args.reason} if args.reason else {}
    if not filtered:
        return _ask_all("cancel", args, **given)
    with connect(args) as client:
        rows = client.queue(user=args.user or "")
    named = frozenset(parse.named_jobs(args))
    chosen = [
        row.id
        for row in rows
        if (not args.name or row.name == args.name)
        and (not args.state or row.state == args.state)
        and (not named or row.id in named or row.id.partition("_")[0] in named)
    ]
    return _ask_all("cancel", args, chosen, **given)


def _ask_all(
    verb: str, args: argparse.Namespace, jobs: list[str] | None = None, **fields: Any
) -> int:
    done = False
    with connect(args) as client:

        def ask(job: str) -> None:
            nonlocal done
            try:
                client.ask(verb, job=job, **fields)
                done = True
            except RefusedError as error:
                # Those that wait for a job are cancelled with it.
                may_be_over = done and verb == "cancel" and error.code == "wrong_state"
                if not (may_be_over and client.why(job).state == "cancelled"):
                    raise

        return each(parse.named_jobs(args) if jobs is None else jobs, ask)


def _set_priority(args: argparse.Namespace) -> int:
    with connect(args) as client:
        return each(args.jobs, lambda job: client.set_priority(job, args.priority))


def _add_targets(parser: argparse.ArgumentParser, metavar: str) -> None:
    about = "nodes may be written as sets: alpha[1-4,7]"
    add_options(parser, f"{metavar}+ @targets   {about}", targets=_targets)


def _targets(text: str) -> tuple[str, ...]:
    """Names of a node set, also of one with processes behind its brackets: a[1-3]x2."""
    return parse.node_set(COUNTED_SET.sub("]", text))


def _each_target(args: argparse.Namespace, do: Callable[[Client, str], None]) -> int:
    names = dict.fromkeys(name for names in args.targets for name in names)
    with connect(args) as client:
        return each(names, lambda name: _do_as_printed(client, name, do))


def _do_as_printed(client: Client, name: str, do: Callable[[Client, str], None]) -> None:
    """Do it for a name; where there is none such, for what ``queue`` prints so.

    That is ``b1x4``, four processes on a node, and ``alpha+beta``, two clusters.
    """
    try:
        do(client, name)
    except RefusedError as error:
        plain = COUNT.sub("", name).split("+")
        if error.code != "not_found" or plain == [name]:
            raise
        for one in plain:
            do(client, one)


DRAIN_OPTIONS = """
--reason TEXT =   for the record
--by TIME         be empty then, and run until then what ends in time: 18:00, now+2hours
"""


def _add_drain(parser: argparse.ArgumentParser) -> None:
    _add_targets(parser, "CLUSTER|NODES")
    add_options(parser, DRAIN_OPTIONS, by=parse.begin)


def _drain(args: argparse.Namespace) -> int:
    if args.by is not None:
        return _drain_by(args)
    return _each_target(args, lambda client, name: client.drain(name, args.reason))


def _drain_by(args: argparse.Namespace) -> int:
    """A reservation for nobody, from then on."""
    with connect(args) as client:
        made = client.reserve(
            [name for names in args.targets for name in names],
            start=args.by,
            reason=args.reason or "drained",
        )
    print(f"Reserved {fold(made.nodes)} as {made.reservation}: 'coalloc unreserve' ends it")
    if made.running:
        note(f"warning: {', '.join(made.running)} may still run there then")
    return DONE


def _resume_one(client: Client, name: str) -> None:
    if name == "rounds":
        client.resume_rounds()
    else:
        client.resume(name)


def _add_word(word: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=(word,))


def _do(what: Callable[[Client], None], args: argparse.Namespace) -> int:
    with connect(args) as client:
        what(client)
    return DONE


COMMANDS: Mapping[str, Command] = {
    "cancel": Command(
        doc="end jobs, waiting or running",
        example="coalloc cancel 12 13_4 '14_[0-9]'\n  coalloc cancel --user ada --state pending\n"
        "  coalloc cancel 12 --reason 'wrong input file'",
        add=partial(add_options, text=CANCEL_OPTIONS, jobs=parse.jobs, state=STATES),
        run=_cancel,
    ),
    "hold": Command(
        doc="keep waiting jobs from being planned",
        example="coalloc hold 12",
        add=parse.add_jobs,
        run=partial(_ask_all, "hold"),
    ),
    "release": Command(
        doc="let held jobs be planned",
        example="coalloc release 12",
        add=parse.add_jobs,
        run=partial(_ask_all, "release"),
    ),
    "set-priority": Command(
        doc="give a waiting job another place in the queue",
        about="Double the weight of a waiting job N times; below 0 it is halved. Operators only.",
        example="coalloc set-priority 12 3\n  coalloc set-priority 13 -5",
        add=partial(add_options, text=SET_PRIORITY, jobs=parse.jobs, priority=float),
        run=_set_priority,
    ),
    "drain": Command(
        doc="start nothing new on clusters or nodes",
        about="Start nothing new on clusters or nodes; what runs there goes on. With --by, start\n"
        "only what will have ended then: a reservation for nobody, see 'coalloc reserve'.",
        example="coalloc drain alpha --reason 'new switch'\n"
        "  coalloc drain 'beta[3-4]' beta7 --reason 'bad memory'\n"
        "  coalloc drain alpha --by 18:00 --reason 'new switch'",
        add=_add_drain,
        run=_drain,
    ),
    "resume": Command(
        doc="undo drain, or pause",
        example="coalloc resume alpha 'beta[3-4]'\n  coalloc resume rounds",
        add=partial(_add_targets, metavar="rounds|CLUSTER|NODES"),
        run=partial(_each_target, do=_resume_one),
    ),
    "pause": Command(
        doc="plan nothing until 'resume rounds'",
        about="Plan nothing until 'coalloc resume rounds'; running jobs go on, submits are taken.",
        example="coalloc pause rounds",
        add=partial(_add_word, "rounds"),
        run=partial(_do, Client.pause_rounds),
    ),
    "round": Command(
        doc="start a round now",
        example="coalloc round now",
        add=partial(_add_word, "now"),
        run=partial(_do, Client.round_now),
    ),
}
