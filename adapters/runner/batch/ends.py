"""The end of a part: the verdict over what its nodes have said.

Imports the standard library only, as the part's runner does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from coalloc.adapters.runner.batch.barrier import NodeWrapper
from coalloc.adapters.runner.batch.job import PartJob
from coalloc.adapters.runner.status import (
    END,
    READY,
    RUN,
    SIGNAL_EXIT,
    START,
    StatusFile,
    boot_id,
    was_signalled,
)

HIGHEST_EXIT = 255
OWN_ENDS = frozenset({"exited", "signalled"})
"""Reasons of processes that nothing of ours, and no batch system, has ended."""


def has_started(status: StatusFile) -> bool:
    """Whether a part was, or may have been, let go."""
    ready = status.read(READY)
    is_rebooted = ready is not None and ready.get("boot") != boot_id()
    return is_rebooted or status.read(START) is not None


def verdict(ends: list[dict[str, Any]], job: PartJob) -> tuple[str, str]:
    """Reason and detail of a part whose nodes have ended so, in the order of their ranks."""
    worst = next((end for end in ends if end["reason"] != "exited"), None)
    worst = worst or next((end for end in ends if any(end["codes"])), None)
    if worst is None:
        return "exited", ""
    if was_signalled(worst):  # not by us; the batch system may know who did
        state, reason = job.settled_state()
        if state and state not in job.alive:
            known = job.explained(state, reason)
            if known[0] != "step_failed":
                return known
    return worst["reason"], worst["detail"]


def bare_end(reason: str, detail: str, *, is_started: bool) -> dict[str, Any]:
    """The end of a part of whose processes nothing is known."""
    return {
        "state": "lost" if is_started else "refused",
        "reason": reason,
        "detail": detail,
        "codes": [],
        "ended": time.time(),
    }


def whole_end(
    nodes: list[NodeWrapper], told: tuple[str, str], job: PartJob, *, is_started: bool
) -> dict[str, Any]:
    """The end of a part by what its nodes have said; `told`: reason and detail, where known."""
    ends = [node.records[END] for node in nodes if END in node.records]
    has_run = any(RUN in node.records for node in nodes)
    end = bare_end(*(told if told[0] else verdict(ends, job)), is_started=is_started)
    if len(ends) == len(nodes) and is_started:
        has_run = has_run or any(each["state"] == "finished" for each in ends)
        end["state"] = "finished" if has_run else "refused"
    if end["state"] != "refused":
        for node in nodes:
            end["codes"] += node.records.get(END, {}).get("codes") or [None] * node.count
    end |= {
        "ended": max((each["ended"] for each in ends), default=end["ended"]),
        "cpu_s": round(sum(each["cpu_s"] for each in ends), 6),
        "max_rss_mb": max((each["max_rss_mb"] for each in ends), default=0.0),
        **start_times(nodes),
    }
    for last in (each for each in ends if "place" in each):
        end |= {"place": last["place"], "started": last["started"]}
    return end


def exit_code(ends: Iterable[dict[str, Any]]) -> int:
    """Exit code of the batch system's job: that of the process that ended worst."""
    codes = [code for end in ends for code in end["codes"] if code is not None]
    worst = max((code if code >= 0 else SIGNAL_EXIT - code for code in codes), default=0)
    return min(worst, HIGHEST_EXIT)


def start_times(nodes: Iterable[NodeWrapper]) -> dict[str, Any]:
    """Start of the part's first process."""
    runs = [node.records[RUN] for node in nodes if RUN in node.records]
    runs = [run for run in runs if run.get("started") is not None]
    if not runs:
        return {"started": None, "started_mono": None}
    first = min(runs, key=lambda run: float(run["started"]))
    is_here = first.get("boot") == boot_id()
    return {
        "started": first["started"],
        "started_mono": first["started_mono"] if is_here else None,
    }
