"""The plan's order of work on every slot of every node, for starts between two rounds.

A placement takes as many lanes of a node as it has processes there. It may start when nothing
that was planned before it still waits on any of its lanes: so a task whose parents have ended
starts where the plan has it, without a round of its own, and takes nobody's turn.

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

from coalloc.model.plan import Placement, Plan

Entry = tuple[str, str]
"""Job and task; an empty task is the job as a whole."""


@dataclass(slots=True)
class PlanOrder:
    """The newest plan's order of work on every slot."""

    policy: str = ""
    """Of the plan."""
    round: int = 0
    """Of the plan."""
    is_fresh: bool = False
    """Nothing has been started along it yet."""
    is_whole: bool = True
    """It has every task that waits."""
    placements: dict[Entry, Placement] = field(default_factory=dict)
    """By Entry: what has not been started."""
    _queues: dict[str, list[deque[Entry]]] = field(default_factory=dict)
    _of: dict[Entry, list[deque[Entry]]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, round: int, waits: Callable[[Entry], bool]) -> PlanOrder:
        """Lanes of a plan; `waits` tells whether a placement has still to be started.

        Left out are placements without their nodes, as in very large ones, and pieces of divisible
        jobs, which start in rounds only.
        """
        plan_order = cls(policy=plan.policy, round=round)
        free: dict[str, list[tuple[float, int]]] = {}
        for placement in sorted(plan.placements, key=lambda p: p.start):
            entry = placement.job, placement.task or ""
            if placement.nodes and placement.chunks is None and waits(entry):
                plan_order._add(entry, placement, free)
        return plan_order

    def _add(
        self, entry: Entry, placement: Placement, free: dict[str, list[tuple[float, int]]]
    ) -> None:
        self.placements[entry] = placement
        mine = self._of[entry] = []
        for node, count in placement.nodes.items():
            queues = self._queues.setdefault(node, [])
            idle = free.setdefault(node, [])
            taken = []
            for _ in range(count):
                if idle and idle[0][0] <= placement.start + 1e-9:
                    _, index = heapq.heappop(idle)
                else:
                    index = len(queues)
                    queues.append(deque())
                queues[index].append(entry)
                mine.append(queues[index])
                taken.append((placement.end, index))
            for lane in taken:
                heapq.heappush(idle, lane)

    def drop(self, entry: Entry) -> None:
        """It was started, or has ended: it keeps nobody waiting any more."""
        self.placements.pop(entry, None)
        for queue in self._of.pop(entry, ()):
            while queue and queue[0] not in self.placements:
                queue.popleft()

    def next_on(self, node: str) -> Iterator[Entry]:
        """The first of each lane of a node, each named once."""
        firsts = (queue[0] for queue in self._queues.get(node, ()) if queue)
        return iter(dict.fromkeys(firsts))

    def is_next(self, entry: Entry) -> bool:
        """Nothing planned before it waits on any of its lanes."""
        return all(queue[0] == entry for queue in self._of.get(entry, ()))

    def behind(self, entry: Entry) -> Iterator[Entry]:
        """Drop a placement; returns the entries that come next on its lanes."""
        queues = self._of.get(entry, ())
        self.drop(entry)
        return iter(dict.fromkeys(queue[0] for queue in queues if queue))

    def nodes(self) -> Iterable[str]:
        """Nodes on which something is planned."""
        return self._queues

    def on_cluster(self, home: Mapping[str, str], cluster: str) -> bool:
        """Something that waits is planned on this cluster."""
        there = (queues for node, queues in self._queues.items() if home.get(node) == cluster)
        return any(any(queues) for queues in there)
