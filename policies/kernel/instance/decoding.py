"""One call from an intake and an order to a plan.

Real nodes for its counts are chosen by start time, as few nodes as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalloc.model.plan import Deferred, Objective, Placement, Plan, Reason, Status
from coalloc.model.snapshot import Snapshot
from coalloc.model.values import replace
from coalloc.policies.array_types import Ints, entries, firsts
from coalloc.policies.base import at_most
from coalloc.policies.kernel.instance.arrays import (
    Compiled,
    any_mode,
    compile_intake,
    make_outcome,
    make_profile,
    make_scratch,
)
from coalloc.policies.kernel.instance.intake import read_queue
from coalloc.policies.kernel.instance.modes import Item
from coalloc.policies.kernel.instance.node_choice import Bookings, NodeUses, Uses, lay
from coalloc.policies.kernel.profiles.decoders import decode
from coalloc.policies.kernel.state import (
    BLOCKS,
    EASY,
    EVENT,
    FINEST,
    INSERT,
    STRICT,
    Base,
    Outcome,
    ProfileState,
)

WEIGHTED = "weighted_completion"
NO_PLACE = (Reason.INSUFFICIENT, "finds no place beside what runs")
DECODERS = {"strict": STRICT, "insert": INSERT, "event": EVENT, "easy": EASY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The answer of a decoder with its measures, before nodes are chosen."""

    outcome: Outcome
    unplaced: int
    makespan: float
    weighted_completion: float
    work: int
    sc: np.ndarray[Any, np.dtype[np.float64]] | None = None
    """Slowdown of communication of each item; None: 1."""

    @property
    def rank(self) -> tuple[int, float, float]:
        """Smaller is better."""
        return self.unplaced, self.makespan, self.weighted_completion


class Planner:
    """A snapshot made ready for any number of decodings.

    Added to the snapshot's times, `origin` seconds have them on the axis of `submitted`. Plans name
    nodes as `coalloc.policies.base.Budget.node_entries` has it.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: Mapping[str, Any],
        origin: float = 0.0,
        node_entries: int | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.origin = origin
        self.node_entries = node_entries
        self.options = options
        self.intake = read_queue(snapshot, options)
        self.compiled: Compiled = compile_intake(self.intake, options.get("power_step", 0.0))
        problem = self.compiled.problem
        self.profile = make_profile(problem, self.compiled.base)
        self.scratch = make_scratch(problem)
        self.fixed_mode = any_mode(len(self.intake.items))
        self.guarded = self._guarded(options.get("guard_after") or 0)
        self.weights = np.array([item.job.weight for item in self.intake.items], dtype=np.float64)
        self.numbers = np.array([item.number for item in self.intake.items], dtype=np.int64)

    @property
    def items(self) -> list[Item]:
        """The items to place, in arrival order."""
        return self.intake.items

    def _guarded(self, after: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Items of jobs that were passed over too often and may start now."""
        chosen = [
            n
            for n, item in enumerate(self.intake.items)
            if 0 < after <= item.job.passed_over and not item.waits
        ]
        chosen.sort(key=lambda n: -self.intake.items[n].job.priority)
        return np.array(chosen, dtype=np.int64)

    def state(self, out: Outcome) -> ProfileState:
        """State that a decoder works on, with room for its answer."""
        problem = self.compiled.problem
        return ProfileState(problem, self.profile, self.scratch, out, self.fixed_mode)

    def limited(self, least: Any, most: Any) -> Planner:
        """The same queue, each item with its modes of at least and at most so many processes."""
        items = [
            replace(item, modes=[mode for mode in item.modes if low <= mode[0] <= high])
            for item, low, high in zip(self.items, least, most, strict=True)
        ]
        narrow = copy(self)
        narrow.intake = replace(self.intake, items=items)
        narrow.compiled = compile_intake(narrow.intake, self.options.get("power_step", 0.0))
        return narrow

    def decode(
        self, order: Sequence[int], decoder: str, queue: Sequence[int] | None = None
    ) -> Schedule:
        """Place the items in this order by a decoder: strict, insert, event, easy.

        By `queue`, `easy` chooses the head, where backfilling goes by another order. Decoders that
        place one item after the other take those that may not start yet last, so that these keep no
        others waiting. In time, as the other decoders go, each is in its place.
        """
        if decoder in ("strict", "insert"):
            order = eligible_first(self.items, order)
        out = make_outcome(self.compiled.problem)
        work = decode(
            self.state(out),
            self.compiled.base,
            self.guarded,
            np.array(order, dtype=np.int64),
            DECODERS[decoder],
            np.array(() if queue is None else queue, dtype=np.int64),
        )
        return self.measure(out, int(work))

    def measure(
        self,
        out: Outcome,
        work: int,
        sc: np.ndarray[Any, np.dtype[np.float64]] | None = None,
    ) -> Schedule:
        """Read the measures of what a decoder, or a search, has placed."""
        now = self.snapshot.time
        placed = ~np.isnan(out.end)
        ends = np.where(placed, out.end, now) - now
        last = np.zeros(len(self.snapshot.queue))
        np.maximum.at(last, self.numbers, ends)
        weight = np.zeros(len(self.snapshot.queue))
        weight[self.numbers] = self.weights
        return Schedule(
            outcome=out,
            unplaced=int((~placed).sum()),
            makespan=float(ends.max(initial=0.0)),
            weighted_completion=float((last * weight).sum()),
            work=work,
            sc=sc,
        )

    def availability(self) -> Base:
        """Begin of each stretch of time, s; free units of classes, T x C; loads of links, T x K."""
        profile = self.profile
        blocks = profile.block[: int(profile.size[BLOCKS])]
        times = np.concatenate([profile.time[b, : profile.filled[b]] for b in blocks])
        rows = np.concatenate([profile.row[b, : profile.filled[b]] for b in blocks])
        owed = np.repeat(profile.owed[blocks], profile.filled[blocks], axis=0)
        free = (profile.free[rows] - owed)[:, : self.compiled.problem.class_power.size]
        return Base(times, free.astype(np.int32), profile.load[rows].copy())

    def plan(
        self,
        schedule: Schedule,
        policy: str,
        seed: int = 0,
        stats: Mapping[str, Any] | None = None,
        *,
        bound: float | None = None,
        status: Status = Status.HEURISTIC,
        unplaced: tuple[Reason, str] = NO_PLACE,
    ) -> Plan:
        """Choose nodes and write the plan.

        `bound`: of the objective.
        `status`: where anything can run at all.
        `unplaced`: why items of the schedule have no start.
        """
        placements, left = self._placements(schedule, *unplaced)
        deferred = (*self.intake.deferred, *left)
        name = self.options.get("objective", "makespan")
        value = schedule.weighted_completion if name == WEIGHTED else schedule.makespan
        return Plan(
            policy=policy,
            options=dict(self.options),
            status=Status.INFEASIBLE if self.intake.nothing_can_run else status,
            objective=Objective(
                name="weighted_completion" if name == WEIGHTED else "makespan",
                value=value,
                bound=at_most(bound, value),
                deferred=len({entry.job for entry in deferred}),
            ),
            placements=tuple(placements),
            deferred=deferred,
            stats={
                "work": schedule.work,
                "seed": seed,
                "classes": int(self.compiled.problem.class_power.size),
                **(stats or {}),
            },
        )

    def _placements(
        self, schedule: Schedule, reason: Reason, detail: str
    ) -> tuple[list[Placement], list[Deferred]]:
        out = schedule.outcome
        first, nodes, procs = lay_on_nodes(self.compiled, out, self.node_entries)
        names = np.array([node.name for node in self.intake.nodes], dtype=object)
        named = names[nodes].tolist()
        counts = procs.tolist()
        singly = bool((procs == 1).all())
        starts, ends, ranges = out.start.tolist(), out.end.tolist(), first.tolist()
        slow = [1.0] * len(starts) if schedule.sc is None else schedule.sc.tolist()
        placements, unplaced = [], []
        for item, start, end, (a, b), sc in zip(
            self.items, starts, ends, ranges, slow, strict=True
        ):
            if start != start:
                unplaced.append(item.deferred(reason, detail))
                continue
            placements.append(
                Placement(
                    job=item.job.id,
                    task=item.task_id,
                    start=start,
                    end=end,
                    nodes=(
                        dict.fromkeys(named[a:b], 1)
                        if singly
                        else dict(zip(named[a:b], counts[a:b], strict=True))
                    ),
                    sc=sc,
                )
            )
        return placements, unplaced


def eligible_first(items: Sequence[Item], order: Sequence[int]) -> Sequence[int]:
    """The same order, but what may not start yet comes last, by the time from which it may."""
    later = [n for n in order if items[n].waits]
    if not later:
        return order
    later.sort(key=lambda n: items[n].release)
    return [*(n for n in order if not items[n].waits), *later]


NOW_S = 1e-6
"""What starts within so many seconds of the snapshot's time starts now."""


def lay_on_nodes(
    compiled: Compiled, out: Outcome, entries: int | None = None
) -> tuple[Ints, Ints, Ints]:
    """Choose nodes for every placement, or for those that `Budget.node_entries` asks for.

    Returns the range of each item, N x 2, in the other two arrays: node numbers, cluster by cluster
    in snapshot order, and processes on them.
    """
    intake = compiled.intake
    n = out.start.size
    placed = _first(out, intake.snapshot.time, entries)
    sizes = np.array([len(nodes) for nodes in compiled.class_nodes], dtype=np.int64)
    node = np.array([x for nodes in compiled.class_nodes for x in nodes], dtype=np.int64)
    kinds = [intake.kinds[intake.node_kind[x]] for x in node]
    free = np.array([kind.slots * kind.grain for kind in kinds], dtype=np.int64)
    number = np.zeros(len(intake.nodes), dtype=np.int64)
    number[node] = np.arange(node.size)
    held = compiled.occupation
    holder = number[held.node]
    np.subtract.at(free, holder, held.units)
    uses = _uses(compiled, out, np.sort(placed))
    # What was planned in times from now may touch by a rounding: see the checker's `swept_ends`.
    half = out.start + (out.end - out.start) / 2.0
    ends = np.maximum(out.end - FINEST * np.abs(out.end), half)
    until = np.concatenate((np.where(np.isnan(ends), np.inf, ends), held.until))
    room = int(np.minimum(uses.procs, sizes[uses.node_class]).sum()) + 1
    out_first = np.zeros((n, 2), dtype=np.int64)
    out_node, out_units, out_procs = (np.empty(room, dtype=np.int64) for _ in range(3))
    lay(
        placed,
        uses,
        Bookings(
            start=out.start,
            until=until,
            gives=np.stack((holder, held.units), axis=1),
            by_end=np.argsort(until, kind="stable"),
        ),
        firsts(sizes),
        free,
        np.zeros(max((kind.slots for kind in kinds), default=0) + 1, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        NodeUses(span=out_first, node=out_node, units=out_units, procs=out_procs),
    )
    top = int(out_first.max(initial=0))
    return out_first, node[out_node[:top]], out_procs[:top]


def _first(out: Outcome, now: float, entries: int | None) -> Ints:
    """The placements to lay, by start."""
    placed = np.flatnonzero(~np.isnan(out.start))
    placed = placed[np.lexsort((out.end[placed], out.start[placed]))]
    if entries is None:
        return placed
    first, last = out.use_first[placed], (out.use_first + out.use_count)[placed]
    total = np.concatenate(([0], np.cumsum(out.use_procs[: last.max(initial=0)])))
    are_few = np.cumsum(total[last] - total[first]) <= entries
    return placed[are_few | (out.start[placed] <= now + NOW_S)]


def _uses(compiled: Compiled, out: Outcome, placed: Ints) -> Uses:
    """Classes and processes of the placements, each placement's cluster by cluster."""
    problem = compiled.problem
    counts = np.zeros_like(out.use_count)
    counts[placed] = out.use_count[placed]
    item = np.repeat(placed, counts[placed])
    slot = entries(out.use_first[placed], counts[placed])
    node_class = out.use_class[slot]
    sort = np.lexsort((node_class, problem.class_cluster[node_class], item))
    node_class = node_class[sort]
    return Uses(
        span=np.stack((np.cumsum(counts) - counts, counts), axis=1),
        node_class=node_class,
        procs=out.use_procs[slot][sort],
        need=problem.need[problem.item_group[item], node_class],
    )
