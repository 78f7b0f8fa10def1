"""A job array as a whole: what ``show`` and ``why`` say of the number that ``submit`` printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coalloc.cli.jobs.queue_columns import WAITING
from coalloc.cli.output import block, reason
from coalloc.client.client import Client, RefusedError
from coalloc.model.formats.nodeset import fold
from coalloc.runtime.texts import instant, printable
from coalloc.wire.job_rows import QueueRow


def members_of(client: Client, number: str, named: Collection[str] = ()) -> list[QueueRow]:
    """Rows of an array's members that are remembered, or of those `named`; empty: no such array."""
    rows = client.queue(everything=True)
    return [r for r in rows if (r.id in named if named else r.id.startswith(f"{number}_"))]


def members_instead(client: Client, number: str, error: RefusedError) -> list[QueueRow]:
    """Members of the array of a number that is no job's; the error where there is none either."""
    members = members_of(client, number) if error.code == "not_found" else []
    if not members:
        raise error
    return members


def first_waiting(rows: Sequence[QueueRow]) -> str:
    """The member that a question about the array is best answered for."""
    return next((row for row in rows if row.state in WAITING), rows[0]).id


def array_lines(number: str, members: Sequence[QueueRow]) -> list[str]:
    """Count the members that wait, run and have ended, and name them."""
    states: dict[str, list[QueueRow]] = {}
    for row in members:
        state: str = row.state
        if state in WAITING:
            state = f"{state}: {reason(row.reason)}" if row.reason else state
        states.setdefault(state, []).append(row)
    shown = [(state, f"{len(same)}: {_named(number, same)}") for state, same in states.items()]
    starts = [row.start_estimate for row in members if row.start_estimate is not None]
    first = next((row for row in members if row.ended is None), members[0])
    return [
        f"Job {number}  {printable(first.name)}  array of {len(members)}",
        *block(
            [
                ("user", first.user),
                ("processes", f"{first.procs} each"),
                ("at once", f"at most {first.throttle}" if first.throttle else None),
                ("deadline", None if first.finish_by is None else instant(first.finish_by)),
                *shown,
                ("next expected start", instant(min(starts)) if starts else None),
            ]
        ),
    ]


def _named(number: str, rows: Sequence[QueueRow]) -> str:
    folded = fold(row.id.partition("_")[2] for row in rows)
    return f"{number}_{folded}"
