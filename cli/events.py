"""``coalloc events``: the numbered event stream."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, connect
from coalloc.cli.output import node_set, precise
from coalloc.option_text import add_options
from coalloc.runtime.texts import printable
from coalloc.wire.answers import Event

LATEST = 20


OPTIONS = f"""
-f --follow     go on as they happen
--since N       after event N, 0 for all (default: the latest {LATEST}; of a job, all)
-j --job JOBS   only of these
"""


def _events(args: argparse.Namespace) -> int:
    with connect(args) as client:
        since: int | None = args.since
        jobs: tuple[str, ...] = args.job or ()
        if since is None:
            since = 0 if jobs else max(0, client.last_event() - LATEST)
        one = jobs[0] if len(jobs) == 1 else ""
        for event in client.events(since, follow=args.follow, job=one):
            if jobs and event.job not in jobs and not one:
                continue
            print(msgspec.json.encode(event).decode() if args.json else event_line(event))
            if args.follow:
                sys.stdout.flush()
    return 0


def event_line(event: Event) -> str:
    """One event for people."""
    fields = fields_text(event.fields)
    job = f" job={event.job}" if event.job else ""
    return printable(f"{event.seq} {precise(event.time)} {event.kind}{job} {fields}".rstrip())


def fields_text(fields: Mapping[str, Any]) -> str:
    """Fields of an event on one line; a value with blanks is quoted."""
    return " ".join(f"{key}={_short(value)}" for key, value in fields.items())


def _short(value: Any) -> str:
    if isinstance(value, dict) and all(type(count) is int for count in value.values()):
        return node_set(value)
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    text = "-" if value is None else str(value)
    return repr(text) if " " in text or not text else text


COMMANDS: Mapping[str, Command] = {
    "events": Command(
        doc="what has happened, numbered",
        about="What has happened, numbered. With --json, one object on each line.",
        example="coalloc events --follow",
        add=partial(add_options, text=OPTIONS, since=parse.count, job=parse.jobs),
        run=_events,
        query=True,
    )
}
