"""Divisible jobs fill what a plan leaves idle; nothing else in the plan moves.

The jobs are taken by falling weight, then in arrival order. Each gets the least end by which its
chunks fit into the idle lanes of the nodes it may use; chunks that fit nowhere before the plan's
end so come after it. A lane's chunks run one after the other, from the lane's first instant on.
Lanes of equal power in one cluster which begin together and take as many chunks are one *piece*.

Notes
-----
With g gaps (`policies.divisible.idle`), the least end is found by halving in O(g) steps each. What
fits too much is taken off where it would end last, first on the weakest nodes; of a piece that
then needs fewer lanes the others stay free.

Deviations
----------
The bi-criteria paper names divisible jobs that fill idle time as an open problem; the rule is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter

import numpy as np

from coalloc.model.cost import pieces_of, within_limit
from coalloc.model.jobs import DivisibleJob, WorkflowJob
from coalloc.model.plan import Deferred, Placement, Plan, Reason
from coalloc.model.shape import taken
from coalloc.model.snapshot import Snapshot
from coalloc.policies.array_types import Floats, Ints
from coalloc.policies.divisible.idle import Gap, Idle, Taking, slack
from coalloc.policies.halving import halved
from coalloc.policies.holds import pieces as pieces_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Additions of filling to a plan."""

    pieces: tuple[Placement, ...]
    deferred: tuple[Deferred, ...]
    """Divisible jobs without a place, and why."""


def fill(snapshot: Snapshot, plan: Plan, placements: Sequence[Placement]) -> Filled:
    """Lay the divisible jobs of a queue into what these placements leave idle.

    The placements of other jobs are the plan's, or those of a point of its front. The plan says
    which other jobs have no start; its option `power_step` counts.
    """
    idle = Idle(snapshot, placements, plan.options.get("power_step") or 0.0)
    ends = _ends(snapshot, plan, placements)
    waiting = [job for job in divisible(snapshot) if not job.held]
    waiting.sort(key=lambda job: (-job.weight, job.submitted))
    pieces: list[Placement] = []
    deferred: list[Deferred] = []
    left = {job.id for job in waiting}
    while waiting:
        job = next((job for job in waiting if left.isdisjoint(job.after)), waiting[0])
        waiting.remove(job)
        left.discard(job.id)
        found = _place(idle, job, ends)
        if isinstance(found, Deferred):
            deferred.append(found)
            ends[job.id] = None
        else:
            pieces += found
            ends[job.id] = max(piece.end for piece in found)
    return Filled(pieces=tuple(pieces), deferred=tuple(deferred))


def divisible(snapshot: Snapshot) -> list[DivisibleJob]:
    """The divisible jobs of a queue."""
    return [job for job in snapshot.queue if isinstance(job, DivisibleJob)]


def _ends(
    snapshot: Snapshot, plan: Plan, placements: Iterable[Placement]
) -> dict[str, float | None]:
    """End of what other jobs may wait for; None: not in this plan."""
    ends: dict[str, float | None] = {
        r.id: r.busy_until(snapshot.time, snapshot.overrun_s) for r in snapshot.running
    }
    known = [(placement.job, placement.end) for placement in placements]
    for job in snapshot.queue:
        if isinstance(job, WorkflowJob):
            known += [(job.id, one.end) for one in job.started]
    for name, end in known:
        ends[name] = max(ends.get(name) or -inf, end)
    ends |= {job.id: None for job in divisible(snapshot)}
    return ends | {entry.job: None for entry in plan.deferred}


def _place(
    idle: Idle, job: DivisibleJob, ends: Mapping[str, float | None]
) -> list[Placement] | Deferred:
    earliest = max(job.earliest, idle.snapshot.time)
    for name in job.after:
        end = ends.get(name, -inf)
        if end is None:
            detail = f"waits for job {name}, which has no end in this plan"
            return Deferred(job=job.id, reason=Reason.DEPENDENCY, detail=detail)
        earliest = max(earliest, end)
    gaps = Gaps(idle, idle.gaps(job, earliest), job)
    counts = gaps.chosen(job.chunks)
    if counts is None:
        return _no_room(idle, job)
    return _laid(idle, job, gaps, counts)


def _no_room(idle: Idle, job: DivisibleJob) -> Deferred:
    fitting = [group for group in idle.groups if idle.fits(group, job)]
    if not fitting:
        reason, detail = Reason.INFEASIBLE, "no node has its clusters, features and memory"
    else:
        reason, detail = Reason.INSUFFICIENT, f"{job.chunks} chunks find no time on what is up"
    return Deferred(job=job.id, reason=reason, detail=detail)


class Gaps:
    """Gaps in columns, in seconds; ends may be infinite.

    A chunk runs for `chunk` there, and a gap may be too short for its last one by `slack`. `lanes`
    are counted over all nodes of the group.
    """

    def __init__(self, idle: Idle, rows: Sequence[Gap], job: DivisibleJob) -> None:
        groups = idle.groups
        self.rows = rows
        self.start: Floats = np.array([gap.start for gap in rows], dtype=np.float64)
        self.end: Floats = np.array([gap.end for gap in rows], dtype=np.float64)
        power = [groups[gap.group].power for gap in rows]
        self.chunk: Floats = np.array([within_limit(job, job.chunk_s / one) for one in power])
        self.slack: Floats = np.array([slack(one) for one in self.chunk.tolist()], dtype=np.float64)
        lanes = [gap.lanes * len(groups[gap.group].nodes) for gap in rows]
        self.lanes: Ints = np.array(lanes, dtype=np.int64)

    def filled(self, until: float) -> Floats:
        """Chunks that one lane of each gap takes by then, were they cut anywhere, shape (G,)."""
        return np.maximum(np.minimum(self.end, until) - self.start, 0.0) / self.chunk

    def rounds(self, until: float) -> Floats:
        """Chunks that one lane of each gap takes by then, shape (G,)."""
        length = np.minimum(self.end, until) - self.start
        return np.floor(np.maximum(length + self.slack, 0.0) / self.chunk)

    def chosen(self, chunks: int) -> Ints | None:
        """Number of chunks in each gap for the least end; None if they do not fit."""
        high = self._latest(chunks)
        if high is None:
            return None
        low = float(self.start.min())
        _, high = halved(low, high, lambda until: self._room(until, chunks) < chunks)
        rounds = np.minimum(self.rounds(high), chunks).astype(np.int64)
        counts = rounds * self.lanes
        last = np.lexsort((-self.chunk, -(self.start + rounds * self.chunk)))
        # The last chunk of each lane; the others end before the least end, but for those that are
        # shorter than the distance of its neighbours.
        for most in (self.lanes, counts.copy()):
            spare = int(counts.sum()) - chunks
            for n in last[rounds[last] > 0].tolist():
                fewer = min(spare, int(most[n]), int(counts[n]))
                counts[n] -= fewer
                spare -= fewer
        return np.asarray(counts)

    def _latest(self, chunks: int) -> float | None:
        """An end by which so many chunks fit; None if there is none."""
        endless = np.isinf(self.end)
        if endless.any():
            rounds = -(-chunks // self.lanes[endless]) + 1
            start = float(self.start[endless].min())
            until = float((self.start[endless] + rounds * self.chunk[endless]).min())
            while self._room(until, chunks) < chunks:
                # Where chunks are shorter than the distance of neighbouring times, the sum is lost.
                until = nextafter(until + (until - start), inf)
            return until
        last = float(self.end.max(initial=-inf))
        return last if self._room(last, chunks) >= chunks else None

    def _room(self, until: float, chunks: int) -> float:
        """Chunks that fit by then, where no lane takes more than all."""
        return float(np.minimum(self.rounds(until), chunks) @ self.lanes.astype(np.float64))


def _laid(idle: Idle, job: DivisibleJob, gaps: Gaps, counts: Ints) -> list[Placement]:
    """Turn chunks of gaps into pieces, and take their time."""
    found: dict[tuple[int, float, float, int], dict[int, int]] = {}
    chunks: dict[tuple[int, float, float, int], int] = {}
    begun: dict[int, dict[int, list[Taking]]] = {}
    for n in np.flatnonzero(counts).tolist():
        gap, count = gaps.rows[n], int(counts[n])
        group = idle.groups[gap.group]
        rounds = -(-count // int(gaps.lanes[n]))
        key = group.cluster, group.power, gap.start, rounds
        nodes = found.setdefault(key, {})
        chunks[key] = chunks.get(key, 0) + count
        end = gap.start
        for _, seconds in pieces_of(job, rounds, 1, group.power):
            end += seconds
        end = min(end, gap.end)
        lanes = -(-count // rounds)
        for place in range(-(-lanes // gap.lanes)):
            procs = min(gap.lanes, lanes - place * gap.lanes)
            node = group.nodes[place]
            nodes[node] = nodes.get(node, 0) + procs
            each = taken(job.shape, job.memory_mb_per_proc, group.node, 1)
            held = tuple((name, count * procs) for name, count in sorted(each.resources.items()))
            taking = Taking(gap.start, end, each.slots * procs, each.memory_mb * procs, held)
            begun.setdefault(gap.group, {}).setdefault(place, []).append(taking)
    for number, places in begun.items():
        idle.take(number, places)
    pieces: list[Placement] = []
    for key, nodes in found.items():
        _, power, start, _ = key
        named = {idle.names[node]: nodes[node] for node in sorted(nodes)}
        pieces += pieces_on(job, start, named, chunks[key], power)
    return sorted(pieces, key=lambda piece: (piece.start, piece.end, *piece.nodes))
