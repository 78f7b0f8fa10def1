"""Claims that bear a mark of coalloc's, where another service has some in the queue too.

Two services know nothing of each other but what the queue shows of both: by that they decide, each
for itself and in the same way, which of two jobs gives way (`core.starts.rivals`).
"""

from __future__ import annotations

from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.slurm.parsers.records import HOLDS_NODES, WAITS
from coalloc.adapters.slurm.reading import Answers
from coalloc.model.sites.reading import MarkedClaim

HELD = HOLDS_NODES - {"COMPLETING"}
"""States of a claim that keeps its nodes, as long as nobody ends it."""


def marked_claims(answers: Answers) -> tuple[MarkedClaim, ...]:
    """Ours and those of other services; empty where no other service has any."""
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
            )
        )
    return tuple(found) if any(not claim.ours for claim in found) else ()
