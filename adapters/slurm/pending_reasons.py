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
FATES = (
    ("Priority", WAITS, OTHERS_FIRST),
    ("None|Resources|Prolog|Cleaning|SchedDefer|FedJobLock", WAITS, "nodes_taken"),
    ("ReqNodeNotAvail|NodeDown|FrontEndDown|Nodesrequiredforjobare.*", WAITS, "node_unavailable"),
    ("Reserved|Reservation|Power.*|BurstBuffer.*|Constraints", WAITS, "node_unavailable"),
    ("BeginTime|Dependency|JobArrayTaskLimit|PartitionConfig", WAITS, "node_unavailable"),
    ("PartitionDown|PartitionInactive", WAITS, "partition_closed"),
    ("Reservation(Deleted|Invalid)", NEVER, "reservation_gone"),
    ("BadConstraints", NEVER, "no_such_nodes"),
    ("PartitionTimeLimit|(Assoc|QOS)MaxWallDurationPerJobLimit", NEVER, "bad_time_limit"),
    ("(Assoc|QOS)Max.*Per(Job|Node)(Limit)?|QOSMin.*|MaxMemPerLimit", NEVER, "not_permitted"),
    ("PartitionNodeLimit|(Invalid|Account|QOS)(Account|QOS|NotAllowed)", NEVER, "not_permitted"),
    ("DependencyNeverSatisfied|DeadLine", NEVER, "not_permitted"),
    ("JobHeld(Admin|User)|JobHoldMaxRequeue|JobLaunchFailure|.*held(state)?", HELD, "held_there"),
    ("(Assoc|QOS).*|Max.*PerAccount|Licenses|AccountingPolicy", WAITS, "over_limit"),
)
"""Words of Slurm's, without ``_``; what becomes of the claim; the reason of its refusal, where it
is not to wait. The first that matches counts."""


def fate_of(reason: str) -> tuple[str, str]:
    """Fate of a job that Slurm lets wait for this, and the reason of its refusal."""
    word = reason.partition(",")[0].replace("_", "")
    known = ((fate, ours) for words, fate, ours in FATES if re.fullmatch(words, word))
    return next(known, (WAITS, UNKNOWN))


def is_stuck(reason: str) -> bool:
    """Whether a claim that waits for this is given up; one that is held stays where it is."""
    return fate_of(reason)[0] == NEVER
