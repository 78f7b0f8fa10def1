"""A snapshot made ready for any number of decodings by counted resources; plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from coalloc.model.plan import Objective, Placement, Plan, Reason, Status
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.counted.tables import Tables
from coalloc.policies.kernel.counted import listing
from coalloc.policies.kernel.counted.fits import FLOATS, HEAP, INTS, LEFT, NAMES, Board
from coalloc.policies.kernel.instance.intake import read_queue
from coalloc.policies.kernel.instance.modes import Item

CHANGED = {*FLOATS[FLOATS.index("free ") :].split(), *INTS[INTS.index("count ") :].split()}
ENDLESS = 1 << 40
WORK = 1_000_000
"""Nodes and classes that `plain` looks at: about half a second."""
SQUEEZED = 0.5
"""Share of its widest allotment that `plain` gives at least; one slot would be a job's fate."""
MOST_POWERS, POWER_STEP = 40, 0.05
"""Where nodes have more different powers, `plain` rounds them down to this step."""


class CountedQueue:
    """The items and the board; `convert` makes an array of a column, where it is compiled.

    Added to the snapshot's times, `origin` seconds have them on the axis of `submitted`. Of an
    item's allotments those below the share `squeeze` of its widest are left out.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: Mapping[str, Any],
        origin: float = 0.0,
        convert: Callable[[str, Any], Any] = lambda _, column: column,
        decoder: Any = listing,
        squeeze: float = 0.0,
    ) -> None:
        self.snapshot, self.options, self.origin = snapshot, options, origin
        self.weighs = options.get("objective") == "weighted_completion"
        self.intake = read_queue(snapshot, options)
        self.items: list[Item] = self.intake.items
        for item in self.items:
            item.modes = [mode for mode in item.modes if mode[0] >= squeeze * item.modes[-1][0]]
        self.tables = Tables(self.intake, options.get("power_step") or 0.0)
        board = self.tables.board()
        self.board: Any = Board(*map(convert, NAMES, board))
        self.convert, self.decoder = convert, decoder
        decoder.prepare(self.board)

    def lay(
        self,
        order: Sequence[int],
        queue: Sequence[int] | None = None,
        mode: int = listing.EASY,
        depth: int = 0,
        most: int = ENDLESS,
        widest: Sequence[int] | None = None,
    ) -> Any:
        """The board with the items placed; `widest` are the last modes that they may take."""
        board: Any = Board(
            *(
                copy(getattr(self.board, name)) if name in CHANGED else getattr(self.board, name)
                for name in NAMES
            )
        )
        if widest is not None:
            board.widest[:] = self.convert("widest", widest)
        order = self.convert("order", order)
        queue = order if queue is None else self.convert("order", queue)
        self.decoder.listing(board, order, queue, mode, depth, most)
        return board

    def rank(self, board: Any) -> tuple[int, float, float]:
        """Items without a start, the objective, the other one; smaller is better."""
        last: dict[int, float] = {}
        for item, end in zip(self.items, board.end, strict=True):
            if end == end:
                last[item.number] = max(last.get(item.number, 0.0), float(end))
        total = sum(self.snapshot.queue[n].weight * end for n, end in last.items())
        both = max(last.values(), default=0.0), total
        return (int(board.count[LEFT]), *(both[::-1] if self.weighs else both))

    def plan(
        self,
        board: Any,
        policy: str,
        stats: Mapping[str, Any],
        bound: float | None = None,
        status: Status = Status.HEURISTIC,
    ) -> Plan:
        """Write the plan."""
        placements, deferred = list[Placement](), list(self.intake.deferred)
        names = [self.intake.nodes[n].name for n in self.tables.nodes]
        more = bool(board.count[HEAP]) and bool(board.count[LEFT])
        for n, item in enumerate(self.items):
            start, end = float(board.start[n]), float(board.end[n])
            if start != start:
                what = "comes after what was planned" if more else "finds no place beside what runs"
                reason = Reason.NOT_SELECTED if more else Reason.INSUFFICIENT
                deferred.append(item.deferred(reason, what))
                continue
            first = int(board.entry_first[n])
            uses = range(first, first + int(board.entry_count[n]))
            nodes = {
                names[board.use_node[use]]: int(board.use_procs[use])
                for use in uses
                if board.use_node[use] < len(names)
            }
            placements.append(
                Placement(job=item.job.id, task=item.task_id, start=start, end=end, nodes=nodes)
            )
        return Plan(
            policy=policy,
            options=dict(self.options),
            status=Status.INFEASIBLE if self.intake.nothing_can_run else status,
            objective=Objective(
                name="weighted_completion" if self.weighs else "makespan",
                value=self.rank(board)[1],
                bound=bound,
                deferred=len({entry.job for entry in deferred}),
            ),
            placements=tuple(placements),
            deferred=tuple(deferred),
            stats={"counted": True, **stats},
        )


def plain(
    problem: Snapshot,
    options: Mapping[str, Any],
    budget: Budget,
    on_incumbent: OnIncumbent | None = None,
) -> Plan:
    """EASY by arrival, without a compiler: what answers until that is ready, and the last fallback.

    It has no options. What is behind the first that waits has no start once so much was looked at:
    this is done beside the daemon's own work.
    """
    powers = {node.power for _, node in problem.nodes()}
    rounded = {"power_step": POWER_STEP} if len(powers) > MOST_POWERS else {}
    queue = CountedQueue(problem, rounded, squeeze=SQUEEZED)
    board = queue.lay(range(len(queue.items)), most=WORK)
    return queue.plan(board, "plain", {"work": len(queue.items), "seed": 0, "order": "arrival"})


SOLVERS: Mapping[str, SolveFunction] = {"plain": plain}
