"""``coalloc show``: all that is known of jobs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from coalloc.cli import arguments as parse
from coalloc.cli.command import (
    DONE,
    FAILED,
    Command,
    answer_body,
    connect,
    print_json,
    print_json_rows,
    warn,
)
from coalloc.client.client import Client
from coalloc.wire.client import RefusedError


def _show(args: argparse.Namespace) -> int:
    """Show one job, or each of several: one that is refused does not keep the others back."""
    jobs = parse.named_jobs(args)
    groups = [(job, [job]) for job in jobs] if args.json else parse.grouped(jobs)
    code, bodies = DONE, list[dict[str, Any]]()
    with connect(args) as client:
        for number, (job, members) in enumerate(groups):
            try:
                if args.json:
                    bodies.append(_body(client, job))
                else:
                    print("\n".join(([""] if number else []) + _lines(client, job, members)))
            except RefusedError as error:
                if len(groups) == 1:
                    raise
                warn(error)
                code = FAILED
    if args.json and len(jobs) == 1:
        print_json(bodies[0])
    elif args.json:
        print_json_rows("jobs", bodies)
    return code


def _lines(client: Client, job: str, members: list[str]) -> list[str]:
    from coalloc.cli.jobs.array_summary import array_lines, members_instead, members_of
    from coalloc.cli.jobs.job_details import job_lines

    if len(members) > 1 and (rows := members_of(client, job, frozenset(members))):
        return array_lines(job, rows)
    try:
        answer = client.shown(members[0])
    except RefusedError as error:
        return array_lines(job, members_instead(client, job, error))
    return job_lines(answer.job, answer.time)


def _body(client: Client, job: str) -> dict[str, Any]:
    try:
        return answer_body(client.shown(job))
    except RefusedError as error:
        from msgspec import to_builtins

        from coalloc.cli.jobs.array_summary import members_instead

        return {"job": job, "members": to_builtins(members_instead(client, job, error))}


COMMANDS: Mapping[str, Command] = {
    "show": Command(
        doc="everything known of jobs, and their history",
        about="Everything known of each job, and its history; of many members of an array, a "
        "summary.\nWith --json one object; of several jobs a list of these.",
        example="coalloc show 12\n  coalloc show 12,13 14_[0-9]",
        add=parse.add_jobs,
        run=_show,
        query=True,
    ),
}
