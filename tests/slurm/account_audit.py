"""An audit: our accounts of jobs beside Slurm's, and in what they differ.

A row of Slurm's that names no part of ours, as those of jobs that were handed over, is taken for
the job of the same user and name that began nearest to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from coalloc.adapters.slurm.commands import Slurm
from coalloc.client.client import Client
from tests.slurm.sacct_rows import SlurmRow, parse_accounts, sacct_words
from tests.testbeds.slurm import Cluster

DAY_S = 86_400.0
SACCT_S = 300.0
"""For the answer of ``sacct``, which may be long."""
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


def audit(endpoint: str, cluster: Cluster) -> tuple[int, list[Difference]]:
    """The number of jobs that our accounts have of a cluster, and what Slurm's have otherwise."""
    until = time.time()
    with Client(endpoint) as client:
        ours = [
            OurRow(
                id=row.id,
                user=row.user,
                name=row.name,
                state=row.state,
                started=row.started,
                ended=row.ended,
            )
            for row in client.account(until=until)
            if cluster.name in row.clusters and row.started is not None
        ]
    first = min((job.started for job in ours), default=until)
    slurm = Slurm(conf=str(cluster.conf), timeout_s=SACCT_S)
    text = slurm.run("sacct", *sacct_words(first - DAY_S, until + DAY_S), env={"TZ": "UTC"})
    return len(ours), list(differences(ours, list(parse_accounts(text)), since=0.0, until=until))


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
