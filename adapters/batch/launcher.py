"""The launcher of batch systems: parts on nodes elsewhere, each with a runner on this machine.

What the launchers of batch systems have in common: a runner that has died is replaced as soon as
it is missed, since the part's processes live on, on nodes of which this machine sees nothing.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import time
from collections.abc import Collection
from pathlib import Path

from coalloc.adapters.base import AdapterError, ClaimRefusedError
from coalloc.adapters.batch.gate import Gate
from coalloc.adapters.batch.settings import BatchSettings
from coalloc.adapters.batch.token import Token
from coalloc.adapters.launcher import PartLauncher
from coalloc.adapters.part_folder import PartFolder
from coalloc.adapters.runner.batch.barrier import LOOPBACK
from coalloc.adapters.runner.grant import CLAIM, GRANT, MARKS, kept, text_of
from coalloc.adapters.runner.spec import BatchSite, BatchTerms
from coalloc.adapters.runner.status import PAGE, READY, RUN
from coalloc.adapters.ssh.master import SshError
from coalloc.adapters.ssh.shell import Shell
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from coalloc.model.values import replace

ORPHANED, PARKED = "orphaned", "parked"
"""Reasons of parts without a runner: one that should have one, and a claim that waits without."""
WAITS = "others_first"
"""Reason of a part whose claim is in the queue."""
MOST_WOKEN, ORDERS_EVERY_S = 4, 0.2
"""So many claims that wait get a runner in so many seconds because of orders."""
SPAWN_EVERY_S = 1.0
"""A runner that dies at once is not replaced more often than this, seconds."""


class BatchFolder(PartFolder):
    """A part's folder; where its runner is dead, another takes it over."""

    def report(self) -> PartReport:
        """Report of the part, with what was granted where its claim might wait."""
        report = super().report()
        if report.is_ended:
            return report
        grant = kept(str(self.path), GRANT)
        if "nodes" in grant:
            return replace(report, nodes=dict(grant["nodes"]))
        if not grant and report.reason != PARKED:
            return report
        return replace(
            report,
            state=PartState.WAITING,
            expected=grant.get("expected"),
            reason=report.reason or WAITS,
            detail=grant.get("detail", ""),
            is_next=grant.get("is_next", False),
        )

    def _sealed(self, status: bytes) -> PartReport:
        has_begun = status[READY * PAGE : RUN * PAGE].strip(b"\0")
        waits = not has_begun and kept(str(self.path), CLAIM).get("waits")
        return self.reached(status, PARKED if waits else ORPHANED)


class BatchLauncher(PartLauncher):
    """Claims nodes of a batch system through runners; a subclass says of which."""

    folder_type = BatchFolder
    keeps_limits = ""
    """Name of the batch system, where it gives no more time than a job was submitted with."""

    def __init__(self, state_dir: Path) -> None:
        self._spawned: dict[PartKey, float] = {}
        self._parked: dict[PartKey, float] = {}
        """Claims that wait without a runner, and since when that is known, monotonic seconds."""
        self._marked: set[PartKey] = set()
        """Parts of which something was ordered that a runner has to see to."""
        self._seen_to = float("-inf")
        self.gate: Gate | None = None
        """Port for the wrappers of claims that wait in the queue without a runner."""
        super().__init__(state_dir)

    def limit(self, key: PartKey, limit_s: float) -> None:
        folder = self._parts.get(key) if self.keeps_limits else None
        most_s = None if folder is None else kept(str(folder.path), "spec.json").get("time_limit_s")
        if most_s is not None and limit_s > most_s:
            why = f"{self.keeps_limits} ends it after {most_s:g} s, which cannot be extended"
            raise AdapterError(why)
        super().limit(key, limit_s)

    def fileno(self) -> int:
        return super().fileno() if self.gate is None else self.gate.fileno()

    def _remove(self, key: PartKey) -> None:
        super()._remove(key)
        if key not in self._parts:
            self._spawned.pop(key, None)
            self._marked.discard(key)

    def _open_gate(self, settings: BatchSettings) -> None:
        first, last = settings.ports or (0, 0)
        host = LOOPBACK if settings.is_relayed or settings.is_by_files else ""
        try:
            self.gate = Gate(self._root / "gate", (first, last), super().fileno(), host)
        except OSError as error:
            self.close()
            raise AdapterError(
                f"no port in {first}-{last} for the gate: {error.strerror}"
            ) from error
        self._open_files.callback(self.gate.close)

    def claims(self) -> frozenset[str]:
        """The claims of all parts that were not forgotten, as tokens name them."""
        return frozenset(folder.claim for folder in tuple(self._parts.values()))

    def poll(self) -> tuple[PartReport, ...]:
        if self.gate is not None:
            self.gate.listen()
        reports = super().poll()
        for key, live in self._live.items():
            if live.reason == ORPHANED and key not in self._ended:
                self._replace_runner(key)
        self._answer_calls()
        self._see_to_orders()
        return reports

    def _see_to_orders(self) -> None:
        """Wake some claims of which something was ordered: they take the others along."""
        marked, now = self._marked & self._parked.keys(), time.monotonic()
        if marked and now - self._seen_to >= ORDERS_EVERY_S:
            self._seen_to = now
            for key in list(marked)[:MOST_WOKEN]:
                self._wake(key)

    def _watched(self) -> set[PartKey]:
        return super()._watched() - (self._parked.keys() - self._marked)

    def _look_at(self, key: PartKey, folder: PartFolder) -> None:
        before = self._live.get(key)
        super()._look_at(key, folder)
        live = self._live.get(key)
        if live is None or key in self._ended or live.reason != PARKED:
            self._parked.pop(key, None)
        elif key not in self._parked:
            self._parked[key] = time.monotonic()
            if any(text_of(str(folder.path), word) is not None for word in MARKS):
                self._marked.add(key)
            else:
                self._marked.discard(key)
        if live is not None and live.reason in {PARKED, WAITS} and not live.detail:
            # A runner that looks at it knows nothing of its turn: the last report stands.
            is_known = before is not None and before.state is PartState.WAITING
            own = replace(live, reason=WAITS)
            self._live[key] = before if before is not None and is_known else own

    def _order(self, key: PartKey, line: str) -> None:
        folder = self._parts.get(key)
        if folder is None or key in self._ended:
            return
        if line.startswith("drop ") and self._may_be_parked(key):
            line = f"abort - {line.split(' ', 2)[2]}"  # all of them: none has been told to start
        word, _, more = line.partition(" ")
        try:
            if self.gate is not None and word in MARKS and self._may_be_parked(key):
                (folder.path / word).write_text(more.removeprefix("- "), encoding="utf-8")
                self._marked.add(key)
            if key in self._parked or folder.order(line):
                return
            if folder.report().reason == ORPHANED:
                self._replace_runner(key)
                folder.order(line)
        except OSError as error:
            raise AdapterError(f"{key.folder}: {error.strerror}") from error

    def _may_be_parked(self, key: PartKey) -> bool:
        live = self._live.get(key)
        may_wait = {PartState.WAITING, PartState.PREPARING}
        return live is None or (live.state in may_wait and not live.nodes)

    def _answer_calls(self) -> None:
        """Tell wrappers that were granted where their part's runner is, once there is one."""
        if self.gate is None or not self.gate.calls:
            return
        keys = {folder.claim: key for key, folder in self._parts.items()}
        for claim in self.gate.calls:
            key = keys.get(claim)
            if key is None or key in self._ended:
                self.gate.answer(claim, "gone")
            elif key in self._parked:
                self._wake(key)
            elif port := kept(str(self._parts[key].path), CLAIM).get("port"):
                self.gate.answer(claim, "at", str(port))

    def _wake(self, key: PartKey) -> None:
        """Have a runner look after a claim that waits without one."""
        if self._replace_runner(key):
            self._parked.pop(key, None)

    def _replace_runner(self, key: PartKey) -> bool:
        """Fork a runner for a part that has none; whether one is there now."""
        now = time.monotonic()
        if now - self._spawned.get(key, float("-inf")) < SPAWN_EVERY_S:
            return False
        self._spawned[key] = now
        # One is there, or it cannot be made now: the other parts are looked at nevertheless.
        with contextlib.suppress(OSError, AdapterError):
            self._spawn(self._parts[key])
            return True
        return False

    def _create(self, part: PartSpec) -> PartFolder:
        token = Token(
            job=part.job, attempt=part.attempt, part=part.part, claim=secrets.token_hex(16)
        )
        terms: BatchTerms = {
            "site": self._site(part),
            "key": secrets.token_hex(32),
            "token": {"name": token.name, "comment": token.comment},
        }
        return BatchFolder.create(self._root, part, extra=terms, claim=token.claim)

    def _site(self, part: PartSpec) -> BatchSite:
        raise NotImplementedError


def plain_counts(settings: BatchSettings, part: PartSpec, *, is_whole: bool) -> dict[str, int]:
    """The batch system's names of a part's nodes, and their processes.

    Refused is a part that names one twice, or wants more than one process where nodes are whole.
    """
    counts = {settings.plain(name): count for name, count in part.nodes.items()}
    if len(counts) < len(part.nodes):
        raise ClaimRefusedError("bad_spec", "a node is named twice")
    if is_whole and any(count > 1 for count in counts.values()):
        raise ClaimRefusedError("nodes_taken", "a node takes one process here")
    return counts


def check_known(names: Collection[str], known: Collection[str]) -> None:
    """Refuse nodes that the batch system does not know; raises ClaimRefusedError."""
    unknown = sorted(set(names).difference(known))
    if unknown:
        raise ClaimRefusedError("unknown_node", f"there is no node {', '.join(unknown)}")


def avoided(settings: BatchSettings, part: PartSpec, known: Collection[str]) -> set[str]:
    """Nodes that a claim which may wait must not get, as the batch system names them."""
    return set() if part.queue is None else set(map(settings.plain, part.queue.avoid)) & set(known)


def site_of_part(
    settings: BatchSettings, part: PartSpec, options: list[str], root: Path
) -> BatchSite:
    """Facts of any batch system for a part's runner; `options` are further words for its submit.

    Raises `AdapterError` where the login node by which nodes reach runners below `root` is not.
    """
    relay = ""
    try:
        if settings.is_relayed:
            relay = ":".join(map(str, Shell(login_of(settings)).relay(str(root))))
    except SshError as error:
        raise AdapterError(str(error)) from error
    return {
        "bin": settings.bin,
        "limit_s": settings.command_limit_s,
        "prefix": f"{settings.cluster}/" if settings.qualified else "",
        "names": {name: settings.plain(name) for name in part.nodes},
        "options": options,
        "address": settings.address,
        "ports": settings.ports or (0, 0),
        "gate": 0,
        "python": settings.python,
        "ssh": login_of(settings),
        "relay": relay,
        "files": "",
    }


def login_of(settings: BatchSettings) -> str:
    """The cluster's login as `Commands` has it; empty: commands run here. Raises `AdapterError`."""
    try:
        return Shell.of(settings.ssh, settings.ssh_config).stem if settings.ssh else ""
    except (SshError, OSError) as error:
        raise AdapterError(f"ssh: {error}") from error


def user_of(settings: BatchSettings, part: PartSpec) -> str:
    """The account that submits a part; empty: there is none of that number, or it is not known."""
    try:
        if settings.ssh:
            return str(Shell(login_of(settings)).about()["user"])
        return pwd.getpwuid(os.getuid() if part.uid is None else part.uid).pw_name
    except (KeyError, SshError):
        return ""
