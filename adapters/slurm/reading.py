"""From Slurm's answers to a reading: pure functions, no commands.

Notes
-----
With one slot for each node, a node that has any local job on it is taken whole, until the last
of its jobs must end. With a slot for each CPU, ``squeue`` tells the CPUs of a job, not those on
each of its nodes: they are spread evenly, then corrected by the CPUs that Slurm says are
allocated on each node, which count the jobs that were not listed too.

A local job occupies its nodes until its time limit; one that is over it, or completing, until
Slurm lets go of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field

from coalloc.adapters.batch.token import parse_comment
from coalloc.adapters.slurm.parsers.records import (
    HOLDS_NODES,
    WAITS,
    NodeRecord,
    PartitionEntry,
    QueueEntry,
    ReservationEntry,
    node_state,
)
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.platform import NodeState
from coalloc.model.shape import Shape
from coalloc.model.sites.site_rules import SiteRules
from coalloc.model.snapshot import Reservation, Running

ENDLESS_S = 365 * 86400.0
"""What Slurm itself takes for the end of a job without a time limit."""
REMEMBERED_WAITS = 12
BUSY = frozenset({"ALLOCATED", "ALLOC", "MIXED", "MIX", "COMPLETING", "COMP"})
KEPT = frozenset({"RESERVED", "RESV", "MAINT", "MAINTENANCE"})
"""States of nodes that jobs, or reservations, have."""


class SlurmFacts(Struct, frozen=True, kw_only=True):
    """Facts of the cluster that a reading finds, and a launcher needs."""

    rules: SiteRules | None = None
    """None: not read yet."""
    memory_by_cpu: Mapping[str, int] = field(default_factory=dict)
    """A fair share of each node's memory, MiB, where a job that names none gets all of it; empty
    where it does not."""

    asked: float = 0.0
    """When the queue was asked for, monotonic seconds."""
    queue: tuple[QueueEntry, ...] | None = None
    """What it answered; None: nothing yet."""

    def memory_of(self, nodes: Iterable[str]) -> int:
        """Memory of each process on these nodes where its user names none, MiB; 0: no say."""
        return min((self.memory_by_cpu.get(name, 0) for name in nodes), default=0)


class Holding(Struct, frozen=True):
    """Nodes of a part of ours, by Slurm's names, with processes, and what these need."""

    nodes: Mapping[str, int]
    shape: Shape
    memory_mb_per_proc: int


class Answers(Struct, frozen=True, kw_only=True):
    """Slurm's answers of one cycle."""

    now: float
    """When it was asked, seconds since 1970."""
    nodes: tuple[NodeRecord, ...]
    queue: tuple[QueueEntry, ...]
    reservations: tuple[ReservationEntry, ...] = ()
    claimed: Collection[str] = field(default_factory=frozenset)
    """Handed jobs that a part of ours has, by id."""
    claims: Collection[str] | None = None
    """The claims of our parts, as tokens name them; None: every token is ours."""
    partitions: tuple[PartitionEntry, ...] = ()
    held: Mapping[str, Holding] = field(default_factory=dict)
    """By our parts, by claim."""
    layouts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Fields of handed jobs that wait, by number, as far as they are known."""

    def holding(self, entry: QueueEntry) -> Holding | None:
        """Nodes of the part of ours whose claim this is; None: it has none, or is none of ours."""
        token = parse_comment(entry.comment) if entry.state in HOLDS_NODES else None
        return None if token is None else self.held.get(token.claim)

    def is_ours(self, entry: QueueEntry) -> bool:
        """Whether a part of ours has this job, submitted or handed over.

        One that bears a token of ours which no part knows is like any other: its nodes are taken.
        """
        if entry.id in self.claimed:
            return True
        token = parse_comment(entry.comment)
        return token is not None and (self.claims is None or token.claim in self.claims)


def chosen_nodes(settings: SlurmSettings, nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """Nodes of the partitions, and of the node set, that the site names.

    Those of the least weight come first, as Slurm takes them: planning takes the first of equals.
    """
    wanted = set(settings.partitions)
    chosen = (
        node
        for node in nodes
        if (not wanted or wanted.intersection(node.partitions))
        and (settings.only is None or node.name in settings.only)
    )
    return sorted(chosen, key=lambda node: node.weight)


def slots_of(settings: SlurmSettings, node: NodeRecord) -> int:
    """Processes that a node takes."""
    return node.cpus if settings.slots == "cpus" else 1


def relative_power(
    settings: SlurmSettings, node: NodeRecord, measured: Mapping[str, float]
) -> float:
    """Speed of a node when nothing else runs on it, (0, 1].

    What the site says of the node, else what a calibration measured, else what the site says
    of its features, else of all nodes.
    """
    if node.name in settings.power_by_node:
        return settings.power_by_node[node.name]
    if node.name in measured:
        return measured[node.name]
    named = [
        settings.power_by_feature[name]
        for name in node.features
        if name in settings.power_by_feature
    ]
    return min(named, default=settings.power)


def states_of(nodes: Iterable[NodeRecord]) -> tuple[dict[str, NodeState], dict[str, int]]:
    """State of each node, and how often each unknown word was said."""
    states: dict[str, NodeState] = {}
    unknown = Counter[str]()
    for node in nodes:
        states[node.name], strange = node_state(node.states)
        unknown.update(f"node state {word}" for word in strange)
    return states, dict(unknown)


def unknown_jobs(queue: Iterable[QueueEntry]) -> dict[str, int]:
    """Number of jobs in a state that is not known to us; they count as running."""
    count = sum(entry.state == "UNKNOWN" for entry in queue)
    return {"job state": count} if count else {}


def running_jobs(
    settings: SlurmSettings, answers: Answers, nodes: Iterable[NodeRecord]
) -> tuple[Running, ...]:
    """Local jobs that have nodes, with the slots they take on each of them."""
    local = [
        entry
        for entry in answers.queue
        if (
            entry.state in HOLDS_NODES
            or (entry.state == "UNKNOWN" and (entry.nodes or entry.is_lost))
        )
        and not answers.is_ours(entry)
    ]
    known = {node.name: node for node in nodes}
    lost = _longest_lost(answers, local)
    if settings.slots == "node":
        taken = _whole_nodes(local, known, answers.now)
    else:
        own = (entry for entry in answers.queue if answers.is_ours(entry))
        ours = [part for entry in own for part in _cpus_of_ours(answers, entry, known)]
        taken = _cpus(local, ours, known, answers.now, lost.id if lost else "")
    if lost is not None:
        for node in _unlisted(answers, known):
            taken.setdefault(lost.id, {})[node.name] = slots_of(settings, node)
    by_id = {entry.id: entry for entry in local}
    jobs = []
    for identity, counts in taken.items():
        entry = by_id.get(identity)
        start = answers.now if entry is None or entry.start is None else entry.start
        end = answers.now if entry is None else end_of(entry, answers.now)
        jobs.append(
            Running(
                id=f"{settings.cluster}:{identity}",
                nodes={settings.published(name): count for name, count in counts.items()},
                start=min(start, answers.now),
                end=max(end, min(start, answers.now)),
                ours=False,
            )
        )
    return tuple(jobs)


def _longest_lost(answers: Answers, local: Iterable[QueueEntry]) -> QueueEntry | None:
    """Of the jobs that have nodes which they do not name, the one that may stay longest."""
    names = {node.name for node in answers.nodes}
    lost = (entry for entry in local if not entry.nodes or not names.issuperset(entry.nodes))
    return max(lost, key=lambda entry: end_of(entry, answers.now), default=None)


def _unlisted(answers: Answers, known: Mapping[str, NodeRecord]) -> Iterator[NodeRecord]:
    """Nodes that Slurm says are in use, and on which no job of the queue is."""
    listed = {name for entry in answers.queue if entry.state != "PENDING" for name in entry.nodes}
    for node in known.values():
        if node.name not in listed and (node.cpus_taken or BUSY.intersection(node.states)):
            yield node


def end_of(entry: QueueEntry, now: float) -> float:
    """Latest end of a running job, seconds."""
    if entry.state == "COMPLETING":
        return now
    if entry.end is not None:
        return entry.end
    start = now if entry.start is None else entry.start
    return start + (ENDLESS_S if entry.time_limit is None else entry.time_limit)


def _whole_nodes(
    local: Iterable[QueueEntry], known: Mapping[str, NodeRecord], now: float
) -> dict[str, dict[str, int]]:
    """One slot for each node, for the job that leaves it last."""
    last: dict[str, QueueEntry] = {}
    for entry in local:
        for name in entry.nodes:
            if name in known and (name not in last or end_of(entry, now) > end_of(last[name], now)):
                last[name] = entry
    taken: dict[str, dict[str, int]] = {}
    for name, entry in last.items():
        taken.setdefault(entry.id, {})[name] = 1
    return taken


def _cpus(
    local: Iterable[QueueEntry],
    ours: Iterable[tuple[str, int]],
    known: Mapping[str, NodeRecord],
    now: float,
    lost: str,
) -> dict[str, dict[str, int]]:
    """CPUs of each job on each node; never more on a node than it has.

    Those that Slurm has given to nothing that was listed are the `lost` job's, if there is one.
    """
    free = {name: node.cpus for name, node in known.items()}
    rest = {name: node.cpus_taken for name, node in known.items()}
    held = Counter[str]()
    for name, count in ours:
        held[name] += count
        if name in rest:
            rest[name] -= count
    taken: dict[str, dict[str, int]] = {}
    # On one node it is known how many they have. Those that stay longest come first: what is cut
    # off is theirs last. What is not understood has all that is left.
    order = sorted(local, key=lambda e: (bool(e.odd), len(e.nodes) > 1, -end_of(e, now)))
    missing = Counter({entry.id: entry.cpus for entry in order})

    def give(job: str, name: str, count: int) -> None:
        if count > 0:
            shares = taken.setdefault(job, {})
            shares[name] = shares.get(name, 0) + count
            missing[job] -= count
            free[name] -= count
            rest[name] -= count

    for entry in order:
        for name, count in spread(entry):
            most = free.get(name, 0) - (held[name] if entry.odd else 0)
            is_known = name in known and known[name].cpus_taken > 0
            most = min(most, rest[name]) if is_known and len(entry.nodes) > 1 else most
            give(entry.id, name, min(count, most))
    # Allocated by Slurm to jobs with uneven shares, or to nothing that was listed.
    for entry in (entry for entry in order if len(entry.nodes) > 1):
        for name in entry.nodes:
            give(entry.id, name, min(rest.get(name, 0), missing[entry.id]))
    for name in known:
        give(lost or f"rest:{name}", name, min(rest[name], free[name]))
    return taken


def _cpus_of_ours(
    answers: Answers, entry: QueueEntry, known: Mapping[str, NodeRecord]
) -> Iterator[tuple[str, int]]:
    """The CPUs of a job of ours on each of its nodes."""
    held = answers.holding(entry)
    if held is None:
        yield from spread(entry)
        return
    for name, procs in held.nodes.items():
        if name in known:
            each = known[name].cpus_per_core
            cpus = -(-procs * max(1, held.shape.cpus_per_proc) // each) * each
            yield name, known[name].cpus if held.shape.exclusive else cpus


def spread(entry: QueueEntry) -> list[tuple[str, int]]:
    """The CPUs of a job on each of its nodes, as far as ``squeue`` tells: evenly."""
    count = len(entry.nodes)
    if not count:
        return []
    low, more = divmod(max(entry.cpus, count), count)
    return [(name, low + (i < more)) for i, name in enumerate(entry.nodes)]


def kept_nodes(
    settings: SlurmSettings,
    answers: Answers,
    nodes: Iterable[NodeRecord],
    ours: str = "",
) -> tuple[Reservation, ...]:
    """Reservations that are not ours; `ours` is the name of the one that we have made."""
    names = {node.name: node for node in nodes}
    every = {node.name for node in answers.nodes}
    listed = {name for entry in answers.reservations for name in entry.nodes}
    unlisted = [n.name for n in names.values() if n.name not in listed and KEPT & {*n.states}]
    found = []
    for entry in answers.reservations:
        kept = entry.nodes
        if not every.issuperset(kept) or (entry.odd and not kept):
            kept = (*kept, *unlisted)  # which nodes it keeps is not understood
        inside = tuple(settings.published(name) for name in kept if name in names)
        is_ours = entry.name != "" and entry.name in {settings.reservation, ours}
        if inside and not is_ours and entry.end > answers.now:
            found.append(
                Reservation(
                    id=f"{settings.cluster}:{entry.name}",
                    nodes=inside,
                    start=entry.start,
                    end=min(entry.end, answers.now + ENDLESS_S) if entry.odd else entry.end,
                )
            )
    return tuple(found)


def expected_nodes(
    settings: SlurmSettings, answers: Answers, nodes: Iterable[NodeRecord]
) -> tuple[Reservation, ...]:
    """Nodes that local pending jobs expect, where the site wants them kept."""
    if settings.pending != "respect":
        return ()
    names = {node.name for node in nodes}
    found = []
    for entry in answers.queue:
        if entry.state != "PENDING" or entry.start is None or answers.is_ours(entry):
            continue
        if is_handed(settings, entry):
            continue
        inside = tuple(settings.published(n) for n in entry.expected_nodes if n in names)
        length = ENDLESS_S if entry.time_limit is None else entry.time_limit
        start = max(entry.start, answers.now)
        if inside and length > 0.0:
            found.append(
                Reservation(
                    id=f"{settings.cluster}:{entry.id}",
                    nodes=inside,
                    start=start,
                    end=start + length,
                )
            )
    return tuple(found)


def is_handed(settings: SlurmSettings, entry: QueueEntry) -> bool:
    """Whether its user wants it ordered by us."""
    if parse_comment(entry.comment) is not None:
        return False
    by_partition = settings.handover_partition and entry.partition == settings.handover_partition
    by_comment = settings.handover_comment and entry.comment == settings.handover_comment
    return bool(by_partition or by_comment)


def local_waiting(settings: SlurmSettings, answers: Answers) -> list[QueueEntry]:
    """Local jobs that wait, and not for us."""
    return [
        entry
        for entry in answers.queue
        if entry.state in WAITS and not answers.is_ours(entry) and not is_handed(settings, entry)
    ]


def local_waits(answers: Answers) -> tuple[tuple[float, int], ...]:
    """Waits of the local jobs that began last, with the number of nodes they run on."""
    begun = sorted(
        (
            (entry.start, entry)
            for entry in answers.queue
            if entry.nodes and not answers.is_ours(entry) and entry.start is not None
        ),
        key=lambda pair: pair[0],
    )
    return tuple(
        (max(0.0, start - entry.submitted), len(entry.nodes))
        for start, entry in begun[-REMEMBERED_WAITS:]
        if entry.submitted is not None
    )


def suspended_parts(answers: Answers) -> tuple[str, ...]:
    """Notices of parts of ours that were suspended in Slurm: the other parts run on."""
    told = []
    for entry in answers.queue:
        if entry.state == "SUSPENDED" and answers.is_ours(entry):
            token = parse_comment(entry.comment)
            whose = f"a part of job {token.job}" if token is not None else "a handed job"
            told.append(f"{whose} is suspended in Slurm, where it is job {entry.id}")
    return tuple(told)
