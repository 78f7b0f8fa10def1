"""A part's jobs in OAR, one for each node: asked for, looked at, given back.

OAR starts a job's command on its first node only, so each node has a job of its own; all have one
name, by which they are found again. It shows commands to everybody and copies no script, so that
the wrapper and its key stand in a file that only the user can read. Imports the standard library
only, as the part's runner does.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from shlex import quote
from typing import Any, cast

from coalloc.adapters.oar.commands import ALIVE, ENDING, WAITS, Oar
from coalloc.adapters.runner.batch.job import PartJob, behind_s
from coalloc.adapters.runner.batch.part import BatchPart
from coalloc.adapters.runner.command import BatchError, CommandRefusedError, UnreachableError
from coalloc.adapters.runner.payload import BOOT
from coalloc.adapters.runner.spec import BatchSite, BatchSpec

CANCELLED, OVERDUE = "CANCELLED", "OVERDUE"
"""States of ours besides OAR's: a deletion was asked for; it was not started in time."""
RELEASE_S, POLL_S = 30.0, 0.2
"""Between a job's end, or its deletion, and OAR's knowing of it; between two looks; seconds."""
SLACK_S = 60.0
"""Between our own time limit and OAR's, which is only there should we be gone, seconds."""
REFUSALS = {
    "not enough resources": "nodes_taken",
    "admission rule": "not_permitted",
    "the queue": "not_permitted",
}
"""Words of oarsub, in lower case, and the reasons of refusals; the first that it says counts."""


class OarSite(BatchSite):
    """Facts of an OAR cluster for a runner."""

    scripts: str
    queue_wait_s: float
    asked: dict[str, int]
    """Resources of each of the part's nodes."""


class OarJob(PartJob):
    """The jobs by which a part's nodes are claimed; `number` has their numbers, with commas."""

    system, alive, ending = "OAR", ALIVE, ENDING

    def __init__(self, spec: BatchSpec, folder: str, number: str = "") -> None:
        super().__init__(spec, folder, number)
        site = self._site = cast(OarSite, spec["site"])
        self._oar = Oar(bin_dir=site["bin"], timeout_s=site["limit_s"], ssh=site.get("ssh", ""))
        name = spec["token"]["name"]
        self._script = f"{quote(site['scripts'])}/{name}" if site["scripts"] else f'"$HOME"/.{name}'
        if spec["time_limit_s"] is not None:
            self.asked_s = spec["time_limit_s"] + behind_s(spec)
        self._submitted = time.monotonic()

    def claim(self, port: int, keep: Callable[[], None]) -> bool:
        """Submit a job for each node; their wrappers come to this port."""
        try:
            line = f"umask 077; cat > {self._script}"
            self._run("/bin/sh", "-c", line, text=self._wrapper(port))
            for host, count in self._site["asked"].items():
                words = request(self._spec, host, count)
                said = self._run("oarsub", *words, f"exec /bin/sh {self._script} {host}")
                found = re.search(r"^OAR_JOB_ID=(\d+)$", said, re.M | re.A)
                if found is None:
                    raise UnreachableError("oarsub", f"no number in its answer: {said[:80]!r}")
                self.number = ",".join([*self._numbers, found[1]])
                keep()
        except BatchError as error:
            said = error.why.lower()
            reasons = [reason for phrase, reason in REFUSALS.items() if phrase in said]
            is_away = isinstance(error, UnreachableError)
            reason = "unreachable" if is_away else (*reasons, "refused_by_oar")[0]
            raise self._refused(error, reason) from error
        return True

    def state(self) -> tuple[str | None, str]:
        try:
            rows = self._rows("-f")
        except BatchError:
            return None, ""
        state, reason = joint_state(self._numbers, rows)
        wait_s = self._site["queue_wait_s"]
        left_s = self._submitted + wait_s - time.monotonic()
        expected = max((row.get("scheduledStart") or 0 for row in rows.values()), default=0)
        if state in WAITS and (left_s < 0.0 or expected > time.time() + left_s):
            return OVERDUE, f"OAR does not start it within {wait_s:g} s"
        return state, reason

    def explained(self, state: str, reason: str) -> tuple[str, str]:
        if state in ALIVE or state == "Terminated":
            return "step_failed", "the wrapper ended before it reported"
        known = {OVERDUE: "nodes_taken", CANCELLED: "cancelled_there"}
        return known.get(state, "ended_in_oar"), reason

    def kill(self) -> None:
        if self._numbers:
            with contextlib.suppress(BatchError):
                self._run("oardel", *self._numbers)

    def release(self, *, has_run: bool) -> bool:
        try:
            self._run("/bin/sh", "-c", f"rm -f {self._script}")
            if self.is_unsure:
                return self._undo()
            if has_run and self._are_gone():
                return True
            self.kill()
            return self._are_gone()
        except BatchError:
            return False

    def _wrapper(self, port: int) -> str:
        """The script of the jobs; its argument is the node's name."""
        lines = [f"export {name}={quote(value)}" for name, value in self._place(port).items()]
        boot = f"exec {quote(self._site['python'])} -I -S -c {quote(BOOT)}"
        return "\n".join([*lines, 'export COALLOC_BARRIER_NODE="$1"', boot, ""])

    def _run(self, name: str, *words: str, text: str | None = None) -> str:
        return self._oar.run(name, *words, text=text, account=self._account)

    def _rows(self, *options: str) -> dict[str, dict[str, Any]]:
        words = [word for number in self._numbers for word in ("-j", number)]
        return self._oar.rows("oarstat", *options, *words) if words else {}

    def _is_cancelled_by_mark(self) -> bool:
        name, known = self._spec["token"]["name"], set(self._numbers)
        rows = self._oar.rows("oarstat")
        found = {number for number, row in rows.items() if row.get("name") == name}
        self.number = ",".join(sorted(known | found))
        if self.number:
            with contextlib.suppress(CommandRefusedError):  # they have ended
                self._run("oardel", *self._numbers)
        return not found <= known

    def _are_gone(self) -> bool:
        """Wait until the jobs have left their nodes, at most `RELEASE_S`; whether they have."""
        end = time.monotonic() + RELEASE_S
        while any(row.get("state") in ALIVE | ENDING for row in self._rows().values()):
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)
        return True


class OarPart(BatchPart):
    """A part on an OAR cluster."""

    job_type = OarJob


def request(spec: BatchSpec, host: str, count: int) -> list[str]:
    """The options of ``oarsub`` by which so many resources of a node are asked for."""
    where = f"{{network_address='{host}'}}/resource_id={count}"
    if (limit_s := spec["time_limit_s"]) is not None:
        limit_s += spec["lease_s"] + spec["grace_s"] + SLACK_S + behind_s(spec)
        minutes, seconds = divmod(-int(-limit_s // 1), 60)
        where += f",walltime={minutes // 60}:{minutes % 60}:{seconds}"
    words = ["-n", spec["token"]["name"], "-l", where, "-d", "/", "-O", "/dev/null"]
    return [*words, "-E", "/dev/null", *spec["site"]["options"]]


def joint_state(numbers: Iterable[str], rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """The state of a part's jobs taken together, and why; empty: one of them is not there."""
    said = []
    for number in numbers:
        row = rows.get(number, {})
        events = {each["type"]: str(each["description"]) for each in row.get("events") or ()}
        asked = events.get("FRAG_JOB_REQUEST")
        last = asked or next(reversed(events.values()), "")
        said.append((CANCELLED if asked else row.get("state", ""), last))
    return min(said, key=lambda each: (each[0] in ALIVE, each[0] not in WAITS), default=("", ""))
