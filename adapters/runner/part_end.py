"""Why a part that is held has ended: what its nodes say, and what the batch system knows.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import time
from typing import Any

from coalloc.adapters.runner.batch_job import PartJob

SIGNAL_EXIT = 128
"""A shell adds the signal's number to this."""


def verdict(ends: list[dict[str, Any]], job: PartJob) -> tuple[str, str]:
    """Reason and detail of a part whose nodes have ended so, in the order of their ranks."""
    worst = next((end for end in ends if end["reason"] != "exited"), None)
    worst = worst or next((end for end in ends if any(end["codes"])), None)
    if worst is None:
        return "exited", ""
    if was_signalled(worst):  # not by us; the batch system may know who did
        state, reason = job.settled_state()
        if state and not job.is_alive(state):
            known = job.explained(state, reason)
            if known[0] != "step_failed":
                return known
    return worst["reason"], worst["detail"]


def was_signalled(end: dict[str, Any]) -> bool:
    """Whether a node's processes, or its wrapper, may have been ended by a signal.

    A batch system that ends a job signals the wrapper and the processes alike, and which of them
    is gone first is chance. A shell whose child was killed exits with 128 or more.
    """
    if end["reason"] in {"signalled", "exited"}:
        return any(code is not None and (code < 0 or code > SIGNAL_EXIT) for code in end["codes"])
    return bool(end["reason"] == "cancelled")


def bare_end(reason: str, detail: str, *, is_started: bool) -> dict[str, Any]:
    """The end of a part of whose processes nothing is known."""
    return {
        "state": "lost" if is_started else "refused",
        "reason": reason,
        "detail": detail,
        "codes": [],
        "ended": time.time(),
    }
