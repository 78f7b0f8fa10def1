"""Grid Engine commands of a part's runner, and the meaning of their answers.

A part is one job for each of its hosts, since no parallel environment lets a job choose how many
slots it has on which host. All of them have one name, by which they are found again. Imports the
standard library only, as the runner does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coalloc.adapters.gridengine.parse_xml import JobEntry
from coalloc.adapters.runner.command import BatchError, UnreachableError
from coalloc.adapters.runner.payload import BOOT

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


def request(spec: dict[str, Any], host: str, slots: int) -> list[str]:
    """The options of ``qsub`` by which exactly these slots are asked for."""
    site = spec["site"]
    words = [
        "-N",
        spec["token"]["name"],
        "-q",
        f"{site['queue']}@{host}",
        "-S",
        "/bin/sh",
        "-wd",
        "/",
    ]
    words += ["-r", "n", "-b", "n", "-j", "y", "-o", "/dev/null", "-m", "n", "-now", "n"]
    if slots > 1:
        words += ["-pe", site["pe"], str(slots)]
    if spec["time_limit_s"] is not None:
        wait_s = spec["lease_s"] + spec["grace_s"] + SLACK_S
        words += ["-l", f"h_rt={-int(-(spec['time_limit_s'] + wait_s) // 1)}"]
    return [*words, *site["options"]]


def job_script(site: dict[str, Any], environment: dict[str, str]) -> str:
    """The script for ``qsub``: the wrapper, and the address of its runner.

    The variables stand in the script and not in the job's environment, which ``qstat -j`` shows
    to everybody.
    """
    lines = ["#!/bin/sh", '[ "${RESTARTED:-0}" = 0 ] || exit 0']
    lines += [f"export {name}={quoted(value)}" for name, value in environment.items()]
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


def explained(state: str, wait_s: float) -> tuple[str, str]:
    """Reason and detail of a part whose jobs are in this state."""
    if state == OVERDUE:
        return "nodes_taken", f"Grid Engine has not started it within {wait_s:g} s"
    if state == FAILED:
        return "ended_in_gridengine", "the job is in error; `qstat -explain E` says why"
    if state in ALIVE:
        return "step_failed", "the wrapper ended before it reported"
    return "cancelled_there", "it was deleted in Grid Engine"
