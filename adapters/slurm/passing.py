"""Operators' reservations, kept in Slurm too (``pass_reservations``); see `batch.passing`.

Each is one reservation of Slurm's, for the accounts that submit its users' jobs; one for nobody is
a maintenance reservation. What runs there when it begins goes on, as in coalloc.

Notes
-----
FLEX lets a job that names the reservation begin before it, outlast it, and have nodes outside of
it besides. Slurm deletes no reservation that jobs are in: such a one is made to end instead, which
with FLEX ends none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from coalloc.adapters.base import Act
from coalloc.adapters.batch.passing import SLACK_S, Passing, Wanted, guarded, until_of
from coalloc.adapters.runner.command import CommandRefusedError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.reading import Answers, end_of
from coalloc.adapters.slurm.records import HOLDS_NODES, NodeEntry, ReservationEntry
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import LASTS_S

NOBODY = "root"
"""Whom Slurm lets into a reservation for nobody: it has to name a user, and this one exists."""
SHORTENED_S = 10.0
"""One that cannot be deleted ends after so long."""
YEAR_S = 365 * 86400.0
"""The most that Slurm is told of one, which is prolonged when half of it is over."""
LATEST = 4e9
"""Slurm counts seconds in 32 bits."""


@dataclass(slots=True, kw_only=True)
class SlurmPassing(Passing[ReservationEntry]):
    """Keeps the operators' reservations of one cluster in Slurm."""

    settings: SlurmSettings
    slurm: Slurm
    _near: frozenset[str] = frozenset()
    _answers: Answers | None = None
    _off_s: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Those that Slurm has, and that the daemon knows of by itself."""
        return tuple(each.name for each, _ in self._usable)

    @property
    def near(self) -> frozenset[str]:
        """Nodes of those that run or begin soon: no share is taken of them.

        May be called from another thread.
        """
        return self._near

    def reservation_of(
        self, user: str, nodes: Collection[str], limit_s: float | None, now: float
    ) -> str:
        """The reservation that a claim has to name to get these nodes; empty: none.

        Where it has nodes of several, the one with the most. May be called from another thread.
        """
        found = [
            (len(each.nodes.intersection(nodes)), each.name)
            for each, _ in self.usable_by(user, until_of(limit_s, now), now)
        ]
        most, name = max(found, default=(0, ""))
        return name if most else ""

    def plan(self, answers: Answers, nodes: Iterable[NodeEntry], clock_off_s: float) -> None:
        """See what is to be done; `due` has it.

        Parameters
        ----------
        clock_off_s : float
            How far slurmctld's clock is ahead of ours, by which `answers` have been corrected.
        """
        now = answers.now
        self._answers, self._off_s = answers, clock_off_s
        there = {each.name: (each,) for each in answers.reservations if each.end > now}
        self._follow(there, {node.name for node in nodes}, now)
        self._near = frozenset(
            node
            for each in self._wanted
            if each.kept.start < now + LASTS_S + SLACK_S
            for node in each.nodes
        )

    def _changes(
        self, wanted: Wanted, there: tuple[ReservationEntry, ...], now: float
    ) -> list[Act]:
        name = wanted.name
        words = _words(wanted, next(iter(there), None), now, self._off_s)
        if not words:
            self._refused.pop((name, ""), None)
        elif self._may_ask(name, "", now):
            run = guarded(lambda: self._asked(name, "", now, lambda: self._scontrol(*words)))
            return [Act(what=f"pass_reservation {wanted.kept.name}", run=run)]
        return []

    def _removal(
        self, there: tuple[ReservationEntry, ...], now: float
    ) -> Callable[[], None] | None:
        (entry,), off_s = there, self._off_s
        if entry.end <= now + SHORTENED_S:
            return None
        name = f"ReservationName={entry.name}"

        def remove() -> None:
            try:
                self._scontrol("delete", name)
            except CommandRefusedError as error:
                if "in use" not in error.why.lower():
                    raise
                begin = ["StartTime=now"] if entry.start > now else []
                last = f"EndTime={_instant(now + off_s + SHORTENED_S)}"
                self._scontrol("update", name, *begin, last)

        return remove

    def _scontrol(self, *words: str) -> None:
        self.slurm.run("scontrol", *words, env={"TZ": "UTC"})

    def _running(self, wanted: Wanted, there: tuple[ReservationEntry, ...]) -> Iterator[str]:
        answers = self._answers
        assert answers is not None
        for entry in answers.queue:
            if (
                entry.state in HOLDS_NODES
                and not answers.is_ours(entry)
                and end_of(entry, answers.now) > wanted.kept.start
                and wanted.nodes.intersection(entry.nodes)
            ):
                yield entry.id


def _lasts_on(wanted: Wanted, now: float) -> bool:
    """Whether it has no end, or one so late that Slurm is told of a part of it at a time."""
    return wanted.kept.end - max(now, wanted.kept.start) > YEAR_S


def _words(wanted: Wanted, there: ReservationEntry | None, now: float, off_s: float) -> list[str]:
    """Words for scontrol that make Slurm's reservation what is wanted; none where it is."""
    kept, name = wanted.kept, f"ReservationName={wanted.name}"
    asked = wanted.users or (NOBODY,)
    nodes, users = f"Nodes={','.join(sorted(wanted.nodes))}", f"Users={','.join(asked)}"
    begin = max(now, kept.start)
    last = f"EndTime={_instant(min(kept.end, begin + YEAR_S) + off_s)}"
    if there is None:
        first = "now" if kept.start <= now + 1.0 else _instant(kept.start + off_s)
        words = ["create", "reservation", name, f"StartTime={first}", last, nodes, users]
        flags = "IGNORE_JOBS,FLEX" if kept.users else "MAINT,IGNORE_JOBS"
        return [*words, f"Flags={flags}"]
    changes = []
    if wanted.nodes != frozenset(there.nodes):
        changes.append(nodes)
    if set(asked) != set(there.users):
        changes.append(users)
    if _lasts_on(wanted, now):
        is_off = there.end - begin < YEAR_S / 2
    else:
        is_off = abs(there.end - kept.end) > SLACK_S
    if is_off:
        changes.append(last)
    return ["update", name, *changes] if changes else []


def _instant(time: float) -> str:
    """A time as Slurm reads it, in UTC; of those that it cannot read, the last that it can."""
    return datetime.fromtimestamp(min(time, LATEST), UTC).strftime("%Y-%m-%dT%H:%M:%S")
