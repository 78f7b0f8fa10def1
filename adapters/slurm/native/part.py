"""One handed job while a part of ours has it: what is kept on disk, and what Slurm's words mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from coalloc.adapters.runner import durable
from coalloc.adapters.slurm.parsers.records import ParseError, job_state
from coalloc.adapters.slurm.parsers.text import NONE, read_time
from coalloc.model.sites.parts import (
    CANCELLED_THERE,
    PART_ENDED,
    PartKey,
    PartReport,
    PartState,
    worst_exit_code,
)

REQUEUED = "requeued"


class Stage(StrEnum):
    """A step on the way of a job; written before the command that goes on from it."""

    CLAIMING = "claiming"
    """It is being held, and bound to its nodes."""
    READY = "ready"
    """Held, bound: one command lets it go."""
    RELEASED = "released"
    """Slurm may start it, and does when its scheduler comes round."""
    RETURNING = "returning"
    """It is being put back where its user submitted it."""
    ENDED = "ended"


class NativePart(Struct, kw_only=True):
    """One part, as it is kept on disk."""

    job: str
    attempt: int
    part: int
    foreign: str
    """Slurm's id."""
    nodes: list[str]
    """Slurm's names."""
    stage: Stage = Stage.CLAIMING
    partition: str = ""
    """Where its user submitted it."""
    node_count: str = ""
    """How many nodes were asked for."""
    was_held: bool = False
    """Before we touched it."""
    released_at: float = 0.0
    """Seconds; 0 before."""
    keeps_shape: bool = False
    """Slurm chooses its nodes, of the shape that its user asked for."""
    granted: dict[str, int] | None = None
    """Where Slurm has chosen them: what it runs on, by the names known to the service."""
    started: float | None = None
    stopping: str = ""
    """Why we want it ended; empty: we do not."""
    state: PartState = PartState.PREPARING
    """Of the report, with the next four; final once the part has ended."""
    reason: str = ""
    detail: str = ""
    codes: list[int | None] | None = None
    ended: float | None = None
    forgotten: bool = False
    """Nobody asks for it any more; its file goes as soon as it has been put back."""

    @property
    def key(self) -> PartKey:
        return PartKey(job=self.job, attempt=self.attempt, part=self.part)

    @property
    def is_final(self) -> bool:
        return self.state in PART_ENDED

    def end(
        self,
        state: PartState,
        reason: str,
        detail: str = "",
        *,
        code: int | None = None,
        ended: float | None = None,
    ) -> None:
        self.state, self.reason, self.detail, self.ended = state, reason, detail, ended
        self.codes = [] if state is PartState.REFUSED else [code]

    def report(self) -> PartReport:
        codes = tuple(self.codes or ())
        return self.key.report(
            self.state,
            exit_code=worst_exit_code(codes),
            codes=codes,
            started=self.started,
            ended=self.ended,
            reason=self.reason,
            detail=self.detail,
            nodes=self.granted or {},
        )

    def write(self, folder: Path) -> None:
        """Keep it; durable on return."""
        durable.make_folder(folder)
        durable.write(folder / self.key.folder, msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> NativePart | None:
        """Read what was kept; None where that is not sound."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, ValueError):  # those of msgspec are of these
            return None


class JobFacts(Struct, frozen=True, kw_only=True):
    """A job by ``scontrol show job``, as far as it matters here."""

    state: str
    reason: str
    partition: str
    node_count: str
    has_run: bool
    """It was given nodes."""
    code: int
    """Exit code, or minus the number of the signal."""
    started: float | None
    ended: float | None
    layout: frozenset[str] = frozenset()
    """What its user has said of how it lies on its nodes (`LAYOUT`)."""

    @property
    def is_held(self) -> bool:
        """By its user or by an administrator, us among them."""
        return self.reason.startswith("JobHeld")


NODES, TASKS_PER_NODE, EXCLUSIVE, CONTIGUOUS = "nodes", "tasks", "exclusive", "contiguous"
CPUS_PER_NODE = "cpus"
LAYOUT: Mapping[str, tuple[str, str]] = {
    NODES: ("NumNodes", r"\d+-\d+"),
    TASKS_PER_NODE: ("NtasksPerN:B:S:C", r"[1-9]\d*:.*"),
    CPUS_PER_NODE: ("MinCPUsNode", r"0*([2-9]|[1-9]\d+)"),
    EXCLUSIVE: ("OverSubscribe", r"NO|EXCLUSIVE|USER|MCS"),
    CONTIGUOUS: ("Contiguous", r"1"),
}
"""Fields of a pending job that say how it is to lie on its nodes, and the values that do."""


def layout_of(pairs: Mapping[str, str]) -> frozenset[str]:
    """Layout that a job's user asked for."""
    return frozenset(
        name for name, (key, said) in LAYOUT.items() if re.fullmatch(said, pairs.get(key, ""))
    )


def job_facts(pairs: Mapping[str, str]) -> JobFacts:
    """The facts of a job. Raises `ParseError`."""
    where = f"JobId={pairs.get('JobId', '')}"
    for key in ("JobState", "Partition", "NumNodes", "ExitCode"):
        if key not in pairs:
            raise ParseError(where, f"no {key}")
    return JobFacts(
        state=job_state(pairs["JobState"]),
        reason=pairs.get("Reason", ""),
        partition=pairs["Partition"],
        node_count=pairs["NumNodes"],
        has_run=pairs.get("NodeList", "") not in NONE,
        code=exit_code(pairs["ExitCode"], where),
        started=read_time(pairs.get("StartTime", ""), where),
        ended=read_time(pairs.get("EndTime", ""), where),
        layout=layout_of(pairs),
    )


def account_facts(line: str) -> JobFacts:
    """The facts in a line of ``sacct -P -o State,ExitCode,Start,End,NodeList``."""
    words = line.split("|")
    if len(words) != 5:
        raise ParseError(line, "not five fields")
    state, code, start, end, nodes = words
    return JobFacts(
        state=job_state(state.split(" ")[0]),
        reason="",
        partition="",
        node_count="",
        has_run=nodes not in NONE and not nodes.startswith("None"),
        code=exit_code(code, line),
        started=read_time(start, line),
        ended=read_time(end, line),
    )


def exit_code(text: str, where: str) -> int:
    """``3:0`` is exit code 3, ``0:15`` is signal 15, as -15. Raises `ParseError`."""
    code, _, number = text.partition(":")
    if not code.isdecimal() or (number and not number.isdecimal()) or len(text) > 20:
        raise ParseError(where, f"{text[:40]!r} is not an exit code")
    return -int(number) if int(number or 0) else int(code)


def judge(part: NativePart, facts: JobFacts) -> bool:
    """Take in how a job ended; False where it has not ended, or that is not known."""
    verdict = VERDICTS.get(facts.state)
    if verdict is None:
        return False
    reason, detail = verdict
    code = facts.code
    if facts.state == "FAILED" and code < 0:
        reason, detail = "signalled", f"signal {-code}"
    if facts.state in {"CANCELLED", "PREEMPTED"} and part.stopping:
        reason, detail = "aborted", part.stopping
    if not facts.has_run:
        part.end(PartState.REFUSED, reason, detail, ended=facts.ended)
        return True
    part.started = facts.started if part.started is None else part.started
    state = PartState.LOST if facts.state in LOST else PartState.FINISHED
    if code == 0 and facts.state != "COMPLETED":
        code = -9 if facts.state == "OUT_OF_MEMORY" else -15
    part.end(state, reason, detail, code=code, ended=facts.ended)
    return True


VERDICTS: Mapping[str, tuple[str, str]] = {
    "COMPLETED": ("exited", ""),
    "FAILED": ("exited", ""),
    "TIMEOUT": ("time_limit", "Slurm ended it at its time limit"),
    "DEADLINE": ("time_limit", "Slurm ended it at its deadline"),
    "CANCELLED": (CANCELLED_THERE, ""),
    "PREEMPTED": (CANCELLED_THERE, "preempted by another job"),
    "REVOKED": (CANCELLED_THERE, "run by another cluster of its federation"),
    "OUT_OF_MEMORY": ("out_of_memory", "Slurm ended it: out of memory"),
    "NODE_FAIL": ("node_failed", "one of its nodes failed"),
    "BOOT_FAIL": ("node_failed", "one of its nodes did not boot"),
    "LAUNCH_FAILED": ("node_failed", "Slurm could not launch it"),
}
"""States in which a job has ended, with the reason and detail to report."""
LOST = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"})
