"""``coalloc priority``: whose turn it is, and why."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, CommandError, answer_json, connect
from coalloc.cli.output import figure, show_table
from coalloc.model.values import replace
from coalloc.runtime.texts import length

if TYPE_CHECKING:
    from coalloc.wire.share_answers import PriorityRow

HEADERS = (
    *("PLACE", "JOBID", "USER", "PROJECT", "WEIGHT", "SUBMITTED"),
    *("OPERATOR", "AGE", "SIZE", "SHARES"),
)
NUMBERS = frozenset(HEADERS) - {"JOBID", "USER", "PROJECT"}
LEAD_HEADERS = ("LEVEL", "SHARE", "PROC-HOURS", "AHEAD", "OF")
NONE = "(none)"
"""Stands for the project of users who have none."""


def _priority(args: argparse.Namespace) -> int:
    jobs = parse.named_jobs(args)
    one = jobs[0] if len(jobs) == 1 else ""
    with connect(args) as client:
        answer = client.priority(one)
    if len(jobs) > 1:
        rows = answer.jobs
        kept = (row for row in rows if {row.job, row.job.partition("_")[0]}.intersection(jobs))
        answer = replace(answer, jobs=tuple(kept))
    if args.json:
        answer_json(answer)
        return 0
    if jobs and not answer.jobs:
        raise CommandError(f"job {', '.join(jobs)} is not being planned")
    show_table(HEADERS, map(_cells, answer.jobs), right=NUMBERS)
    if one and answer.jobs[0].leads:
        print()
        row = answer.jobs[0]
        show_table(LEAD_HEADERS, _lead_cells(row), right=frozenset({"SHARE", "PROC-HOURS"}))
    return 0


def _cells(row: PriorityRow) -> tuple[str, ...]:
    submitted = figure(row.submitted)
    if row.allowed != row.submitted:
        submitted += f" ({figure(row.allowed)} allowed)"
    terms = (f"{term:+.2f}" for term in (row.operator, row.age, row.size, row.shares))
    project = row.project or NONE
    return (str(row.place), row.job, row.user, project, f"{row.weight:.4g}", submitted, *terms)


def _lead_cells(row: PriorityRow) -> list[tuple[str, ...]]:
    levels = ["project"] * (len(row.leads) - 1) + ["user"]
    cells = [
        (
            f"{level} {lead.name or NONE}",
            f"{100.0 * lead.share:.1f}%",
            f"{lead.usage_proc_s / 3600.0:.1f}",
            length(lead.seconds),
            "its entitlement, before its siblings",
        )
        for level, lead in zip(levels, row.leads, strict=True)
    ]
    jobs = ("jobs ahead", "", "", length(row.ahead_s), "the user's, by earlier jobs")
    return [*cells, jobs]


COMMANDS: Mapping[str, Command] = {
    "priority": Command(
        doc="whose turn it is: the factors of waiting jobs",
        about="The effective weights of the waiting jobs, the greatest first, and their terms: the "
        "weight\nas submitted, then an operator's priority, age, size and shares in doublings of "
        "it.\nOf one job also how far its project and its user are ahead of their shares.",
        example="coalloc priority\n  coalloc priority 12",
        add=partial(parse.add_jobs, count="*"),
        run=_priority,
        query=True,
    )
}
