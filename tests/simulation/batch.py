"""A cluster's batch system: claims, barriers and processes, which outlive their executor."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from coalloc.core.base.messages import Arrange, Prepare
from coalloc.model.shape import ONE_SLOT
from coalloc.model.sites.parts import (
    NOT_BEGUN,
    OVER_LIMIT,
    PART_ENDED,
    PartKey,
    PartReport,
    PartState,
)
from coalloc.model.sites.reading import NodeReading
from tests.simulation.guests import Guests
from tests.simulation.part import HELD, Part, is_whole
from tests.simulation.shaped import check_layout, over

NEXT_S = 3.0
"""A claim is known to be the next in its queue for so long before its turn, seconds."""
LATE_S = 120.0
"""Orders to end it may be lost, and a launcher fail at them, for so long, seconds."""


@dataclass
class Batch:
    """One cluster's nodes and what runs there.

    Attributes
    ----------
    nodes : dict of node name to node
    readied : dict of (job, attempt) to {part: processes at the barrier}
        Shared by all clusters: who has ever been ready.
    starts : dict of job to the attempts of it that ran a process, with their parts
        Shared by all clusters.
    on_start : callable
        Told of the order when its processes have started.
    offset : float
        The nodes' wall clock less the true time, seconds.
    guests : Guests
        Jobs that its users submitted in the batch system itself.
    """

    nodes: dict[str, NodeReading]
    dice: random.Random
    readied: dict[tuple[str, int], dict[int, int]]
    starts: dict[str, dict[int, set[int]]]
    on_start: Callable[[Prepare], None]
    offset: float = 0.0
    guests: Guests = field(default_factory=Guests)
    parts: dict[PartKey, Part] = field(default_factory=dict)
    claimed: set[PartKey] = field(default_factory=set)
    spared: set[PartKey] = field(default_factory=set)
    """What runs of these goes on: a restored daemon does not know of them."""
    is_strict: bool = False
    """Nodes that others hold are not given to a claim, whatever the daemon thinks of them."""
    faults: float = 0.0
    waits: random.Random = field(default_factory=random.Random)
    """Of what happens in the queue."""
    queues: bool = False
    """Claims may wait in it."""
    is_full: bool = False
    """Readings show jobs of others on every node, and others that wait."""
    preempts: random.Random | None = None
    """Of the jobs that it ends for the sake of others; None: it never does."""
    preempted: dict[str, int] = field(default_factory=dict)
    """How often, by job."""
    on_claim: Callable[[Prepare], None] = lambda _: None
    is_older: bool = False
    """Its executor is older than shapes."""

    def claim(self, order: Prepare, now: float) -> None:
        """Hold nodes for a part, unless somebody else has taken them.

        Raises
        ------
        AssertionError
            If it was claimed before, and is over; or has a shape, which its executor does not know.
        """
        part = Part(order)
        if order.queue is None:
            part.nodes = order.nodes
        if part.key in self.parts:
            return
        assert part.key not in self.claimed, f"{part.key} is claimed a second time"
        self.claimed.add(part.key)
        is_known = order.shape == ONE_SLOT or not self.is_older
        assert is_known, f"{part.key} has a shape, and its executor is older"
        self.on_claim(order)
        self.parts[part.key] = part
        for member in order.members:
            own = structs.replace(
                order,
                job=member.job,
                attempt=member.attempt,
                array_index=member.array_index,
                members=(),
            )
            assert own.key not in self.claimed, f"{own.key} is claimed a second time"
            self.claimed.add(own.key)
            self.parts[own.key] = Part(own, nodes=order.nodes, first=part)
        if order.queue is not None and self.waits.random() < self.faults:
            self._end_pack(part, OVER_LIMIT)
        elif self.dice.random() < 0.2 * self.faults or (self.is_strict and self._taken(part)):
            self._end_pack(part, "nodes_taken")
        elif order.foreign and not self.guests.bind(order.foreign):
            is_bound = self.guests.jobs[order.foreign].state == "bound"  # by an earlier attempt
            part.refuse("nodes_taken" if is_bound else "cancelled_there")
        elif order.queue is not None:
            self._enqueue(part, now)

    def _pack(self, part: Part) -> list[Part]:
        """The members of a part's pack, in their order; the part alone where it is in none."""
        pack = part.pack
        return [
            each for each in self.parts.values() if each is part or (pack and each.pack == pack)
        ]

    def _end_pack(self, part: Part, reason: str) -> None:
        """Refuse a claim, and what would have run behind it."""
        for each in self._pack(part):
            each.refuse(reason)

    def _kill_runner(self, part: Part) -> None:
        """What runs is lost; what has not begun will not, which a reboot leaves unknown."""
        is_rebooted = self.dice.random() < 0.5
        for each in self._pack(part):
            if each.state is PartState.RUNNING or (is_rebooted and each.is_let_go):
                each.state, each.reason, each.is_let_go = PartState.LOST, "node_died", False
            elif each.is_let_go:
                each.refuse(NOT_BEGUN)

    def _enqueue(self, part: Part, now: float) -> None:
        """Grant a claim at once, or let it wait for a time that nobody knows."""
        terms, dice = part.order.queue, self.waits
        assert terms is not None
        if terms.at_once and dice.random() < 0.7:
            part.nodes = part.order.nodes
            if not self._taken(part):
                part.granted = now
                return
        part.nodes = {}
        part.state = PartState.WAITING
        part.begin = now + terms.begin_s
        if dice.random() < 0.5:  # the same turn everywhere: all of one job's come at once
            dice = random.Random(f"turn of {part.key.start}")
        part.due = part.begin + dice.choice([0.0, 0.5, 3.0, 10.0, 60.0, 400.0])

    def hasten(self, key: PartKey, now: float) -> None:
        """Let a claim that waits for a later begin take its turn."""
        part = self.parts.get(key)
        if part is not None and part.state is PartState.WAITING and part.begin > now:
            part.due -= part.begin - now
            part.begin = now

    def _grant(self, part: Part, now: float) -> None:
        """Give a claim that waits the first nodes that are free, or, seldom, refuse it."""
        if part.due > now:
            return
        if self.waits.random() < self.faults:
            is_users = self.waits.random() < 0.2
            self._end_pack(part, "cancelled_there" if is_users else "node_unavailable")
            return
        names = list(self.nodes)
        self.waits.shuffle(names)
        procs, shape = sum(part.order.nodes.values()), part.order.shape
        nodes: dict[str, int] = {}
        for name in names[: shape.max_nodes]:
            left = procs - sum(nodes.values())
            left -= max(0, min(shape.min_nodes, procs) - len(nodes) - 1)
            count = min(left, shape.procs_per_node or left)
            while count > 0 and self._taken(part, {**nodes, name: count}):
                count -= 1
            if count > 0 and part.order.queue and name not in part.order.queue.avoid:
                nodes[name] = count
        if sum(nodes.values()) == procs:
            part.nodes, part.state, part.granted = nodes, PartState.PREPARING, now

    @staticmethod
    def _look_at_hold(part: Part, now: float) -> None:
        """What a part may hold idle while others wait has an end."""
        if part.granted is not None and part.state in HELD and part.order.queue is not None:
            held = now - part.granted
            most = part.order.queue.hold_s + LATE_S
            assert held <= most, f"{part.key} has held its nodes for {held:.0f} s, not started"

    def strangers(self) -> int:
        """Jobs of others in its queue, as far as a reading tells."""
        if self.is_full:
            return 2
        return self.waits.choice([0, 0, 1, 3]) if self.queues else 0

    def arrange(self, order: Arrange, key: PartKey) -> None:
        """Tell a part of the nodes of its whole job.

        Raises
        ------
        AssertionError
            If it holds other nodes, or was told of others before.
        """
        part = self.parts.get(key)
        if part is None or part.state not in HELD:
            return
        assert part.nodes, f"{key} is arranged, and holds nothing"
        mine = {name: order.all_nodes.get(name) for name in part.nodes}
        assert mine == part.nodes, f"{key} holds {part.nodes}, and is told of {order.all_nodes}"
        assert part.arranged in (None, order), f"{key} was told of {part.arranged}, then {order}"
        part.arranged = order

    def start(self, key: PartKey, now: float) -> None:
        """Open the barrier.

        Raises
        ------
        AssertionError
            If not every process of the job is at its barrier, or this part has started before.
        """
        part = self.parts.get(key)
        if part is None or part.is_let_go or part.state is not PartState.READY:
            return
        if part.first is not None:
            self.start(part.first.key, now)
            return
        for each in self._pack(part):
            each.is_let_go = each is not part
        self._begin(part, now)

    def _begin(self, part: Part, now: float) -> None:
        key = part.key
        holder = part.first or part
        part.nodes, part.arranged = holder.nodes, holder.arranged
        self._look_at_hold(part, now)
        job, attempt, number = key.job, key.attempt, key.part
        seen = self.readied.get((job, attempt), {})
        ready = seen.get(number, 0) if is_whole(part.order) else sum(seen.values())
        assert ready == part.order.size, (
            f"job {job} starts with {ready} of {part.order.size} processes ready"
        )
        if part.arranged is not None:
            told = sum(part.arranged.all_nodes.values())
            assert told == part.order.size, f"job {job} starts on {told} of {part.order.size} slots"
        check_layout(part.order, part.arranged.all_nodes if part.arranged else part.order.all_nodes)
        ran = self.starts.setdefault(job, {}).setdefault(attempt, set())
        twice = bool(ran) if is_whole(part.order) else number in ran
        assert not twice, f"part {number} of job {job} starts, and {sorted(ran)} did before"
        ran.add(number)
        self.on_start(part.order)
        if part.order.foreign:
            self.guests.let_go(part.order.foreign)
        part.state, part.started, part.is_let_go = PartState.RUNNING, now, False
        part.ends = now + self.dice.choice([0.0, 1.0, 5.0, 30.0])

    def _taken(self, part: Part, nodes: Mapping[str, int] | None = None) -> bool:
        """Some of its nodes, or of these, have less free than it needs."""
        mine = part.nodes if nodes is None else nodes
        held = [(part.order, mine)]
        for other in self.parts.values():
            waits = other.first is not None and other.state is not PartState.RUNNING
            if other is not part and other.state not in PART_ENDED and not waits:
                held.append((other.order, {n: c for n, c in other.nodes.items() if n in mine}))
        return bool(over(self.nodes, held))

    def end(self, key: PartKey, now: float, *, may_be_lost: bool = True) -> None:
        """Release a claim, or end processes.

        Raises
        ------
        AssertionError
            If it runs, and a restored daemon does not know of it.
        """
        part = self.parts.get(key)
        if part is None:
            return
        runs = part.state is PartState.RUNNING
        assert not runs or key not in self.spared, f"{key} is ended by a restoration"
        self._look_at_hold(part, now)
        is_lost = may_be_lost and self.waits.random() < 0.1 + self.faults
        if part.state is PartState.WAITING and is_lost:
            pass  # it is lost on its way: the batch system has not heard it
        elif part.state is PartState.WAITING and self.waits.random() < 0.5:
            part.is_unwanted = True  # the queue takes its time, and may grant it meanwhile
        elif part.is_let_go:
            part.refuse("aborted")
        elif part.state in HELD or part.state is PartState.WAITING:
            self._end_pack(part, "aborted")
        elif part.state is PartState.RUNNING:
            part.finish(143, "aborted", now)
        self._follow(part)

    def forget(self, key: PartKey) -> None:
        """Remove what is kept of an ended part; one that has not ended is left alone."""
        part = self.parts.get(key)
        if part is not None and part.state in PART_ENDED:
            del self.parts[key]

    def never_claimed(self, key: PartKey) -> None:
        """Let a part be claimed as if it had not been: nobody remembers it."""
        self.claimed.discard(key)
        self.readied.get(key.start, {}).pop(key.part, None)

    def move(self, now: float) -> None:
        """Claims become ready, processes end, nodes die."""
        for part in self.parts.values():
            if part.state is PartState.RUNNING:
                if self.dice.random() < 0.01 * self.faults:
                    self._kill_runner(part)
                elif self._is_preempted(part):
                    self.preempted[part.order.job] = self.preempted.get(part.order.job, 0) + 1
                    part.finish(143, "preempted", now)
                    for each in self._pack(part):
                        if each.is_let_go:
                            each.refuse(NOT_BEGUN)
                elif part.ends <= now:
                    part.finish(0 if self.dice.random() < 0.9 else 1, "exited", part.ends)
            if part.state is PartState.WAITING and part.is_unwanted and self.waits.random() < 0.3:
                self._end_pack(part, "aborted")
            elif part.state is PartState.WAITING:
                part.is_next = part.begin <= now and part.due - now < NEXT_S
                self._grant(part, now)
            elif part.state in HELD and part.is_unwanted:
                self._end_pack(part, "aborted")
            elif part.is_let_go:
                before = self._pack(part)
                if not any(each.state is PartState.RUNNING for each in before):
                    self._begin(part, now)
            elif part.first is not None:
                pass  # It is ready when the first one is.
            elif part.state is PartState.PREPARING and part.has_all and self.dice.random() < 0.7:
                for each in self._pack(part):
                    each.state = PartState.READY
                    seen = self.readied.setdefault(each.key.start, {})
                    seen[each.order.part] = sum(each.nodes.values())
            self._follow(part)

    def _is_preempted(self, part: Part) -> bool:
        dice = self.preempts
        return dice is not None and not part.order.foreign and dice.random() < 0.1 * self.faults

    def _follow(self, part: Part) -> None:
        """What becomes of a guest whose part has ended."""
        if part.order.foreign and part.state in PART_ENDED and not part.is_settled:
            part.is_settled = True
            if part.reason not in {"cancelled_there", "requeued"}:
                self.guests.follow(part.order.foreign, part.state, part.reason)

    def end_guest(self, guest: str, reason: str, now: float) -> None:
        """Its user has cancelled it, or the batch system has put it back into its queue."""
        for part in self.parts.values():
            if part.order.foreign == guest and part.state not in PART_ENDED:
                if part.state is PartState.RUNNING:
                    part.finish(143, reason, now)
                else:
                    part.refuse(reason)

    def reports(self) -> list[PartReport]:
        """What the launcher says of all its parts."""
        return [part.report(self.offset) for part in self.parts.values()]

    def held(self) -> list[Part]:
        """Claims that have not started."""
        return [p for p in self.parts.values() if p.state in HELD and not p.is_let_go]

    def overfull(self) -> str:
        """A node on which more runs than it has room for; empty if there is none."""
        running = (part for part in self.parts.values() if part.state is PartState.RUNNING)
        return over(self.nodes, ((part.order, part.nodes) for part in running))

    def is_idle(self) -> bool:
        """Nothing is held and nothing runs."""
        return all(part.state in PART_ENDED for part in self.parts.values())
