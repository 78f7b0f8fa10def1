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
from coalloc.adapters.batch.settings import BatchSettings
from coalloc.adapters.batch.token import Token
from coalloc.adapters.launcher import PartLauncher
from coalloc.adapters.part_folder import PartFolder, ended_report
from coalloc.adapters.runner.grant import GRANT, kept
from coalloc.adapters.runner.spec import BatchSite, BatchTerms
from coalloc.adapters.runner.status import END, PAGE, decoded
from coalloc.model.sites.parts import PartKey, PartReport, PartSpec, PartState
from coalloc.model.values import replace

ORPHANED = "orphaned"
WAITS = "others_first"
"""Reason of a part whose claim is in the queue."""
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
        if not grant:
            return report
        reason, detail = self.waits(grant.get("detail", ""))
        return replace(
            report,
            state=PartState.WAITING,
            expected=grant.get("expected"),
            reason=report.reason or reason,
            detail=detail,
            is_next=grant.get("is_next", False),
        )

    @staticmethod
    def waits(said: str) -> tuple[str, str]:
        """Our word for what the batch system says of a claim that waits, and the same in words."""
        return WAITS, said

    def _sealed(self) -> PartReport:
        status = self.status()
        end = decoded(status[END * PAGE :])
        return self.reached(status, ORPHANED) if end is None else ended_report(self.key, end)


class BatchLauncher(PartLauncher):
    """Claims nodes of a batch system through runners; a subclass says of which."""

    folder_type = BatchFolder

    def __init__(self, state_dir: Path) -> None:
        self._spawned: dict[PartKey, float] = {}
        super().__init__(state_dir)

    def claims(self) -> frozenset[str]:
        """The claims of all parts that were not forgotten, as tokens name them."""
        return frozenset(folder.claim for folder in tuple(self._parts.values()))

    def poll(self) -> tuple[PartReport, ...]:
        """Return how every part is that was not forgotten."""
        reports = super().poll()
        for report in reports:
            if report.reason == ORPHANED:
                self._replace_runner(report.key)
        return reports

    def _order(self, key: PartKey, line: str) -> None:
        folder = self._parts.get(key)
        if folder is None or key in self._ended:
            return
        try:
            if not folder.order(line) and not folder.report().is_ended:
                self._replace_runner(key)
                folder.order(line)
        except OSError as error:
            raise AdapterError(f"{key.folder}: {error.strerror}") from error

    def _replace_runner(self, key: PartKey) -> None:
        now = time.monotonic()
        if now - self._spawned.get(key, float("-inf")) < SPAWN_EVERY_S:
            return
        self._spawned[key] = now
        # One is there, or it cannot be made now: the other parts are looked at nevertheless.
        with contextlib.suppress(OSError, AdapterError):
            self._spawn(self._parts[key])

    def _create(self, part: PartSpec) -> PartFolder:
        token = Token(
            job=part.job, attempt=part.attempt, part=part.part, claim=secrets.token_hex(16)
        )
        terms: BatchTerms = {
            "site": self._site(part),
            "key": secrets.token_hex(32),
            "token": {"name": token.name, "comment": token.comment},
        }
        cpus = dict.fromkeys(part.nodes)
        return self.folder_type.create(self._root, part, cpus, extra=terms, claim=token.claim)

    def _site(self, part: PartSpec) -> BatchSite:
        """Facts of the cluster for the runner."""
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


def site_of_part(settings: BatchSettings, part: PartSpec, options: list[str]) -> BatchSite:
    """Facts of any batch system for a part's runner; `options` are further words for its submit."""
    return {
        "bin": settings.bin,
        "limit_s": settings.command_limit_s,
        "prefix": f"{settings.cluster}/" if settings.qualified else "",
        "names": {name: settings.plain(name) for name in part.nodes},
        "options": options,
        "address": settings.address,
        "ports": settings.ports or (0, 0),
        "python": settings.python,
    }


def user_of(part: PartSpec) -> str:
    """The account that submits a part; empty: there is none of that number."""
    try:
        return pwd.getpwuid(os.getuid() if part.uid is None else part.uid).pw_name
    except KeyError:
        return ""
