"""Slurm's accounts of jobs, as ``sacct`` prints them: pure functions from text to records.

Where slurmdbd keeps comments (``AccountingStoreFlags=job_comment``), a row names the part of ours
that it was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct

from coalloc.adapters.batch.token import Token, parse_comment
from coalloc.adapters.slurm.parsers.records import ParseError, job_state
from coalloc.adapters.slurm.parsers.text import read_time

DELIMITER = "\x1f"
FIELDS = ("JobIDRaw", "User", "State", "Start", "End", "NodeList", "Comment", "JobName")
"""The last one may hold any character."""
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


def sacct_words(since: float, until: float, user: str = "") -> tuple[str, ...]:
    """Arguments of ``sacct`` for `parse_accounts`; it is to run with ``TZ=UTC``."""
    first, last = (
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S") for at in (since, until)
    )
    who = ("-u", user) if user else ("-a",)
    shape = ("-n", "-P", "-X", f"--delimiter={DELIMITER}", "-o", ",".join(FIELDS))
    return (*shape, "-S", first, "-E", last, *who)


def parse_accounts(text: str) -> Iterator[SlurmRow]:
    """Read what ``sacct`` printed for `sacct_words`. Raises `ParseError` with the line."""
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
