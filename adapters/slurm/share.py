"""The share of a cluster on which our claims go before local jobs that wait.

Slurm refuses an immediate claim while anybody's job waits in the partition. Where the site grants
a share (``max_share``) and the executor may make reservations (root, SlurmUser, operators), as
many nodes as we can use, and no more than the share, are kept by one reservation of our own.
Local jobs that run there go on to their end; none begins. Claims go into the reservation.

Notes
-----
The reservation has the flags IGNORE_JOBS (nodes may still be busy) and FLEX (our jobs may outlast
it). It lapses by itself `LASTS_S` after the executor has died, and is removed when nothing of ours
waits or runs. What it is, is read back from Slurm with each reading: nothing of it is kept here.

A job that needs more than the share has, or particular nodes, waits in Slurm's queue like any
other, and is a local job to the share: nodes are kept from it for no longer than from those.

Slurm's only way to let everybody in is to shut somebody out (``Users=-NAME``). Where associations
are enforced that has to be a user who has one, which is certain of root alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from coalloc.adapters.runner.command import CommandRefusedError
from coalloc.adapters.slurm.commands import Slurm
from coalloc.adapters.slurm.parsers.records import (
    HOLDS_NODES,
    WAITS,
    NodeRecord,
    QueueEntry,
    ReservationEntry,
    node_state,
)
from coalloc.adapters.slurm.reading import Answers, end_of, is_handed, local_waiting, slots_of
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import ShareUse
from coalloc.model.snapshot import Reservation

WAITING_WAY = "at once, else as batch jobs that wait their turn"
PLAIN_WAYS = {
    "auto": WAITING_WAY,
    "salloc": "at once, where no local job waits",
    "sbatch": WAITING_WAY,
}
"""How parts get in without a share."""
LASTS_S = 600.0
SHUT_OUT = ("nobody", "root")
"""Users who need not come into the reservation, the first that Slurm takes."""
REFUSED_S = 60.0
"""After a refusal, claims wait their turn for so long before a reservation is tried again."""
SILENT_S = 15.0
"""What waits is not known after so long without a word of the daemon's."""
LINGER_S = 5.0
"""Nodes are kept so long after they were last wanted: a claim may be under way."""
STUCK_S = 30.0
"""A node that is kept and not free after so long is changed for one that is sooner free."""
LONGEST_GAP_S = 60.0
"""Between two readings; of a longer time it is not known who has waited."""
STARTABLE = frozenset({"None", "Priority", "Resources", "ReqNodeNotAvail", "Reserved"})
"""Reasons of a job that only nodes are missing to."""


def chosen(
    nodes: Iterable[NodeRecord],
    ours: Collection[str],
    busy: Mapping[str, float],
    since: Mapping[str, float],
    count: int,
    now: float,
) -> list[str]:
    """The nodes to keep: ours, then those that are kept, then those that are free soonest.

    `busy` has the last end of the local jobs on a node, `since` when one that is kept came to be.
    """

    def rank(node: NodeRecord) -> tuple[float, ...]:
        free_at = max(busy.get(node.name, now), now)
        is_stuck = free_at > now and now - since.get(node.name, now) > STUCK_S
        is_kept = node.name in since and not is_stuck
        return (node.name not in ours, not is_kept, free_at, node.weight)

    return [node.name for node in sorted(nodes, key=rank)[: max(len(ours), count)]]


class LocalDelays:
    """By how much the local jobs of a cluster wait longer since nodes are kept for us.

    Counted from one reading to the next. With the nodes that are idle and those that are kept for
    us, some of the local jobs that wait could run, taken in the order of their submission; those of
    them that the idle nodes alone would not take wait for us, and the time between the readings is
    added to their delay. It is an estimate from above: another rule of Slurm's may keep them too.
    """

    def __init__(self) -> None:
        self._delay_s: dict[str, float] = {}
        self._looked = 0.0

    def take(self, now: float, waiting: Iterable[QueueEntry], idle: int, kept: int) -> None:
        """Count the time since the last look.

        `waiting` local jobs could run on nodes that are kept for us. Anybody may have the `idle`
        nodes; only we may have, or do have, the `kept` ones.
        """
        passed = min(max(0.0, now - self._looked), LONGEST_GAP_S) if self._looked else 0.0
        self._looked = now
        jobs = {entry.id: entry for entry in waiting}
        self._delay_s = {job: self._delay_s.get(job, 0.0) for job in jobs}
        free, room = idle, idle + kept
        for entry in sorted(jobs.values(), key=lambda e: (e.submitted or now, e.id)):
            if entry.reason not in STARTABLE or entry.node_count > room:
                continue
            room -= entry.node_count
            if entry.node_count <= free:
                free -= entry.node_count
            else:
                self._delay_s[entry.id] += passed

    @property
    def worst(self) -> tuple[str, float]:
        """Of the local jobs that wait, the one delayed most, and by how many seconds."""
        return max(self._delay_s.items(), key=lambda found: found[1], default=("", 0.0))


@dataclass(slots=True, kw_only=True)
class _Demand:
    """Recent demand for the cluster, in slots."""

    slots: int = 0
    heard_at: float = float("-inf")
    high: int = 0
    high_at: float = float("-inf")

    def nodes(self, held: int, slots_of_node: int, now: float) -> int:
        """Nodes that we can use, those that we have among them."""
        slots = self.slots if now - self.heard_at <= SILENT_S else 0
        count = held + math.ceil(slots / max(slots_of_node, 1))
        if count >= self.high or now - self.high_at > LINGER_S:
            self.high, self.high_at = count, now
        return self.high


@dataclass(slots=True, kw_only=True)
class Share:
    """Keeps the share of one cluster."""

    settings: SlurmSettings
    slurm: Slurm
    use: ShareUse | None = None
    """As of the last reading; None where none is granted or to be had."""
    _denied: str = ""
    _denied_at: float = float("-inf")
    _nodes: frozenset[str] = frozenset()
    _goal: frozenset[str] = frozenset()
    _there: ReservationEntry | None = None
    _planned_at: float = 0.0
    _since: dict[str, float] = field(default_factory=dict)
    _demand: _Demand = field(default_factory=_Demand)
    _wanted: int | None = None
    _delays: LocalDelays = field(default_factory=LocalDelays)

    @property
    def name(self) -> str:
        """The reservation's name."""
        return f"coalloc-{self.settings.cluster}"

    @property
    def is_granted(self) -> bool:
        """Whether the site gives us a share, and lets us take it."""
        return self.settings.max_share > 0.0 and not self._denied

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that are kept for us; may be called from another thread."""
        return self._nodes

    @property
    def way(self) -> str:
        """The way in of our parts, in words."""
        granted = self.settings.max_share
        plain = PLAIN_WAYS[self.settings.start]
        if not granted:
            return plain
        if self._denied:
            return f"{plain}: no reservation ({self._denied})"
        return f"before waiting jobs, on up to {granted:.0%} of the nodes"

    def want(self, slots: int) -> None:
        """Be told how many slots waiting jobs could fill; may be called from another thread."""
        self._wanted = slots

    @property
    def is_due(self) -> bool:
        """Whether the reservation is to be looked after now."""
        return self.is_granted and self.use is not None

    def plan(self, answers: Answers, nodes: Iterable[NodeRecord]) -> None:
        """See what the reservation is to be now; `carry_out` makes it so."""
        now = answers.now
        if self._denied and now - self._denied_at > REFUSED_S:
            self._denied = ""
        if not self.is_granted:
            return
        if self._wanted is not None:
            self._demand.slots, self._demand.heard_at = self._wanted, now
            self._wanted = None
        entries = {entry.name: entry for entry in nodes}
        there = next((kept for kept in answers.reservations if kept.name == self.name), None)
        is_there = there is not None and there.end > now
        kept = frozenset(there.nodes) if there is not None and is_there else frozenset()
        self._since = {name: self._since.get(name, now) for name in kept}
        most = int(self.settings.max_share * len(entries))
        busy, ours, wide = occupied(answers, most)
        ours &= entries.keys()
        room = max(len(ours & kept), most - len(wide & entries.keys()))
        self._measure(answers, entries, busy, ours | (kept & entries.keys()))
        worst, delay_s = self._delays.worst
        bound, paused = self.settings.max_delay_s, ""
        if bound and delay_s > bound:
            paused = f"job {worst} has waited {delay_s:.0f} s for us"
        slots = sorted(slots_of(self.settings, entry) for entry in entries.values())
        wanted = 0 if paused else self._demand.nodes(len(ours), max(slots, default=1), now)
        usable = [
            entry
            for entry in entries.values()
            if entry.name in ours or node_state(entry.states)[0] is NodeState.UP
        ]
        self._goal = frozenset(chosen(usable, ours, busy, self._since, wanted, now)[:room])
        self._there, self._planned_at = there if is_there else None, now
        self.use = ShareUse(
            nodes=most,
            slots=sum(slots[:most]),
            all_slots=sum(slots),
            kept=len(self._goal),
            delay_s=round(delay_s, 1),
            paused=paused,
        )

    def carry_out(self) -> None:
        """Make the reservation what was planned; one that is refused leaves us without a share."""
        try:
            self._reserve(self._goal, self._there, self._planned_at)
        except CommandRefusedError as error:
            # One that is in use goes later.
            if "in use" not in error.why.lower():
                self._denied, self._denied_at = error.why, self._planned_at
                self._nodes, self.use = frozenset(), None

    def beyond(self, answers: Answers, nodes: Iterable[NodeRecord]) -> tuple[Reservation, ...]:
        """The nodes on which we start nothing at once, as if they were kept from us for a while.

        While nothing waits in Slurm and nothing is kept yet, the first claims need no
        reservation: as many nodes as the share has are open then.
        """
        if not self.is_granted or self.use is None:
            return ()
        names = [entry.name for entry in nodes]
        why, open_nodes = f"beyond our share of {self.settings.max_share:.0%}", self._goal
        if self.use.paused:
            why, open_nodes = "no claims", frozenset()
        elif not self._goal and not self._waiting(answers):
            busy, _, wide = occupied(answers, self.use.nodes)
            ranked = sorted(names, key=lambda name: name in busy)
            open_nodes = frozenset(ranked[: max(0, self.use.nodes - len(wide))])
        shut = tuple(self.settings.published(name) for name in names if name not in open_nodes)
        id, end = f"{self.settings.cluster}:{why}", answers.now + LASTS_S
        return (Reservation(id=id, nodes=shut, start=answers.now, end=end),) if shut else ()

    def _waiting(self, answers: Answers) -> list[QueueEntry]:
        """Jobs that wait for nodes as local ones do."""
        ours = (entry for entry in answers.queue if answers.is_ours(entry))
        turns = [e for e in ours if e.state in WAITS and not is_handed(self.settings, e)]
        return [
            *local_waiting(self.settings, answers),
            *(entry for entry in turns if entry.reservation != self.name),
        ]

    def _measure(
        self,
        answers: Answers,
        entries: Mapping[str, NodeRecord],
        busy: Collection[str],
        kept: Collection[str],
    ) -> None:
        partitions = {name for node in kept for name in entries[node].partitions}
        waiting = [
            entry
            for entry in self._waiting(answers)
            if partitions.intersection(entry.partition.split(","))
        ]
        idle = sum(
            node_state(entry.states)[0] is NodeState.UP
            for name, entry in entries.items()
            if name not in busy and name not in kept
        )
        # A node that is kept and still has a local job keeps nobody from starting.
        ready = sum(name not in busy for name in kept)
        self._delays.take(answers.now, waiting, idle, ready)

    def _reserve(self, goal: frozenset[str], there: ReservationEntry | None, now: float) -> None:
        """Bring the reservation to these nodes with as few commands as may be."""
        if there is None and goal:
            self._create(goal)
        elif there is not None and not goal:
            self._nodes = frozenset()
            self._scontrol("delete", f"ReservationName={self.name}")
        elif there is not None:
            changed = goal != frozenset(there.nodes)
            words = [f"Nodes={','.join(sorted(goal))}"] if changed else []
            if there.end - now < LASTS_S / 2:
                words.append(f"Duration={(now - there.start + LASTS_S) / 60:.0f}")
            if words:
                self._scontrol("update", f"ReservationName={self.name}", *words)
        self._nodes = goal

    def _create(self, goal: Collection[str]) -> None:
        words = ["create", "reservation", f"ReservationName={self.name}", "StartTime=now"]
        words += [f"Duration={LASTS_S / 60:.0f}", f"Nodes={','.join(sorted(goal))}"]
        for user in SHUT_OUT:
            try:
                self._scontrol(*words, f"Users=-{user}", "Flags=IGNORE_JOBS,FLEX")
                return
            except CommandRefusedError as error:
                if "invalid account" not in error.why.lower() or user == SHUT_OUT[-1]:
                    raise

    def _scontrol(self, *words: str) -> None:
        self.slurm.run("scontrol", *words, env={"TZ": "UTC"})


def occupied(answers: Answers, most: int) -> tuple[dict[str, float], set[str], set[str]]:
    """Nodes of local jobs with the time of the last job's end at the latest; nodes of ours.

    Of the local ones, the last names those that are a job of ours with more nodes than `most`.
    """
    busy: dict[str, float] = {}
    ours: set[str] = set()
    wide: set[str] = set()
    for entry in answers.queue:
        if entry.state in HOLDS_NODES or entry.state == "UNKNOWN":
            if answers.is_ours(entry) and len(entry.nodes) <= most:
                ours.update(entry.nodes)
                continue
            if answers.is_ours(entry):
                wide.update(entry.nodes)
            for name in entry.nodes:
                busy[name] = max(busy.get(name, 0.0), end_of(entry, answers.now))
    return busy, ours, wide
