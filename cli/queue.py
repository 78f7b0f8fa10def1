"""``coalloc queue``, ``show``, ``wait`` and ``status``."""

from __future__ import annotations

import argparse
import getpass
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from coalloc.cli import arguments as parse
from coalloc.cli.command import Command, CommandError, answer_json, connect, print_json
from coalloc.cli.output import is_terminal, node_set, reason, show_table
from coalloc.cli.wait import wait_and_tell
from coalloc.client.answers import QueueRow, ServiceStatus
from coalloc.runtime import texts
from coalloc.runtime.texts import instant, length
from coalloc.wire.client import RefusedError

CODES = {
    "pending": "PD",
    "held": "PD",
    "preparing": "CF",
    "starting": "CF",
    "running": "R",
    "completed": "CD",
    "failed": "F",
    "cancelled": "CA",
    "timeout": "TO",
    "lost": "NF",
}
"""squeue's codes of our states; one that is not known is shown as it is."""
WAITING = frozenset({"pending", "held"})
HEADERS = (
    *("JOBID", "NAME", "USER", "ST", "TIME", "PROCS", "START", "CLUSTERS"),
    "NODELIST(REASON)",
)
NAME_WIDTH = 16


def _add_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--all", action="store_true", help="those that have ended, too")
    parser.add_argument("-u", "--user", type=parse.names, metavar="NAMES", help="of these users")
    parser.add_argument("--me", action="store_true", help="of mine")
    parser.add_argument("-j", "--jobs", type=parse.names, metavar="JOBS", help="only these")
    parser.add_argument("-n", "--name", type=parse.names, metavar="NAMES", help="of these names")
    parser.add_argument(
        "-t",
        "--states",
        type=_states,
        metavar="STATES",
        help=f"in these states: {', '.join(CODES)}, or squeue's codes",
    )
    parser.add_argument(
        "-M", "--clusters", type=parse.names, metavar="NAMES", help="placed on one of these"
    )
    parser.add_argument(
        "-r", "--array", action="store_true", help="a line for every waiting member of an array"
    )
    parser.add_argument("--noheader", action="store_true", help="no headings")
    parser.add_argument(
        "-i", "--iterate", type=texts.number, metavar="SECONDS", help="again and again"
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
            rows = msgspec.convert(answer["jobs"], tuple[QueueRow, ...])
            kept = [row for row in rows if _is_wanted(row, args)]
            if args.json:
                wanted = {row.id for row in kept}
                jobs = [row for row in answer["jobs"] if row["id"] in wanted]
                answer_json({**answer, "jobs": jobs})
            else:
                lines = queue_lines(kept, answer["time"], unfold=args.array)
                show_table(
                    HEADERS, lines, right=frozenset({"PROCS", "TIME"}), header=not args.noheader
                )
            if args.iterate is None:
                return 0
            sys.stdout.flush()
            time.sleep(max(args.iterate, 0.1))
            print("\x1b[2J\x1b[H" if is_terminal() else "")


def _is_wanted(row: QueueRow, args: argparse.Namespace) -> bool:
    users = (*(args.user or ()), *((getpass.getuser(),) if args.me else ()))
    return (
        (not users or row.user in users)
        and (not args.jobs or row.id in args.jobs or row.id.partition("_")[0] in args.jobs)
        and (not args.name or row.name in args.name)
        and (not args.states or row.state in args.states)
        and (not args.clusters or bool(set(args.clusters).intersection(row.clusters)))
    )


def queue_lines(
    rows: Iterable[QueueRow], now: float, *, unfold: bool = False
) -> list[tuple[str, ...]]:
    """Cells of the queue's table; waiting members of an array that differ in nothing are one."""
    groups: dict[Any, list[QueueRow]] = {}
    for row in rows:
        number, _, index = row.id.partition("_")
        key: Any = row.id
        if index and not unfold and row.state in WAITING:
            key = (number, row.state, row.reason, row.name, row.user)
        groups.setdefault(key, []).append(row)
    return [_line(group, now) for group in groups.values()]


def _line(group: Sequence[QueueRow], now: float) -> tuple[str, ...]:
    row = group[0]
    procs = str(row.procs)
    if row.state in WAITING and row.max_procs is not None and row.max_procs != row.procs:
        procs += f"-{row.max_procs}"
    name = row.name if len(row.name) <= NAME_WIDTH else row.name[: NAME_WIDTH - 1] + "~"
    return (
        row.id if len(group) == 1 else _array_id(group),
        name,
        row.user,
        "CG"
        if row.reason == "cancelling"
        else "PD"
        if _waits(row)
        else CODES.get(row.state, row.state),
        length(run_time(row, now)),
        procs,
        instant(_earliest(group) if _waits(row) else row.started),
        f"{row.origin}:{row.foreign}" if row.origin else "+".join(row.clusters) or "-",
        _progress(row)
        + (reason_text(row) if _waits(row) or not row.nodes else node_set(row.nodes)),
    )


def _waits(row: QueueRow) -> bool:
    """Here, or with claims that wait in a cluster's own queue."""
    return row.state in WAITING or row.reason == "others_first"


def _progress(row: QueueRow) -> str:
    """Of a workflow or a divisible job, tasks or chunks that have completed of all."""
    counts = row.progress
    return "" if counts is None else f"{counts.completed}/{counts.total} {counts.unit} "


def _array_id(group: Sequence[QueueRow]) -> str:
    """12_[0-9,12] for members of an array."""
    from coalloc.model.nodeset import fold

    number = group[0].id.partition("_")[0]
    folded = fold(str(int(row.id.partition("_")[2])) for row in group)
    return f"{number}_{folded}" if folded.startswith("[") else f"{number}_[{folded}]"


def _earliest(group: Sequence[QueueRow]) -> float | None:
    return min((r.start_estimate for r in group if r.start_estimate is not None), default=None)


def run_time(row: QueueRow, now: float) -> float:
    """Seconds a job has run, or ran."""
    if row.started is None:
        return 0.0
    return (now if row.ended is None else row.ended) - row.started


def reason_text(row: QueueRow) -> str:
    """Why a job waits or how it ended, in brackets; empty for one that simply completed."""
    if _waits(row):
        return f"({words})" if (words := reason(row.reason, row.detail)) else ""
    words = row.detail or row.reason
    if not words.startswith(row.reason):
        words = f"{row.reason}: {row.detail}"
    if row.exit_code:
        code = f"exit code {row.exit_code}"
        words = words if code in words else f"{words}, {code}" if words else code
    return f"({words})" if words else ""


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=parse.job, metavar="JOB", help="its number, such as 12 or 12_3")


def _show(args: argparse.Namespace) -> int:
    with connect(args) as client:
        try:
            answer = client.ask("show", job=args.job)
        except RefusedError as error:
            if error.code != "not_found":
                raise
            from coalloc.cli.array_summary import array_lines, members_of

            members = members_of(client, args.job)
            if not members:
                raise
            if args.json:
                print_json({"job": args.job, "members": members})
            else:
                print("\n".join(array_lines(args.job, members)))
            return 0
    if args.json:
        answer_json(answer)
        return 0
    from coalloc.cli.job_details import job_lines

    print("\n".join(job_lines(answer["job"], answer["time"])))
    return 0


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="+", type=parse.job, metavar="JOB")
    parser.add_argument(
        "--for",
        dest="limit",
        type=parse.seconds,
        metavar="TIME",
        help="give up after this time (as for submit -t); exit code 1",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print only what went wrong")


def _wait(args: argparse.Namespace) -> int:
    worst = 0
    end = None if args.limit is None else time.monotonic() + args.limit
    with connect(args) as client:
        for job in args.jobs:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                worst = max(worst, wait_and_tell(client, job, left, quiet=args.quiet))
            except TimeoutError as error:
                raise CommandError(str(error)) from error
    return worst


def _status(args: argparse.Namespace) -> int:
    with connect(args) as client:
        answer = client.ask("status")
        endpoint = client.endpoint
    if args.json:
        answer_json(answer)
        return 0
    print("\n".join(status_lines(msgspec.convert(answer, ServiceStatus), endpoint)))
    return 0


def status_lines(status: ServiceStatus, endpoint: str) -> list[str]:
    """How the daemon is."""
    there = [name for name, connected in status.clusters.items() if connected]
    gone = [name for name, connected in status.clusters.items() if not connected]
    lines = [
        f"coallocd at {endpoint}, start {status.epoch} on its store",
        f"  jobs      {status.waiting} waiting, {status.placed} placed",
        f"  rounds    {status.rounds}" + (", paused by an operator" if status.paused else ""),
        f"  clusters  {', '.join(there) or 'none'}"
        + (f"; not connected: {', '.join(gone)}" if gone else ""),
        f"  store     {'takes writes' if status.writable else 'CANNOT WRITE: submits are refused'}",
    ]
    solver = status.solver
    if not solver.is_warm:
        steps = f", {solver.done} of {solver.steps} steps" if solver.steps else ""
        lines.append(f"  solver    warming{steps}; plans by `plain` meanwhile")
    waiting = {name: count for name, count in status.orders_waiting.items() if count}
    if waiting:
        lines.append("  orders    " + ", ".join(f"{c} for {n}" for n, c in waiting.items()))
    if status.faults:
        lines.append("  faults    " + ", ".join(f"{c} {n}" for n, c in status.faults.items()))
    return lines


COMMANDS: Mapping[str, Command] = {
    "queue": Command(
        doc="list jobs",
        about="List the jobs that have not ended, each waiting one with the reason, in squeue's "
        "words and\nin a sentence, and the expected start.",
        example="coalloc queue --me --states=PD",
        add=_add_queue,
        run=_queue,
        query=True,
    ),
    "show": Command(
        doc="everything known of a job, and its history",
        example="coalloc show 12",
        add=_add_job,
        run=_show,
        query=True,
    ),
    "wait": Command(
        doc="wait until jobs have ended",
        about="Wait until jobs, or all members of arrays, have ended. The exit code is the highest "
        "of theirs;\n1 stands for a job that was cancelled, timed out or lost.",
        example="coalloc wait 12 13 --for 2h",
        add=_add_wait,
        run=_wait,
    ),
    "status": Command(
        doc="how the daemon is",
        example="coalloc status",
        add=lambda parser: None,
        run=_status,
        query=True,
    ),
}
