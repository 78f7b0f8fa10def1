"""The plan's order of work on every slot of every node, for starts between two rounds.

A placement takes as many lanes of a node as it has processes there. It may start when nothing
that was planned before it still waits on any of its lanes: so what comes next starts where the plan
has it as soon as there is room, without a round of its own, and takes nobody's turn. `line` is the
plan's order of all its jobs, for room that none of those may have.

Notes
-----
Lanes are not physical slots: what is free is counted afresh before a start. Building them costs
O(p log p) for p processes placed on nodes; following them costs the lanes of the nodes concerned.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from coalloc.model.plan import Placement, Plan, Reason
from coalloc.model.snapshot import Reservation

STRICT = frozenset({"fcfs", "sjf", "bjf", "spt", "lpt"})
"""Policies under which no job overtakes another, unless their option `skip` says so."""
NEVER = frozenset({Reason.INFEASIBLE, Reason.UNSUPPORTED, Reason.HELD})
"""Reasons of jobs that no start between rounds is for."""
Precedence = tuple[float, float, tuple[int, int]]
"""Rising: less the precedence of a job, less its weight, and its arrival (`Turns`)."""

T = TypeVar("T")
Entry = tuple[str, str]
"""Job and task; an empty task is the job as a whole."""


@dataclass(slots=True)
class PlanOrder:
    """The newest plan's order of work on every slot."""

    policy: str = ""
    round: int = 0
    is_fresh: bool = False
    """Nothing has been started along it yet."""
    is_strict: bool = False
    """Nothing may overtake what is first in `line`."""
    is_whole: bool = True
    """It has every task that waits."""
    placements: dict[Entry, Placement] = field(default_factory=dict)
    """By Entry: what has not been started."""
    line: list[str] = field(default_factory=list)
    """Jobs by their planned starts, then those that the plan leaves out."""
    precedence: Mapping[str, Precedence] = field(default_factory=dict)
    """By job; empty where all are alike but for their arrival."""
    kept: dict[str, list[Reservation]] = field(default_factory=dict)
    """By node: the reservations that the plan knew of."""
    _queues: dict[str, list[deque[Entry]]] = field(default_factory=dict)
    _of: dict[Entry, list[deque[Entry]]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, round: int, waits: Callable[[Entry], bool]) -> PlanOrder:
        """Lanes of a plan; `waits` tells whether a placement has still to be started.

        Placements without their nodes, as in very large ones, are in `line` only; left out are
        pieces of divisible jobs, which start in rounds only.
        """
        is_strict = plan.policy in STRICT and not plan.options.get("skip")
        plan_order = cls(policy=plan.policy, round=round, is_strict=is_strict)
        line: dict[str, None] = {}
        free: dict[str, list[tuple[float, int]]] = {}
        for placement in sorted(plan.placements, key=lambda p: p.start):
            entry = placement.job, placement.task or ""
            if placement.chunks is None and waits(entry):
                if placement.nodes:
                    plan_order._add(entry, placement, free)
                if placement.task is None:
                    line[placement.job] = None
        left = (d.job for d in plan.deferred if d.task is None and d.reason not in NEVER)
        plan_order.line = list(line | dict.fromkeys(job for job in left if waits((job, ""))))
        return plan_order

    def _add(
        self, entry: Entry, placement: Placement, free: dict[str, list[tuple[float, int]]]
    ) -> None:
        self.placements[entry] = placement
        mine = self._of[entry] = []
        for node, count in placement.nodes.items():
            queues = self._queues.setdefault(node, [])
            idle = free.setdefault(node, [])
            for _ in range(count):
                if idle and idle[0][0] <= placement.start + 1e-9:
                    _, index = heapq.heapreplace(idle, (placement.end, idle[0][1]))
                else:
                    index = len(queues)
                    queues.append(deque())
                    heapq.heappush(idle, (placement.end, index))
                queues[index].append(entry)
                mine.append(queues[index])

    def drop(self, entry: Entry) -> None:
        """It was started, or has ended: it keeps nobody waiting any more."""
        self.placements.pop(entry, None)
        for queue in self._of.pop(entry, ()):
            while queue and queue[0] not in self.placements:
                queue.popleft()

    def fronts(self, node: str) -> list[Entry]:
        """The first of each lane of a node that has one."""
        return [queue[0] for queue in self._queues.get(node, ()) if queue]

    def next_on(self, node: str) -> Iterator[Entry]:
        """The same, each named once."""
        return iter(dict.fromkeys(self.fronts(node)))

    def is_next(self, entry: Entry) -> bool:
        """Nothing planned before it waits on any of its lanes."""
        return all(queue[0] == entry for queue in self._of.get(entry, ()))

    def behind(self, entry: Entry) -> Iterator[Entry]:
        """The entries that come next on the lanes of one that is next there."""
        rests = (islice(queue, 1, None) for queue in self._of.get(entry, ()))
        following = (next(filter(self.placements.__contains__, rest), None) for rest in rests)
        return iter(dict.fromkeys(other for other in following if other is not None))

    def nodes(self) -> Iterable[str]:
        """Nodes on which something is planned."""
        return self._queues

    def on_cluster(self, home: Mapping[str, str], cluster: str) -> bool:
        """Something that waits is planned on this cluster."""
        there = (queues for node, queues in self._queues.items() if home.get(node) == cluster)
        return any(any(queues) for queues in there)


def first_of(line: list[T], count: int, waits: Callable[[T], bool]) -> list[T]:
    """The first so many of a line that wait; others are dropped from it as they are met."""
    found: list[T] = []
    seen = 0
    for one in line:
        seen += 1
        if waits(one):
            found.append(one)
            if len(found) == count:
                break
    line[:seen] = found
    return found
