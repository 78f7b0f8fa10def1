"""From Grid Engine's answers to a reading: pure functions, no commands.

Notes
-----
The nodes are the hosts of one cluster queue. With a slot for each slot of the queue, a local job
takes on a host what ``qstat`` says it takes there. What Grid Engine counts as taken beyond the
jobs that it lists (advance reservations, limits of the host, slots of a moment ago) is an entry
of its own for each host, of unknown end. With one slot for each host, any local job takes all of
it, until the last of them must end.

A local job occupies its slots until its h_rt, or the queue's; one that has neither, for a year.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from coalloc.adapters.batch.node_load import MeasuredNode
from coalloc.adapters.batch.token import claim_in_name
from coalloc.adapters.gridengine.parse_xml import (
    MIB,
    MOST_SLOTS,
    CellStatus,
    JobEntry,
    QueueInstance,
    parse_size_mb,
)
from coalloc.adapters.gridengine.settings import GridEngineSettings
from coalloc.model.platform import NodeState
from coalloc.model.sites.reading import NodeReading
from coalloc.model.snapshot import Running

ENDLESS_S = 365 * 86400.0
MEMORY, EXCLUSIVE = "memory", "exclusive"
"""Meanings of complexes that are no counted resources."""
STATES = {
    "u": (NodeState.DOWN, "execd is out of reach"),
    "E": (NodeState.DOWN, "the queue is in error"),
    "c": (NodeState.DOWN, "the queue's configuration is ambiguous"),
    "o": (NodeState.DOWN, "the queue is orphaned"),
    "d": (NodeState.DRAINING, "disabled"),
    "D": (NodeState.DRAINING, "disabled by its calendar"),
    "s": (NodeState.DRAINING, "suspended"),
    "S": (NodeState.DRAINING, "suspended by another queue"),
    "C": (NodeState.DRAINING, "suspended by its calendar"),
    "A": (NodeState.DRAINING, "suspended by its load"),
    "a": (NodeState.DRAINING, "its load is over the threshold"),
}
"""Letters of a queue instance's state, the worst first, and what they mean for new work."""


def chosen_queues(settings: GridEngineSettings, status: CellStatus) -> list[QueueInstance]:
    """The instances of the site's queue on the site's hosts."""
    return [
        entry
        for entry in status.queues
        if entry.queue == settings.queue
        and entry.slots > 0
        and (settings.only is None or entry.host in settings.only)
    ]


def sized(settings: GridEngineSettings, entry: QueueInstance) -> NodeReading:
    """A host as shapes see it: of what it counts it has what is left, and what its jobs have."""
    is_whole = settings.slots == "node"
    held = [counted(settings, job.requests, job.slots % MOST_SLOTS) for job in entry.jobs]
    left = counted(settings, entry.said, 1)
    size = {name: n + sum(each.get(name, 0) for each in held) for name, n in left.items()}
    return NodeReading(
        name=settings.published(entry.host),
        slots=1 if is_whole else entry.slots,
        cpus=entry.cpus or entry.slots if is_whole else None,
        memory_mb=size.pop(MEMORY, entry.memory_mb),
        resources=size,
    )


def counted(settings: GridEngineSettings, said: Mapping[str, str], slots: int) -> dict[str, int]:
    """Counted resources of so many slots, and memory in MiB, by values of complexes."""
    return {
        name: size * slots
        for name, key in settings.complexes.items()
        if name != EXCLUSIVE
        if (size := parse_size_mb(said.get(key, ""), MIB if name == MEMORY else 1.0)) is not None
    }


def state_of(letters: str) -> tuple[NodeState, str, str]:
    """State of a queue instance, its reason, and the letters that are not known."""
    strange = "".join(letter for letter in letters if letter not in STATES)
    for letter, (state, reason) in STATES.items():
        if letter in letters:
            return state, reason, strange
    return (NodeState.DRAINING, f"state {strange}", strange) if strange else (NodeState.UP, "", "")


def relative_power(settings: GridEngineSettings, host: str) -> float:
    """Speed of a host when nothing else runs on it, (0, 1]."""
    return settings.power_by_node.get(host, settings.power)


def measured(entries: Iterable[QueueInstance], status: CellStatus) -> list[MeasuredNode]:
    """Hosts of these instances, and the slots that jobs of any queue have there."""
    used = Counter[str]()
    for each in status.queues:
        used[each.host] += each.used
    return [
        MeasuredNode(
            name=entry.host,
            cpu_load=entry.load,
            cpus=max(1, entry.cpus or entry.slots),
            cpus_taken=used[entry.host],
        )
        for entry in entries
    ]


def is_ours(entry: JobEntry, claims: Collection[str] | None) -> bool:
    """Whether a part of ours has this job; a token that no part knows makes it like any other."""
    claim = claim_in_name(entry.name)
    return bool(claim) and (claims is None or claim in claims)


def running_jobs(
    settings: GridEngineSettings,
    entries: Iterable[QueueInstance],
    now: float,
    claims: Collection[str] | None,
) -> tuple[Running, ...]:
    """Local jobs on these queue instances, with the slots that they take on each host."""
    taken: dict[str, dict[str, int]] = {}
    held: dict[str, dict[str, dict[str, int]]] = {}
    spans: dict[str, tuple[float, float]] = {}
    for entry in entries:
        local = [job for job in entry.jobs if not is_ours(job, claims)]
        ours = sum(job.slots for job in entry.jobs if is_ours(job, claims))
        if settings.slots == "node":
            counts = _whole(entry, local, bool(ours), now)
        else:
            counts = _counted(entry, local, ours, now)
        asked = {job.id: counted(settings, job.requests, job.slots % MOST_SLOTS) for job in local}
        host = settings.published(entry.host)
        for name, count, start, end in counts:
            taken.setdefault(name, {})[host] = count
            held.setdefault(name, {})[host] = asked.get(name, {})
            first, last = spans.get(name, (start, end))
            spans[name] = min(first, start), max(last, end)
    return tuple(
        Running(
            id=f"{settings.cluster}:{name}",
            nodes=nodes,
            start=spans[name][0],
            end=spans[name][1],
            ours=False,
            memory_mb={host: own.pop(MEMORY) for host, own in held[name].items() if MEMORY in own},
            resources={host: own for host, own in held[name].items() if own},
        )
        for name, nodes in taken.items()
    )


Share = tuple[str, int, float, float]
"""Of a job on a host: its id, slots, start and end."""


def _counted(entry: QueueInstance, local: list[JobEntry], ours: int, now: float) -> list[Share]:
    """Slots of each local job; never more than the instance has."""
    free, shares = entry.slots, []
    # A job whose slots are not understood has all that are left.
    for job in sorted(local, key=lambda j: (j.slots == MOST_SLOTS, -span_of(j, entry, now)[1])):
        count = min(job.slots, free - ours if job.slots == MOST_SLOTS else free)
        if count > 0:
            shares.append((job.id, count, *span_of(job, entry, now)))
            free -= count
    rest = min(_taken(entry) - ours - (entry.slots - free), free)
    if rest > 0:
        shares.append((f"rest:{entry.host}", rest, now, now))
    return shares


def _whole(entry: QueueInstance, local: list[JobEntry], is_held: bool, now: float) -> list[Share]:
    """The host, for the local job that leaves it last."""
    if local:
        last = max(local, key=lambda job: span_of(job, entry, now)[1])
        return [(last.id, 1, *span_of(last, entry, now))]
    if _taken(entry) and not is_held:
        return [(f"rest:{entry.host}", 1, now, now)]
    return []


def _taken(entry: QueueInstance) -> int:
    """Slots that no further job can have."""
    taken = entry.used + entry.reserved
    if entry.available is not None and not entry.state:
        taken = max(taken, entry.slots - entry.available)
    return min(taken, entry.slots)


def span_of(job: JobEntry, entry: QueueInstance, now: float) -> tuple[float, float]:
    """Start of a running job, and the time at which it must have ended, seconds."""
    start = now if job.start is None else min(job.start, now)
    if "d" in job.state:
        return start, now
    limits = [limit for limit in (job.time_limit, entry.time_limit) if limit is not None]
    return start, start + min(limits, default=ENDLESS_S)


def waiting_count(status: CellStatus, claims: Collection[str] | None) -> int:
    """Local jobs that wait, each task of an array counted."""
    return sum(entry.count for entry in status.waiting if not is_ours(entry, claims))
