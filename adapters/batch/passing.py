"""Operators' reservations, kept in a batch system too, so that local jobs stay away there.

Common to all batch systems: which reservations are wanted, under which names, which of those that
are there are ours, and when one that was taken back goes. A subclass says how one is made, changed
and removed. What the batch system has is read back with each reading: nothing of it is kept here,
and a restarted executor goes on with what it finds.

Notes
-----
The name is ``coalloc.CLUSTER.NAME.STORE.KEY``: STORE stands for the daemon's database, so that no
other service's reservation is taken for ours; KEY for name and start, so that one that is made
anew under an old name is another.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from coalloc.adapters.base import Act, AdapterError
from coalloc.adapters.batch.settings import BatchSettings
from coalloc.adapters.runner.command import BatchError, CommandRefusedError
from coalloc.model.ranges import EVENT
from coalloc.model.reading import PassedReservation
from coalloc.model.reserved import Reserved

RETRY_S = 60.0
"""What the batch system has refused is asked for again after so long."""
LINGER_S = 5.0
"""One that was taken back stays so long: a claim that names it may be under way."""
LAST_CLAIM_S = 30.0
"""No claim names a reservation that ends so soon."""
SLACK_S = 60.0
"""Times that differ by less are the same."""
MOST_NAMED = 20
"""Local jobs that are named."""

Entry = TypeVar("Entry")
"""A reservation as a reading of the batch system describes it."""


class Wanted(Struct, frozen=True, kw_only=True):
    """A reservation as the batch system is to have it.

    Attributes
    ----------
    nodes, users : collections of str
        As the batch system names them; `users` are the accounts that submit, none for nobody.
    """

    kept: Reserved
    name: str
    nodes: frozenset[str]
    users: tuple[str, ...]


def mark_of(store: str) -> str:
    """The piece of a name that stands for a daemon's database."""
    return hashlib.sha256(store.encode()).hexdigest()[:8]


def name_of(cluster: str, kept: Reserved, store: str) -> str:
    """The name in the batch system."""
    key = hashlib.sha256(f"{kept.name} {kept.start!r}".encode()).hexdigest()[:8]
    shown = re.sub(r"[^A-Za-z0-9_-]", "_", kept.name)[:40]
    return f"coalloc.{cluster}.{shown}.{mark_of(store)}.{key}"


def submitting_account() -> str:
    """The account that submits every part, of an executor that is not root; else empty."""
    return "" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@dataclass(slots=True, kw_only=True)
class Passing(Generic[Entry]):
    """Keeps the operators' reservations of one cluster in its batch system.

    Attributes
    ----------
    account : str
        That submits every part; empty: each is submitted as its job's user.
    passed : tuple of PassedReservation
        As of the last reading.
    """

    settings: BatchSettings
    account: str = field(default_factory=submitting_account)
    passed: tuple[PassedReservation, ...] = ()
    _told: tuple[str, tuple[Reserved, ...]] | None = None
    _wanted: tuple[Wanted, ...] = ()
    _usable: tuple[tuple[Wanted, tuple[Entry, ...]], ...] = ()
    _acts: tuple[Act, ...] = ()
    _refused: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    _idle_since: dict[str, float] = field(default_factory=dict)

    def tell(self, store: str, kept: tuple[Reserved, ...]) -> None:
        """Be told what the daemon keeps here; may be called from another thread."""
        if self.settings.pass_reservations:
            self._told = (store, kept)

    @property
    def is_told(self) -> bool:
        """Whether anything is known of what is wanted: until then nothing is touched."""
        return self._told is not None

    def due(self) -> tuple[Act, ...]:
        """Acts that the last reading has shown to be due."""
        return self._acts

    def usable_by(
        self, user: str, until: float, now: float
    ) -> list[tuple[Wanted, tuple[Entry, ...]]]:
        """Those that a claim of this user may name, if it holds its nodes from now `until` then.

        May be called from another thread.
        """
        return [
            (each, entries)
            for each, entries in self._usable
            if each.kept.users
            and user in each.users
            and each.kept.start < until
            and each.kept.end > now + LAST_CLAIM_S
        ]

    def _follow(
        self, found: Mapping[str, tuple[Entry, ...]], known: Collection[str], now: float
    ) -> None:
        """See what is to be done; `due` has it.

        Parameters
        ----------
        found : mapping of name to entries
            All reservations of the batch system that are not over.
        known : collection of str
            The cluster's nodes, by the batch system's names.
        """
        if self._told is None:
            return
        store, told = self._told
        self._wanted = tuple(self._those_of(store, told, known, now))
        there = {name: each for name, each in found.items() if self._is_ours(name, store)}
        names = {each.name for each in self._wanted}
        self._refused = {key: said for key, said in self._refused.items() if key[0] in names}
        acts = self._removals(there, names, now)
        for each in self._wanted:
            acts += self._changes(each, there.get(each.name, ()), now)
        self._acts = tuple(acts)
        self._usable = tuple(
            (each, there[each.name]) for each in self._wanted if each.name in there
        )
        told_of = {key[0] for key in self._refused}.union(there)
        self.passed = tuple(
            self._passed(each, there.get(each.name, ()))
            for each in self._wanted
            if each.name in told_of
        )

    def _changes(self, wanted: Wanted, there: tuple[Entry, ...], now: float) -> list[Act]:
        """Acts that make what is there what is wanted."""
        raise NotImplementedError

    def _removal(self, there: tuple[Entry, ...], now: float) -> Callable[[], object] | None:
        """Removes one that is not wanted any more; None: it goes by itself."""
        raise NotImplementedError

    def _running(self, wanted: Wanted, there: tuple[Entry, ...]) -> Iterable[str]:
        """Local jobs that may run on its nodes when it begins, or still do."""
        raise NotImplementedError

    def _passed(self, wanted: Wanted, there: tuple[Entry, ...]) -> PassedReservation:
        """Whether the batch system has it, and why not."""
        running = tuple(self._running(wanted, there))[:MOST_NAMED]
        why = self._why_not(wanted, there)
        return PassedReservation(name=wanted.kept.name, why=why, running=running)

    def _why_not(self, wanted: Wanted, there: tuple[Entry, ...]) -> str:
        return self._refused.get((wanted.name, ""), ("", 0.0))[0]

    def _may_ask(self, name: str, node: str, now: float) -> bool:
        """Whether it was not refused a moment ago; `node` is empty for all of them at once."""
        return now - self._refused.get((name, node), ("", float("-inf")))[1] > RETRY_S

    def _asked(self, name: str, node: str, now: float, ask: Callable[[], object]) -> bool:
        """Ask for one, and keep in mind what is said against it; whether it was granted."""
        try:
            ask()
        except CommandRefusedError as error:
            # Told with the next reading, by which the daemon logs and lists it.
            self._refused[name, node] = (error.why, now)
            return False
        self._refused.pop((name, node), None)
        return True

    def _those_of(
        self, store: str, told: Iterable[Reserved], known: Collection[str], now: float
    ) -> Iterable[Wanted]:
        for kept in told:
            users = kept.users and ((self.account,) if self.account else kept.users)
            inside = frozenset(map(self.settings.plain, kept.nodes)) & frozenset(known)
            name = name_of(self.settings.cluster, kept, store)
            if inside and kept.end > now:
                yield Wanted(kept=kept, name=name, nodes=inside, users=users)

    def _is_ours(self, name: str, store: str) -> bool:
        prefix = f"coalloc.{self.settings.cluster}."
        pieces = name.removeprefix(prefix).split(".")
        return name.startswith(prefix) and len(pieces) == 3 and pieces[1] == mark_of(store)

    def _removals(
        self, there: Mapping[str, tuple[Entry, ...]], wanted: Collection[str], now: float
    ) -> list[Act]:
        """Acts that remove those which were taken back a while ago."""
        idle = [name for name in there if name not in wanted]
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        acts = []
        for name in idle:
            remove = self._removal(there[name], now)
            if remove is not None and now - self._idle_since[name] >= LINGER_S:
                acts.append(Act(what=f"remove_reservation {name}", run=guarded(remove)))
        return acts


def until_of(limit_s: float | None, now: float) -> float:
    """The time until which a claim may hold its nodes; one without a limit has no end."""
    return EVENT.high if limit_s is None else now + limit_s


def guarded(run: Callable[[], object]) -> Callable[[], None]:
    """The same, with a command's error as an adapter's."""
    return partial(_run_guarded, run)


def _run_guarded(run: Callable[[], object]) -> None:
    try:
        run()
    except BatchError as error:
        raise AdapterError(str(error)) from error
