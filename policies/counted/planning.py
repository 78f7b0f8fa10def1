"""A snapshot made ready for any number of decodings by counted resources; plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import inf, nan
from typing import Any

from coalloc.model.plan import Objective, Placement, Plan, Reason, Status
from coalloc.model.shape import demands, room_of
from coalloc.model.snapshot import Snapshot
from coalloc.policies.base import Budget, OnIncumbent, SolveFunction
from coalloc.policies.kernel.counted import listing
from coalloc.policies.kernel.counted.fits import (
    FLOATS,
    HEAP,
    INTS,
    LEFT,
    MEMORY,
    NAMES,
    UNLIMITED,
    USES,
    Board,
)
from coalloc.policies.kernel.instance.intake import Intake, read_queue
from coalloc.policies.kernel.instance.kinds import floored_power
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


MODE = ("procs", "scaled", "fixed", "comm")
Form = tuple[int, Any, int]
"""Group, shape and memory per process."""


def form_of(item: Item) -> Form:
    """Key of all that an item asks of a node."""
    return item.group, item.shape, item.job.memory_mb_per_proc


class Tables:
    """The columns of a board, filled one after the other."""

    def __init__(self, intake: Intake, power_step: float) -> None:
        self.intake, self.clusters = intake, intake.snapshot.clusters
        kinds = [intake.kinds[kind] for kind in intake.node_kind]
        self.nodes = [n for n, kind in enumerate(kinds) if kind.usable]
        self.row = {n: v for v, n in enumerate(self.nodes)}
        self.forms: dict[Form, int] = {}
        self.most: dict[Form, int] = {}
        for item in intake.items:
            form = form_of(item)
            self.forms.setdefault(form, len(self.forms))
            self.most[form] = max(self.most.get(form, 1), item.modes[-1][0])
        asked = [a for _, shape, _ in self.forms for a in (shape.per_proc, shape.per_node)]
        self.names = sorted({name for amounts in asked for name in demands(amounts)})
        licences = sorted({name for _, shape, _ in self.forms for name in shape.per_job})
        supplied = [(k, cluster.resources) for k, cluster in enumerate(self.clusters)]
        supplied.append((-1, intake.snapshot.resources))
        self.pools = [(k, n, has[n]) for k, has in supplied for n in licences if n in has]
        self.columns: defaultdict[str, Any] = defaultdict(list)
        self.held: list[tuple[int, float, list[float]]] = []
        self._add_nodes(power_step)
        self._add_forms()
        self._add_items()
        self._add_holds()

    def _amounts(self, slots: float, memory: float = 0.0, named: Any = ()) -> list[float]:
        found = dict(named) if self.names else {}
        return [float(slots), float(memory), *(float(found.get(name, 0)) for name in self.names)]

    def _add_nodes(self, power_step: float) -> None:
        intake, c = self.intake, self.columns
        c["shut_first"] = [0]
        for n in self.nodes:
            node, kind = intake.nodes[n], intake.kinds[intake.node_kind[n]]
            room = room_of(node)
            c["size"] += self._amounts(room.slots, min(room.memory_mb, UNLIMITED), room.resources)
            c["power"].append(floored_power(node.power, power_step))
            c["cpus"].append(node.cpus or node.slots)
            c["core"].append(node.cpus_per_core)
            c["kind"].append(intake.node_kind[n])
            c["shut"] += kind.cover
            c["shut_first"].append(len(c["shut"]))
        for _, _, count in self.pools:
            c["size"] += self._amounts(count)
        homes = [intake.kinds[kind].cluster for kind in c["kind"]]
        c["node_first"], c["level_first"] = [0], [0]
        for k, cluster in enumerate(self.clusters):
            powers = [power for power, home in zip(c["power"], homes, strict=True) if home == k]
            c["size"] += self._amounts(min(cluster.link_gbps, UNLIMITED))
            c["node_first"].append(c["node_first"][-1] + len(powers))
            c["level"] += sorted(set(powers), reverse=True)
            c["level_first"].append(len(c["level"]))
            c["latency"].append(cluster.link_latency_s)
            c["gbps"].append(cluster.link_gbps)
            c["inner"].append(1.0 / cluster.intra_gbps)
        c["pool_cluster"] = [k for k, _, _ in self.pools]
        c["shut_from"] = [reservation.start for reservation in intake.reservations]
        c["shut_to"] = [reservation.end for reservation in intake.reservations]

    def _add_forms(self) -> None:
        intake, c = self.intake, self.columns
        c["bar_first"] = [0]
        for form, most in self.most.items():
            group, shape, memory = form
            open_to, need = intake.groups[group].exempt, intake.groups[group].need
            roomy = [
                kind.room(memory, shape) for kind, n in zip(intake.kinds, need, strict=True) if n
            ]
            c["cap"].append(min(most, max(roomy, default=0)))
            c["form_cpus"].append(shape.cpus_per_proc)
            c["low"].append(shape.min_nodes)
            c["high"].append(shape.max_nodes or len(self.nodes))
            c["alone"].append(int(shape.exclusive))
            c["all_memory"].append(int(shape.all_memory))
            c["per_proc"] += self._amounts(0, memory, demands(shape.per_proc))
            c["per_node"] += self._amounts(0, shape.memory_mb_per_node, demands(shape.per_node))
            c["form_kind"] += [int(count > 0) for count in need]
            c["form_open"] += [int(r in open_to) for r in range(len(intake.reservations))]
            c["form_pool"] += [float(shape.per_job.get(name, 0)) for _, name, _ in self.pools]
            c["bar_first"].append(c["bar_first"][-1] + len(self.clusters) * (c["cap"][-1] + 1))

    def _add_items(self) -> None:
        c, items = self.columns, self.intake.items
        fastest, classes = max(c["power"], default=1.0), dict[Any, int]()
        children: list[list[int]] = [[] for _ in items]
        c["mode_first"], c["parent_first"], c["child_first"] = [0], [0], [0]
        for n, item in enumerate(items):
            for name, column in zip(MODE, zip(*item.modes, strict=True), strict=True):
                c[name] += column
            c["mode_first"].append(len(c["procs"]))
            c["widest"].append(len(c["procs"]) - 1)
            c["item_form"].append(self.forms[form_of(item)])
            c["item_class"].append(classes.setdefault(self._class(n, item), len(classes)))
            c["splits"].append(int(item.splits))
            c["wide"].append(len(c["wide_procs"]) // len(self.clusters) if item.parts else -1)
            c["wide_procs"] += item.parts
            c["wide_gbps"] += item.rates
            c["item_gbps"].append(item.proc_gbps)
            c["limit"].append(item.limit)
            runs = (scaled / fastest + fixed for _, scaled, fixed, _ in item.modes)
            c["least"].append(min(item.limit, *runs))
            for arrival in item.arrival or (item.release,) * len(self.clusters):
                c["arrival"].append(max(arrival, item.release))
            for parent, gbit in item.parents:
                c["parent"].append(parent)
                c["parent_gbit"].append(gbit)
                children[parent].append(n)
            c["parent_first"].append(len(c["parent"]))
        for found in children:
            c["child"] += found
            c["child_first"].append(len(c["child"]))
        self.classes = len(classes)

    def _class(self, n: int, item: Item) -> Any:
        """Key of all that decides, beside its run time, whether an item fits."""
        if item.parents or item.arrival or item.parts:
            return n
        modes = item.modes[0][0] if len(item.modes) == 1 else tuple(item.modes)
        uneven = len(self.columns["level"]) > len(self.clusters)
        times = (item.job.sigma, item.limit, item.modes[0][1] == 0.0) if uneven else ()
        return form_of(item), modes, item.splits, item.proc_gbps, times

    def _add_holds(self) -> None:
        """Note what runs, by rows; a node that is not free yet is full."""
        snapshot, size, place = self.intake.snapshot, self.columns["size"], self.intake.table.place
        row, width, first = self.row, MEMORY + 1 + len(self.names), len(self.nodes)
        for hold in self.intake.holds.nodes:
            v = row.get(place[hold.node], -1)
            if v >= 0:
                memory = hold.memory_mb if size[v * width + MEMORY] < UNLIMITED else 0
                held = self._amounts(hold.slots, memory, hold.resources)
                self.held.append((v, hold.end, held))
        for n in self.intake.table.late:
            v, until = row.get(n, -1), self.intake.nodes[n].free_at
            if v >= 0 and until > snapshot.time:
                self.held.append((v, until, size[v * width : v * width + width]))
        number = {cluster.name: k for k, cluster in enumerate(self.clusters)}
        for load in self.intake.holds.links:
            link = first + len(self.pools) + number[load.cluster]
            self.held.append((link, load.end, self._amounts(load.gbps)))
        home = {node.name: k for k, cluster in enumerate(self.clusters) for node in cluster.nodes}
        for work in snapshot.running if self.pools else ():
            until = work.busy_until(snapshot.time, snapshot.overrun_s)
            used = {-1, *(home[name] for name in work.nodes if name in home)}
            for j, (k, name, _) in enumerate(self.pools):
                if k in used and name in work.per_job and until > snapshot.time:
                    self.held.append((first + j, until, self._amounts(work.per_job[name])))

    def board(self) -> Any:
        """The board, in lists, on which what runs is laid."""
        c, clusters, nodes = self.columns, len(self.clusters), len(self.nodes)
        forms, items, held = len(self.forms), len(self.intake.items), len(self.held)
        resources, width = MEMORY + 1 + len(self.names), max(c["cap"], default=0) + 1
        rows = nodes + len(self.pools) + clusters
        caps = (min(c["high"][form], nodes) for form in c["item_form"])
        uses = sum(min(cap, i.modes[-1][0]) for cap, i in zip(caps, self.intake.items, strict=True))
        uses += items * (rows - nodes) + held
        events = (2 + clusters) * items + held + len(c["parent"]) * clusters + len(c["shut_to"]) + 1
        numbers = (nodes, clusters, len(self.pools), resources, forms, items, self.classes)
        sizes = {
            **dict.fromkeys(("room", "seen", "pick_node", "pick_procs"), nodes),
            **dict.fromkeys(("grown", "waiting"), forms),
            **dict.fromkeys(("booked", "kept"), rows),
            **dict.fromkeys(("use_next", "use_node", "use_procs", "use_from", "use_to"), uses),
            **dict.fromkeys(("entry_first", "entry_count"), items + held),
            **dict.fromkeys(("heap_key", "heap_id", "peek_key", "peek_id"), events),
            **dict.fromkeys(("pending", "lost", "ready", "rank", "class_next", "home"), items),
            **dict.fromkeys(("class_first", "tried"), self.classes),
            **dict.fromkeys(("shortest", "passed", "failed"), self.classes),
            "count": 12,
            "fit": (forms + 1) * nodes,
            "mass": (forms + 1) * clusters,
            "use_take": uses * resources,
            "bars": c["bar_first"][-1] + clusters * width,
            "bar": clusters * width,
            "chosen": width,
            "part": 5 * clusters,
        }
        kinds = (len(self.intake.kinds), len(self.intake.reservations), rows, width)
        for name, size in sizes.items():
            c[name] = [0] * size
        c["free"] = [*c["size"], *([0.0] * ((nodes + 1) * resources))]
        c["soonest"] = [inf]
        c["use_head"], c["start"], c["end"] = [-1] * rows, [nan] * items, [nan] * items
        for use, (v, until, amounts) in enumerate(self.held):
            c["use_node"][use], c["use_from"][use], c["use_to"][use] = v, -inf, until
            c["use_next"][use], c["use_head"][v] = c["use_head"][v], use
            c["entry_first"][items + use], c["entry_count"][items + use] = use, 1
            for r, taken in enumerate(amounts):
                c["use_take"][use * resources + r] = taken
                c["free"][v * resources + r] -= taken
        c["count"][USES] = held
        values = (*numbers, *kinds)
        return Board(*values, *(c[name] for name in NAMES[len(values) :]))
