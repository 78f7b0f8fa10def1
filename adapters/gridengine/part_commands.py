"""Grid Engine commands of a part's runner, and the meaning of their answers.

A part is one job for each of its hosts, since no parallel environment lets a job choose how many
slots it has on which host. All of them have one name, by which they are found again. Imports the
standard library only, as the runner does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import cast

from coalloc.adapters.gridengine.parse_xml import CellStatus, JobEntry
from coalloc.adapters.runner.batch.job import behind_s
from coalloc.adapters.runner.command import BatchError, UnreachableError
from coalloc.adapters.runner.payload import BOOT
from coalloc.adapters.runner.spec import BatchSite, BatchSpec

OTHERS_FIRST = "others_first"
WAITABLE = frozenset({"nodes_taken", "node_unavailable"})
"""Refusals of what may be free later."""
HOST_VARIABLE = '"$HOSTNAME"'
"""In a script: the host on which Grid Engine has started it, by Grid Engine's name."""
SLACK_S = 60.0
"""Between our own time limit and Grid Engine's, which is only there should we be gone, seconds."""
WAITS, RUNS, DELETING, FAILED, OVERDUE = "WAITING", "RUNNING", "DELETING", "ERROR", "OVERDUE"
"""States of a part's jobs taken together; empty: one of them is not there."""
ALIVE = frozenset({WAITS, RUNS})

REFUSALS = (
    ("qf:h_rt", "bad_time_limit"),
    ("unknown queue", "unknown_node"),
    ("can't resolve hostname", "unknown_node"),
    ("not available", "node_unavailable"),
    ("dropped because", "node_unavailable"),
    ("offers only", "nodes_taken"),
    ("only offers", "nodes_taken"),
    ("no suitable queues", "nodes_taken"),
    ("does not exist", "refused_by_gridengine"),
    ("reached the limit", "gridengine_full"),
    ("only accept", "gridengine_full"),
    ("per user", "gridengine_full"),
    ("denied", "not_permitted"),
    ("not permitted", "not_permitted"),
    ("not allowed", "not_permitted"),
    ("no access", "not_permitted"),
)
"""What Grid Engine says, in lower case, and the reason of the refusal; the first counts."""


class GridEngineSite(BatchSite):
    """Facts of a Grid Engine cell for a runner."""

    root: str
    cell: str
    qmaster_port: int
    execd_port: int
    queue: str
    pe: str
    queue_wait_s: float
    whole: bool
    """The part has its hosts for itself."""
    asked: dict[str, tuple[int, list[str]]]
    """Slots of each of its hosts, and what ``-l`` asks for besides."""
    avoid: list[str]
    """Hosts that a claim which may wait must not get."""


def site_of(spec: BatchSpec) -> GridEngineSite:
    """The part's cell, whose launcher has written it."""
    return cast(GridEngineSite, spec["site"])


def request(
    spec: BatchSpec, host: str, slots: int, besides: Iterable[str] = (), begin: str = ""
) -> list[str]:
    """The options of ``qsub`` by which so many slots of a host are asked for, and what besides.

    No host: any of the queue, but for those that are to be avoided. It is not to be started before
    `begin`, as Grid Engine writes times.
    """
    site = site_of(spec)
    where = f"{site['queue']}@{host}" if host else site["queue"]
    words = ["-N", spec["token"]["name"], "-q", where, "-S", "/bin/sh", "-wd", "/"]
    if not host and site["avoid"]:
        words += ["-l", f"h=!({'|'.join(site['avoid'])})"]
    for each in besides:
        words += ["-l", each]
    if begin:
        words += ["-a", begin]
    words += ["-r", "n", "-b", "n", "-j", "y", "-o", "/dev/null", "-m", "n", "-now", "n"]
    if slots > 1:
        words += ["-pe", site["pe"], str(slots)]
    if (limit_s := spec["time_limit_s"]) is not None:
        held_s = 0.0 if spec["queue"] is None else spec["queue"]["hold_s"]
        limit_s += held_s + spec["lease_s"] + spec["grace_s"] + SLACK_S + behind_s(spec)
        words += ["-l", f"h_rt={-int(-limit_s // 1)}"]
    return [*words, *site["options"]]


def job_script(site: GridEngineSite, environment: dict[str, str]) -> str:
    """The script for ``qsub``: the wrapper, and the address of its runner.

    The variables stand in the script and not in the job's environment, which ``qstat -j`` shows
    to everybody.
    """
    lines = ["#!/bin/sh", '[ "${RESTARTED:-0}" = 0 ] || exit 0']
    lines += [
        f"export {name}={value if value == HOST_VARIABLE else quoted(value)}"
        for name, value in environment.items()
    ]
    return "\n".join([*lines, f"exec {quoted(site['python'])} -I -S -c {quoted(BOOT)}", ""])


def quoted(text: str) -> str:
    """One word of the shell's."""
    return "'" + text.replace("'", "'\\''") + "'"


def refusal(error: BatchError) -> str:
    """The reason in a command's refusal."""
    if isinstance(error, UnreachableError):
        return "unreachable"
    said = error.why.lower()
    return next((reason for phrase, reason in REFUSALS if phrase in said), "refused_by_gridengine")


def joint_state(numbers: Iterable[str], jobs: Iterable[JobEntry]) -> str:
    """The state of a part's jobs taken together."""
    letters = {job.number: job.state for job in jobs}
    states = [letters.get(number) for number in numbers]
    if not states or None in states:
        return ""
    said = [state for state in states if state is not None]
    for state, is_so in (
        (FAILED, any("E" in each for each in said)),
        (DELETING, any("d" in each for each in said)),
        (WAITS, any("w" in each or "h" in each for each in said)),
    ):
        if is_so:
            return state
    return RUNS


def given(procs: Mapping[str, int], status: CellStatus) -> dict[str, int]:
    """The hosts of a part's jobs that have started, and the processes of those jobs."""
    found = dict[str, int]()
    for queue in status.queues:
        if count := sum(procs.get(job.number, 0) for job in queue.jobs):
            found[queue.host] = count
    return found


def place_in_queue(numbers: Iterable[str], waiting: Iterable[JobEntry]) -> int:
    """Number of jobs that Grid Engine would start before; it lists them in that order."""
    mine, before = set(numbers), 0
    for job in waiting:
        if job.number in mine:
            break
        before += "h" not in job.state and "E" not in job.state
    return before


def instant(time_s: float) -> str:
    """A time as Grid Engine reads it, in UTC."""
    return time.strftime("%Y%m%d%H%M.%S", time.gmtime(time_s))


def explained(state: str, wait_s: float) -> tuple[str, str]:
    """Reason and detail of a part whose jobs are in this state."""
    if state == OVERDUE:
        return "nodes_taken", f"Grid Engine has not started it within {wait_s:g} s"
    if state == FAILED:
        return "ended_in_gridengine", "the job is in error; `qstat -explain E` says why"
    if state in ALIVE:
        return "step_failed", "the wrapper ended before it reported"
    return "cancelled_there", "it was deleted in Grid Engine"
