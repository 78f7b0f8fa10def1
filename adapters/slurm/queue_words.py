"""Slurm's reasons for which a claim of ours waits, as ours: one word, and a sentence."""

from __future__ import annotations

from coalloc.model.sites.parts import HELD_BY_ADMIN, HELD_BY_OWNER

OTHERS_FIRST = "others_first"
LIMIT = "limit"
NODES_AWAY = "node_unavailable"
WAITS = (
    ("JobHeldUser", HELD_BY_OWNER, ""),
    ("JobHeldAdmin", HELD_BY_ADMIN, ""),
    ("Licenses", "licenses", "licences it asks for are in use"),
    ("Reserv", NODES_AWAY, "it waits for its reservation"),
    ("ReqNodeNotAvail,_Reserved", NODES_AWAY, "nodes it needs are reserved for maintenance"),
    ("ReqNodeNotAvail,_May_be_reserved", NODES_AWAY, "nodes it needs are reserved for others"),
    ("ReqNodeNotAvail,_UnavailableNodes:", NODES_AWAY, "it needs nodes that are not up: {}"),
    ("ReqNodeNotAvail", NODES_AWAY, "nodes it needs are drained, down or reserved"),
    ("Nodes_required_for_job_are_DOWN", NODES_AWAY, "nodes it needs are drained, down or reserved"),
    ("Partition", "partition_closed", "its partition takes no jobs now"),
    ("Assoc", LIMIT, "a limit of its account is reached"),
    ("QOS", LIMIT, "a limit of its QOS is reached"),
    ("MaxJob", LIMIT, "a limit of jobs is reached"),
)
"""Beginnings of Slurm's reasons, our word, and the sentence; first match."""


def waits(said: str) -> tuple[str, str]:
    """Our word for a reason of Slurm's, and the sentence; others are jobs that go first."""
    for theirs, ours, text in WAITS:
        if said.startswith(theirs):
            words = text.format(said.removeprefix(theirs))
            return ours, f"{words} ({said.partition(',')[0]})" if words else said
    return OTHERS_FIRST, said
