"""Slurm's reasons to let a job wait, and what each means for a claim.

The words are those of ``job_state_reason_string`` from 22.05 to 25.05, most of them made by rule
of a limit's name. A limit of the moment is waited for; a claim that is more than a limit allows
one job will never start there. A reason that is not known is waited for.

Imports the standard library only, as a part's runner does.
"""

from __future__ import annotations

import re

OTHERS_FIRST, UNKNOWN = "others_first", "refused_by_slurm"
WAITS, NEVER, HELD = "waits", "never", "held"
AWAY, OVER = "node_unavailable", "over_limit"
NOT_UP = "nodes it needs are drained, down or reserved"
FATES = (
    ("Priority", WAITS, OTHERS_FIRST, ""),
    ("None|Resources|Prolog|Cleaning|SchedDefer|FedJobLock", WAITS, "nodes_taken", ""),
    ("ReqNodeNotAvail,Reserved.*", WAITS, AWAY, "nodes it needs are reserved for maintenance"),
    ("ReqNodeNotAvail,Maybereserved.*", WAITS, AWAY, "nodes it needs are reserved for others"),
    ("ReqNodeNotAvail,UnavailableNodes:.*", WAITS, AWAY, "it needs nodes that are not up: {}"),
    ("ReqNodeNotAvail|NodeDown|FrontEndDown|Nodesrequiredforjobare.*", WAITS, AWAY, NOT_UP),
    ("Reserved|Reservation", WAITS, AWAY, "it waits for its reservation"),
    ("Power.*|BurstBuffer.*|Constraints", WAITS, AWAY, ""),
    ("BeginTime|Dependency|JobArrayTaskLimit|PartitionConfig", WAITS, AWAY, ""),
    ("Partition(Down|Inactive)", WAITS, "partition_closed", "its partition takes no jobs now"),
    ("Reservation(Deleted|Invalid)", NEVER, "reservation_gone", ""),
    ("BadConstraints", NEVER, "no_such_nodes", ""),
    ("PartitionTimeLimit|(Assoc|QOS)MaxWallDurationPerJobLimit", NEVER, "bad_time_limit", ""),
    ("(Assoc|QOS)Max.*Per(Job|Node)(Limit)?|QOSMin.*|MaxMemPerLimit", NEVER, "not_permitted", ""),
    (
        "PartitionNodeLimit|(Invalid|Account|QOS)(Account|QOS|NotAllowed)",
        NEVER,
        "not_permitted",
        "",
    ),
    ("DependencyNeverSatisfied|DeadLine", NEVER, "not_permitted", ""),
    ("JobHeldUser", HELD, "held_by_owner", ""),
    ("JobHeldAdmin", HELD, "held_by_admin", ""),
    ("JobHoldMaxRequeue|JobLaunchFailure|.*held(state)?", HELD, "held_there", ""),
    ("Licenses", WAITS, OVER, "licences it asks for are in use"),
    ("Assoc.*", WAITS, OVER, "a limit of its account is reached"),
    ("QOS.*", WAITS, OVER, "a limit of its QOS is reached"),
    ("Max.*PerAccount|AccountingPolicy", WAITS, OVER, "a limit of jobs is reached"),
)
"""Words of Slurm's, without ``_``; what becomes of the claim; the reason of its refusal, where it
is not to wait, or of its wait; and that in a sentence. The first that matches counts."""


def _row(said: str) -> tuple[str, str, str]:
    """Fate, reason and sentence of what Slurm says."""
    text = re.sub("[_ ]", "", said)
    known = (row[1:] for row in FATES if re.fullmatch(f"(?:{row[0]})(?:,.*)?", text))
    return next(known, (WAITS, UNKNOWN, ""))


def fate_of(reason: str) -> tuple[str, str]:
    """Fate of a job that Slurm lets wait for this, and the reason of its refusal."""
    return _row(reason)[:2]


def is_stuck(reason: str) -> bool:
    """Whether a claim that waits for this is given up; one that is held stays where it is."""
    return fate_of(reason)[0] == NEVER


def waits(said: str) -> tuple[str, str]:
    """The reason for which a claim waits, and that in words; without a sentence, others go first.

    ``ReqNodeNotAvail,_UnavailableNodes:a4`` has the nodes behind the colon.
    """
    fate, reason, text = _row(said)
    if text:
        return reason, f"{text.format(said.partition(':')[2])} ({said.partition(',')[0]})"
    return (reason if fate == HELD else OTHERS_FIRST), said
