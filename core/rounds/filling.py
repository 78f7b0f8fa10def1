"""Room that what the plan has next there may not have now, and the jobs that may.

Looked at are the first `MOST` jobs of the plan's order and of those that came since, and as many
nodes. A rigid job starts on free nodes of one cluster where it ends before every planned start
that needs its slots, and no later than the plan has it. One that came since, and goes before
what is planned on those nodes (`core.sharing.priority`), need not end before that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection
from itertools import islice
from math import inf

from coalloc.core.base.plan_order import Precedence, first_of
from coalloc.core.base.records import JobRecord
from coalloc.core.base.state import arrival
from coalloc.core.jobs.suitable_nodes import laid_out, procs_on
from coalloc.core.rounds.turn import Turn, waits
from coalloc.core.starts.free_places import seconds_on
from coalloc.core.starts.queued_claims import takers
from coalloc.model.jobs import RigidJob
from coalloc.model.plan import Placement
from coalloc.model.shape import ONE_SLOT, most_procs
from coalloc.model.sites.reading import NodeReading

MOST = 64
"""Jobs, and nodes, that one turn looks at."""


class Filling:
    """The free nodes of one turn, by cluster, and the newcomers."""

    def __init__(self, turn: Turn, freed: Collection[str]) -> None:
        state, schedule = turn.state, turn.state.schedule
        self.turn, self._arrived = turn, schedule.arrived
        schedule.arrived = []
        for job in self._arrived:
            if job in schedule.newcomers:
                place = 0.0, 0.0, arrival(job)
                if schedule.turn_of is not None:
                    place = schedule.turn_of(state.jobs[job])
                insort(schedule.ranked, (place, job))
        self._roomy = schedule.roomy
        self._roomy.update(dict.fromkeys(freed))
        self._nodes = dict.fromkeys((*islice(freed, MOST), *islice(self._roomy, MOST)))
        self._free: dict[str, list[NodeReading]] = {}

    def start_those_ahead(self) -> None:
        """Start newcomers whose turn it is before that of something planned on these nodes."""
        order = self.turn.order
        places = (
            order.precedence[job]
            for node in self._nodes
            for job, _ in order.fronts(node)
            if job in order.precedence
        )
        latest = None if order.is_strict else max(places, default=None)
        if latest is not None and self._look():
            for place, job in self._newcomers():
                if place >= latest or not self._free:
                    return
                self._try(job, place)

    def fill(self) -> None:
        """Start what fits beside all that is planned, in the plan's order, then newcomers."""
        if not self._look():
            return
        for job in (*self.turn.line(MOST), *(job for _, job in self._newcomers())):
            if not self._free:
                return
            self._try(job)

    def is_room_left(self) -> bool:
        """Whether something that has just arrived waits though nodes have free slots."""
        newcomers = self.turn.state.schedule.newcomers
        return any(job in newcomers for job in self._arrived) and self._look()

    def _newcomers(self) -> list[tuple[Precedence, str]]:
        state = self.turn.state
        of = state.schedule.newcomers
        return first_of(
            state.schedule.ranked, MOST, lambda row: row[1] in of and waits(state, (row[1], ""))
        )

    def _look(self) -> bool:
        """Find the nodes with free slots; whether there are any."""
        view, clusters, self._free = self.turn.view, self.turn.state.clusters, {}
        view.see(self._nodes)
        for name in self._nodes:
            cluster = view.cluster_of.get(name, "")
            if view.free.get(name, 0) <= 0:
                self._roomy.pop(name, None)
            elif (node := clusters[cluster].node(name)) is not None:
                self._free.setdefault(cluster, []).append(node)
        return bool(self._free)

    def _try(self, job: str, before: Precedence | None = None) -> None:
        turn, record = self.turn, self.turn.state.jobs[job]
        placement = self._place(record, before)
        if placement is not None and turn.start((job, ""), placement, is_early=True):
            self._look()

    def _place(self, record: JobRecord, before: Precedence | None) -> Placement | None:
        """The place where a job ends first on free nodes, beside what is planned there.

        `before`: where it goes before whatever comes later than this.
        """
        job, turn = record.job, self.turn
        if not isinstance(job, RigidJob) or record.foreign or job.shape.per_job:
            return None
        planned = turn.order.placements.get((job.id, ""))
        latest, best = inf if planned is None else planned.end, None
        for name, free in self._free.items():
            nodes = takers(turn.state, record, name, free, turn.now)
            if not nodes:
                continue
            end = turn.now + seconds_on(turn.state, record, name, nodes)
            if end > latest or (best is not None and end >= best.end):
                continue
            rooms = {node.name: self._room(job, node, end, before) for node in nodes}
            chosen = laid_out(job.shape, job.procs, rooms)
            if sum(chosen.values()) == job.procs:
                best = Placement(job=job.id, start=turn.now, end=end, nodes=chosen)
        return best

    def _room(self, job: RigidJob, node: NodeReading, end: float, before: Precedence | None) -> int:
        """Processes for which a node has room until then."""
        slots = self._spare(job, node.name, end, before)
        if not slots or job.shape == ONE_SLOT:
            return min(slots, procs_on(job, node, job.shape))
        room = self.turn.view.room(node.name)._replace(slots=slots)
        return most_procs(job.shape, job.memory_mb_per_proc, node, room)

    def _spare(self, job: RigidJob, node: str, end: float, before: Precedence | None) -> int:
        """Free slots of a node that no planned start before `end` needs."""
        state, order, now = self.turn.state, self.turn.order, self.turn.now
        free = self.turn.view.free[node]
        starts = []
        for entry in filter(lambda entry: waits(state, entry), order.fronts(node)):
            start, place = order.placements[entry].start, order.precedence.get(entry[0])
            is_after = before is not None and place is not None and place > before
            if start < end and entry[0] != job.id and not is_after:
                if state.jobs[entry[0]].job.shape != job.shape or job.shape != ONE_SLOT:
                    return 0  # It may need more of the node than slots.
                starts.append(start)
        ends: list[tuple[float, int]] = []
        for record in state.held_on((node,)) if starts else ():
            over = record.planned + (now if record.started is None else record.started)
            slots = sum(part.held.get(node, 0) for part in record.parts)
            ends.append((over if over > now else inf, slots))
        least = free
        for count, start in enumerate(sorted(starts), 1):
            least = min(least, free - count + sum(n for over, n in ends if over <= start))
        return max(0, least)
