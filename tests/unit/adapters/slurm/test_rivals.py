"""Claims of other services are told, with ours, by their marks in the queue."""

from __future__ import annotations

from coalloc.adapters.slurm.parsers.records import QueueEntry
from coalloc.adapters.slurm.reading import Answers
from coalloc.adapters.slurm.turns import marked_claims

OURS, THEIRS = "1" * 32, "2" * 32


def entry(state: str, claim: str = "", submitted: float | None = 100.0) -> QueueEntry:
    comment = f"coalloc:7.2.0:{claim}" if claim else "somebody's"
    return QueueEntry(id=f"{state}{claim}", state=state, comment=comment, submitted=submitted)


def told(*queue: QueueEntry) -> list[tuple[str, bool, bool]]:
    claims = marked_claims("c", Answers(now=200.0, nodes=(), queue=queue, claims=frozenset({OURS})))
    assert all((claim.job, claim.attempt, claim.submitted) == ("7", 2, 100.0) for claim in claims)
    return [(claim.claim, claim.holds, claim.ours) for claim in claims]


def test_claims_of_both_services_are_told_where_there_are_two() -> None:
    queue = (entry("RUNNING", OURS), entry("PENDING", THEIRS), entry("RUNNING"))
    assert told(*queue) == [(OURS, True, True), (THEIRS, False, False)]


def test_nothing_is_told_where_there_is_no_other_service() -> None:
    assert not told(entry("RUNNING", OURS), entry("PENDING", OURS), entry("PENDING"))


def test_what_is_over_or_of_no_known_age_is_left_out() -> None:
    assert not told(
        entry("COMPLETING", THEIRS), entry("COMPLETED", THEIRS), entry("PENDING", THEIRS, None)
    )
