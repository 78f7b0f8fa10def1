"""Operators' reservations as advance reservations of Grid Engine; see `batch.passing`.

Each is one advance reservation for each host, since a job of Grid Engine's is in one of them at the
most, and a part has a job for each host. For users it lets in the accounts that submit their jobs;
for nobody it has no list, so that its owner alone is let in, who submits nothing there.

Notes
-----
Grid Engine grants no slot that a running job may still have, and changes no reservation once it is
granted. So each host is asked for what it can give: the slots that are free from the start on, then
the others from when the jobs there must have ended, in a reservation of their own. A host with
more than one, or with a late one, gets a single one again when it stands idle.

A job in a reservation ends with it. So parts that might outlast it are kept out of it
(`GridEnginePassing.borders`), as are those that might run into it, and one that was taken back
stays until no job is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from coalloc.adapters.base import Act, AdapterError
from coalloc.adapters.batch.passing import SLACK_S, Passing, Wanted, guarded, until_of
from coalloc.adapters.gridengine.commands import GridEngine
from coalloc.adapters.gridengine.parse_xml import (
    AdvanceReservation,
    JobEntry,
    ParseError,
    QueueEntry,
    parse_reservations,
    parse_status,
)
from coalloc.adapters.gridengine.part_commands import instant
from coalloc.adapters.gridengine.reading import ENDLESS_S, is_ours, span_of
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.adapters.runner.command import BatchError
from coalloc.model.nodeset import fold
from coalloc.model.snapshot import Reservation

UTC = {"TZ": "UTC"}
ENDLESS = 4102444800.0
"""2100-01-01, which Grid Engine takes; the end of those that have none."""
SOON_S = 2.0
"""A start that is so near is asked for as now: Grid Engine takes none that is over."""
BORDER_S = 1.0
OFFSET_S = 60.0
"""Grid Engine takes a job to be over so long after its h_rt (its DURATION_OFFSET), seconds."""
GOING = frozenset("dx")

Pieces = tuple[AdvanceReservation, ...]


@dataclass(slots=True, kw_only=True)
class GridEnginePassing(Passing[AdvanceReservation]):
    """Keeps the operators' reservations of one cell in Grid Engine."""

    settings: GridEngineSettings
    commands: GridEngine
    clock: Callable[[], float] = time.time
    _hosts: dict[str, QueueEntry] = field(default_factory=dict)
    _claims: Collection[str] | None = None
    _now: float = 0.0

    def plan(
        self,
        granted: Iterable[AdvanceReservation],
        entries: Iterable[QueueEntry],
        claims: Collection[str] | None,
        now: float,
    ) -> None:
        """See what is to be done; `due` has it.

        Parameters
        ----------
        granted : iterable of AdvanceReservation
            All that Grid Engine has.
        entries : iterable of QueueEntry
            The site's queue on its hosts.
        claims : collection of str or None
            The claims of our parts; None: every token is ours.
        """
        self._hosts, self._claims, self._now = {e.host: e for e in entries}, claims, now
        found: dict[str, Pieces] = {}
        for each in granted:
            if GOING.isdisjoint(each.state) and each.end > now:
                found[each.name] = (*found.get(each.name, ()), each)
        self._follow(found, self._hosts, now)

    def candidates(
        self, user: str, host: str, slots: int, limit_s: float | None, now: float
    ) -> dict[str, float]:
        """The reservations in which a claim may get these slots now, with their ends.

        Those with the fewest slots first. May be called from another thread.
        """
        until = until_of(limit_s, now)
        found = [
            (self._slots(piece, host), piece.id, piece.end)
            for _, pieces in self.usable_by(user, until, now)
            for piece in pieces
            if _has_begun(piece) and (piece.end >= until or piece.end >= ENDLESS)
        ]
        return {id: end for room, id, end in sorted(found) if room >= slots}

    def own_slots(self, host: str) -> int:
        """Slots that Grid Engine keeps now, and the daemon knows of by itself."""
        begun = (p for _, pieces in self._usable for p in pieces if _has_begun(p))
        return sum(self._slots(piece, host) for piece in begun)

    def borders(self, now: float) -> tuple[Reservation, ...]:
        """Limits of jobs on the hosts in time: none goes into a reservation, or out of it.

        Of one for nobody, the whole of it.
        """
        found = []
        for wanted, pieces in self._usable:
            spans: dict[tuple[str, float, float], set[str]] = {}
            for piece in pieces:
                for span in _borders(piece, now, is_whole=not wanted.kept.users):
                    spans.setdefault(span, set()).update(host for _, host in piece.slots)
            for (what, start, end), hosts in spans.items():
                found.append(
                    Reservation(
                        id=f"{self.settings.cluster}:{what} of {wanted.kept.name}",
                        nodes=tuple(map(self.settings.published, sorted(hosts))),
                        start=start,
                        end=end,
                    )
                )
        return tuple(found)

    def _slots(self, piece: AdvanceReservation, host: str) -> int:
        return piece.slots.get((self.settings.queue, host), 0)

    def _changes(self, wanted: Wanted, there: Pieces, now: float) -> list[Act]:
        wrong = tuple(piece for piece in there if not self._is_as_wanted(piece, wanted))
        name, acts = wanted.kept.name, []
        if wrong:
            change = partial(self._remove, wrong)
            acts.append(Act(what=f"change_reservation {name}", run=guarded(change)))
        asked = {}
        for host in sorted(wanted.nodes):
            pieces = tuple(piece for piece in there if self._slots(piece, host))
            missing = self._hosts[host].slots - sum(self._slots(piece, host) for piece in pieces)
            is_torn = len(pieces) > 1 or any(_is_late(piece, wanted, now) for piece in pieces)
            if is_torn and not self._hosts[host].used:
                asked[host] = pieces
            elif missing > 0:
                asked[host] = ()
            else:
                self._refused.pop((wanted.name, host), None)
        asked = {host: old for host, old in asked.items() if self._may_ask(wanted.name, host, now)}
        if asked:
            run = partial(self._ask_for, wanted, asked, now)
            acts.append(Act(what=f"pass_reservation {name}", run=guarded(run)))
        return acts

    def _is_as_wanted(self, piece: AdvanceReservation, wanted: Wanted) -> bool:
        last = min(wanted.kept.end, ENDLESS)
        hosts = {host for queue, host in piece.slots if queue == self.settings.queue}
        return (
            set(piece.users) == set(wanted.users)
            and abs(piece.end - last) <= SLACK_S
            and len(hosts) == len(piece.slots) == 1
            and hosts <= wanted.nodes
        )

    def _ask_for(self, wanted: Wanted, asked: dict[str, Pieces], now: float) -> None:
        for host, old in asked.items():
            if old and not self._remove(old):
                continue
            for begin in self._begins(wanted, host, now):
                words = self._request(wanted, host, begin)
                ask = partial(self.commands.run, "qrsub", *words, env=UTC)
                if self._asked(wanted.name, host, now, ask):
                    break

    def _begins(self, wanted: Wanted, host: str, now: float) -> Iterator[float]:
        """The wanted start, then the time at which the jobs there must have ended."""
        first = max(now, wanted.kept.start)
        yield first
        entry = self._hosts[host]
        ends = [span_of(job, entry, now)[1] for job in entry.jobs]
        last = max((end for end in ends if end < now + ENDLESS_S / 2), default=0.0) + OFFSET_S
        if first < last < min(wanted.kept.end, ENDLESS) - SLACK_S:
            yield last + SOON_S

    def _request(self, wanted: Wanted, host: str, begin: float) -> list[str]:
        """The options of ``qrsub``: as many of the host's slots as Grid Engine can grant."""
        slots = self._hosts[host].slots
        words = ["-N", wanted.name, "-q", f"{self.settings.queue}@{host}"]
        if begin > self.clock() + SOON_S:
            words += ["-a", instant(begin)]
        words += ["-e", instant(min(wanted.kept.end, ENDLESS))]
        words += ["-pe", self.settings.pe, f"1-{slots}"] if slots > 1 else []
        return [*words, "-u", ",".join(wanted.users)] if wanted.users else words

    def _removal(self, there: Pieces, now: float) -> Callable[[], object]:
        return partial(self._remove, there)

    def _remove(self, pieces: Pieces) -> bool:
        """Delete those that no job is in, which would end with them; whether all are."""
        numbers = [job.number for job in self._jobs_on(pieces)]
        used = self._reservations_of(numbers) if numbers else set()
        free = [piece.id for piece in pieces if piece.id not in used]
        if free:
            self.commands.run("qrdel", ",".join(free), env=UTC)
        return len(free) == len(pieces)

    def _jobs_on(self, pieces: Pieces) -> list[JobEntry]:
        """Jobs that run now where these have their slots."""
        where = ",".join(sorted({f"{q}@{host}" for piece in pieces for q, host in piece.slots}))
        words = ("-f", "-xml", "-u", "*", "-s", "rs", "-q", where)
        try:
            return list(parse_status(self.commands.run("qstat", *words, env=UTC)).jobs())
        except ParseError as error:
            raise AdapterError(f"qstat: {error}") from error

    def _reservations_of(self, numbers: list[str]) -> set[str]:
        """Ids of the reservations that these jobs are in, those that have ended since left out."""
        said = self.commands.ask("qstat", "-j", ",".join(numbers), env=UTC)
        if said.code and "do not exist" not in said.err + said.out:
            raise self.commands.failure("qstat", said)
        pairs = (line.partition(":") for line in said.out.splitlines())
        return {value.strip() for key, _, value in pairs if key.strip() == "ar_id"}

    def _running(self, wanted: Wanted, there: Pieces) -> Iterator[str]:
        for host in sorted(wanted.nodes):
            entry = self._hosts[host]
            for job in entry.jobs:
                lasts = span_of(job, entry, self._now)[1] > wanted.kept.start
                if lasts and not is_ours(job, self._claims):
                    yield job.id

    def _why_not(self, wanted: Wanted, there: Pieces) -> str:
        """Words on the hosts that are not kept, and not only because local jobs are there still."""
        kept = {host for piece in there for _, host in piece.slots}
        hosts: dict[str, list[str]] = {}
        for (name, host), (why, _) in self._refused.items():
            is_explained = host in kept and self._hosts[host].jobs
            if name == wanted.name and not is_explained:
                hosts.setdefault(why, []).append(host)
        return "; ".join(f"{fold(sorted(names))}: {why}" for why, names in hosts.items())


def read_reservations(commands: GridEngine) -> tuple[AdvanceReservation, ...]:
    """All advance reservations of the cell, with what they were granted.

    Raises
    ------
    AdapterError
    """
    try:
        found = parse_reservations(commands.run("qrstat", "-xml", "-u", "*", env=UTC))
        if not found:
            return ()
        ids = ",".join(each.id for each in found)
        said = commands.ask("qrstat", "-xml", "-ar", ids, env=UTC)
        if said.code and "<qrstat" not in said.out:  # one is gone since: the others are told of
            raise commands.failure("qrstat", said)
        return parse_reservations(said.out)
    except BatchError as error:
        raise AdapterError(str(error)) from error
    except ParseError as error:
        raise AdapterError(f"Grid Engine's answer is not understood: {error}") from error


def _has_begun(piece: AdvanceReservation) -> bool:
    return piece.state not in {"w", "W"}


def _is_late(piece: AdvanceReservation, wanted: Wanted, now: float) -> bool:
    """Whether it was asked for from a later time on, and that is still to come."""
    return piece.start > max(now, wanted.kept.start) + SLACK_S


def _borders(
    piece: AdvanceReservation, now: float, *, is_whole: bool
) -> Iterator[tuple[str, float, float]]:
    """Name, start and end of the spans that no job of ours may be in."""
    if is_whole:
        yield "the time", piece.start, piece.end
        return
    if piece.start > now and not _has_begun(piece):
        yield "the start", piece.start, piece.start + BORDER_S
    if piece.end < ENDLESS:
        yield "the end", piece.end, piece.end + BORDER_S
