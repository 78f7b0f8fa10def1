"""A cluster's batch system: claims, barriers and processes, which outlive their executor."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from coalloc.core.executor_effects import Key
from coalloc.core.messages import Prepare
from coalloc.model.parts import PART_ENDED, PartReport, PartState
from tests.simulation.guests import Guests

HELD = frozenset({PartState.PREPARING, PartState.READY})


@dataclass
class Part:
    """One part of a job: its folder and its processes.

    Attributes
    ----------
    ends : float
        When its processes end by themselves, or have ended.
    """

    order: Prepare
    state: PartState = PartState.PREPARING
    started: float | None = None
    ends: float = 0.0
    code: int | None = None
    reason: str = ""
    is_settled: bool = False
    """What it means for a guest has been done."""

    @property
    def key(self) -> Key:
        return self.order.job, self.order.attempt, self.order.part

    def report(self, offset: float) -> PartReport:
        """What the launcher says of it, by a clock that is `offset` seconds ahead."""
        return PartReport(
            job=self.order.job,
            attempt=self.order.attempt,
            part=self.order.part,
            state=self.state,
            exit_code=self.code,
            started=None if self.started is None else self.started + offset,
            ended=self.ends + offset if self.state is PartState.FINISHED else None,
            reason=self.reason,
        )

    def refuse(self, reason: str) -> None:
        self.state, self.reason = PartState.REFUSED, reason

    def finish(self, code: int, reason: str, now: float) -> None:
        self.state, self.code, self.reason, self.ends = PartState.FINISHED, code, reason, now


@dataclass
class Batch:
    """One cluster's nodes and what runs there.

    Attributes
    ----------
    slots : dict of node name to slots
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

    slots: dict[str, int]
    dice: random.Random
    readied: dict[tuple[str, int], dict[int, int]]
    starts: dict[str, dict[int, set[int]]]
    on_start: Callable[[Prepare], None]
    offset: float = 0.0
    guests: Guests = field(default_factory=Guests)
    parts: dict[Key, Part] = field(default_factory=dict)
    claimed: set[Key] = field(default_factory=set)
    spared: set[Key] = field(default_factory=set)
    """What runs of these goes on: a restored daemon does not know of them."""
    is_strict: bool = False
    """Nodes that others hold are not given to a claim, whatever the daemon thinks of them."""
    faults: float = 0.0

    def claim(self, order: Prepare) -> None:
        """Hold nodes for a part, unless somebody else has taken them.

        Raises
        ------
        AssertionError
            If it was claimed before, and is over.
        """
        part = Part(order)
        if part.key in self.parts:
            return
        assert part.key not in self.claimed, f"{part.key} is claimed a second time"
        self.claimed.add(part.key)
        self.parts[part.key] = part
        if self.dice.random() < 0.2 * self.faults or (self.is_strict and self._taken(part)):
            part.refuse("nodes_taken")
        elif order.foreign and not self.guests.bind(order.foreign):
            is_bound = self.guests.jobs[order.foreign].state == "bound"  # by an earlier attempt
            part.refuse("nodes_taken" if is_bound else "cancelled_there")

    def start(self, key: Key, now: float) -> None:
        """Open the barrier.

        Raises
        ------
        AssertionError
            If not every process of the job is at its barrier, or this part has started before.
        """
        part = self.parts.get(key)
        if part is None or part.state is not PartState.READY:
            return
        job, attempt, number = key
        ready = sum(self.readied.get((job, attempt), {}).values())
        assert ready == part.order.size, (
            f"job {job} starts with {ready} of {part.order.size} processes ready"
        )
        ran = self.starts.setdefault(job, {}).setdefault(attempt, set())
        assert number not in ran, f"part {number} of job {job} starts twice"
        ran.add(number)
        self.on_start(part.order)
        if part.order.foreign:
            self.guests.let_go(part.order.foreign)
        part.state, part.started = PartState.RUNNING, now
        part.ends = now + self.dice.choice([0.0, 1.0, 5.0, 30.0])

    def _taken(self, part: Part) -> bool:
        """Some of its nodes have less free slots than it needs."""
        used = dict(part.order.nodes)
        for other in self.parts.values():
            if other is not part and other.state not in PART_ENDED:
                for node, count in other.order.nodes.items():
                    used[node] = used.get(node, 0) + count
        return any(used[node] > self.slots[node] for node in part.order.nodes)

    def end(self, key: Key, now: float) -> None:
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
        if part.state in HELD:
            part.refuse("aborted")
        elif part.state is PartState.RUNNING:
            part.finish(143, "aborted", now)
        self._follow(part)

    def forget(self, key: Key) -> None:
        """Remove what is kept of an ended part; one that has not ended is left alone."""
        part = self.parts.get(key)
        if part is not None and part.state in PART_ENDED:
            del self.parts[key]

    def move(self, now: float) -> None:
        """Claims become ready, processes end, nodes die."""
        for part in self.parts.values():
            if part.state is PartState.RUNNING:
                if self.dice.random() < 0.01 * self.faults:
                    part.state, part.reason = PartState.LOST, "node_died"
                elif part.ends <= now:
                    part.finish(0 if self.dice.random() < 0.9 else 1, "exited", part.ends)
            if part.state is PartState.PREPARING and self.dice.random() < 0.7:
                part.state = PartState.READY
                seen = self.readied.setdefault((part.order.job, part.order.attempt), {})
                seen[part.order.part] = sum(part.order.nodes.values())
            self._follow(part)

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
        return [part for part in self.parts.values() if part.state in HELD]

    def overfull(self) -> str:
        """A node on which more processes run than it has slots; empty if there is none."""
        busy: dict[str, int] = {}
        for part in self.parts.values():
            if part.state is PartState.RUNNING:
                for node, count in part.order.nodes.items():
                    busy[node] = busy.get(node, 0) + count
        over = {node: count for node, count in busy.items() if count > self.slots[node]}
        return f"more processes than slots: {over}" if over else ""

    def is_idle(self) -> bool:
        """Nothing is held and nothing runs."""
        return all(part.state in PART_ENDED for part in self.parts.values())
