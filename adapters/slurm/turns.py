"""Claims in Slurm's queue by each reading: ours without a runner, and those of other services."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.slurm.parsers.records import HOLDS_NODES, WAITS, QueueEntry
from coalloc.adapters.slurm.part_commands import ALIVE, FIRST
from coalloc.adapters.slurm.pending_reasons import is_stuck, waits
from coalloc.adapters.slurm.reading import Answers, SlurmFacts
from coalloc.model.sites.parts import PartKey, PartReport, PartState
from coalloc.model.sites.reading import MarkedClaim
from coalloc.model.values import replace

PUT_OFF, TAKE_TURNS = "BeginTime", frozenset({FIRST, "Priority"})
"""Reasons of a job that may not start yet, and of those that may."""
MOST_WOKEN = 32
"""Claims that get a runner because of one reading; the next reading shows the others again."""
STEADY_S, STEADY_SHARE = 5.0, 0.1
"""An expected start is news if it differs by so many seconds, and by this share of the wait."""


class Turns:
    """Turns of the claims that wait, by the last reading."""

    def __init__(self) -> None:
        self._told = SlurmFacts()
        self._last: dict[PartKey, QueueEntry] = {}

    def told(
        self,
        facts: SlurmFacts,
        parked: Mapping[PartKey, float],
        parts: Mapping[PartKey, PartFolder],
        live: Mapping[PartKey, PartReport],
    ) -> Iterator[tuple[PartKey, PartReport | None]]:
        """New reports of claims that wait, once for each reading; None: it needs a runner.

        `parked` has since when they wait, monotonic seconds: an older reading need not have them.
        """
        if facts is self._told or facts.queue is None:
            return
        self._told = facts
        by_claim: dict[str, QueueEntry] = {}
        others: dict[tuple[str, float | None], QueueEntry] = {}
        for each in facts.queue:
            token = parse_comment(each.comment)
            if token is not None:
                by_claim[token.claim] = each
            elif not each.odd:
                others[each.id, each.submitted] = each
        last, self._last, woken = self._last, {}, 0
        first = first_submitted(facts.queue)
        for key, since in list(parked.items()):
            entry = by_claim.get(parts[key].claim)
            if entry is None and key in last:  # its comment was changed
                entry = others.get((last[key].id, last[key].submitted))
            if entry is not None:
                self._last[key] = entry
            if needs_runner(entry, is_younger=since >= facts.asked):
                woken += 1
                if woken <= MOST_WOKEN:
                    yield key, None
            elif (
                entry is not None
                and (report := waiting(live[key], entry, first.get(entry.partition, inf)))
                != live[key]
            ):
                yield key, report


def needs_runner(entry: QueueEntry | None, *, is_younger: bool) -> bool:
    """Whether a claim that waited is granted, will never be, or is over."""
    if entry is None:
        return not is_younger
    if entry.odd or entry.state == "UNKNOWN":
        return False
    is_over = entry.state == "PENDING" and is_stuck(entry.reason)
    return is_over or entry.state == "RUNNING" or entry.state not in ALIVE


def first_submitted(queue: Iterable[QueueEntry]) -> dict[str, float]:
    """Submit time of the oldest job that may start, by partition."""
    first: dict[str, float] = {}
    for entry in queue:
        if entry.state == "PENDING" and entry.reason in TAKE_TURNS and entry.submitted is not None:
            first[entry.partition] = min(first.get(entry.partition, inf), entry.submitted)
    return first


def waiting(known: PartReport, entry: QueueEntry, first: float) -> PartReport:
    """The report of a claim that waits as this entry says; `first`: see `first_submitted`."""
    expected, before = entry.start, known.expected
    if expected is not None and before is not None:
        slack_s = max(STEADY_S, STEADY_SHARE * (expected - time.time()))
        expected = before if abs(expected - before) < slack_s else expected
    reason, detail = waits(entry.said)
    return replace(
        known,
        state=PartState.WAITING,
        reason=reason,
        expected=expected,
        detail=detail,
        is_next=entry.reason == FIRST
        or (entry.reason == PUT_OFF and entry.submitted is not None and entry.submitted <= first),
    )


HELD = HOLDS_NODES - {"COMPLETING"}
"""States of a claim that keeps its nodes, as long as nobody ends it."""


def marked_claims(cluster: str, answers: Answers) -> tuple[MarkedClaim, ...]:
    """Claims that bear a mark of coalloc's; empty where no other service has any.

    Two services know nothing of each other but what the queue shows of both: by that they decide,
    each for itself and in the same way, which of two jobs gives way (`core.starts.rivals`).
    """
    found = []
    for entry in answers.queue:
        token = parse_comment(entry.comment)
        is_live = entry.state in HELD or entry.state in WAITS
        if token is None or entry.submitted is None or not is_live:
            continue
        found.append(
            MarkedClaim(
                job=token.job,
                attempt=token.attempt,
                claim=token.claim,
                submitted=entry.submitted,
                holds=entry.state in HELD,
                ours=answers.is_ours(entry),
                id=f"{cluster}:{entry.id}",
            )
        )
    return tuple(found) if any(not claim.ours for claim in found) else ()
