"""Lets go jobs that their users submitted in Slurm itself, on the nodes that we chose.

*Claim* holds the job, moves it to the partition where parts run, and binds it to its nodes; *go*
releases it, and Slurm starts it when its scheduler comes round. What does not come to that is
put back as its user left it. Nobody's script is touched, and the job stays its user's.

Notes
-----
Each step is written down before the command that takes it, and every command may be given twice,
so that a crash of ours, or an answer that never came, is mended by the next look. Where Slurm is
out of reach, every part stays as it was last known.

Slurm may start a released job at any moment until it is held again: before it is put back, it is
held, and looked at once more; one that has begun in between runs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.runner.command import BatchError, CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.native.part import (
    CONTIGUOUS,
    REQUEUED,
    JobFacts,
    NativePart,
    Stage,
    account_facts,
    job_facts,
    judge,
)
from coalloc.adapters.slurm.parsers.queue import parse_queue, queue_format
from coalloc.adapters.slurm.parsers.records import HOLDS_NODES, ParseError, QueueEntry
from coalloc.adapters.slurm.parsers.text import parse_fields
from coalloc.adapters.slurm.reading import spread
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.formats.nodeset import fold
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import CANCELLED_THERE, PartKey, PartReport, PartSpec, PartState

UTC = {"TZ": "UTC"}
LOOK_EVERY_S = 1.0
"""Slurm's own scheduler is no quicker, seconds."""
LONGEST_PAUSE_S = 15.0
GONE = "Invalid job id"


class NativeLauncher:
    """Launches handed jobs of one cluster; a `Launcher` and a `Handover`.

    The user of its commands must be allowed to hold and change anybody's jobs.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        slurm: Slurm,
        state_dir: Path,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._settings, self._slurm = settings, slurm
        self._folder = state_dir / "handed"
        self._parts: dict[PartKey, NativePart] = {}
        self._claimed: frozenset[str] = frozenset()
        self._look_at = 0.0
        self._every_s = self._pause_s = look_every_s

    def claimed(self) -> Collection[str]:
        """Ids of the jobs that a part has; may be called from another thread."""
        return self._claimed

    def has(self, key: PartKey) -> bool:
        """Whether this part is one of a handed job."""
        return key in self._parts

    def claim(self, part: PartSpec) -> None:
        """Hold the job, and bind it to its nodes. Raises `ClaimRefusedError` or `AdapterError`."""
        if part.key in self._parts:
            return
        mine = NativePart(
            job=part.job,
            attempt=part.attempt,
            part=part.part,
            foreign=part.foreign,
            nodes=[self._settings.plain(name) for name in part.nodes],
        )
        try:
            facts = self._facts(mine.foreign)
        except (BatchError, ParseError) as error:
            raise AdapterError(str(error)) from error
        if facts is None or facts.state != "PENDING":
            state = "gone" if facts is None else facts.state.lower()
            raise ClaimRefusedError(CANCELLED_THERE, f"job {mine.foreign} is {state} in Slurm")
        mine.partition, mine.node_count = facts.partition, facts.node_count
        mine.was_held = facts.is_held
        # Where its user says of its layout what no shape does, Slurm finds the nodes.
        is_placed = self._settings.slots == "node" or part.shape != ONE_SLOT
        bound = facts.layout & {CONTIGUOUS} if is_placed else facts.layout
        mine.keeps_shape = bool(bound)
        self._keep(mine)
        try:
            self._bind(mine)
        except BatchError as error:
            self._give_back(mine, "refused_by_slurm", str(error))
            if isinstance(error, CommandRefusedError):
                raise ClaimRefusedError("nodes_taken", str(error)) from error
            raise AdapterError(str(error)) from error

    def go(self, key: PartKey, at: float = 0.0) -> None:
        part = self._parts.get(key)
        if part is None or part.stage is not Stage.READY:
            return
        part.stage, part.released_at = Stage.RELEASED, time.time()
        self._keep(part)
        with suppress(BatchError):  # the next look releases it again
            self._release(part.foreign)

    def abort(self, key: PartKey, reason: str = "") -> None:
        """Put the job back; one that runs is cancelled."""
        part = self._parts.get(key)
        if part is None or part.is_final:
            return
        part.stopping = reason or "aborted"
        self._keep(part)
        if part.stage is Stage.RELEASED:
            self._look_at = 0.0
            with suppress(BatchError, ParseError):
                self._stop(part)
        else:
            self._give_back(part, "aborted", part.stopping)

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is; looks at Slurm once in a while."""
        now = time.time()
        living = [part for part in self._parts.values() if part.stage is not Stage.ENDED]
        if living and not (self._look_at - LONGEST_PAUSE_S <= now < self._look_at):
            try:
                self._look(living)
                self._pause_s = self._every_s
            except (BatchError, ParseError, OSError):
                self._pause_s = min(self._pause_s * 2.0, LONGEST_PAUSE_S)
            self._look_at = now + self._pause_s
        return tuple(part.report() for part in self._parts.values() if not part.forgotten)

    def adopt(self) -> tuple[PartReport, ...]:
        paths = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            key = PartKey.of_folder(path.name)
            part = None if key is None else NativePart.read(path)
            if part is not None and part.key == key:
                self._parts[part.key] = part
        self._note_claimed()
        self._look_at = 0.0
        return self.poll()

    def forget(self, key: PartKey) -> None:
        part = self._parts.get(key)
        if part is None or not part.is_final:
            return
        if part.stage is Stage.RETURNING:
            part.forgotten = True
            self._keep(part)
            return
        del self._parts[key]
        self._note_claimed()
        (self._folder / key.folder).unlink(missing_ok=True)

    def close(self) -> None:
        """Do nothing: what is kept is on disk."""

    def dismiss(self, foreign: str) -> None:
        """Cancel a job that waits; one that is gone is no error. Raises `AdapterError`."""
        try:
            self._of_jobs("scancel", foreign)
        except BatchError as error:
            raise AdapterError(str(error)) from error

    def _look(self, living: list[NativePart]) -> None:
        entries = self._entries([part.foreign for part in living])
        for part in living:
            try:
                self._step(part, entries.get(part.foreign))
            except CommandRefusedError as error:
                if part.stage is Stage.CLAIMING:
                    self._give_back(part, "nodes_taken", str(error))

    def _step(self, part: NativePart, entry: QueueEntry | None) -> None:
        """One part, and what Slurm's queue says of its job; None: it is not in the queue."""
        if part.stage is Stage.RETURNING:
            self._return(part)
        elif entry is None or not (entry.state in HOLDS_NODES or entry.state == "PENDING"):
            self._ended(part)
        elif entry.state in HOLDS_NODES:
            self._runs(part, entry)
        elif part.stage is Stage.CLAIMING:
            self._bind(part)
        elif part.stage is Stage.RELEASED:
            self._waits(part, entry)

    def _runs(self, part: NativePart, entry: QueueEntry) -> None:
        if part.started is None or part.state != PartState.RUNNING:
            part.stage, part.state = Stage.RELEASED, PartState.RUNNING
            part.started = time.time() if entry.start is None else entry.start
            if part.keeps_shape:
                part.granted = self._slots(entry)
            self._keep(part)
        if part.stopping:
            self._command("scancel", part.foreign)

    def _slots(self, entry: QueueEntry) -> dict[str, int]:
        whole = self._settings.slots == "node"
        return {
            self._settings.published(name): 1 if whole else count for name, count in spread(entry)
        }

    def _waits(self, part: NativePart, entry: QueueEntry) -> None:
        """Released, and it waits: not started yet, or started and requeued."""
        if part.started is not None:
            self._give_back(part, REQUEUED, "requeued by Slurm", PartState.FINISHED)
        elif part.stopping or time.time() - part.released_at >= self._settings.handover_wait_s:
            self._stop(part)
        elif entry.reason.startswith("JobHeld"):
            self._release(part.foreign)

    def _stop(self, part: NativePart) -> None:
        """Take a released job back, or cancel it where it runs already."""
        with suppress(CommandRefusedError):  # it runs, or has ended
            self._command("scontrol", "hold", part.foreign)
        facts = self._facts(part.foreign)
        if facts is None:
            self._ended(part)
        elif facts.state == "PENDING":
            limit = self._settings.handover_wait_s
            why = part.stopping or f"Slurm did not start it within {limit:g} s"
            self._give_back(part, "aborted" if part.stopping else "not_started", why)
        elif facts.state in HOLDS_NODES and part.stopping:
            self._command("scancel", part.foreign)

    def _ended(self, part: NativePart) -> None:
        """Not in the queue: ask what became of it, and then the accounts."""
        facts = self._facts(part.foreign)
        if facts is None and part.stage is not Stage.RELEASED:
            part.end(PartState.REFUSED, CANCELLED_THERE, f"job {part.foreign} is gone from Slurm")
        elif facts is None:
            facts = self._accounts(part.foreign)
            if facts is None or not judge(part, facts):
                part.end(PartState.LOST, "lost", f"job {part.foreign} is gone from Slurm")
        elif not judge(part, facts):
            return
        part.stage = Stage.ENDED
        self._keep(part)

    def _bind(self, part: NativePart) -> None:
        self._command("scontrol", "hold", part.foreign)
        target = self._settings.partition or part.partition
        count = len(part.nodes)
        nodes = (f"NumNodes={count}-{count}", f"ReqNodeList={fold(part.nodes)}")
        self._command(
            *("scontrol", "update", f"JobId={part.foreign}", f"Partition={target}"),
            *(() if part.keeps_shape else nodes),
        )
        part.stage, part.state = Stage.READY, PartState.READY
        self._keep(part)

    def _give_back(
        self,
        part: NativePart,
        reason: str,
        detail: str,
        state: PartState = PartState.REFUSED,
    ) -> None:
        """Nothing more comes of this part; the job goes back to where it was."""
        part.stage = Stage.RETURNING
        part.end(state, reason, detail, ended=time.time())
        self._keep(part)
        with suppress(UnreachableError):  # the next look tries again
            self._return(part)

    def _return(self, part: NativePart) -> None:
        try:
            self._command("scontrol", "hold", part.foreign)
            self._command(
                *("scontrol", "update", f"JobId={part.foreign}", f"Partition={part.partition}"),
                *(() if part.keeps_shape else (f"NumNodes={part.node_count}", "ReqNodeList=")),
            )
            if not part.was_held:
                self._release(part.foreign)
        except CommandRefusedError:
            pass  # it is gone, or its user has changed it: the next reading shows it as it is
        part.stage = Stage.ENDED
        self._keep(part)
        if part.forgotten:
            self.forget(part.key)

    def _release(self, foreign: str) -> None:
        self._command("scontrol", "release", foreign)

    def _command(self, name: str, *arguments: str) -> str:
        limit = self._settings.command_limit_s
        return self._slurm.run(name, *arguments, env=UTC, timeout_s=limit)

    def _of_jobs(self, *words: str) -> str:
        """Run a command on jobs; empty where Slurm knows none of them."""
        try:
            return self._command(*words)
        except CommandRefusedError as error:
            if GONE in error.why:
                return ""
            raise

    def _facts(self, foreign: str) -> JobFacts | None:
        """Facts of a job by Slurm; None where it knows of none."""
        text = self._of_jobs("scontrol", "-o", "show", "job", foreign)
        return job_facts(parse_fields(text)) if text else None

    def _accounts(self, foreign: str) -> JobFacts | None:
        """Facts of a job that has gone, by the accounts; None where there are none."""
        try:
            text = self._command(
                *("sacct", "-n", "-P", "-X", "-j", foreign),
                *("-o", "State,ExitCode,Start,End,NodeList"),
            )
        except CommandRefusedError:
            return None
        lines = text.split("\n")
        return account_facts(lines[0]) if lines[0] else None

    def _entries(self, ids: list[str]) -> Mapping[str, QueueEntry]:
        mark = f"\x1f{secrets.token_hex(4)}\x1f"
        text = self._of_jobs(
            *("squeue", "-h", "-r", "-a", "-t", "all", "-j", ",".join(ids)),
            *("-o", queue_format(mark)),
        )
        entries = parse_queue(text, mark)
        for odd in (entry.odd for entry in entries if entry.odd):
            raise ParseError(text, odd)
        return {entry.id: entry for entry in entries}

    def _keep(self, part: NativePart) -> None:
        part.write(self._folder)
        self._parts[part.key] = part
        self._note_claimed()

    def _note_claimed(self) -> None:
        self._claimed = frozenset(
            part.foreign for part in self._parts.values() if part.stage is not Stage.ENDED
        )
