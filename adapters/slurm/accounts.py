"""Slurm's accounts of jobs (``sacct``), beside ours: which job differs, and in what.

Where slurmdbd keeps comments (``AccountingStoreFlags=job_comment``), a row names the part of ours
that it was made for. Otherwise, and for jobs that were handed over, it is the row of the same user
and name that began nearest to ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from coalloc.adapters.batch.token import Token, parse_comment
from coalloc.adapters.slurm.parse_text import read_time
from coalloc.adapters.slurm.records import ParseError, job_state

DELIMITER = "\x1f"
FIELDS = ("JobIDRaw", "User", "State", "Start", "End", "NodeList", "Comment", "JobName")
"""The last one may hold any character."""
SLACK_S = 60.0
"""Seconds that a job may begin earlier and end later in Slurm: from its claim to its release."""
AGREE: dict[str, frozenset[str]] = {
    "completed": frozenset({"COMPLETED"}),
    # parts beside the one that failed are ended by us
    "failed": frozenset({"FAILED", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"}),
    "cancelled": frozenset({"CANCELLED", "PREEMPTED"}),
    # the user's limit ends before Slurm's
    "timeout": frozenset({"TIMEOUT", "CANCELLED", "DEADLINE"}),
}
"""States in Slurm by those of ours; a job that was lost may have any."""
NEVER_RAN = frozenset({"PENDING", "CANCELLED", "BOOT_FAIL", "REVOKED"})
NO_NODES = frozenset({"", "None assigned"})
"""What a job that never had nodes shows for them; its start is when it was cancelled."""


class SlurmRow(Struct, frozen=True, kw_only=True):
    """One allocation in Slurm's accounts; times in seconds since 1970, no start without nodes."""

    number: str
    user: str
    state: str
    started: float | None
    ended: float | None
    token: Token | None
    name: str


class OurRow(Struct, frozen=True, kw_only=True):
    """A job that ran on the cluster by our accounts; times in seconds since 1970."""

    id: str
    user: str
    name: str
    state: str
    started: float
    ended: float


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that the accounts have otherwise.

    Attributes
    ----------
    job : str
        Of ours.
    number : str
        Slurm's; empty: it has none.
    """

    job: str
    number: str
    text: str


def sacct_words(since: float, until: float, user: str = "") -> tuple[str, ...]:
    """Arguments of ``sacct`` for `parse_accounts`; it is to run with ``TZ=UTC``."""
    first, last = (
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S") for at in (since, until)
    )
    who = ("-u", user) if user else ("-a",)
    shape = ("-n", "-P", "-X", f"--delimiter={DELIMITER}", "-o", ",".join(FIELDS))
    return (*shape, "-S", first, "-E", last, *who)


def parse_accounts(text: str) -> Iterator[SlurmRow]:
    """Read what ``sacct`` printed for `sacct_words`.

    Raises
    ------
    ParseError
        With the line.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        words = line.split(DELIMITER, len(FIELDS) - 1)
        where = f"line {number}"
        if len(words) != len(FIELDS) or not words[0]:
            raise ParseError(where, f"not the {len(FIELDS)} fields {','.join(FIELDS)}")
        job, user, state, start, end, nodes, comment, name = words
        yield SlurmRow(
            number=job,
            user=user,
            state=job_state(state.partition(" ")[0]),
            started=None if nodes in NO_NODES else read_time(start, where),
            ended=read_time(end, where),
            token=parse_comment(comment),
            name=name,
        )


def differences(
    ours: Iterable[OurRow], theirs: Sequence[SlurmRow], *, since: float, until: float
) -> Iterator[Difference]:
    """Yield what the two have otherwise, ours first.

    Parameters
    ----------
    ours : iterable of OurRow
        All that ended in [since, until), by our accounts.
    theirs : sequence of SlurmRow
        All that ran then.
    """
    of_job: dict[str, SlurmRow] = {}
    others: dict[tuple[str, str], list[SlurmRow]] = {}
    for row in theirs:
        if row.token is None:
            others.setdefault((row.user, row.name), []).append(row)
        elif row.token.job not in of_job or _attempt(of_job[row.token.job]) <= _attempt(row):
            of_job[row.token.job] = row
    known = set()
    for job in ours:
        known.add(job.id)
        found = of_job.get(job.id) or _nearest(job, others.get((job.user, job.name), []))
        if found is None:
            yield Difference(job=job.id, number="", text="Slurm has no such job")
            continue
        for text in _faults(job, found):
            yield Difference(job=job.id, number=found.number, text=text)
    for name, row in of_job.items():
        ended = row.ended
        if name in known or ended is None or row.state in NEVER_RAN:
            continue
        if since <= ended < until:
            yield Difference(job=name, number=row.number, text="not in coalloc's accounts")


def _attempt(row: SlurmRow) -> tuple[int, float]:
    assert row.token is not None
    return row.token.attempt, row.started or 0.0


def _nearest(job: OurRow, rows: list[SlurmRow]) -> SlurmRow | None:
    """Take the row that is nearest to the job in time out of those that may be its own."""
    fitting = [
        row
        for row in rows
        if row.started is not None
        and row.started <= job.started + SLACK_S
        and (row.ended is None or row.ended >= job.ended - SLACK_S)
    ]
    found = min(fitting, key=lambda row: _distance(job, row), default=None)
    if found is not None:
        rows.remove(found)
    return found


def _distance(job: OurRow, row: SlurmRow) -> float:
    """Seconds between both starts and both ends."""
    start = job.started if row.started is None else row.started
    end = job.ended if row.ended is None else row.ended
    return abs(start - job.started) + abs(end - job.ended)


def _faults(job: OurRow, row: SlurmRow) -> Iterator[str]:
    if job.state in AGREE and row.state not in AGREE[job.state]:
        yield f"{job.state} here, {row.state} in Slurm"
    if row.started is None:
        yield "never started in Slurm"
    elif row.started > job.started + SLACK_S:
        yield f"began {row.started - job.started:.0f} s later in Slurm"
    elif row.started < job.started - SLACK_S:
        yield f"held its nodes for {job.started - row.started:.0f} s before it began"
    if row.ended is None:
        yield "still runs in Slurm"
    elif row.ended < job.ended - SLACK_S:
        yield f"ended {job.ended - row.ended:.0f} s earlier in Slurm"
    elif row.ended > job.ended + SLACK_S:
        yield f"held its nodes for {row.ended - job.ended:.0f} s after its end"
