"""Operators' reservations, kept in Slurm too, so that local jobs stay away (``pass_reservations``).

Each is one reservation of Slurm's, for the accounts that submit its users' jobs; one for nobody is
a maintenance reservation. What runs there when it begins goes on, as in coalloc.

Notes
-----
The name is ``coalloc.CLUSTER.NAME.STORE.KEY``: STORE stands for the daemon's database, so that no
other service's reservation is taken for ours; KEY for name and start, so that one that is made
anew under an old name is another. What Slurm has is read back with each reading: nothing of it is
kept here, and a restarted executor goes on with what it finds.

FLEX lets a job that names the reservation begin before it, outlast it, and have nodes outside of
it besides. Slurm deletes no reservation that jobs are in: such a one is made to end instead, which
with FLEX ends none of them.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from coalloc.adapters.base import Act, AdapterError
from coalloc.adapters.runner.command import CommandRefusedError, UnreachableError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.reading import Answers, end_of
from coalloc.adapters.slurm.records import HOLDS_NODES, NodeEntry, ReservationEntry
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.adapters.slurm.share import LASTS_S
from coalloc.model.ranges import EVENT
from coalloc.model.reading import PassedReservation
from coalloc.model.reserved import Reserved

NOBODY = "root"
"""Whom Slurm lets into a reservation for nobody: it has to name a user, and this one exists."""
RETRY_S = 60.0
"""What Slurm has refused is asked for again after so long."""
LINGER_S = 5.0
"""One that was taken back stays so long: a claim that names it may be under way."""
SHORTENED_S = 10.0
"""One that cannot be deleted ends after so long."""
LAST_CLAIM_S = 30.0
"""No claim names a reservation that ends so soon."""
SLACK_S = 60.0
"""Ends that differ by less are the same."""
YEAR_S = 365 * 86400.0
"""The most that Slurm is told of one, which is prolonged when half of it is over."""
LATEST = 4e9
"""Slurm counts seconds in 32 bits."""
MOST_NAMED = 20
"""Local jobs that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A reservation as Slurm is to have it: `nodes` and `users` as Slurm names them."""

    kept: Reserved
    name: str
    nodes: frozenset[str]
    users: tuple[str, ...]

    def lasts_on(self, now: float) -> bool:
        """Whether it has no end, or one so late that Slurm is told of a part of it at a time."""
        return self.kept.end - max(now, self.kept.start) > YEAR_S

    @property
    def flags(self) -> str:
        """Slurm's, of one for users, and of one for nobody."""
        return "IGNORE_JOBS,FLEX" if self.kept.users else "MAINT,IGNORE_JOBS"


def mark_of(store: str) -> str:
    """The piece of a name that stands for a daemon's database."""
    return hashlib.sha256(store.encode()).hexdigest()[:8]


def name_of(cluster: str, kept: Reserved, store: str) -> str:
    """The name in Slurm."""
    key = hashlib.sha256(f"{kept.name} {kept.start!r}".encode()).hexdigest()[:8]
    shown = re.sub(r"[^A-Za-z0-9_-]", "_", kept.name)[:40]
    return f"coalloc.{cluster}.{shown}.{mark_of(store)}.{key}"


def submitting_account() -> str:
    """The account that submits every part, of an executor that is not root; else empty."""
    return "" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@dataclass(slots=True, kw_only=True)
class Passing:
    """Keeps the operators' reservations of one cluster in Slurm.

    Attributes
    ----------
    account : str
        That submits every part; empty: each is submitted as its job's user.
    passed : tuple of PassedReservation
        As of the last reading.
    """

    settings: SlurmSettings
    slurm: Slurm
    account: str = field(default_factory=submitting_account)
    passed: tuple[PassedReservation, ...] = ()
    _told: tuple[str, tuple[Reserved, ...]] | None = None
    _usable: tuple[Wanted, ...] = ()
    _near: frozenset[str] = frozenset()
    _acts: tuple[Act, ...] = ()
    _refused: dict[str, tuple[str, float]] = field(default_factory=dict)
    _idle_since: dict[str, float] = field(default_factory=dict)

    def tell(self, store: str, kept: tuple[Reserved, ...]) -> None:
        """Be told what the daemon keeps here; may be called from another thread."""
        if self.settings.pass_reservations:
            self._told = (store, kept)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that Slurm has, and that the daemon knows of by itself."""
        return tuple(each.name for each in self._usable)

    @property
    def near(self) -> frozenset[str]:
        """Nodes of those that run or begin soon: no share is taken of them.

        May be called from another thread.
        """
        return self._near

    def due(self) -> tuple[Act, ...]:
        """Acts that the last reading has shown to be due."""
        return self._acts

    def reservation_of(
        self, user: str, nodes: Collection[str], limit_s: float | None, now: float
    ) -> str:
        """The reservation that a claim has to name to get these nodes; empty: none.

        Where it has nodes of several, the one with the most. May be called from another thread.
        """
        until = EVENT.high if limit_s is None else now + limit_s
        found = [
            (len(each.nodes.intersection(nodes)), each.name)
            for each in self._usable
            if each.kept.users
            and user in each.users
            and each.kept.start < until
            and each.kept.end > now + LAST_CLAIM_S
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
        if self._told is None:
            return
        store, told = self._told
        now = answers.now
        wanted = self._wanted(store, told, {node.name for node in nodes}, now)
        there = {
            each.name: each
            for each in answers.reservations
            if self._is_ours(each.name, store) and each.end > now
        }
        self._near = frozenset(
            node
            for each in wanted
            if each.kept.start < now + LASTS_S + SLACK_S
            for node in each.nodes
        )
        self._refused = {
            name: (why, at)
            for name, (why, at) in self._refused.items()
            if any(each.name == name for each in wanted)
        }
        acts = self._endings(there, {each.name for each in wanted}, now, clock_off_s)
        for each in wanted:
            words = _words(each, there.get(each.name), now, clock_off_s)
            if not words:
                self._refused.pop(each.name, None)
            elif now - self._refused.get(each.name, ("", float("-inf")))[1] > RETRY_S:
                acts.append(self._act(f"pass_reservation {each.kept.name}", each.name, words, now))
        self._acts = tuple(acts)
        self._usable = tuple(each for each in wanted if each.name in there)
        self.passed = tuple(
            PassedReservation(
                name=each.kept.name,
                why=self._refused.get(each.name, ("", 0.0))[0],
                running=_still_running(answers, each),
            )
            for each in wanted
            if each.name in there or each.name in self._refused
        )

    def _wanted(
        self, store: str, told: Iterable[Reserved], known: Collection[str], now: float
    ) -> list[Wanted]:
        found = []
        for kept in told:
            users = kept.users and ((self.account,) if self.account else kept.users)
            inside = frozenset(map(self.settings.plain, kept.nodes)) & frozenset(known)
            name = name_of(self.settings.cluster, kept, store)
            if inside and kept.end > now:
                found.append(Wanted(kept=kept, name=name, nodes=inside, users=users or (NOBODY,)))
        return found

    def _is_ours(self, name: str, store: str) -> bool:
        prefix = f"coalloc.{self.settings.cluster}."
        pieces = name.removeprefix(prefix).split(".")
        return name.startswith(prefix) and len(pieces) == 3 and pieces[1] == mark_of(store)

    def _endings(
        self,
        there: dict[str, ReservationEntry],
        wanted: Collection[str],
        now: float,
        clock_off_s: float,
    ) -> list[Act]:
        """Acts that remove those which were taken back a while ago."""
        idle = [each for name, each in there.items() if name not in wanted]
        self._idle_since = {each.name: self._idle_since.get(each.name, now) for each in idle}
        return [
            Act(what=f"remove_reservation {each.name}", run=self._ending(each, now, clock_off_s))
            for each in idle
            if now - self._idle_since[each.name] >= LINGER_S and each.end > now + SHORTENED_S
        ]

    def _ending(self, there: ReservationEntry, now: float, off_s: float) -> Callable[[], None]:
        name = f"ReservationName={there.name}"

        def end() -> None:
            try:
                self._scontrol("delete", name)
            except CommandRefusedError as error:
                if "in use" not in error.why.lower():
                    raise AdapterError(str(error)) from error
                begin = ["StartTime=now"] if there.start > now else []
                last = f"EndTime={_instant(now + off_s + SHORTENED_S)}"
                try:
                    self._scontrol("update", name, *begin, last)
                except CommandRefusedError as refused:
                    raise AdapterError(str(refused)) from refused

        return end

    def _act(self, what: str, name: str, words: list[str], now: float) -> Act:
        def run() -> None:
            try:
                self._scontrol(*words)
                self._refused.pop(name, None)
            except CommandRefusedError as error:
                # Told with the next reading, by which the daemon logs and lists it.
                self._refused[name] = (error.why, now)

        return Act(what=what, run=run)

    def _scontrol(self, *words: str) -> None:
        try:
            self.slurm.run("scontrol", *words, env={"TZ": "UTC"})
        except UnreachableError as error:
            raise AdapterError(str(error)) from error


def _words(wanted: Wanted, there: ReservationEntry | None, now: float, off_s: float) -> list[str]:
    """Words for scontrol that make Slurm's reservation what is wanted; none where it is."""
    kept, name = wanted.kept, f"ReservationName={wanted.name}"
    nodes, users = f"Nodes={','.join(sorted(wanted.nodes))}", f"Users={','.join(wanted.users)}"
    begin = max(now, kept.start)
    last = f"EndTime={_instant(min(kept.end, begin + YEAR_S) + off_s)}"
    if there is None:
        first = "now" if kept.start <= now + 1.0 else _instant(kept.start + off_s)
        words = ["create", "reservation", name, f"StartTime={first}", last, nodes, users]
        return [*words, f"Flags={wanted.flags}"]
    changes = []
    if wanted.nodes != frozenset(there.nodes):
        changes.append(nodes)
    if set(wanted.users) != set(there.users):
        changes.append(users)
    if wanted.lasts_on(now):
        is_off = there.end - begin < YEAR_S / 2
    else:
        is_off = abs(there.end - kept.end) > SLACK_S
    if is_off:
        changes.append(last)
    return ["update", name, *changes] if changes else []


def _still_running(answers: Answers, wanted: Wanted) -> tuple[str, ...]:
    """Local jobs that may run on its nodes when it begins, or still do."""
    found = (
        entry.id
        for entry in answers.queue
        if entry.state in HOLDS_NODES
        and not answers.is_ours(entry)
        and end_of(entry, answers.now) > wanted.kept.start
        and wanted.nodes.intersection(entry.nodes)
    )
    return tuple(found)[:MOST_NAMED]


def _instant(time: float) -> str:
    """A time as Slurm reads it, in UTC; of those that it cannot read, the last that it can."""
    return datetime.fromtimestamp(min(time, LATEST), UTC).strftime("%Y-%m-%dT%H:%M:%S")
