"""``coalloc account`` and ``coalloc usage``: what has run, and who has used how much."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from coalloc.cli import arguments as parse
from coalloc.cli.command import DONE, Command, connect, note, print_json, print_json_rows
from coalloc.cli.output import show_table
from coalloc.model.values import fields_of
from coalloc.option_text import add_options
from coalloc.runtime.texts import instant, length

if TYPE_CHECKING:
    from coalloc.wire.share_answers import AccountRow, UsageRow

STATES = ("completed", "failed", "cancelled", "timeout", "lost")
HEADERS = (
    *("JOBID", "NAME", "USER", "PROJECT", "STATE", "EXIT", "STARTED", "WAITED", "RAN"),
    *("PROCS", "PROC-HOURS", "CPU", "MEM", "CLUSTERS", "DETAIL"),
)
NUMBERS = frozenset(
    {"EXIT", "WAITED", "RAN", "PROCS", "PROC-HOURS", "CPU", "MEM", "JOBS", "WAIT", "CO-ALLOC"}
)
GROUPS = ("project", "user", "cluster", "day")
HOUR_S = 3600.0


PERIOD = """
--since TIME         from then on: 2026-11-01, or with THH:MM (UTC)
--until TIME         before then
-u --user NAME =     of this user
-p --project NAME    of this project; empty: of none
--csv                print CSV, with all columns
"""
ACCOUNT_OPTIONS = f"""
{parse.JOBS.format("*")}-s --state   that ended so
--swf        print a log for coalloc simulate
"""
USAGE_OPTIONS = "--by KEYS =project,user   of project, user, cluster, day (default project,user)"


def _day(text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-11-01") from error


def _account(args: argparse.Namespace) -> int:
    with connect(args) as client:
        jobs = chain(*args.jobs) if args.jobs else [""]
        asked = {"user": args.user, "state": args.state or "", "until": args.until}
        rows = (client.account(job=j, since=args.since or 0.0, **asked) for j in jobs)
        chosen = (row for row in chain(*rows) if args.project in (None, row.project))
        if args.swf:
            _write_swf(chosen)
        elif args.json:
            print_json_rows("jobs", map(msgspec.to_builtins, chosen))
        elif args.csv:
            write_csv(map(_plain, chosen))
        else:
            show_table(HEADERS, map(_cells, chosen), right=NUMBERS)
    return DONE


def _plain(row: AccountRow) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(row)
    for column in ("clusters", "nodes"):
        plain[column] = "+".join(f"{name}:{procs}" for name, procs in plain[column].items())
    return plain


def write_csv(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows of the same columns."""
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)


def _write_swf(rows: Iterable[AccountRow]) -> None:
    """A log of what ran, and of what was cancelled before it did."""
    from coalloc.adapters.formats.swf_export import ExportedJob, swf_lines

    jobs = [
        ExportedJob(**fields_of(row, ExportedJob))
        for row in rows
        # the whole of a workflow or a divisible job has run as its tasks or pieces
        if row.started is None or row.clusters
    ]
    for line in swf_lines(jobs, "coalloc"):
        print(line)
    note(f"{len(jobs)} jobs")


def _cells(row: AccountRow) -> tuple[str, ...]:
    ran = "-" if row.started is None else length(row.ended - row.started)
    waited = (row.ended if row.started is None else row.started) - row.eligible
    return (
        row.id,
        row.name,
        row.user,
        row.project or "-",
        row.state,
        "-" if row.exit_code is None else str(row.exit_code),
        instant(row.started, "-"),
        length(max(waited, 0.0)),
        ran,
        str(row.procs),
        f"{row.proc_s / HOUR_S:.3f}",
        "-" if row.cpu_s is None or not row.proc_s else f"{100.0 * row.cpu_s / row.proc_s:.0f}%",
        "-" if row.max_rss_mb is None else f"{row.max_rss_mb:.0f}M",
        "+".join(row.clusters) or "-",
        row.detail or "-",
    )


def _groups(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    wrong = next((name for name in chosen if name not in GROUPS), None)
    if wrong is not None:
        raise argparse.ArgumentTypeError(f"{wrong!r} is not one of {', '.join(GROUPS)}")
    return chosen


def _usage(args: argparse.Namespace) -> int:
    with connect(args) as client:
        rows = [
            row
            for row in client.usage(since=args.since or 0.0, until=args.until)
            if args.user in ("", row.user) and args.project in (None, row.project)
        ]
    sums = list(_summed(rows, args.by))
    if args.json:
        print_json({"usage": sums})
    elif args.csv:
        write_csv(sums)
    else:
        headers = (*(name.upper() for name in args.by), *SUMS)
        cells = (
            (*(row[name] or "-" for name in args.by), *(shown(row) for shown in SUMS.values()))
            for row in sums
        )
        show_table(headers, cells, right=NUMBERS)
    return DONE


SUMS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "PROC-HOURS": lambda row: f"{row['proc_hours']:.3f}",
    "SHARE": lambda row: f"{100.0 * row['share']:.1f}%",
    "JOBS": lambda row: str(row["jobs"]),
    "WAIT": lambda row: length(row["mean_wait_s"]) if row["jobs"] else "-",
    "CO-ALLOC": lambda row: f"{100.0 * row['coallocated_share']:.1f}%",
}
"""Columns of usage, behind what it is grouped by."""


def _summed(rows: Sequence[UsageRow], by: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Usage of each group, the greatest first; by day in the order of days."""
    groups: dict[tuple[str, ...], list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in by), []).append(row)
    everything = sum(row.proc_s for row in rows)
    keys = sorted(groups) if "day" in by else sorted(groups, key=lambda k: -_total(groups[k]))
    for key in keys:
        members = groups[key]
        total, jobs = _total(members), sum(row.jobs for row in members)
        coallocated = sum(row.coallocated_proc_s for row in members)
        yield {
            **dict(zip(by, key, strict=True)),
            "proc_hours": total / HOUR_S,
            "share": total / everything if everything else 0.0,
            "jobs": jobs,
            "mean_wait_s": sum(row.wait_s for row in members) / jobs if jobs else 0.0,
            "coallocated_share": coallocated / total if total else 0.0,
        }


def _total(rows: Iterable[UsageRow]) -> float:
    return sum(row.proc_s for row in rows)


COMMANDS: Mapping[str, Command] = {
    "account": Command(
        doc="jobs that have ended, and what they used",
        about="Jobs that have ended, by their end, with what they used; for as long as the site "
        "keeps them. Of an array, workflow or divisible job: with its members, tasks or pieces.",
        example="coalloc account 12 13_[0-9]\n"
        "  coalloc account --since 2026-11-01 --user ada --csv\n"
        "  coalloc account --since 2026-11-01 --swf > november.swf",
        add=partial(
            add_options,
            text=PERIOD + ACCOUNT_OPTIONS,
            since=_day,
            until=_day,
            state=STATES,
            jobs=parse.jobs,
        ),
        run=_account,
        query=True,
    ),
    "usage": Command(
        doc="who has used how much, by project, user, cluster, day",
        about="Processor-hours of what has ended, with waits and the share of jobs that ran on\n"
        "several clusters.",
        example="coalloc usage --since 2026-11-01 --by project\n  coalloc usage --by day,cluster",
        add=partial(add_options, text=PERIOD + USAGE_OPTIONS, since=_day, until=_day, by=_groups),
        run=_usage,
        query=True,
    ),
}
