"""The plan's order of work on every slot of every node, for starts between two rounds.

A placement takes as many lanes of a node as it has processes there. It may start when nothing
that was planned before it still waits on any of its lanes: so what comes next starts where the plan
has it as soon as there is room, without a round of its own, and takes nobody's turn. `line` is the
plan's order of all its jobs, for room that none of those may have.

Notes
-----
Lanes are not physical slots: what is free is counted afresh before a start. Those of a node are
laid out when it is looked at, in O(p log p) for p processes, as far as no lane is nearly empty;
following them costs the lanes of the nodes concerned.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TypeVar

from coalloc.model.plan import Deferred, Placement, Plan, Reason
from coalloc.model.snapshot import Reservation

STRICT = frozenset({"fcfs", "sjf", "bjf", "spt", "lpt"})
"""Policies under which no job overtakes another, unless their option `skip` says so."""
NEVER = frozenset({Reason.INFEASIBLE, Reason.UNSUPPORTED, Reason.HELD})
"""Reasons of jobs that no start between rounds is for."""
Precedence = tuple[float, float, tuple[int, int]]
"""Rising: less the precedence of a job, less its weight, and its arrival (`Turns`)."""
FEW, AT_ONCE = 8, 500
"""A lane with fewer entries has more laid out on its node; so many placements at once."""
T = TypeVar("T")
start_of = attrgetter("start")
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
    precedence: dict[str, Precedence] = field(default_factory=dict)
    """By job; empty where all are alike but for their arrival."""
    turns: list[list[str]] = field(default_factory=list)
    """The same jobs by their owners, whose turn was first when the plan came first."""
    kept: dict[str, list[Reservation]] = field(default_factory=dict)
    """By node: the reservations that the plan knew of."""
    planned: list[Placement] = field(default_factory=list)
    """The plan's placements by their starts."""
    tasks: list[Entry] = field(default_factory=list)
    """The tasks of workflows among them."""
    _on: defaultdict[str, list[Placement]] = field(default_factory=lambda: defaultdict(list))
    """By node, in the order of their starts, what is on no lane yet; what was started stays."""
    _idle: defaultdict[str, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By node: when each lane ends so far, and its number."""
    _queues: dict[str, list[deque[Entry]]] = field(default_factory=dict)
    """Lanes of the nodes that were looked at; what was started is never the first of one."""

    @classmethod
    def of(cls, plan: Plan) -> PlanOrder:
        """The order of a plan's work, none of which has been started."""
        is_strict = plan.policy in STRICT and not plan.options.get("skip")
        order = cls(policy=plan.policy, is_strict=is_strict)
        order.go_on(sorted(plan.placements, key=start_of), plan.deferred)
        return order

    def go_on(self, placements: Sequence[Placement], deferred: Iterable[Deferred]) -> None:
        """Take in what of the plan starts behind all so far, and what has no start.

        Placements without their nodes, as in very large ones, are in `line` only; left out are
        pieces of divisible jobs, which start in rounds only.
        """
        self.planned += placements
        for placement in placements:
            if placement.chunks is not None:
                continue
            entry = placement.job, placement.task or ""
            if placement.nodes:
                self.placements[entry] = placement
            for node in placement.nodes:
                self._on[node].append(placement)
            if placement.task is None:
                self.line.append(placement.job)
            else:
                self.tasks.append(entry)
        self.line += (d.job for d in deferred if d.task is None and d.reason not in NEVER)

    def starting(self, by: float) -> list[Placement]:
        """Placements that start by a time."""
        return self.planned[: bisect_right(self.planned, by, key=start_of)]

    def leave_out(self, jobs: Collection[str], is_over: Callable[[Entry], bool]) -> None:
        """Leave out jobs that wait no more, and the tasks of which this `is_over`."""
        for job in jobs:
            self.placements.pop((job, ""), None)
        for entry in filter(is_over, self.tasks):
            self.placements.pop(entry, None)
        self.line = [job for job in self.line if job not in jobs]

    def take_turns(self, owner_of: Callable[[str], object]) -> None:
        """Have each owner's jobs take its turns in the plan's order."""
        lines: defaultdict[object, list[str]] = defaultdict(list)
        for job in self.line:
            if job in self.precedence:
                lines[owner_of(job)].append(job)
        for line in lines.values():
            places = sorted(self.precedence[job] for job in line)
            self.precedence.update(zip(line, places, strict=True))
        self.turns = sorted(lines.values(), key=lambda line: self.precedence[line[0]])

    def _lanes(self, node: str) -> list[deque[Entry]]:
        queues, left = self._queues.setdefault(node, []), self._on.get(node, [])
        while left and min(map(len, queues), default=0) < FEW:
            self._lay_out(node, left[:AT_ONCE])
            del left[:AT_ONCE]
        return queues

    def _lay_out(self, node: str, placements: Iterable[Placement]) -> None:
        queues, idle = self._queues[node], self._idle[node]
        for placement in placements:
            for _ in range(placement.nodes[node]):
                if idle and idle[0][0] <= placement.start + 1e-9:
                    _, index = heapq.heapreplace(idle, (placement.end, idle[0][1]))
                else:
                    index = len(queues)
                    queues.append(deque())
                    heapq.heappush(idle, (placement.end, index))
                queues[index].append((placement.job, placement.task or ""))
        self._tidy(queues)

    def _tidy(self, queues: Iterable[deque[Entry]]) -> None:
        for queue in queues:
            while queue and queue[0] not in self.placements:
                queue.popleft()

    def drop(self, entry: Entry) -> None:
        """It was started, or has ended: it keeps nobody waiting any more."""
        placement = self.placements.pop(entry, None)
        for node in () if placement is None else placement.nodes:
            self._tidy(self._queues.get(node, ()))

    def fronts(self, node: str) -> list[Entry]:
        """The first of each lane of a node that has one."""
        return [queue[0] for queue in self._lanes(node) if queue]

    def next_on(self, node: str) -> Iterator[Entry]:
        """The same, each named once."""
        return iter(dict.fromkeys(self.fronts(node)))

    def is_next(self, entry: Entry) -> bool:
        """Nothing planned before it waits on any of its lanes."""
        nodes = self.placements[entry].nodes if entry in self.placements else {}
        return all(self.fronts(node).count(entry) == count for node, count in nodes.items())

    def behind(self, entry: Entry) -> Iterator[Entry]:
        """The entries that come next on the lanes of one that is next there."""
        nodes = self.placements[entry].nodes if entry in self.placements else {}
        lanes = (q for node in nodes for q in self._lanes(node) if q and q[0] == entry)
        rests = (islice(queue, 1, None) for queue in lanes)
        following = (next(filter(self.placements.__contains__, rest), None) for rest in rests)
        return iter(dict.fromkeys(other for other in following if other is not None))

    def is_on(self, node: str) -> bool:
        """Something that waits is planned on a node."""
        return bool(self.fronts(node))

    def on_cluster(self, home: Mapping[str, str], cluster: str) -> bool:
        """Something that waits is planned on this cluster."""
        planned = (placement.nodes for placement in self.placements.values())
        return any(home.get(node) == cluster for nodes in planned for node in nodes)


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
