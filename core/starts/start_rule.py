"""The rule of a start: what is looked at before a placement begins now, in rounds and between.

It fits what is free now beside what has started before it (`core.jobs.occupation`), no operator
keeps its nodes for others, it ends by its deadline, no limit holds it, and where jobs of others go
first it takes its turn behind them.
"""

from __future__ import annotations

from collections.abc import Iterable

from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import State
from coalloc.core.commands.reservations import is_kept_from
from coalloc.core.jobs import deadlines
from coalloc.core.jobs.occupation import misfit
from coalloc.core.sharing import limits
from coalloc.core.starts import queued_claims as queueing
from coalloc.core.starts.free_places import FreePlaces, cheaper
from coalloc.core.starts.placements import Commitment, place
from coalloc.model.plan import Placement


class StartRule(Commitment):
    """Starts of one turn along one plan, each beside those before it."""

    def __init__(
        self, state: State, now: float, policy: str, round: int, nodes: Iterable[str] | None = None
    ) -> None:
        super().__init__(state, now, policy, round, nodes)
        self.places: FreePlaces | None = None
        """Where a start may move to if that is charged less."""
        self._between = nodes is not None

    def obstacle(self, record: JobRecord, placement: Placement, until: float) -> str:
        """Reason why a placement cannot start now and stay until then; empty if it can.

        A plan knows of reservations, but its clock may have been set forward since.
        """
        why = misfit(placement, record, self.view)
        state, now = self.state, self.now
        if not why and is_kept_from(state, record.user, placement.nodes, now, until):
            why = "one of its nodes is reserved for others"
        return why

    def begin(self, record: JobRecord, placement: Placement) -> JobRecord | None:
        """Start what no obstacle keeps, unless its deadline, a limit or others' turns do."""
        state, now = self.state, self.now
        placement = queueing.gathered(self, record, placement)
        self.view.see(placement.nodes)
        if self.places is not None:
            placement = cheaper(state, self.places, record, placement)
        if deadlines.misses(record, now, placement.end - placement.start):
            deadlines.withhold(state, record.id, self.round)
            return None
        asked = limits.start_of(state, record, placement)
        if self._between and self.book.why_not(record, *asked):
            return None  # A round looks at it again; many of these are looked at between two.
        if limits.holds(state, self.book, record, placement, now):
            return None
        queued = queueing.may_wait(self, record, placement)
        if not queued and not record.foreign and queueing.must_wait(self, placement):
            return None  # As many claims as may wait there already, and others go first.
        chosen = place(self, record, placement, queued=queued)
        self.book.take(record, *asked)
        return chosen
